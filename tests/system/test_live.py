"""Live trades and bars through every process: exchange, ingestors, bus, Spark, relay, client, tables."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple

import pytest

import candlewright as cw
from iceberg.read import read_ohlc
from tests.system.conftest import SECOND, System

pytestmark = pytest.mark.timeout(600)

TICKER, SYMBOL = "BTC/USDT.BINANCE", "BTCUSDT"
MINUTE = 60 * SECOND
#: The exchange's clock runs this much faster: a minute is over in seconds.
SPEED = 20.0
PATIENCE_SECONDS = 120.0
ExchangeRows = Callable[[str, int, int], list[tuple[object, ...]]]


@pytest.fixture
def fast(system: System) -> Iterator[System]:
    system.exchange.call(lambda sandbox: sandbox.clock.set(speed=SPEED))
    yield system
    system.exchange.call(lambda sandbox: sandbox.clock.set(speed=1.0))


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up, f"{what}: not within {PATIENCE_SECONDS:g} s"
        time.sleep(0.1)


def candle_of(bar: cw.Bar) -> tuple[object, ...]:
    prices = (bar.open, bar.high, bar.low, bar.close, bar.volume, bar.quote_volume, bar.trade_count)
    return bar.open_time // 1_000_000, *prices


def same(bars: Sequence[cw.Bar], candles: Sequence[tuple[object, ...]]) -> bool:
    """Prices, times and counts are equal; sums of sizes up to the last digits of a double."""
    return [candle_of(bar) for bar in bars] == [
        (*row[:5], pytest.approx(row[5], rel=1e-9), pytest.approx(row[6], rel=1e-9), row[7]) for row in candles
    ]


def take(stream: cw.Stream[cw.Bar], count: int) -> list[cw.Bar]:
    return [stream.next(timeout=PATIENCE_SECONDS) for _ in range(count)]


def take_ids(stream: cw.Stream[cw.Tick], count: int) -> list[int]:
    return [int(stream.next(timeout=PATIENCE_SECONDS).trade_id) for _ in range(count)]


def part(system: System, name: str) -> dict[str, object]:
    url = f"http://{system.platform.settings.http.bind}/status"
    with urllib.request.urlopen(url, timeout=10) as answer:
        parts: dict[str, dict[str, object]] = json.load(answer)["parts"]
    return parts[name]


def streams_of(system: System, symbol: str) -> int:
    """How many connections of the exchange carry the trades of a symbol."""
    names = system.exchange.call(lambda sandbox: [list(each.session.names) for each in sandbox.connections])
    return sum(any(name.startswith(symbol.lower()) for name in each) for each in names)


def test_bars_equal_the_exchanges_own_candles(fast: System, client: cw.Client, exchange_rows: ExchangeRows) -> None:
    with client.bars(TICKER, "1m") as minutes, client.bars(TICKER, 300) as fives:
        bars = take(minutes, 6)
        (long,) = take(fives, 1)
    assert [bar.sequence for bar in bars] == list(range(bars[0].sequence, bars[0].sequence + 6))
    assert [(bar.complete, bar.source, bar.revision) for bar in bars] == [(True, "ticks", 0)] * 6
    start_ms = bars[0].open_time // 1_000_000
    assert same(bars, exchange_rows(SYMBOL, start_ms, start_ms + 6 * 60_000))
    (row,) = fast.klines(SYMBOL, long.open_time // 1_000_000, long.open_time // 1_000_000 + 300_000, interval="5m")
    assert (long.open, long.high, long.low, long.close) == tuple(float(str(cell)) for cell in row[1:5])
    assert long.trade_count == row[8]


def test_ticks_have_every_trade_id_once_and_in_order(fast: System, client: cw.Client) -> None:
    with client.ticks(TICKER) as ticks:
        got = [ticks.next(timeout=PATIENCE_SECONDS) for _ in range(500)]
    ids = [int(tick.trade_id) for tick in got]
    assert ids == list(range(ids[0], ids[0] + 500))
    assert [tick.sequence for tick in got] == list(range(got[0].sequence, got[0].sequence + 500))
    url = f"{fast.exchange.url}/api/v3/historicalTrades?symbol={SYMBOL}&fromId={ids[0]}&limit=500"
    request = urllib.request.Request(url, headers={"X-MBX-APIKEY": "any"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        trades = json.load(answer)
    assert [(tick.price, tick.size, tick.timestamp // 1_000_000) for tick in got] == [
        (float(trade["price"]), float(trade["qty"]), trade["time"]) for trade in trades
    ]


async def test_the_async_twin_gets_the_same_bars(fast: System) -> None:
    async with fast.aconnect() as c, c.bars(TICKER, 60) as first, c.bars(TICKER, "1m") as second:
        bars = [await first.next(timeout=PATIENCE_SECONDS) for _ in range(3)]
        again = [await second.next(timeout=PATIENCE_SECONDS) for _ in range(3)]
    assert [astuple(bar) for bar in bars] == [astuple(bar) for bar in again]


def test_two_clients_share_one_job_and_the_last_one_stops_it(fast: System, client: cw.Client) -> None:
    until(lambda: streams_of(fast, "ETHUSDT") == 0, "no stream of ETHUSDT")
    with fast.connect() as other:
        first, second = client.ticks("ETH/USDT.BINANCE"), other.bars("ETH/USDT.BINANCE", "1m")
        take_ids(first, 5)
        take(second, 1)
        assert streams_of(fast, "ETHUSDT") == 1
        first.close()
        take(second, 2)
        assert streams_of(fast, "ETHUSDT") == 1
        second.close()
        until(lambda: streams_of(fast, "ETHUSDT") == 0, "the end of the stream of ETHUSDT")


def test_a_realtime_request_stores_bars_and_ticks_until_it_is_cancelled(fast: System, client: cw.Client) -> None:
    with client.ticks("SOL/USDT.BINANCE") as ticks, client.realtime("SOL/USDT.BINANCE", ohlc_periods=["1m"]):
        tick = ticks.next(timeout=PATIENCE_SECONDS)
        settings = fast.platform.settings

        def stored() -> int:
            start, end = tick.timestamp - 10 * MINUTE, tick.timestamp + 1_000 * MINUTE
            return int(read_ohlc(settings, "SOL/USDT.BINANCE", 60, start_ns=start, end_ns=end).num_rows)

        until(lambda: stored() >= 2, "two bars of SOL/USDT in the table")
    until(lambda: streams_of(fast, "SOLUSDT") == 0, "the end of the stream of SOLUSDT")


def test_a_snapshot_while_the_ticker_is_live(fast: System, client: cw.Client) -> None:
    with client.ticks(TICKER) as ticks:
        take_ids(ticks, 1)
        got = client.snapshot(TICKER)
        newest = ticks.next(timeout=PATIENCE_SECONDS)
    assert got.last is not None
    assert abs(got.last / newest.price - 1) < 0.05


def test_a_killed_relay_costs_a_client_nothing(fast: System, client: cw.Client, exchange_rows: ExchangeRows) -> None:
    with client.ticks(TICKER) as ticks, client.bars(TICKER, 60) as minutes:
        ids, bars = take_ids(ticks, 50), take(minutes, 1)
        killed = part(fast, "relay")["pid"]
        assert isinstance(killed, int)
        os.kill(killed, signal.SIGKILL)
        until(lambda: part(fast, "relay")["pid"] not in (killed, None), "a new relay")
        ids += take_ids(ticks, 1_000)
        bars += take(minutes, 4)
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    assert [bar.sequence for bar in bars] == list(range(bars[0].sequence, bars[0].sequence + 5))
    start_ms = bars[0].open_time // 1_000_000
    assert same(bars, exchange_rows(SYMBOL, start_ms, start_ms + 5 * 60_000))


def test_a_reader_that_slept_continues_without_a_gap(fast: System) -> None:
    with fast.connect() as c, fast.connect() as other, c.ticks(TICKER, buffer=50) as ticks:
        ids = take_ids(ticks, 1)
        with other.ticks(TICKER) as awake:
            for _ in range(15):
                take_ids(awake, 20)
                # Another call moves the sockets of this client, while its stream is not read.
                c.venues()
        ids += take_ids(ticks, 300)
        assert ticks.replayed > 0
    assert ids == list(range(ids[0], ids[0] + 301))


def test_history_over_the_live_range_gives_one_row_a_key_and_the_exchanges_wins(
    fast: System, client: cw.Client, exchange_rows: ExchangeRows
) -> None:
    settings = fast.platform.settings

    def sources(start: int, end: int) -> list[str]:
        return read_ohlc(settings, TICKER, 60, start_ns=start, end_ns=end)["source"].to_pylist()  # type: ignore[no-any-return]

    with client.bars(TICKER, 60) as minutes:
        bars = take(minutes, 3)
        start, end = bars[0].open_time, bars[-1].open_time + MINUTE
        until(lambda: sources(start, end) == ["ticks"] * 3, "live bars in the table")
        got = client.history(TICKER, "1m", start=start, end=end)
        take(minutes, 2)
    table = got.to_arrow()
    assert got.row_count == 3
    assert table["source"].to_pylist() == ["exchange"] * 3
    assert [row[0] for row in exchange_rows(SYMBOL, start // 1_000_000, end // 1_000_000)] == [
        int(moment.timestamp() * 1_000) for moment in table["open_time"].to_pylist()
    ]
    assert sources(start, end) == ["exchange"] * 3


def test_the_watch_command_prints_bars_and_ends(fast: System) -> None:
    relay = fast.platform.settings.relay
    environment = {
        **os.environ,
        "CANDLEWRIGHT_RELAY__REQUESTS_BIND": relay.requests_bind,
        "CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND": relay.notifications_bind,
    }
    command = [sys.executable, "-m", "candlewright", "watch", TICKER, "--period", "1m", "--count", "3"]
    done = subprocess.run(
        [*command, "--output", "json"], env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0
    assert re.fullmatch(r"waiting for the first 1m bar, which closes at \S+Z\n", done.stderr)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["open_time"] - rows[0]["open_time"] for row in rows] == [0, MINUTE, 2 * MINUTE]
