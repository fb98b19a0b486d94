"""`candlewright keep` over a real bus."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bus import topics
from candlewright.cli.app import app
from candlewright.wire import candlewright_pb2 as cw
from relay.keep.rules import Key, Wanted
from relay.keep.series import Series
from relay.keep.state import Save
from relay.keep.store import KeepStore
from tests.fresh_bus import FreshBus

START = 1_704_067_200 * 10**9
MINUTE = 60 * 10**9


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FreshBus]:
    bus = FreshBus()
    monkeypatch.setenv("CANDLEWRIGHT_BUS__URL", bus.url)
    monkeypatch.chdir(tmp_path)
    markets = [cw.Market(symbol=symbol, active=True) for symbol in ("BTC/USDT", "ETH/USDT")]
    venue = cw.Venue(venue="BINANCE", period_seconds=[60, 3_600], markets=markets)
    bus.put(topics.TABLE_VENUES, {"BINANCE": venue.SerializeToString()})
    yield bus
    bus.close()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["keep", *arguments])


def rows(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("list", *arguments, "--output", "json").stdout.splitlines()]


def said(result: Result) -> str:
    """The output, including what `candlewright` prints for an error that the command raised."""
    return " ".join(f"{result.output} {result.exception}".replace("│", " ").split())


def add(*arguments: str) -> Result:
    return run("add", *arguments, "--since", "2024-01-01")


def test_rules_of_settings_and_commands_are_listed_together(bus: FreshBus, tmp_path: Path) -> None:
    Path("candlewright.toml").write_text('[[keep]]\ntickers = "ETH/USDT.BINANCE"\nperiods = "1h"\nsince = 2024-01-01\n')
    assert add("*/USDT.BINANCE", "BTC/*.BINANCE").exit_code == 0
    assert add("BTC/USDT.BINANCE", "--name", "mine").exit_code == 0
    found = [(row["rule"], row["from"], row["tickers"], row["periods"]) for row in rows()]
    assert found == [
        ("settings-1", "settings", "ETH/USDT.BINANCE", "1h"),
        ("keep-1", "command", "*/USDT.BINANCE BTC/*.BINANCE", "1m"),
        ("mine", "command", "BTC/USDT.BINANCE", "1m"),
    ]
    assert run("remove", "mine").exit_code == 0
    assert [row["rule"] for row in rows()] == ["settings-1", "keep-1"]
    refused = run("remove", "settings-1")
    assert refused.exit_code == 1 and "is in the settings" in said(refused)


def test_lagging_candles_are_shown_by_rule_and_by_series(bus: FreshBus) -> None:
    add("*/USDT.BINANCE")
    series = Series.begun(Key("BTC/USDT.BINANCE", 60), Wanted(START, MINUTE), START)
    store = KeepStore(bus, 1, 1.0)
    store.carry_out([Save(series)])
    summary = {"venue": "BINANCE", "candles_behind": 9, "candles_per_second": 2.0, "failing": 0, "error": ""}
    store.show([summary | {"done_at": START}])
    [rule] = rows()
    assert rule["series"] == rule["behind"] == 1 and rule["candles_behind"] > 1_000_000
    assert rule["state"] == "fresh at 2024-01-01T00:00:00Z"
    assert "2 candles a second" in run("list").stderr
    [row] = rows("--series")
    assert (row["ticker"], row["period"], row["until"]) == ("BTC/USDT.BINANCE", "1m", "2024-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("BTC/USDT",), 2, "not a valid ticker"),
        (("*/USDT",), 2, "wildcards go before the venue"),
        (("BTC/USDT.BINANCEE",), 1, "did you mean BINANCE"),
        (("BTC/USDT.BINANCE", "--period", "7m"), 1, "BINANCE has no candles of 7m; it has: 1m, 1h"),
        (("BTC/USDT.BINANCE", "--period", "x"), 2, "not a valid period"),
        (("BTC/USDT.BINANCE", "--since", "today"), 2, "is not a time"),
        (("BTC/USDT.BINANCE", "--every", "1s"), 2, "greater than or equal to 10"),
        (("BTC/USDT.BINANCE", "--name", "a b"), 2, "letters, digits"),
    ],
)
def test_a_bad_rule_is_refused(bus: FreshBus, arguments: tuple[str, ...], code: int, reason: str) -> None:
    result = run("add", "--since", "2024-01-01", *arguments)
    assert result.exit_code == code
    assert reason in said(result)
    assert bus.items(topics.TABLE_KEEP_RULES) == {}


def test_a_rule_that_matches_nothing_gets_a_warning(bus: FreshBus) -> None:
    assert "did you mean BTC/USDT.BINANCE" in add("BTC/USDC.BINANCE").stderr
    assert "no ingestor serves KRAKEN" in add("*/USDT.KRAKEN").stderr


def test_a_rule_is_not_replaced_by_another_one(bus: FreshBus) -> None:
    assert add("BTC/USDT.BINANCE", "--name", "mine").exit_code == 0
    assert add("BTC/USDT.BINANCE", "--name", "mine").exit_code == 0
    refused = add("ETH/USDT.BINANCE", "--name", "mine")
    assert refused.exit_code == 1 and "there is another rule mine" in said(refused)
