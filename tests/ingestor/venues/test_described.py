"""One file per venue: it is found, it suffices, and nothing else in the ingestor names a venue."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import ccxt.async_support
import ccxt.pro
import pytest

import ingestor
import ingestor.venues
from bus.topics import HISTORY, TABLE_VENUES
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import ConfigurationError
from candlewright.wire.grid import SECOND
from core.settings import Settings
from ingestor.exchange import stock
from ingestor.exchange.venue_keeper import ALL_VENUES
from ingestor.server import IngestorServer
from ingestor.venues import described, venue_of
from ingestor.venues.default import OTHER
from ingestor.venues.description import Closing, Fill, Market, NewestTrades, Query, Request, VenueDescription
from ingestor.venues.page import page
from protobuf import records_pb2 as records
from relay.venues.venue_book import VenueBook
from sandbox.markets.instruments import utc_ms
from sandbox.markets.intervals import INTERVALS
from sandbox.serving.server import Sandbox
from tests.fresh_bus import FreshBus
from tests.ingestor.test_server import FakeBroker
from venues.catalogue import MAIN_VENUES, native_periods

ROOT = Path(__file__).resolve().parents[3]
HOUSE = Path(ingestor.__file__).parent
MARKET = Market("BTC/USDT", "BTCUSDT", True, "BTC", "USDT")
NOW = 1_700_000_040
#: A complete venue: another name for an exchange that a class of ccxt supports.
MOONBASE = '''
"""Moonbase, spot. Speaks as Binance does, under its own limits."""

from dataclasses import replace

from ingestor.venues import binance
from ingestor.venues.limits import Allowance, Limits

VENUE = replace(
    binance.VENUE,
    name="MOONBASE",
    limits=Limits(allowance=Allowance("calls", 100, 1)),
    verified=(),
    unverified=("everything",),
)
'''


def each_venue() -> list[VenueDescription]:
    return list(described().values())


def requests_of(venue: VenueDescription) -> Iterator[Request]:
    """One of each kind that the venue declares."""
    candles, stream = venue.candles, venue.stream
    assert candles.ask is not None
    for age in (1, 5_000):
        start = (NOW - 60 * age) * SECOND
        yield candles.ask(Query(MARKET, "1m", 60, start, start + 60 * SECOND, NOW * SECOND), "1m")
    if candles.older is not None:
        yield candles.older.ask(MARKET, 0)
    if stream is not None and isinstance(stream.repair, NewestTrades):
        yield stream.repair.ask(MARKET)
        if stream.repair.aggregates is not None:
            yield stream.repair.aggregates.since(MARKET, 0)
            yield stream.repair.aggregates.after(MARKET, 0)


def test_no_other_file_of_the_ingestor_names_a_venue() -> None:
    names = "|".join(each.ccxt_id for each in each_venue())
    named = {
        str(path.relative_to(HOUSE))
        for path in HOUSE.rglob("*.py")
        if "venues" not in path.relative_to(HOUSE).parts and re.search(names, path.read_text(), re.IGNORECASE)
    }
    assert named == set()


def test_the_page_of_venues_is_the_one_that_their_files_make() -> None:
    assert (ROOT / "docs" / "venues.md").read_text() == page()


def test_the_main_venues_have_files_and_their_names_are_those_of_the_files() -> None:
    assert set(MAIN_VENUES) < set(described())
    for name in described():
        assert (HOUSE / "venues" / f"{name.lower()}.py").exists()


@pytest.mark.parametrize("venue", each_venue(), ids=lambda venue: venue.name)
def test_a_venue_declares_only_methods_of_stock_ccxt(venue: VenueDescription) -> None:
    made = getattr(ccxt.async_support, venue.ccxt_id)
    requests = list(requests_of(venue))
    assert len(requests) >= 3
    assert [request.method for request in requests if not hasattr(made, request.method)] == []
    assert venue.stream is not None
    streaming = getattr(ccxt.pro, venue.ccxt_id)
    overridden = [name for name in vars(venue.stream.hooks) if not name.startswith("__")]
    assert overridden
    assert [name for name in overridden if not hasattr(streaming, name)] == []
    assert native_periods(venue.name), "the relay checks periods before an ingestor has reported them"


@pytest.mark.parametrize("venue", each_venue(), ids=lambda venue: venue.name)
def test_verified_properties_have_a_test_with_recorded_data(venue: VenueDescription) -> None:
    assert venue.unverified
    for proof in venue.verified:
        assert "shared_data" in (ROOT / proof.test).read_text()
    for known in venue.lies:
        assert re.fullmatch(r"https://[\w.-]+/\S+", known.link)


def test_older_names_of_a_venue_have_its_description_and_others_the_default() -> None:
    old = venue_of("GDAX")
    assert (old.name, old.ccxt_id, old.stream) == ("GDAX", "coinbaseexchange", venue_of("COINBASEEXCHANGE").stream)
    other = venue_of("BITSTAMP")
    assert (other.name, other.ccxt_id, other.candles, other.stream) == ("BITSTAMP", "bitstamp", OTHER.candles, None)
    assert other.candles.fill is Fill.UNKNOWN


def test_an_unfinished_candle_is_marked_where_the_venue_reports_it() -> None:
    query = Query(MARKET, "1m", 60, 0, 600 * SECOND, 150 * SECOND)
    replies = {
        "OKX": {"data": [["120000", "1", "1", "1", "1", "1", "1", "1", "0"], ["60000", *"1111111", "1"]]},
        "KRAKEN": {"result": {"BTCUSDT": [[60, *"111111", 1], [120, *"111111", 1]], "last": 60}},
    }
    marking = {venue.name: venue.candles for venue in each_venue() if venue.candles.closing is not Closing.NOTHING}
    assert set(marking) == set(replies)
    for name, candles in marking.items():
        assert candles.read is not None
        found = candles.read(replies[name], query)
        assert (found.candles.open_time.tolist(), found.unfinished) == ([60 * SECOND], 120 * SECOND)


@pytest.fixture
def moonbase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A venue that consists of one new file, and nothing else."""
    (tmp_path / "moonbase.py").write_text(MOONBASE)
    monkeypatch.setattr(ingestor.venues, "__path__", [*ingestor.venues.__path__, str(tmp_path)])
    described.cache_clear()
    yield
    described.cache_clear()


async def test_a_new_file_is_a_venue_with_exact_history(moonbase: None) -> None:
    start, end = utc_ms("2024-03-05T00:00"), utc_ms("2024-03-06T12:00")
    broker, bus = FakeBroker(), FreshBus()
    async with Sandbox(seed=3, clock="2024-03-06T13:00:20", speed=0, rate_limit=False) as exchange:
        exchange.add_hole("BTC/USDT", start + 7 * 3_600_000, start + 9 * 3_600_000)
        settings = Settings.model_validate(
            {
                "broker": {"bind": f"tcp://127.0.0.1:{broker.port}"},
                "ingestor": {"venues": ("MOONBASE",), "slots_historical": 1, "slots_realtime": 1},
                "exchange": {"MOONBASE": {"url": exchange.url}},
            }
        )
        server = IngestorServer(settings, bus)
        task = asyncio.create_task(server.run())
        connection = await broker.slots(2)
        assert {name for ready in broker.of(ing.WorkerReady) for name in ready.exchanges} == {"MOONBASE"}
        bus.grant({"j1": b""})
        job = {"start_time": start * 10**6, "end_time": end * 10**6, "period_seconds": 60}
        broker.dispatch(connection, "j1", ticker="BTC/USDT.MOONBASE", historical=ing.HistoricalParams(**job))
        assert (await broker.completed("j1")).success
        server.shut_down()
        await asyncio.wait_for(task, 10)
        await broker.close()
        book = exchange.markets["BTCUSDT"]
        own = book.candles(INTERVALS["1m"], start, end - 60_000, now=exchange.clock.now())
        expected = list(zip((own.open_time * 10**6).tolist(), own.count.tolist(), strict=True))
    (done,) = broker.of(cw.HistoryEnd)
    assert (done.rows, done.expected) == (len(expected), 36 * 60)
    assert [(hole.start_time, hole.end_time) for hole in done.holes] == [
        ((start + 7 * 3_600_000) * 10**6, (start + 9 * 3_600_000) * 10**6)
    ]
    rows = []
    for span in done.spans:
        count = span.last_offset - span.first_offset + 1
        for stored in bus.read(HISTORY, done.partition, span.first_offset, max_records=count):
            found = records.HistoryPage.FromString(stored.value)
            assert found.ticker == "BTC/USDT.MOONBASE"
            rows += zip(found.open_time, found.trade_count, found.open, found.close, found.volume, strict=True)
    assert [row[:2] for row in rows] == expected
    scale, lots = 10**book.price_decimals, 10**book.lot_decimals
    assert [row[2] for row in rows] == (own.open / scale).tolist()
    assert [row[3] for row in rows] == (own.close / scale).tolist()
    assert [row[4] for row in rows] == (own.volume / lots).tolist()
    # The relay takes requests for it, too: its record was on the bus before its first slot was offered.
    values = bus.get(TABLE_VENUES, ["MOONBASE", ALL_VENUES])
    relay = VenueBook()
    relay.learn({ALL_VENUES: cw.Venue.FromString(values[1] or b"")}, 0.0)
    relay.check_venue("MOONBASE")
    record = cw.Venue.FromString(values[0] or b"")
    assert (record.is_live, record.depth_candles, 60 in record.period_seconds) == (True, 0, True)


def test_a_venue_without_a_ccxt_class_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ccxt has no exchange"):
        stock.build(venue_of("ATLANTIS"), url="", timeout_seconds=1)
