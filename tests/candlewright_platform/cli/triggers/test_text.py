"""`trigger check` and `trigger format`: a text, for people and for programs."""

import json
from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from candlewright.cli.app import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["trigger", "check", *arguments])


def test_all_errors_come_together_with_the_corrected_text() -> None:
    sql = "SELECT prise FROM ticks WHERE sise > :limit"
    found = run("--sql", sql, "--param", "limit=2", "--output", "json")
    assert found.exit_code == 1
    told = json.loads(found.stdout)
    assert (told["ok"], told["line"], told["column"], told["hint"]) == (False, 1, 8, "did you mean 'price'?")
    assert [(each["line"], each["column"]) for each in told["errors"]] == [(1, 8), (1, 31)]
    assert told["mended"] == "SELECT price FROM ticks WHERE size > :limit"
    shown = run("--sql", sql, "--param", "limit=2")
    assert shown.stderr.splitlines()[1] == "INVALID_SQL 1:31: unknown column 'sise' (did you mean 'size'?)"
    assert shown.stdout == told["mended"] + "\n"


def test_a_sound_text_has_its_warnings() -> None:
    found = run("--sql", "price > 5 AND price < 3", "--param", "limit=1", "--output", "json")
    assert found.exit_code == 0
    told = json.loads(found.stdout)
    assert (told["ok"], told["errors"], told["mended"]) == (True, [], None)
    assert [warning[:30] for warning in told["warnings"]] == [
        "the condition is never true: i",
        "nothing uses the parameter lim",
    ]
    assert "the text may be registered" in run("--sql", "price > 5").stderr


def test_a_text_is_printed_checked_and_written_in_its_layout(tmp_path: Path) -> None:
    def reformat(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["trigger", "format", *arguments])

    file = tmp_path / "dip.sql"
    file.write_text("select price from ticks -- all\nwhere price>1")
    wanted = "SELECT price\nFROM ticks  -- all\nWHERE price > 1\n"
    assert reformat("--file", str(file)).stdout == wanted
    assert reformat("--file", str(file), "--check").exit_code == 1
    assert reformat("--file", str(file), "--in-place").stdout == ""
    assert file.read_text() == wanted
    assert reformat("--file", str(file), "--check").exit_code == 0
    refused = reformat("--sql", "price > 'x")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("INVALID_SQL 1:9: ")
    assert reformat("--sql", "price > 1", "--in-place").exit_code == 2


def test_the_language_is_shown_whole_or_by_name() -> None:
    shown = CliRunner().invoke(app, ["trigger", "language", "group  by"])
    assert shown.exit_code == 0 and shown.stdout.startswith("GROUP BY columns\n")
    one = json.loads(CliRunner().invoke(app, ["trigger", "language", "rsi", "--output", "json"]).stdout)
    assert one["signature"] == "RSI(x, n)" and one["nulls"].startswith("NULL while it warms up")
    whole = json.loads(CliRunner().invoke(app, ["trigger", "language", "--output", "json"]).stdout)
    assert {"functions", "forms", "keywords", "types", "parameters", "views", "tables"} == whole.keys()
    view = CliRunner().invoke(app, ["trigger", "language", "three_outside"])
    assert view.stdout.startswith("three_outside\n    the bars with this pattern: ")
    unknown = CliRunner().invoke(app, ["trigger", "language", "rsy"])
    assert unknown.exit_code == 1 and "did you mean 'RSI'?" in unknown.stderr


def test_a_text_is_an_argument_or_an_option() -> None:
    assert run("price > 1").exit_code == run("--sql", "price > 1").exit_code == 0
    both = run("price > 1", "--sql", "price > 1")
    assert (both.exit_code, "give the text once" in both.stderr) == (2, True)


def test_columns_of_bars_in_a_text_over_trades_get_the_way_to_bars() -> None:
    assert "unknown column 'open' (a column of bars: give the parameter period_seconds" in run("high > open").stderr
    assert run("high > open", "--param", "period_seconds=60").exit_code == 0
    both = run("close > 5 AND trade_count / 2 > 3").stderr
    assert both.count("a column of bars") == 2
    assert "did you mean" not in both and "corrected" not in both
