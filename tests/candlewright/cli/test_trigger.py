"""`candlewright trigger` against a small relay: outputs, exit codes, what goes to which stream."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from candlewright.cli.app import app
from candlewright.cli.trigger import lines_of, plain
from candlewright.client import TriggerEvent
from candlewright.wire import ingestor_pb2 as ing
from tests.candlewright.client.trigger_relay import INVALID, START, TICKER, TriggerRelay, event, in_settings

Run = Callable[..., Result]
SQL = "price > :limit"


@pytest.fixture
def relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TriggerRelay]:
    with in_settings(tmp_path, monkeypatch) as relay:
        yield relay


@pytest.fixture
def run(relay: TriggerRelay) -> Run:
    return lambda *arguments: CliRunner().invoke(app, ["trigger", *map(str, arguments)])


def test_add_reports_the_registered_trigger(run: Run, relay: TriggerRelay) -> None:
    relay.warnings = "state is unbounded"
    given = ("--sql", SQL, "--ticker", TICKER, "--ticker", "ETH/USDT.BINANCE", "--param", "limit=7", "--callback", "me")
    result = run("add", *given, "--id", "mine")
    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        "REGISTERED mine\n",
        "warning: state is unbounded\n",
    )
    assert relay.triggers["mine"] == ing.CEPTriggerRequest(
        trigger_id="mine",
        sql_pattern=SQL,
        tickers=[TICKER, "ETH/USDT.BINANCE"],
        parameters={"limit": "7"},
        callback_id="me",
    )
    result = run("add", *given, "--id", "mine", "--output", "json")
    assert json.loads(result.stdout) == {"trigger_id": "mine", "status": "ALREADY_REGISTERED", "warnings": []}


def test_another_trigger_is_replaced_only_on_demand_and_parameters_are_shown(run: Run, relay: TriggerRelay) -> None:
    run("add", "--sql", SQL, "--param", "limit=7", "--id", "mine")
    assert "parameters  limit=7" in run("show", "mine").stdout
    refused = run("add", "--sql", SQL, "--param", "limit=8", "--id", "mine")
    assert refused.exit_code != 0
    assert dict(relay.triggers["mine"].parameters) == {"limit": "7"}
    assert run("add", "--sql", SQL, "--param", "limit=8", "--id", "mine", "--replace").exit_code == 0
    assert dict(relay.triggers["mine"].parameters) == {"limit": "8"}


def test_show_reports_the_cost_of_a_trigger(run: Run, relay: TriggerRelay) -> None:
    run("add", "--sql", SQL, "--id", "mine")
    assert "cost" not in run("show", "mine").stdout
    relay.costs = 2, 3_000, 45_678
    assert "cost        2 partitions, 3,000 bytes of state, 45,678 steps so far" in run("show", "mine").stdout
    shown = json.loads(run("show", "mine", "--output", "json").stdout)
    assert (shown["partitions"], shown["state_bytes"], shown["steps"]) == (2, 3_000, 45_678)
    relay.slow = 1_234, 2_500_000_000, 6_700_000
    assert "slow        1,234 rows wait, 2.5 s behind; a row takes 6.7 ms" in run("show", "mine").stdout


def test_add_reads_a_file_and_makes_an_id(run: Run, relay: TriggerRelay, tmp_path: Path) -> None:
    (tmp_path / "t.sql").write_text("price\n> 1")
    row = json.loads(run("add", "--file", tmp_path / "t.sql", "--output", "json").stdout)
    assert relay.triggers[row["trigger_id"]].sql_pattern == "price\n> 1"
    assert row["warnings"] == []


def test_a_refused_text_is_one_line_on_stderr_and_exit_code_1(run: Run) -> None:
    result = run("add", "--sql", "SELECT pric FROM ticks", "--output", "json")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", INVALID + "\n")


@pytest.mark.processes
def test_on_a_terminal_a_refused_text_shows_its_place(relay: TriggerRelay) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "candlewright", "trigger", "add", "--sql", "SELECT pric FROM ticks"]
    done = subprocess.run(command, stderr=theirs, stdout=subprocess.PIPE, timeout=60, check=False)
    os.close(theirs)
    told = os.read(ours, 10_000).decode().splitlines()
    os.close(ours)
    assert (done.returncode, done.stdout) == (1, b"")
    assert told == [INVALID, "  SELECT pric FROM ticks", "         ^"]


@pytest.mark.processes
def test_a_refusal_of_the_platform_is_exit_code_1(relay: TriggerRelay) -> None:
    relay.refusal = "no room"
    command = [sys.executable, "-m", "candlewright", "trigger", "add", "--sql", SQL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "candlewright: ERROR: no room\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("add",),
        ("add", "--sql", "x", "--file", "y"),
        ("add", "--file", "nowhere.sql"),
        ("add", "--sql", "x", "--ticker", "BTC"),
        ("add", "--sql", "x", "--param", "novalue"),
        ("add", "--sql", "x", "--count", "0"),
        ("show",),
        ("remove",),
        ("events",),
        ("events", "t", "--timeout", "0"),
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, relay: TriggerRelay, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert relay.seen == []


def test_add_with_count_shows_events_until_then(run: Run, relay: TriggerRelay) -> None:
    relay.on_register, relay.is_unseen = 3, True
    result = run("add", "--sql", SQL, "--id", "mine", "--count", "2", "--output", "json")
    assert result.exit_code == 0
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["event_id"] for row in rows] == ["e1", "e2"]
    assert "REGISTERED mine" in result.stderr


def test_list_show_and_remove(run: Run, relay: TriggerRelay) -> None:
    assert run("list").stderr == "no trigger is registered\n"
    run("add", "--sql", "-- high\nprice >\n  70000", "--id", "b", "--ticker", TICKER)
    run("add", "--sql", "size > 1 AND " * 20 + "size > 2", "--id", "a")
    relay.fire("b", 2)
    rows = [json.loads(line) for line in run("list", "--output", "json").stdout.splitlines()]
    assert [(row["trigger_id"], row["state"], row["events"]) for row in rows] == [
        ("a", "active", 0),
        ("b", "active", 2),
    ]
    assert rows[1]["sql"] == "-- high\nprice >\n  70000"
    table = run("list").stdout
    assert "| price > 70000 " in table
    assert "(all)" in table
    assert "2024-01-01T00:00:00Z" in table
    assert max(map(len, table.splitlines())) < 200
    shown = run("show", "b").stdout
    assert TICKER in shown
    assert "price >\n  70000" in shown
    assert json.loads(run("show", "b", "--output", "json").stdout) == rows[1]
    assert (run("remove", "b").stdout, run("remove", "a", "--output", "json").exit_code) == ("REMOVED b\n", 0)
    assert relay.triggers == {}
    for command in ("show", "remove", "events"):
        result = run(command, "b2")
        assert result.exit_code == 1
        assert "no trigger b2 " in str(result.exception)


def test_events_that_are_kept_are_shown_and_it_ends(run: Run, relay: TriggerRelay) -> None:
    run("add", "--sql", SQL, "--id", "mine")
    result = run("events", "mine")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "has not fired yet" in result.stderr
    relay.fire("mine", 3)
    lines = run("events", "mine").stdout.splitlines()
    assert lines[0] == (
        "2024-01-01T00:00:00.000000001Z mine #1 BTC/USDT.BINANCE price=70001.5 "
        "seen_at=2024-01-01T00:00:00.000000001Z note=NULL"
    )
    assert len(lines) == 3
    (row,) = map(json.loads, run("events", "mine", "--count", "1", "--output", "json").stdout.splitlines())
    assert row == {
        "trigger_id": "mine",
        "event_id": "e1",
        "ticker": TICKER,
        "time": START + 1,
        "match_number": 1,
        "rows": [{"price": 70_001.5, "seen_at": START + 1, "note": None}],
        "context": {"event_id": "e1", "ticker": TICKER, "match_number": "1", "sequence": "1"},
        "sequence": 1,
    }


def test_the_hops_of_an_event_are_shown_on_request(run: Run, relay: TriggerRelay) -> None:
    run("add", "--sql", SQL, "--id", "mine")
    relay.trades = 1
    relay.fire("mine", 2)
    lines = run("events", "mine", "--hops").stdout.splitlines()
    assert lines[1] == "    exchange → 0.0 ms → ingestor → 1.0 ms → bus → 0.0 ms → event"
    # The second trade is not kept.
    assert lines[3] == "    its timing was not kept"
    (row,) = map(json.loads, run("events", "mine", "--count", "1", "--hops", "--output", "json").stdout.splitlines())
    on_bus = START + 1_000_000
    assert row["hops"] == {
        "exchange": START + 1,
        "ingestor": START + 1_001,
        "bus": on_bus,
        "event": on_bus,
        "here": None,
    }


@pytest.mark.processes
def test_waiting_for_events_of_a_suspended_trigger_reports_the_reason(relay: TriggerRelay) -> None:
    relay.on_register, relay.is_unseen, relay.suspends = 2, True, "a ticker has 9 rows, 8 are allowed"
    command = [sys.executable, "-m", "candlewright", "trigger", "add", "--sql", SQL, "--id", "mine", "--follow"]
    done = subprocess.run([*command, "--output", "json"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert [json.loads(line)["sequence"] for line in done.stdout.splitlines()] == [1, 2]
    assert done.stderr.splitlines()[-1] == f"candlewright: trigger mine is suspended: {relay.suspends}"


def test_list_show_and_events_say_that_a_trigger_is_suspended(run: Run, relay: TriggerRelay) -> None:
    relay.suspends = "too slow"
    run("add", "--sql", SQL, "--id", "mine")
    for command in (("list",), ("show", "mine")):
        assert "suspended: too slow" in run(*command).stdout
    (row,) = map(json.loads, run("list", "--output", "json").stdout.splitlines())
    assert (row["state"], row["reason"]) == ("suspended", "too slow")
    assert run("events", "mine").stderr == "trigger mine has not fired yet; it is suspended: too slow\n"


def test_events_of_a_removed_trigger_are_still_there(run: Run, relay: TriggerRelay) -> None:
    relay.fire("gone")
    assert len(run("events", "gone").stdout.splitlines()) == 1


def test_events_end_after_quiet_time_and_say_when_too_few_came(run: Run, relay: TriggerRelay) -> None:
    relay.fire("mine", 2)
    few = run("events", "mine", "--count", "3", "--timeout", "0.3")
    assert (few.exit_code, len(few.stdout.splitlines())) == (1, 2)
    assert few.stderr == "2 of 3 events came before 0.3 s passed without one\n"
    assert run("events", "mine", "--timeout", "0.3").exit_code == 0


def test_notes_and_several_rows_are_shown() -> None:
    message = event("t", 1)
    message.rows.append(message.rows[0])
    message.context["deadman"] = "true"
    message.context["match_number"] = ""
    lines = lines_of(TriggerEvent.from_message(message))
    assert len(lines) == 2
    assert lines[0].endswith("note=NULL (deadman)")
    assert "#" not in lines[0]


def test_json_has_text_where_it_has_no_number() -> None:
    message = event("t", 1)
    message.rows[0].values[0] = ing.FieldValue(double_val=float("inf")).SerializeToString()
    assert plain(TriggerEvent.from_message(message))["rows"][0]["price"] == "inf"


def test_every_command_has_an_example(run: Run) -> None:
    for command in ("add", "list", "show", "remove", "events", "try"):
        assert "Example: candlewright trigger " + command in run(command, "--help").stdout
