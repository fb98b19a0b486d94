"""The command line: usage errors, outputs, exit codes."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from bus.redis.redis_bus import RedisBus
from candlewright.cli import output as cli_output
from candlewright.cli import requests as request_commands
from candlewright.cli import status as platform_status
from candlewright.cli.app import app
from candlewright.cli.output import FileOutput, Output, fitting, print_arrow, print_table
from candlewright.client import Client, PlatformUnreachable, RowsUnavailable
from candlewright.client.history.history import History
from candlewright.client.records import Market, Notification, Outcome, Range, RequestState, Snapshot, Venue
from candlewright.settings import ClientConfig
from candlewright.version import VERSION
from candlewright.wire.errors import BusRefusing
from candlewright_platform.cli.machine import bench as bench_command
from core.http import Status, StatusServer
from tests.conftest import ROOT
from tests.fresh_bus import FreshBus

Run = Callable[..., Result]
START = 1_704_067_200
FINAL = Notification(
    request_id="r",
    ticker="BTC/USDT.BINANCE",
    period_seconds=60,
    start=START * 10**9,
    end=(START + 180) * 10**9,
    status=Outcome.OK,
    error_message="",
    table="m",
    row_count=3,
    completed_at=0,
)


def candles() -> pa.Table:
    return pa.table(
        {
            "ticker": ["BTC/USDT.BINANCE"] * 3,
            "open_time": pa.array([(START + 60 * n) * 10**6 for n in range(3)], pa.timestamp("us", tz="UTC")),
            "open": [1.0, 2.0, 3.0],
            "high": [2.0, 3.0, 4.0],
            "low": [0.5, 1.5, 2.5],
            "close": [1.5, 2.5, 2.75],
            "volume": [10.0, 20.0, 30.0],
            "trade_count": pa.array([1, None, 3], pa.int64()),
        }
    )


class FakeClient:
    """A platform with one venue and three candles."""

    is_interrupted = False
    closed_until: int | None = None

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def new_request_id(self) -> str:
        return "r"

    def cancel(self, request_id: str) -> RequestState:
        return self.state(request_id)

    def history(self, ticker: str, period: int, **options: object) -> History:
        self.asked = (ticker, period, options)
        if self.is_interrupted:
            raise KeyboardInterrupt
        holes = ((60 * 10**9, 120 * 10**9),)
        return History(table=candles(), notification=FINAL, holes=holes, closed_until=self.closed_until)

    def venues(self) -> list[Venue]:
        return [Venue("BINANCE", (60, 3600), 2, 0, True, START * 10**9)]

    def markets(self, venue: str) -> list[Market]:
        return [Market(f"BTC/USDT.{venue}", "BTC/USDT", "BTCUSDT", True)]

    def snapshot(self, ticker: str) -> Snapshot:
        return Snapshot(
            ticker=ticker,
            exchange_time=START * 10**9,
            received_at=START * 10**9,
            last=1.0,
            bid=None,
            ask=2.0,
            bid_size=None,
            ask_size=None,
            volume_24h=None,
            sequence=7,
        )

    def state(self, request_id: str) -> RequestState:
        state = "done" if request_id == "r" else "unknown"
        return RequestState(
            request_id=request_id,
            state=state,
            done_candles=3,
            expected_candles=3,
            notification=FINAL if state == "done" else None,
        )


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    client = FakeClient()
    monkeypatch.setattr(request_commands, "connect", lambda **_: client)
    return client


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    for name in ("CANDLEWRIGHT_CONFIG", "CANDLEWRIGHT_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments: CliRunner().invoke(app, arguments)


RANGE = ("--start", "2024-01-01", "--end", "2024-01-02")


@pytest.mark.parametrize("group", [(), *((group.name,) for group in app.registered_groups)])
def test_no_summary_is_cut_at_80_columns(group: tuple[str, ...]) -> None:
    text = CliRunner().invoke(app, [*group, "--help"], env={"COLUMNS": "80"}).stdout
    usage, *lines = text.splitlines()
    assert "Usage:" in usage
    assert [line for line in lines if line.endswith("...") or len(line) > 80] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("history", "BTC/USDT.BINANCE"),
        ("history", "BTCUSDT", *RANGE),
        ("history", "BTC/USDT.BINANCE", "--start", "soon", "--end", "2024-01-02"),
        ("history", "BTC/USDT.BINANCE", "--start", "2024-01-02", "--end", "2024-01-01"),
        ("history", "BTC/USDT.BINANCE", *RANGE, "--period", "1q"),
        ("history", "BTC/USDT.BINANCE", *RANGE, "--limit", "0"),
        ("history", "BTC/USDT.BINANCE", *RANGE, "--output", "xml"),
        ("history", "BTC/USDT.BINANCE", *RANGE, "--file", "x"),
        ("up", "--exchange-url", "BINANCE"),
        ("up", "--exchange-url", "BINANCE=ftp://x"),
        ("up", "--exchange-url", "NOWHERE=http://127.0.0.1:1"),
        ("up", "--ingestors", "-1"),
        ("up", "--parts", ","),
        ("up", "--parts", "brokr"),
        ("up", "--config", "nowhere.toml"),
        ("snapshot", "BTC"),
        ("watch", "BTC"),
        ("watch", "BTC/USDT.BINANCE", "--period", "soon"),
        ("watch", "BTC/USDT.BINANCE", "--count", "0"),
        ("gaps", "BTC"),
        ("requests", "--cancel"),
        ("trigger", "add", "--file", "nowhere.sql"),
        ("bench",),
        ("bench", "nosuch"),
        ("nosuch",),
    ],
)
def test_wrong_usage_is_exit_code_2_with_a_message(run: Run, fake: FakeClient, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr != ""


def test_a_value_that_an_option_does_not_take_is_reported_with_those_that_it_takes(run: Run) -> None:
    result = run("keys", "new", "bob", "--role", "driver")
    assert "Invalid value for '--role': 'driver' is not one of 'client', 'ingestor'" in " ".join(result.stderr.split())


def test_an_unknown_setting_is_wrong_usage(run: Run, tmp_path: Path) -> None:
    (tmp_path / "candlewright.toml").write_text("[broker]\nbindd = 1\n")
    result = run("config", "show")
    assert result.exit_code == 2
    assert "bindd" in result.stderr


def test_history_table_has_a_chart_and_rows(run: Run, fake: FakeClient) -> None:
    result = run("history", "BTC/USDT.BINANCE", *RANGE)
    assert result.exit_code == 0
    assert "BTC/USDT.BINANCE 1m: 3 candles" in result.stdout
    assert "2024-01-01T00:02:00Z" in result.stdout
    assert "┃" in result.stdout
    assert "\x1b" not in result.stdout
    assert "no candles at the venue" in result.stderr


@pytest.mark.parametrize("output", ["table", "json"])
def test_history_says_until_which_time_a_range_has_closed(run: Run, fake: FakeClient, output: str) -> None:
    assert "closed" not in run("history", "BTC/USDT.BINANCE", *RANGE, "--output", output).stderr
    fake.closed_until = START * 10**9 + 180 * 10**9
    result = run("history", "BTC/USDT.BINANCE", *RANGE, "--output", output)
    assert "closed until 2024-01-01T00:03:00Z: later candles had not closed and are left out" in result.stderr


def test_history_without_an_end_goes_up_to_now(run: Run, fake: FakeClient) -> None:
    before = time.time_ns()
    fake.closed_until = START * 10**9 + 180 * 10**9
    result = run("history", "BTC/USDT.BINANCE", "--start", "2024-01-01")
    assert result.exit_code == 0 and "closed until 2024-01-01T00:03:00Z" in result.stderr
    assert before <= fake.asked[2]["end"] <= time.time_ns()
    late = run("history", "BTC/USDT.BINANCE", "--start", "2100-01-01")
    assert late.exit_code == 2 and "must be before --end" in late.output.replace("\n", " ")


def test_history_json_is_json_lines_only(run: Run, fake: FakeClient) -> None:
    result = run("history", "BTC/USDT.BINANCE", *RANGE, "--output", "json", "--limit", "3")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["close"] for row in rows] == [1.5, 2.5, 2.75]
    assert rows[1]["trade_count"] is None
    assert rows[0]["open_time"] == "2024-01-01T00:00:00Z"
    assert fake.asked[2]["limit"] == 3


def test_history_csv_and_parquet_hold_the_rows(run: Run, fake: FakeClient, tmp_path: Path) -> None:
    result = run("history", "BTC/USDT.BINANCE", *RANGE, "--output", "csv")
    assert result.stdout.splitlines()[0].startswith('"ticker","open_time"')
    assert len(result.stdout.splitlines()) == 4
    assert run("history", "BTC/USDT.BINANCE", *RANGE, "--output", "parquet", "--file", "x.parquet").exit_code == 0
    assert pq.read_table(tmp_path / "x.parquet") == candles()


@pytest.mark.parametrize(("limit", "is_relayed"), [(None, False), ("10080", True), ("10081", False)])
def test_a_small_history_comes_from_the_relay_and_does_not_load_what_reads_tables(
    run: Run, fake: FakeClient, monkeypatch: pytest.MonkeyPatch, limit: str | None, *, is_relayed: bool
) -> None:
    given: list[object] = []
    monkeypatch.setattr(request_commands, "near_rows", lambda *_, **__: "near")
    monkeypatch.setattr(request_commands, "connect", lambda **options: (given.append(options["rows"]), fake)[1])
    limited = () if limit is None else ("--limit", limit)
    assert run("history", "BTC/USDT.BINANCE", "--start", "2024-01-01", "--end", "2024-02-01", *limited).exit_code == 0
    assert (given != ["near"]) == is_relayed


@pytest.mark.parametrize(
    "error", [RowsUnavailable("the platform cannot give the rows"), PlatformUnreachable("tcp://relay", 10.0)]
)
@pytest.mark.parametrize("has_tables", [True, False])
def test_a_history_that_the_relay_cannot_give_comes_from_the_tables(
    monkeypatch: pytest.MonkeyPatch, error: Exception, *, has_tables: bool
) -> None:
    class Tables:
        def history(self, wanted: Range, final: Notification) -> History:
            return History(table=candles(), notification=final, holes=())

    class Relayless:
        def run(self, start: object) -> None:
            raise error

    monkeypatch.setattr(request_commands, "near_rows", lambda _: Tables() if has_tables else None)
    rows = request_commands.Relayed(ClientConfig())
    rows.client = cast(Client, Relayless())
    wanted = Range("BTC/USDT.BINANCE", 60, START * 10**9, (START + 180) * 10**9, None)
    if has_tables:
        assert rows.history(wanted, FINAL).row_count == 3
        return
    with pytest.raises(type(error)):
        rows.history(wanted, FINAL)


def test_venues_markets_snapshot_and_a_request_as_json(run: Run, fake: FakeClient) -> None:
    expected = {
        ("venues",): {"name": "BINANCE", "market_count": 2},
        ("markets", "BINANCE"): {"ticker": "BTC/USDT.BINANCE"},
        ("snapshot", "BTC/USDT.BINANCE"): {"last": 1.0, "bid": None},
        ("requests", "r"): {"state": "done", "status": "OK", "row_count": 3},
    }
    for command, values in expected.items():
        (line,) = run(*command, "--output", "json").stdout.splitlines()
        row = json.loads(line)
        assert {key: row[key] for key in values} == values


def test_an_interrupted_history_says_how_to_continue(run: Run, fake: FakeClient) -> None:
    fake.is_interrupted = True
    result = run("history", "BTC/USDT.BINANCE", *RANGE)
    assert result.exit_code == 130
    assert "request r continues: `candlewright requests r` shows it" in result.stderr


def test_a_request_that_has_ended_is_not_cancelled_and_shown_as_it_is(run: Run, fake: FakeClient) -> None:
    result = run("requests", "r", "--cancel", "--output", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["status"] == "OK"
    assert result.stderr == "request r had ended before\n"


def test_version_and_short_help(run: Run) -> None:
    assert run("--version").stdout == f"candlewright {VERSION}\n"
    assert "--period" in run("history", "-h").stdout


def test_columns_that_do_not_fit_are_left_out_and_never_broken() -> None:
    columns = ("open_time", "open", "what was said", "close")
    rows = [("2024-01-01T00:00:00Z", "154766.67", "one two three four five six", "154803.76")]
    everything = [("open_time", False), ("open", False), ("what was said", False), ("close", False)]
    assert fitting(columns, rows, 200) == ([*everything[:2], ("what was said", True), everything[3]], [])
    shown, left_out = fitting(columns, rows, 60)
    assert ([name for name, _ in shown], left_out) == (["open_time", "open", "what was said"], ["close"])
    assert fitting(columns, rows, 10) == ([("open_time", False)], ["open", "what was said", "close"])
    # 20 + 9 + 9, a space and a line after each, and the left edge.
    assert fitting(("a", "b", "c"), [("x" * 20, "x" * 9, "x" * 9)], 45) == (
        [("a", False), ("b", False), ("c", False)],
        [],
    )
    assert fitting(("a", "b", "c"), [("x" * 20, "x" * 9, "x" * 9)], 44)[1] == ["c"]
    assert fitting(("id",), [("x" * 300,)], 80) == ([("id", True)], [])


@pytest.mark.processes
def test_a_warning_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_CHECKOUT", "1")
    said = candlewright("config", "show").stderr
    assert (
        said
        == "candlewright: warning: the environment variable CANDLEWRIGHT_CHECKOUT is not a setting and has no effect\n"
    )


def test_venues_and_markets_are_shown_as_tables(run: Run, fake: FakeClient) -> None:
    assert "1m 1h" in run("venues").stdout
    assert "BTCUSDT" in run("markets", "BINANCE").stdout


def test_no_requests_is_not_an_error(run: Run, fake: FakeClient, tmp_path: Path) -> None:
    result = run("requests")
    assert (result.exit_code, result.stdout) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_config_show_hides_secrets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_BUS__URL", "redis://:hunter2@127.0.0.1:1/0")
    for output in ("json", "table"):
        result = run("config", "show", "--output", output)
        assert result.exit_code == 0
        assert "hunter2" not in result.stdout
        assert "127.0.0.1:1/0" in result.stdout
    assert json.loads(run("config", "show", "--output", "json").stdout)["broker"]["lease_seconds"] == 15.0


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bool]]:
    state = {"ready": True}

    def status() -> Status:
        part = {"pid": 1, "phase": "running", "ready": state["ready"], "restarts": 2, "problems": []}
        warnings = ("broker: look here",)
        return Status(
            part="supervisor", is_ready=state["ready"], details={"parts": {"broker": part}}, warnings=warnings
        )

    server = StatusServer("127.0.0.1:0", status)
    monkeypatch.setenv("CANDLEWRIGHT_HTTP__BIND", f"127.0.0.1:{server.port}")
    yield state
    server.close()


def test_status_of_a_healthy_platform(run: Run, page: dict[str, bool]) -> None:
    result = run("status", "--output", "json")
    assert result.exit_code == 0
    row = json.loads(result.stdout)
    assert (row["part"], row["state"], row["restarts"]) == ("broker", "ready", 2)


@pytest.mark.processes
def test_warnings_are_shown_and_are_not_a_failure(run: Run, page: dict[str, bool]) -> None:
    result = run("status")
    assert result.exit_code == 0
    assert "warning: broker: look here" in result.stderr
    findings = [json.loads(line) for line in run("doctor", "--output", "json").stdout.splitlines()]
    assert {"what": "warning", "verdict": "note", "text": "broker: look here"} in findings


def test_status_of_an_unready_platform_is_exit_code_1(run: Run, page: dict[str, bool]) -> None:
    page["ready"] = False
    result = run("status")
    assert result.exit_code == 1
    assert "not ready" in result.stderr


def test_status_shows_live_data_and_open_work_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    ingestor = {
        "part": "ingestor",
        "last_frame_seconds_ago": {"BTC/USDT.BINANCE": 0.4, "ETH/USDT.BINANCE": 190.0},
        "trades_per_second": {"BTC/USDT.BINANCE": 1234.5, "ETH/USDT.BINANCE": 0.0},
    }
    driver = {
        "part": "flink_replacement_spark",
        "executors": 2,
        "newest_bar_seconds_ago": {"ETH/USDT.BINANCE": 250.0},
        "queries": {"live": {"lag": 12_345, "last_step_seconds_ago": 0.3, "waits_seconds": 0.0}},
    }
    broker = {"part": "broker", "requests": 3, "jobs": 2, "queued": 0}
    relay = {"part": "relay", "triggers": {"active": 9, "starting": 0, "suspended": 1}}
    parts = {
        each["part"]: {"ready": True, "restarts": 0, "pid": 123_456, "memory_bytes": 400 << 20, "status": each}
        for each in (broker, relay, driver, ingestor)
    }
    parts["flink_replacement_spark"] |= {"ready": False, "waits_for": "the catalog http://c:8181: refused"}
    cloud = "ip-10-0-0-2.eu-central-1.compute.internal:12345:ef01"
    pod = "candlewright-driver-6c9f7bdf9b-x2x4q:1:ef01"
    roles = {"driver": {"holder": "10.0.0.1:12345:abcd", "epoch": 3, "standbys": [cloud, pod]}}
    page = {
        "parts": parts,
        "roles": roles,
        "disk": {"free_bytes": 5 << 30, "total_bytes": 20 << 30},
        "problems": ["flink_replacement_spark: waits for the catalog"],
    }
    platform_status.show(page, Output.table)
    text, told = capsys.readouterr()
    for shown in (
        "1,234.5",
        "3 min ago",
        "4 min ago",
        "12,345",
        "0.3 s ago",
        "400 MiB",
        "waiting",
        "10.0.0.1:12345 ",
        "ip-10-0-0-2:12345",
        "candlewrig…f9b-x2x4q:1",
        "1 suspended",
    ):
        assert shown in text
    assert "5.0 GiB free of 20.0 GiB" in text and "3 open" in text and "Spark executors: 2" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "problem: flink_replacement_spark: waits for the catalog" in told and "not ready" in told
    platform_status.show(page, Output.json)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"role": "driver", **roles["driver"]} in rows
    silent = {"ticker": "ETH/USDT.BINANCE", "age_seconds": 190.0, "newest_bar_seconds": 250.0, "trades_per_second": 0.0}
    assert silent in rows
    assert next(row for row in rows if "query" in row)["lag"] == 12_345
    assert next(row for row in rows if row.get("part") == "flink_replacement_spark")["state"] == "waiting"


def test_a_watched_status_is_refreshed_until_ctrl_c(
    run: Run, page: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(_: float) -> None:
        if not page["ready"]:
            raise KeyboardInterrupt
        page["ready"] = False

    monkeypatch.setattr(platform_status.time, "sleep", pause)
    result = run("status", "--watch", "--output", "json")
    assert result.exit_code == 0
    assert [json.loads(line)["state"] for line in result.stdout.splitlines()] == ["ready", "running"]


@pytest.mark.parametrize("tickers", [1, 50])
def test_a_watched_status_fits_a_screen_of_24_lines(capsys: pytest.CaptureFixture[str], tickers: int) -> None:
    """Including the live tickers, which would scroll away first."""
    frames = {f"T{number}/USDT.BINANCE": float(number) for number in range(tickers)}
    queries = {name: {"lag": 0, "last_step_seconds_ago": 1.0} for name in ("history", "live", "triggers")}
    details = {"last_frame_seconds_ago": frames, "queries": queries, "requests": 1, "jobs": 1, "queued": 0}
    names = ("redis", "broker", "relay", "driver", "ingestor-1", "console")
    parts: dict[str, Any] = {name: {"ready": True, "restarts": 1, "memory_bytes": 1 << 30} for name in names}
    parts["broker"]["status"] = {"part": "broker", **details}
    parts["console"] |= {"ready": False, "phase": "starting"}
    roles = {name: {"holder": "a", "epoch": 1, "standbys": ["b"] * (name == "driver")} for name in ("broker", "driver")}
    page = {"parts": parts, "roles": roles, "disk": {"free_bytes": 5 << 30, "total_bytes": 20 << 30}, "healthy": True}
    platform_status.show(page, Output.table, lines=24)
    text, told = capsys.readouterr()
    assert "T0/USDT" in text or "T49/USDT" in text
    assert "parts: 5 of 6 ready (console is starting), 6 restarts, 6.0 GiB" in text
    assert "standbys: driver 1" in text
    assert len(f"{text}{told}".splitlines()) <= 24
    platform_status.show(page, Output.table, lines=60)
    assert "redis" in capsys.readouterr().out


def test_many_live_tickers_are_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    ages = {f"T{number}/USDT.BINANCE": float(number) for number in range(50)}
    part = {"status": {"last_frame_seconds_ago": ages, "trades_per_second": dict.fromkeys(ages, 2.0)}}
    platform_status.show({"parts": {"ingestor-1": part}}, Output.table)
    text = capsys.readouterr().out
    assert "T49/" in text and "T40/" in text and "T39/" not in text
    assert "50 live tickers, 100 trades/s" in text


@pytest.mark.parametrize(
    ("role", "shown"),
    [({"warm": False}, "standby, not warm"), ({"warm": True}, "standby"), ({}, "standby")],
)
def test_status_marks_a_standby_that_is_not_warm(
    capsys: pytest.CaptureFixture[str], role: dict[str, bool], shown: str
) -> None:
    driver = {"ready": False, "standby": True, "restarts": 0, "pid": 1, "status": {"role": role}}
    platform_status.show({"parts": {"flink_replacement_spark": driver}}, Output.table)
    assert f" {shown} | " in capsys.readouterr().out


def test_status_shows_a_part_that_serves_while_it_waits_as_ready(capsys: pytest.CaptureFixture[str]) -> None:
    """An ingestor, one of whose venues does not answer."""
    platform_status.show({"parts": {"ingestor-1": {"ready": True, "waits_for": "KRAKEN"}}}, Output.json)
    assert json.loads(capsys.readouterr().out.splitlines()[0])["state"] == "ready"


@pytest.mark.processes
def test_doctor_names_a_venue_that_no_ingestor_can_serve(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_INGESTOR__VENUES", '["BINANCE", "nowhere"]')
    result = run("doctor", "--output", "json")
    assert result.exit_code == 1
    assert '"ccxt has no exchange NOWHERE: see ingestor.venues"' in result.stdout


@pytest.mark.processes
def test_doctor_names_a_destination_that_nothing_can_send_to(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("candlewright.toml").write_text('[alerts.a]\nurl = "ntfx://x"\n[alerts.b]\nurl = "ntfy://topic"\n')
    findings = {row["what"]: row for row in map(json.loads, run("doctor", "--output", "json").stdout.splitlines())}
    assert findings["alerts a"]["verdict"] == "missing"
    assert "alerts.a.url: Apprise does not accept this ntfx:// address" in findings["alerts a"]["text"]
    assert (findings["alerts b"]["verdict"], findings["alerts b"]["text"]) == ("ok", "ntfy")


@pytest.mark.processes
def test_doctor_lists_its_findings(run: Run, page: dict[str, bool]) -> None:
    result = run("doctor", "--output", "json")
    findings = {row["what"]: row["verdict"] for row in map(json.loads, result.stdout.splitlines())}
    assert findings["python"] == "ok"
    assert findings["platform"] == "ok"
    assert set(findings) >= {"java", "bus", "data directory", "memory"}


@pytest.mark.processes
def test_doctor_looks_for_the_jars_of_these_settings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jars of any other settings used to be enough, and the driver then failed to fetch its own."""
    monkeypatch.setenv("CANDLEWRIGHT_SPARK__PACKAGES", '["g:a:1"]')
    findings = {row["what"]: row for row in map(json.loads, run("doctor", "--output", "json").stdout.splitlines())}
    assert findings["spark jars"]["verdict"] == "note"


@pytest.mark.processes
def test_doctor_says_why_a_redis_takes_no_writes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_BUS__URL", "redis://127.0.0.1:1/0")
    assert "the Redis of bus.url: the bus does not answer" in run("doctor", "--output", "json").stdout
    bus = FreshBus()
    monkeypatch.setenv("CANDLEWRIGHT_BUS__URL", bus.url)
    assert "an existing Redis" in run("doctor", "--output", "json").stdout
    monkeypatch.setattr(RedisBus, "refusal", lambda self: str(BusRefusing("OOM", "Redis has reached maxmemory")))
    assert "Redis has reached maxmemory (OOM)" in run("doctor", "--output", "json").stdout
    bus.close()


def candlewright(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "candlewright", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.processes
def test_a_refusal_is_exit_code_1_and_one_line_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_RELAY__REQUESTS_BIND", "tcp://127.0.0.1:1")
    result = candlewright("venues", "--timeout", "0.3")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("candlewright: no answer from the platform at tcp://127.0.0.1:1")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.processes
def test_help_loads_no_heavy_library() -> None:
    heavy = ("pyspark", "ccxt", "pyarrow", "pandas", "redis", "zmq", "pyiceberg", "pydantic")
    code = (
        "import sys\nfrom candlewright.__main__ import main\nsys.argv = ['candlewright', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "history" in done.stdout


@pytest.mark.processes
def test_sql_loads_neither_tables_nor_matcher_for_a_plain_text() -> None:
    code = (
        "import sys, candlewright.cli.tables, flink_replacement_spark.sql.connect\n"
        "names = ('pyiceberg', 'sqlalchemy', 'candlewright_cep', 'redis', 'ccxt')\n"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_kapacitor_functions_are_those_of_the_contract(run: Run) -> None:
    assert "kapacitor-udf" in run("--help").stdout
    assert "ohlc|match|publish" in run("kapacitor-udf", "--help").stdout
    assert run("kapacitor-udf", "other").exit_code == 2


@pytest.mark.processes
def test_kapacitor_function_loads_little_before_its_first_answer() -> None:
    code = (
        "import sys, candlewright.cli.app, candlewright_platform.cli.machine.kapacitor\n"
        "heavy = ('numpy', 'pyarrow', 'candlewright_cep', 'bars', 'redis', 'pydantic', 'structlog', 'grpc')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_bench_passes_its_options_on(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "echo.py").write_text("import sys\ndef main(): print(sys.argv[1:])\nif __name__ == '__main__': main()\n")
    (folder / "_common.py").write_text("def main(): pass\n")
    (folder / "slow_echo.py").write_text("def main(): pass\n")
    (folder / "room").mkdir()
    (folder / "room" / "bench_json.py").write_text("def main(): pass\n")
    monkeypatch.setattr(
        bench_command, "find_spec", lambda name: type("Spec", (), {"submodule_search_locations": [folder]})
    )
    called: list[list[str]] = []
    monkeypatch.setattr(bench_command.subprocess, "call", lambda command, env: called.append(command) or 0)
    assert bench_command.modules() == {"echo": "echo", "json": "room.bench_json", "slow-echo": "slow_echo"}
    assert run("bench", "echo", "--rows", "5", "--output", "json").exit_code == 0
    assert called == [[sys.executable, "-m", "benchmarks.echo", "--rows", "5", "--output", "json"]]
    assert run("bench", "slow-echo").exit_code == 0
    assert run("bench", "json").exit_code == 0
    assert called[1:] == [[sys.executable, "-m", f"benchmarks.{name}"] for name in ("slow_echo", "room.bench_json")]


def test_no_benchmark_hides_a_package_from_one_that_is_run_as_a_file() -> None:
    names = {file.stem for file in (ROOT / "benchmarks").rglob("*.py") if not file.stem.startswith("_")}
    packages = {folder.parent.name for folder in ROOT.glob("*/__init__.py")}
    assert "failover" in names and "bus" in packages
    assert not names & (packages | sys.stdlib_module_names)


def test_maps_of_a_table_are_json_objects(tmp_path: Path) -> None:
    context = pa.array([[("event_id", "e1"), ("ticker", "x")], None], pa.map_(pa.string(), pa.string()))
    file = tmp_path / "rows.json"
    print_arrow(pa.table({"n": [1, 2], "context": context}), FileOutput.json, file)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows == [{"n": 1, "context": {"event_id": "e1", "ticker": "x"}}, {"n": 2, "context": None}]


@pytest.mark.parametrize("rows", [[], [["a", "1"], ["", "x y"]], [["a" * 30, ""]], [["  a b ", " "]]])
def test_a_table_in_a_pipe_is_drawn_as_on_a_terminal_in_a_hundredth_of_the_time(
    rows: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_table(["request_id", "b"], rows)
    plain = capsys.readouterr().out
    monkeypatch.setattr(cli_output, "_is_plain", lambda text: False)
    print_table(["request_id", "b"], rows)
    assert capsys.readouterr().out == plain


def test_a_terminal_shows_the_first_and_the_last_rows_of_a_long_list(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_output, "LISTED_ROWS", 4)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(["n"], [[f"row-{number}"] for number in range(9)])
    shown, said = capsys.readouterr()
    assert [line.strip() for line in shown.splitlines() if "row" in line or "…" in line] == [
        "row-0", "row-1", "…", "row-7", "row-8",
    ]  # fmt: skip
    assert said == "9 rows, of which the first and the last are shown: a pipe or --output json shows all\n"
