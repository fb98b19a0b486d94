"""`trigger try`: exact output, exit codes, many cases in one process."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from candlewright.cli.app import app

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    return lambda *arguments: CliRunner().invoke(app, ["trigger", "try", *map(str, arguments)])


@pytest.fixture
def ticks(tmp_path: Path) -> Path:
    table = pa.table(
        {
            "sym": ["A", "A", "B"],
            "ts": pa.array([1_704_067_200_000, 1_704_067_200_001, 1_704_067_201_500], pa.timestamp("ms")),
            "price": [1.5, 2.5, 3.5],
            "vol": pa.array([1, None, 3], pa.int64()),
        }
    )
    pq.write_table(table, tmp_path / "ticks.parquet")
    return tmp_path / "ticks.parquet"


def test_json_has_columns_in_order_and_the_inputs_precision(run: Run, ticks: Path) -> None:
    sql = "SELECT ts, vol, sym FROM ticks WHERE price > 2"
    result = run("--sql", sql, "--input", ticks, "--table", "ticks", "--output", "json")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        '{"ts": "2024-01-01T00:00:00.001", "vol": null, "sym": "A"}',
        '{"ts": "2024-01-01T00:00:01.500", "vol": 3, "sym": "B"}',
    ]


def test_parameters_are_typed_values(run: Run, ticks: Path, tmp_path: Path) -> None:
    text = tmp_path / "f.sql"
    text.write_text("SELECT sym FROM ticks WHERE price > :least")
    result = run("--file", text, "--input", ticks, "--param", "least=3", "--output", "json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [{"sym": "B"}]


def test_a_refused_text_is_one_line_on_stderr_and_exit_code_1(run: Run, ticks: Path) -> None:
    result = run("--sql", "SELECT nosuch FROM ticks", "--input", ticks, "--output", "json")
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("INVALID_SQL 1:8: ")


def test_the_table_may_have_any_name(run: Run, ticks: Path) -> None:
    result = run("--sql", "SELECT sym FROM quotes", "--input", ticks, "--table", "quotes", "--output", "json")
    assert len(result.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--sql", "price > 1"),
        ("--sql", "price > 1", "--file", "x", "--input", "y"),
        ("--sql", "price > 1", "--input", "y", "--param", "novalue"),
        ("--batch", "/nowhere.jsonl"),
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_batch_answers_each_line_in_order(run: Run, ticks: Path, tmp_path: Path) -> None:
    cases = [
        {"name": "good", "sql": "SELECT sym, ts FROM ticks WHERE price < 2", "input": str(ticks), "table": "ticks"},
        {"name": "bad", "sql": "SELEC", "input": str(ticks), "table": "ticks"},
        {"name": "gone", "sql": "SELECT sym FROM ticks", "input": str(tmp_path / "no.parquet"), "table": "ticks"},
    ]
    batch = tmp_path / "cases.jsonl"
    batch.write_text("".join(json.dumps(case) + "\n" for case in cases) + "nonsense\n")
    result = run("--batch", batch, "--output", "json")
    assert result.exit_code == 0
    good, bad, gone, nonsense = map(json.loads, result.stdout.splitlines())
    assert good == {"name": "good", "columns": ["sym", "ts"], "rows": [["A", "2024-01-01T00:00:00.000"]]}
    assert bad["name"] == "bad"
    assert bad["error"].startswith("INVALID_SQL 1:")
    assert "no.parquet" in gone["error"]
    assert nonsense["name"] is None
