"""Recorded market data through the whole platform: a client reads exactly, to the bit, what the exchange sent."""

import asyncio
import csv
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import candlewright as cw
from bus.redis.redis_bus import RedisBus
from candlewright_platform.supervisor.parts import bus_url_of
from candlewright_platform.supervisor.private import PrivatePlatform
from core.settings import IngestorSettings
from iceberg.coverage import read_coverage
from sandbox import SandboxThread
from sandbox.behaviour.faults import Fault
from sandbox.markets.instruments import utc_ms
from sandbox.serving.recorded_venues import RecordedVenues
from tests.faults.harness import Platform, until
from tests.faults.replay import Replay, Tape, ids_of, published_bars

pytestmark = pytest.mark.timeout(600)

MS = 1_000_000
SECOND = 1_000_000_000
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
WEEK_SECONDS = 604_800
LONG, HOURLY = "FTXBTC/USD", "BTC/USDT"


class RecordedThread:
    """Recorded venues in a separate thread."""

    def __init__(self, venues: RecordedVenues, loop: asyncio.AbstractEventLoop) -> None:
        self.url = venues.url
        self._venues = venues
        self._loop = loop

    def call(self, function: Callable[[RecordedVenues], Any]) -> Any:
        """The result of the function in that thread."""

        async def run() -> Any:
            return function(self._venues)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)


@dataclass
class Venues:
    """One platform over Binance's wire format and over Kraken's recorded replies."""

    platform: Platform
    kraken: RecordedThread
    kraken_rows: list[list[Any]]

    def connect(self) -> cw.Client:
        return cw.connect(settings=self.platform.up.settings, timeout=60.0)

    def coverage(self, request_id: str) -> dict[str, Any]:
        rows = [row for row in read_coverage(self.platform.up.settings) if row["request_id"] == request_id]
        (row,) = rows
        return row


@contextmanager
def recorded_venues(directory: Path) -> Iterator[RecordedThread]:
    started, over = threading.Event(), asyncio.Event()
    found = list[RecordedThread]()

    async def run() -> None:
        async with RecordedVenues(directory) as venues:
            found.append(RecordedThread(venues, asyncio.get_running_loop()))
            started.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="recorded-venues", daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        yield found[0]
    finally:
        found[0]._loop.call_soon_threadsafe(over.set)
        thread.join(10)


@pytest.fixture(scope="module")
def hours(shared_data: Path) -> list[list[Any]]:
    """Two consecutive pages of BTC/USDT with three hours missing."""
    routes = json.loads((shared_data / "binance" / "http_mock_routes.json").read_text())["routes"]
    pages = [
        reply["data"]
        for reply in routes["/api/v3/klines"]["GET"]
        if "interval=1h" in reply["queryString"]
        and "symbol=BTCUSDT" in reply["queryString"]
        and len(reply["data"]) > 400
    ]
    rows = sorted((row for page in pages for row in page), key=lambda row: int(row[0]))
    assert len(rows) == 1_468
    return rows


@pytest.fixture(scope="module")
def long_file(shared_data: Path) -> Path:
    return shared_data / "ftx" / "btc_perp_1m_20211231_20220201.csv"


@pytest.fixture(scope="module")
def venues(
    tmp_path_factory: pytest.TempPathFactory, shared_data: Path, hours: list[list[Any]], long_file: Path
) -> Iterator[Venues]:
    told: list[str] = []
    reply = json.loads((shared_data / "kraken" / "xbtusdt_ohlc_1m_rest.json").read_text())
    with (
        SandboxThread(seed=11, rate_limit=False, candles=[f"{LONG}:1m={long_file}"]) as binance,
        recorded_venues(shared_data) as kraken,
    ):
        binance.call(lambda sandbox: sandbox.add_candles(HOURLY, "1h", hours))
        up = PrivatePlatform(
            tmp_path_factory.mktemp("recorded"),
            ("--exchange-url", f"BINANCE={binance.url}", "--exchange-url", f"KRAKEN={kraken.url}", "--ingestors", "3"),
            {
                "INGESTOR__VENUES": '["BINANCE", "KRAKEN"]',
                "INGESTOR__RATE_LIMIT": "false",
                # The longest-waiting slot comes first: few of them, and a range of six pieces needs all ingestors.
                "INGESTOR__SLOTS_HISTORICAL": "2",
                "BROKER__LEASE_SECONDS": "3",
                "BROKER__HEARTBEAT_SECONDS": "1",
            },
            hear=told.append,
        )
        try:
            up.start(300)
            yield Venues(Platform(up, binance, told), kraken, reply["result"]["XBTUSDT"])
        finally:
            code = up.stop()
        assert code == 0, told[-40:]


def values(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    times = [round(moment.timestamp() * 1_000) for moment in table["open_time"].to_pylist()]
    return list(zip(times, *(table[name].to_pylist() for name in columns), strict=True))


def test_two_real_pages_with_a_three_hour_hole(venues: Venues, hours: list[list[Any]]) -> None:
    start_ms, end_ms = int(hours[0][0]), int(hours[-1][0]) + HOUR_MS
    with venues.connect() as client:
        got = client.history(
            f"{HOURLY}.BINANCE", "1h", start=start_ms * MS, end=end_ms * MS, request_id="hole", timeout=120
        )
    assert got.notification.status is cw.Outcome.OK
    assert got.notification.row_count == 1_468
    assert values(got.to_arrow(), "open", "high", "low", "close", "volume", "quote_volume", "trade_count") == [
        (row[0], *map(float, row[1:6]), float(row[7]), row[8]) for row in hours
    ]
    covered = venues.coverage("hole")
    hole_ms = 1_593_306_000_000 + HOUR_MS
    assert (covered["expected"], covered["got"], covered["status"]) == (1_471, 1_468, "OK")
    assert [
        (round(hole["start"].timestamp() * 1_000), round(hole["end"].timestamp() * 1_000)) for hole in covered["holes"]
    ] == [(hole_ms, hole_ms + 3 * HOUR_MS)]


def test_a_month_of_minutes_over_three_ingestors_of_which_one_dies(venues: Venues, long_file: Path) -> None:
    """Rows of a closed exchange, served in Binance's wire format; the volume of this file is in USD."""
    with long_file.open() as stream:
        expected = [(utc_ms(at), tuple(map(float, row))) for at, *row in list(csv.reader(stream))[1:]]
    assert len(expected) == 45_031
    start_ms, end_ms = expected[0][0], expected[-1][0] + MINUTE_MS
    platform = venues.platform
    # An ingestor that is still loading its markets would be too late to share the range.
    all_slots = 3 * 2 * (2 + IngestorSettings().slots_realtime)
    until(lambda: platform.part("broker")["status"]["slots"] >= all_slots, 120, "all ingestors offer their slots")
    slow = platform.exchange.add_fault(Fault(kind="delay", path="*/klines", symbol=LONG, seconds=0.6))
    with venues.connect() as client:
        client.submit(f"{LONG}.BINANCE", "1m", start=start_ms * MS, end=end_ms * MS, request_id="month")

        def working() -> list[str]:
            parts = platform.page()["parts"]
            busy = {
                name: part["status"].get("running_jobs", {})
                for name, part in parts.items()
                if name.startswith("ingestor-")
            }
            return [name for name, jobs in busy.items() if f"{LONG}.BINANCE" in jobs.values()]

        at_work = until(
            lambda: found if len(found := working()) == 3 else None, 60, "all three ingestors share the range"
        )
        assert client.state("month").done_candles < 45_031
        os.kill(platform.part(at_work[1])["pid"], signal.SIGKILL)
        platform.exchange.call(lambda sandbox: sandbox.state.faults.remove(slow))
        final = client.wait("month", timeout=180)
        rows = client.read(final).to_arrow()
    assert (final.status, final.row_count) == (cw.Outcome.OK, 45_031)
    assert values(rows, "open", "high", "low", "close", "volume") == [(at, *row) for at, row in expected]
    covered = venues.coverage("month")
    assert (covered["expected"], covered["got"], covered["holes"]) == (45_031, 45_031, [])
    stored = [row[0] for row in platform.all_rows(f"{LONG}.BINANCE")]
    assert stored == [row[0] for row in expected]
    platform.wait_until_well()


def test_quiet_minutes_are_kept_and_the_unfinished_candle_is_absent(venues: Venues) -> None:
    rows = venues.kraken_rows
    first, last = rows[0][0], rows[-1][0]
    with venues.connect() as client:
        got = client.history(
            "BTC/USDT.KRAKEN", "1m", start=first * SECOND, end=(last + 3_600) * SECOND, request_id="kraken", timeout=120
        )
    assert got.notification.row_count == 720
    assert values(got.to_arrow(), "open", "high", "low", "close", "volume", "trade_count") == [
        (row[0] * 1_000, *map(float, row[1:5]), float(row[6]), row[7]) for row in rows[:-1]
    ]
    covered = venues.coverage("kraken")
    assert (covered["expected"], covered["got"], covered["holes"], covered["status"]) == (720, 720, [], "OK")


def test_live_trades_make_the_exchanges_own_candles(venues: Venues, shared_data: Path) -> None:
    """Through its websocket, which is cut three times and resends its newest trades on each subscribe."""
    reply = json.loads((shared_data / "kraken" / "xbtusdt_trades_rest.json").read_text())
    trades = reply["result"]["XBTUSDT"]
    ticker, times = "BTC/USDT.KRAKEN", [-int(-trade[2] * 1_000 // 1) for trade in trades]
    end = venues.kraken.call(lambda recorded: recorded.clock.now())
    start = times[0] - 1
    venues.kraken.call(lambda recorded: recorded.clock.set(start))
    # A job starts by a clock that was read up to a second ago, and real ones do not go back by hours.
    time.sleep(1.1)
    for code, after in ((1000, 200), (1001, 450), (1006, 700)):
        venues.kraken.call(lambda recorded: recorded.add_fault(Fault(kind="close", path="/v2", code=code, after=after)))  # noqa: B023
    bus = RedisBus(bus_url_of(venues.platform.up.settings))

    def advance(milliseconds: int) -> None:
        venues.kraken.call(lambda recorded: recorded.clock.advance(milliseconds))

    replay = Replay(bus, [Tape(ticker, times, advance, start)])
    try:
        with venues.connect() as client, client.realtime(ticker, ohlc_periods=["1m"]):
            until(lambda: venues.kraken.call(lambda recorded: recorded.is_streaming), 60, "a subscription")
            replay.play(len(times), step=5)
            replay.finish()
            replay.pass_time(end - replay.tapes[0].now)
            theirs = {
                row[0] * 1_000: (*map(float, row[1:5]), float(row[6]), row[7])
                for row in venues.kraken_rows
                if times[0] < row[0] * 1_000 < times[-1] - MINUTE_MS
            }
            assert len(theirs) == 409
            with_trades = {opened for opened, row in theirs.items() if row[-1]}

            def closed() -> bool:
                return with_trades <= {opened for period, opened in published_bars(bus, ticker) if period == 60}

            until(closed, 90, "all bars")
            said = {opened: row for (period, opened), row in published_bars(bus, ticker).items() if period == 60}
    finally:
        venues.kraken.call(lambda recorded: recorded.clock.set(end))
        bus.close()
    # Quiet minutes have no bar.
    assert {opened for opened in theirs if opened in said} == with_trades
    assert {opened: (*said[opened][1:6], said[opened][7]) for opened in with_trades} == {
        opened: theirs[opened] for opened in with_trades
    }
    assert all(said[opened][-1] for opened in with_trades)
    platform = venues.platform
    until(lambda: platform.table("ticks", ticker=ticker).num_rows >= len(trades), 60, "all ticks in the table")
    assert ids_of(platform.table("ticks", ticker=ticker)) == [trade[6] for trade in trades]
    assert venues.platform.table("gaps", ticker=ticker).num_rows == 0


def test_a_range_that_the_exchange_no_longer_serves_is_an_error_with_the_reason(venues: Venues) -> None:
    first = venues.kraken_rows[0][0]
    with venues.connect() as client, pytest.raises(cw.RequestFailed) as caught:
        client.history(
            "BTC/USDT.KRAKEN",
            "1m",
            start=(first - 86_400) * SECOND,
            end=(first - 3_600) * SECOND,
            request_id="older",
            timeout=120,
        )
    assert "720" in str(caught.value)
    older = venues.platform.rows("BTC/USDT.KRAKEN", (first - 86_400) * 1_000, first * 1_000)
    assert older == []
    assert venues.coverage("older")["status"] == "ERROR"


def test_a_range_that_begins_and_ends_between_candles_has_the_open_times_inside(venues: Venues) -> None:
    base_ms = utc_ms("2024-02-01")
    with venues.connect() as client:
        got = client.history(
            "ETH/USDT.BINANCE",
            "5m",
            start=base_ms * MS + 1,
            end=(base_ms + 3 * HOUR_MS) * MS + 1,
            request_id="unaligned",
            timeout=120,
        )
    expected = venues.platform.exchange_rows("ETHUSDT", base_ms + 300_000, base_ms + 3 * HOUR_MS + 1, interval="5m")
    assert len(expected) == 36
    assert values(got.to_arrow(), "open", "high", "low", "close", "volume", "quote_volume", "trade_count") == expected
    assert venues.coverage("unaligned")["expected"] == 36


def test_a_range_into_the_future_has_closed_candles_only(venues: Venues) -> None:
    platform = venues.platform
    # The exchange's clock is what decides, not ours.
    now_ms = platform.exchange.call(lambda sandbox: sandbox.clock.now())
    start_ms = now_ms - now_ms % HOUR_MS - 5 * HOUR_MS
    with venues.connect() as client:
        got = client.history(
            "ETH/USDT.BINANCE",
            "1h",
            start=start_ms * MS,
            end=(now_ms + 48 * HOUR_MS) * MS,
            request_id="future",
            timeout=120,
        )
    after_ms = platform.exchange.call(lambda sandbox: sandbox.clock.now())
    closed = {(now_ms - start_ms) // HOUR_MS, (after_ms - start_ms) // HOUR_MS}
    rows = values(got.to_arrow(), "open", "high", "low", "close", "volume", "quote_volume", "trade_count")
    assert len(rows) in closed
    assert rows == platform.exchange_rows("ETHUSDT", start_ms, start_ms + len(rows) * HOUR_MS, interval="1h")
    covered = venues.coverage("future")
    assert (covered["expected"], covered["got"], covered["holes"]) == (len(rows), len(rows), [])


def test_a_range_wholly_in_the_future_is_validly_empty(venues: Venues) -> None:
    now_ms = venues.platform.exchange.call(lambda sandbox: sandbox.clock.now())
    start_ms = now_ms + 48 * HOUR_MS
    with venues.connect() as client, pytest.raises(cw.RequestNotFound):
        client.history(
            "ETH/USDT.BINANCE",
            "1h",
            start=start_ms * MS,
            end=(start_ms + HOUR_MS) * MS,
            request_id="ahead",
            timeout=120,
        )
    covered = venues.coverage("ahead")
    assert (covered["expected"], covered["got"], covered["status"]) == (0, 0, "NOT_FOUND")


def test_weeks_start_on_monday(venues: Venues) -> None:
    start_ms, end_ms = utc_ms("2024-01-01"), utc_ms("2024-03-01")
    with venues.connect() as client:
        got = client.history(
            "ETH/USDT.BINANCE", "1w", start=start_ms * MS, end=end_ms * MS, request_id="weeks", timeout=120
        )
    rows = values(got.to_arrow(), "open", "high", "low", "close", "volume", "quote_volume", "trade_count")
    assert [row[0] for row in rows] == [start_ms + week * WEEK_SECONDS * 1_000 for week in range(9)]
    assert rows == venues.platform.exchange_rows("ETHUSDT", start_ms, end_ms, interval="1w")
