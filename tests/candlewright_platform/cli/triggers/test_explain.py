"""`candlewright trigger explain` over real tables, for triggers that a small relay holds."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import Result
from typer.testing import CliRunner

from candlewright.cli.app import app
from candlewright.client import TriggerInfo
from candlewright.wire.errors import CandlewrightError
from candlewright.wire.times import to_nanoseconds
from candlewright_platform.cli.triggers import explanation as explaining
from candlewright_platform.cli.triggers.explanation import Explained
from core.settings import Settings
from iceberg import TRIGGER_EVENTS, append, load_table, open_catalog
from tests.candlewright.client.trigger_relay import TriggerRelay, in_settings
from tests.candlewright_platform.cli.triggers.test_backtest import TICKER, data_dir  # noqa: F401

Run = Callable[..., Result]
OTHER = "ETH/USDT.BINANCE"
FALLS = """SELECT * FROM ohlc MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time MEASURES LAST(close) AS bottom
    PATTERN (S D{3}) DEFINE D AS close < PREV(close) * :fall)"""


@pytest.fixture
def relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TriggerRelay]:
    with in_settings(tmp_path, monkeypatch) as relay:
        yield relay


@pytest.fixture
def run(relay: TriggerRelay, data_dir: Path) -> Run:  # noqa: F811
    def invoke(*arguments: str) -> Result:
        folder = () if arguments[0] == "add" else ("--data-dir", str(data_dir))
        return CliRunner().invoke(app, ["trigger", *arguments, *folder])

    return invoke


def add(run: Run, name: str, sql: str, *further: str) -> None:
    assert run("add", "--id", name, "--sql", sql, *further).exit_code == 0


def test_the_table_shows_failed_attempts_with_the_reason(run: Run) -> None:
    bars = ("--ticker", TICKER, "--param", "period_seconds=60", "--param", "fall=0.991")
    add(run, "falls", FALLS, *bars)
    result = run("explain", "falls", "--at", "2024-01-01T03:00", "--attempts", "1")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == f"falls over {TICKER}: 181 bars of 1m"
    assert lines[1].startswith("2024-01-01T00:00:00Z to 2024-01-01T03:00:00Z: it fired ")
    (nearest,) = [number for number, line in enumerate(lines) if line.startswith("nearest 1:")]
    assert f"{TICKER}, failed, " in lines[nearest] and lines[nearest + 1].startswith("    S 2024-01-01T0")
    assert any(line.startswith("      false close < PREV(close) * 0.991") for line in lines[nearest:])
    assert any("PREV(close) * 0.991 = " in line for line in lines[nearest:])


def test_json_is_one_object_with_the_same_content(run: Run) -> None:
    add(run, "dear", "price > 19.9 AND size > 2")
    result = run("explain", "dear", "--at", "2024-02-01", "--ticker", TICKER, "--output", "json")
    (line,) = result.stdout.splitlines()
    found = json.loads(line)
    assert (found["trigger_id"], found["over"], found["tickers"], found["fired"]) == ("dear", "trades", [TICKER], 0)
    assert found["rows"] == 2_000 and found["first"] == "2024-01-01T00:00:00.000000000Z"
    (stage,) = found["stages"]
    test = stage["attempts"][1]["nearest"][0]["condition"]
    assert [part["holds"] for part in test["parts"]] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("all",), "name one with --ticker"),
        (("one", "--ticker", "ETH/USDT.BINANCE"), f"does not see ETH/USDT.BINANCE: its tickers are {TICKER}"),
        (("one", "--at", "2020-01-01"), "no trades of BTC/USDT.BINANCE are stored shortly before 2020-01-01T00:00:00Z"),
        (("one", "--at", "2020-01-01"), "--at names another time"),
        (
            ("all", "--ticker", "ETH/USDT.BINANCE"),
            "no trades of ETH/USDT.BINANCE are stored; a trigger stores none, c.realtime('ETH/USDT.BINANCE') does\n",
        ),
        (("nothing",), "no trigger nothing is registered"),
    ],
)
def test_triggers_that_cannot_be_explained_get_a_reason(run: Run, arguments: tuple[str, ...], said: str) -> None:
    add(run, "all", "price > 1")
    add(run, "one", "price > 1", "--ticker", TICKER)
    result = run("explain", *arguments)
    assert result.exit_code == 1
    assert said in f"{result.exception or result.stderr}\n"


def test_an_invalid_time_is_wrong_usage(run: Run) -> None:
    assert run("explain", "one", "--at", "noon").exit_code == 2


def test_the_newest_trades_are_read_from_as_far_back_as_it_takes(data_dir: Path) -> None:  # noqa: F811
    trigger = TriggerInfo(
        trigger_id="every", sql="price > 1", tickers=(TICKER,), state="active", reason="", registered_at=0, events=0
    )
    found = explaining.run(Settings(data_dir=data_dir), trigger, {}, ticker=None, at=time.time_ns())
    assert found.explanation.rows == 2_000


def test_conditions_of_a_registered_view_are_shown(data_dir: Path) -> None:  # noqa: F811
    trigger = TriggerInfo(
        trigger_id="view",
        sql="SELECT * FROM dear WHERE size > 2",
        tickers=(TICKER,),
        state="active",
        reason="",
        registered_at=0,
        events=0,
    )
    view = {"dear": "CREATE VIEW dear AS SELECT * FROM ticks WHERE price > 15"}
    found = explaining.run(Settings(data_dir=data_dir), trigger, view, ticker=TICKER, at=time.time_ns())
    assert [stage.text for stage in found.explanation.stages] == ["price > 15", "size > 2"]


@pytest.fixture(scope="module")
def events(data_dir: Path) -> Settings:  # noqa: F811
    """Three events of `dip` on one ticker and one on another, and one of a trigger that itself reads events."""
    fired = ["2024-01-01T00:10", "2024-01-01T01:00", "2024-01-01T02:50", "2024-01-01T02:00", "2024-01-01T02:55"]
    rows = {
        "trigger_id": ["dip", "dip", "dip", "dip", "sums"],
        "event_id": ["1", "2", "3", "4", "5"],
        "fired_at": pa.array(np.array(fired, "datetime64[us]")).cast(pa.timestamp("us", "UTC")),
        "ticker": [TICKER, TICKER, TICKER, OTHER, TICKER],
        "columns": ["{}"] * 5,
        "context": [[], [], [], [], [("chained", "true")]],
    }
    settings = Settings(data_dir=data_dir)
    schema = TRIGGER_EVENTS.arrow_schema
    append(load_table(open_catalog(settings), TRIGGER_EVENTS), pa.table(rows, schema=schema), {})
    return settings


def explain_dips(
    settings: Settings,
    tickers: tuple[str, ...],
    wanted: str = "trigger_id = 'dip'",
    *,
    ticker: str | None = None,
    at: str | None = None,
) -> Explained:
    sql = f"""SELECT * FROM (SELECT ticker, fired_at, trigger_id FROM trigger_events WHERE {wanted}) MATCH_RECOGNIZE (
        PARTITION BY ticker ORDER BY fired_at MEASURES LAST(fired_at) AS at
        PATTERN (A B{{2}}) WITHIN INTERVAL '2' HOUR DEFINE B AS trigger_id = A.trigger_id)"""
    trigger = TriggerInfo(
        trigger_id="dips", sql=sql, tickers=tickers, state="active", reason="", registered_at=0, events=0
    )
    return explaining.run(settings, trigger, {}, ticker=ticker, at=None if at is None else to_nanoseconds(at))


def test_a_trigger_over_events_is_explained(events: Settings) -> None:
    found = explain_dips(events, (TICKER,))
    assert (found.tickers, found.what, found.explanation.rows, found.explanation.fired) == ((TICKER,), "events", 3, 0)
    where, pattern = found.explanation.stages
    assert (where.kind, where.passed) == ("WHERE", 3)
    expired = [attempt for attempt in pattern.attempts if attempt.outcome == "expired"]
    assert [(attempt.taken, attempt.missing) for attempt in expired] == [(2, 1)]


def test_without_tickers_the_events_of_all_are_explained(events: Settings) -> None:
    found = explain_dips(events, ())
    assert (found.tickers, found.explanation.rows) == ((), 4)
    assert explain_dips(events, (), ticker=OTHER).explanation.rows == 1


def test_events_of_triggers_over_events_count_only_where_they_are_named(events: Settings) -> None:
    assert explain_dips(events, (TICKER,), "1 = 1").explanation.rows == 3
    assert explain_dips(events, (TICKER,), "trigger_id IN ('sums', 'dip')").explanation.rows == 4


def test_events_are_those_until_the_time_asked_about(events: Settings) -> None:
    assert explain_dips(events, (TICKER,), at="2024-01-01T01:00").explanation.rows == 2
    with pytest.raises(CandlewrightError, match=r"no events of dip on .* are stored before 2024-01-01T00"):
        explain_dips(events, (TICKER,), at="2024-01-01")
