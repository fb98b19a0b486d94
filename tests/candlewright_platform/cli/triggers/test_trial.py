"""`trigger try`: exact output, exit codes, many cases in one process."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from candlewright.cli.app import app
from candlewright_cep.engine import evaluate_named
from tests.candlewright_cep.constructs import bars, of_functions, of_one_row, of_patterns, of_the_grammar
from tests.candlewright_cep.constructs import ticks as trades
from tests.candlewright_cep.test_conformance import ROWS

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


def test_a_decimal_is_a_number_with_all_its_digits(run: Run, ticks: Path) -> None:
    sql = (
        "SELECT CAST('0.10000000000000000001' AS DECIMAL(38, 20)) AS x, "
        "ARRAY_AGG(CAST(price AS DECIMAL(4, 2))) AS y FROM ticks"
    )
    result = run("--sql", sql, "--input", ticks, "--table", "ticks", "--output", "json")
    assert result.stdout == '{"x": 0.10000000000000000001, "y": [1.50, 2.50, 3.50]}\n'


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


def test_several_inputs_answer_to_their_names(run: Run, ticks: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"sym": ["A", "B"], "close": [2.0, 4.0]}), tmp_path / "bars.parquet")
    sql = "SELECT t.sym, t.price - o.close AS above FROM ticks t JOIN ohlc o ON t.sym = o.sym"
    inputs = ("--input", f"ticks={ticks}", "--input", f"ohlc={tmp_path / 'bars.parquet'}")
    found = run("--sql", sql, *inputs, "--output", "json")
    assert [json.loads(line)["above"] for line in found.stdout.splitlines()] == [-0.5, 0.5, -0.5]
    bare = run("--sql", "close > 3", *inputs, "--param", "period_seconds=60", "--output", "json")
    assert [json.loads(line)["sym"] for line in bare.stdout.splitlines()] == ["B"]
    case = {"name": "n", "sql": sql, "input": {"ticks": str(ticks), "ohlc": str(tmp_path / "bars.parquet")}}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case))
    assert len(json.loads(run("--batch", tmp_path / "cases.jsonl").stdout)["rows"]) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--sql", "price > 1"),
        ("--sql", "price > 1", "--file", "x", "--input", "y"),
        ("--sql", "price > 1", "--input", "y", "--param", "novalue"),
        ("--batch", "/nowhere.jsonl"),
        ("--sql", "price > 1", "--input", "x", "--input", "y"),
        ("--sql", "price > 1", "--input", "ticks=x", "--input", "Ticks=y"),
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


def test_batch_writes_times_intervals_dates_and_arrays_as_text(run: Run, ticks: Path, tmp_path: Path) -> None:
    texts = {
        "interval": "SELECT MAX(ts) - MIN(ts) AS a, MIN(ts) - MAX(ts), INTERVAL '1' DAY + INTERVAL '30' SECOND "
        "FROM ticks",
        "date": "SELECT CAST(ts AS DATE) AS d FROM ticks WHERE sym = 'B'",
        "array": "SELECT ARRAY_AGG(ts) AS a, ARRAY_AGG(vol) AS b FROM ticks WHERE price < 3",
        "names": "SELECT a.sym, b.sym FROM ticks AS a JOIN ticks AS b ON a.ts = b.ts WHERE a.sym = 'B'",
        "line separator": "SELECT 'x\u2028y' AS s FROM ticks WHERE sym = 'B'",
    }
    batch = tmp_path / "cases.jsonl"
    lines = [json.dumps({"name": k, "sql": v, "input": str(ticks)}, ensure_ascii=False) for k, v in texts.items()]
    batch.write_text("\n".join(lines))
    result = run("--batch", batch)
    assert {answer["name"]: answer["rows"] for answer in map(json.loads, result.stdout.strip().split("\n"))} == {
        "interval": [["0 00:00:01.500", "-0 00:00:01.500", "1 00:00:30.000"]],
        "date": [["2024-01-01"]],
        "array": [[["2024-01-01T00:00:00.000", "2024-01-01T00:00:00.001"], [1, None]]],
        "names": [["B", "B"]],
        "line separator": [["x\u2028y"]],
    }


def test_batch_continues_after_a_case_that_fails_unexpectedly(
    run: Run, ticks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(sql: str, *_more: object, **_named: object) -> pa.Table:
        if sql == "bad":
            raise ZeroDivisionError("by\nhand")
        return pa.table({"x": [1]})

    monkeypatch.setattr("candlewright_platform.cli.triggers.trial.evaluate_named", evaluate)
    batch = tmp_path / "cases.jsonl"
    batch.write_text("".join(json.dumps({"name": s, "sql": s, "input": str(ticks)}) + "\n" for s in ("bad", "good")))
    bad, good = map(json.loads, run("--batch", batch).stdout.splitlines())
    assert bad == {"name": "bad", "error": "internal error: ZeroDivisionError: by hand"}
    assert good["rows"] == [[1]]


def test_warnings_of_a_text_that_runs_are_on_stderr(run: Run, tmp_path: Path) -> None:
    """A join on the open time looks ahead: the bar is not closed yet."""
    times = pa.array([0, 60 * 10**9], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"ticker": ["A", "A"], "ts": times, "price": [1.0, 2.0]}), tmp_path / "t.parquet")
    bars = {"ticker": ["A", "A"], "open_time": times, "period_seconds": [60, 60], "close": [1.0, 2.0]}
    pq.write_table(pa.table(bars), tmp_path / "o.parquet")
    sql = (
        "SELECT t.price, o.close FROM ticks t ASOF JOIN ohlc o ON t.ticker = o.ticker AND t.ts >= o.{} "
        "WHERE o.period_seconds = 60"
    )
    inputs = ("--input", f"ticks={tmp_path / 't.parquet'}", "--input", f"ohlc={tmp_path / 'o.parquet'}")
    ahead, closed = (
        run("--sql", sql.format(name), *inputs, "--output", "json") for name in ("open_time", "close_time")
    )
    assert len(ahead.stdout.splitlines()) == 2
    (line,) = ahead.stderr.splitlines()
    assert line.startswith("warning: ") and "open_time" in line
    assert (closed.exit_code, closed.stderr) == (0, "")


def test_each_construct_gives_the_rows_of_the_library(run: Run, tmp_path: Path) -> None:
    tables = {"ticks": trades(), "ohlc": bars(), "r": ROWS}
    files = {name: str(tmp_path / f"{name}.parquet") for name in tables}
    for name, table in tables.items():
        pq.write_table(table, files[name])
    constructs = [*of_the_grammar(), *of_functions(), *of_patterns(), *of_one_row()]
    batch = tmp_path / "cases.jsonl"
    batch.write_text(
        "\n".join(json.dumps({"name": each.name, "sql": each.text, "input": files}) for each in constructs)
    )
    answers = [json.loads(line) for line in run("--batch", batch).stdout.splitlines()]
    for answer, construct in zip(answers, constructs, strict=True):
        found = evaluate_named(construct.text, tables)
        assert answer == {"name": construct.name, "columns": found.column_names, "rows": as_json(found)}


def as_json(table: pa.Table) -> list[list[Any]]:
    columns = [
        [value and value.replace(" ", "T") for value in column.cast(pa.string()).to_pylist()]
        if pa.types.is_timestamp(column.type)
        else [float(value) if isinstance(value, Decimal) else value for value in column.to_pylist()]
        for column in table.columns
    ]
    return [list(row) for row in zip(*columns, strict=True)]
