"""Repairs by REST: raw pages, cursors, aggregates cut to the missing ids, and trades that a venue no longer has."""

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire.errors import BadReply
from ingestor.exchange.client import VenueClient
from ingestor.progress import Progress
from ingestor.realtime import rest_trades
from ingestor.realtime.aggregates import cut
from ingestor.realtime.rest_trades import Anchor, CursorTrades, NewestPage, PageAndAggregates, RestTrades, parsed
from ingestor.realtime.sampling import MINUTE, BarSampler
from ingestor.trade import ORDER, SIZE, TIME, TRADE_ID, Aggregate, Trade
from ingestor.venues import binance, bybit, described
from ingestor.venues.description import Market, NewestTrades, Request
from ingestor.venues.limits import Call
from ingestor.venues.reading import Parse
from sandbox.serving.recorded_venues import RecordedVenues
from sandbox.serving.server import Sandbox
from tests.fresh_bus import FreshBus
from tests.ingestor.realtime.stage import ingestor

QUIET = Progress()


def trade(order: int, size: float = 1.0, time: int | None = None) -> Trade:
    return (order, order * 10 if time is None else time, 5.0, size, 1, str(order), 0)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=12), st.data())
def test_an_aggregate_is_cut_to_the_missing_ids_exactly(lots: list[int], data: st.DataObject) -> None:
    sizes = [Decimal(lot).scaleb(-5) for lot in lots]
    low = data.draw(st.integers(0, len(lots) - 1))
    high = data.draw(st.integers(low, len(lots) - 1))
    known = {100 + i: trade(100 + i, float(size)) for i, size in enumerate(sizes) if not low <= i <= high}
    piece = cut(Aggregate(100, 99 + len(lots), 7, 5.0, float(sum(sizes))), 100 + low, 100 + high, known=known)
    assert piece == Aggregate(100 + low, 100 + high, 7, 5.0, float(sum(sizes[low : high + 1])))


def test_an_aggregate_whose_other_trades_are_unknown_is_not_used() -> None:
    whole = Aggregate(100, 109, 7, 5.0, 10.0)
    assert cut(whole, 105, 200, known={}) is None
    assert cut(whole, 110, 200, known={}) is None
    assert cut(whole, 90, 200, known={}) == whole


def test_a_row_that_is_not_a_trade_is_a_bad_reply() -> None:
    with pytest.raises(BadReply):
        parsed([{"id": 1}], binance.rest_trade)


def source(parse: Parse, *, joins_fills: bool = False) -> NewestTrades:
    return NewestTrades(ask=lambda market: Request(Call.RAW_TRADES, "", {}), parse=parse, joins_fills=joins_fills)


def rest_trades_of(client: VenueClient, market: Market) -> RestTrades:
    stream = client.description.stream
    assert stream is not None
    return rest_trades.rest_trades_of(client, market, stream)


class OnePage(NewestPage):
    def __init__(self, page: list[Trade], *, is_dense: bool, joins_fills: bool = False) -> None:
        self._page, self._is_dense = page, is_dense
        self._source = source(binance.rest_trade, joins_fills=joins_fills)

        class Client:
            venue = "OKX"

        self._client = Client()  # type: ignore[assignment]

    async def newest(self, progress: Progress) -> list[Trade]:
        return self._page


async def test_a_newest_page_proves_only_the_trades_it_reaches() -> None:
    page = [trade(order) for order in range(50, 60)]
    dense = OnePage(page, is_dense=True)
    found = await dense.after(Anchor(520, 52), QUIET)
    assert found.proven and [one[ORDER] for one in found.trades] == list(range(53, 60))
    found = await dense.after(Anchor(400, 40), QUIET)
    assert not found.proven and "newest 10 trades" in found.reason
    assert (await dense.after(Anchor(490, 49), QUIET)).proven
    loose = OnePage(page, is_dense=False)
    found = await loose.after(Anchor(505, None), QUIET)
    assert found.proven and [one[TIME] for one in found.trades] == list(range(510, 600, 10))
    assert not (await loose.after(Anchor(500, None), QUIET)).proven


async def test_an_empty_page_proves_nothing_where_there_was_a_trade() -> None:
    for is_dense in (True, False):
        empty = OnePage([], is_dense=is_dense)
        assert (await empty.after(Anchor(500), QUIET)).proven
        assert not (await empty.after(Anchor(500, 50, has_trade=True), QUIET)).proven


async def test_fills_that_the_socket_had_joined_are_not_found_again_one_by_one() -> None:
    """The socket sent the fills 51 to 53 as one trade under id 53."""
    page = [trade(50, time=400), *(trade(order, time=500) for order in (51, 52, 53, 54)), trade(55, time=600)]
    found = await OnePage(page, is_dense=False, joins_fills=True).after(Anchor(500, 53, has_trade=True), QUIET)
    assert found.proven and [one[ORDER] for one in found.trades] == [54, 55]


async def test_a_shortened_page_does_not_prove_that_a_market_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        Sandbox(seed=3, clock="2024-03-05T12:34:20", speed=0, rate_limit=False) as exchange,
        ingestor(FreshBus(), exchange.url) as own,
    ):
        market = await own.client.market("BTC/USDT", QUIET)
        rest = rest_trades_of(own.client, market)
        assert isinstance(rest, NewestPage)
        page = await rest.newest(QUIET)
        newest = page[-1][ORDER]

        async def short(progress: Progress) -> list[Trade]:
            return page[-40:]

        monkeypatch.setattr(rest, "newest", short)
        since = exchange.clock.now() * 10**6 - 60 * 10**9
        found = await rest.after(Anchor(since, newest - 90, has_trade=True), QUIET)
        assert not found.proven and len(found.trades) == 40
        assert [i for piece in found.aggregates for i in range(piece.first, piece.last + 1)] == list(
            range(newest - 89, newest - 39)
        )
        since_the_minute = await rest.after(Anchor(since), QUIET)
        assert not since_the_minute.proven and since_the_minute.is_whole


class NewestFirst(NewestPage):
    def __init__(self, rows: list[dict[str, str]], parse: Parse) -> None:
        async def call(ask: Any, progress: Progress) -> Any:
            return await ask()

        async def ask(request: Request, progress: Progress) -> Any:
            return rows

        self._client = SimpleNamespace(call=call, ask=ask)  # type: ignore[assignment]
        self._market = None  # type: ignore[assignment]
        self._source, self._is_dense = source(parse), False


async def test_a_millisecond_keeps_its_order_on_a_page_that_begins_with_the_newest() -> None:
    def page(*names: str) -> list[dict[str, str]]:
        return [{"execId": name, "time": "7", "price": "1", "size": "1", "side": "Buy"} for name in names]

    texts = await NewestFirst(page("e-c", "e-a", "e-b"), bybit.rest_trade).newest(QUIET)
    assert [one[TRADE_ID] for one in texts] == ["e-b", "e-a", "e-c"]
    # Spot ids of 19 digits are numbers, whatever the order of the page.
    names = ("2290000000000000010", "2290000000000000009", "2290000000000000011")
    numbers = await NewestFirst(page(*names), bybit.rest_trade).newest(QUIET)
    assert [one[ORDER] for one in numbers] == sorted(map(int, names))
    assert bybit.rest_trade(page("9223372036854775808")[0], 0)[ORDER] == 0


async def test_kraken_s_recorded_trades_are_all_found_after_any_of_them(shared_data: Path) -> None:
    async with (
        RecordedVenues(shared_data) as venues,
        ingestor(FreshBus(), venues.url, venue="KRAKEN") as own,
    ):
        market = await own.client.market("BTC/USDT", QUIET)
        rest = rest_trades_of(own.client, market)
        assert isinstance(rest, CursorTrades)
        every = await rest.after(Anchor(0), QUIET)
        orders = [one[ORDER] for one in every.trades]
        assert orders == list(range(10218208, 10219208))
        middle = every.trades[500]
        found = await rest.after(Anchor(middle[TIME], middle[ORDER]), QUIET)
        assert found.proven and [one[ORDER] for one in found.trades] == orders[501:]


async def test_binance_gives_aggregates_beyond_its_raw_page() -> None:
    async with (
        Sandbox(seed=3, clock="2024-03-05T12:34:20", speed=0, rate_limit=False) as exchange,
        ingestor(FreshBus(), exchange.url) as own,
    ):
        market = await own.client.market("BTC/USDT", QUIET)
        book = exchange.markets["BTCUSDT"]
        newest = book.fill_at(exchange.clock.now() + 1) - 1
        rows = book.fills(newest - 4_000, 1, exchange.clock.now())
        anchor = Anchor(int(rows.time[0]) * 10**6, newest - 4_000, None, {newest - 4_000: _as_trade(book, rows)})
        found = await rest_trades_of(own.client, market).after(anchor, QUIET)
        assert not found.proven and found.is_whole
        assert [one[ORDER] for one in found.trades] == list(range(newest - 999, newest + 1))
        covered = [i for piece in found.aggregates for i in range(piece.first, piece.last + 1)]
        assert covered[-1] == newest - 1_000 and covered[0] <= newest - 3_998
        raw = book.fills(covered[0], len(covered), exchange.clock.now())
        lots = Decimal(int(raw.lots.sum())).scaleb(-book.lot_decimals)
        assert sum(Decimal(repr(piece.size)) for piece in found.aggregates) == lots


def _as_trade(book: Any, rows: Any) -> Trade:
    size = float(Decimal(int(rows.lots[0])).scaleb(-book.lot_decimals))
    return (int(rows.id[0]), int(rows.time[0]) * 10**6, 0.0, size, 1, str(rows.id[0]), 0)


async def test_sampled_bars_equal_the_exchange_s_candles_and_a_wrong_one_is_seen() -> None:
    async with (
        Sandbox(seed=3, clock="2024-03-05T12:34:20", speed=0, rate_limit=False) as exchange,
        ingestor(FreshBus(), exchange.url) as own,
    ):
        rest = rest_trades_of(own.client, await own.client.market("BTC/USDT", QUIET))
        now = exchange.clock.now() * 10**6
        start = now // MINUTE * MINUTE - 2 * MINUTE
        found = await rest.after(Anchor(start), QUIET)
        assert found.proven
        first = [one for one in found.trades if one[TIME] < start + MINUTE]
        second = [one for one in found.trades if start + MINUTE <= one[TIME] < start + 2 * MINUTE]
        sampler = BarSampler(own.client, "BTC/USDT", 1.0)
        sampler.add(first)
        sampler.add(second)
        assert sampler.is_due(now)
        assert await sampler._differing(start + MINUTE, second, now) == []
        spoiled = [*second[:-1], (*second[-1][:SIZE], second[-1][SIZE] * 2, *second[-1][SIZE + 1 :])]
        assert await sampler._differing(start + MINUTE, spoiled, now) == ["volume"]  # type: ignore[arg-type]
        await sampler.compare(now)
        assert not sampler.is_due(now)


def test_every_streamed_venue_has_its_rest() -> None:
    market = Market("BTC/USDT", "BTCUSDT", True, "BTC", "USDT")
    streamed = {name: venue for name, venue in described().items() if venue.stream is not None}
    made = {
        name: type(rest_trades_of(SimpleNamespace(description=venue), market))  # type: ignore[arg-type]
        for name, venue in streamed.items()
    }
    assert made.pop("BINANCE") is PageAndAggregates
    assert made.pop("KRAKEN") is CursorTrades
    assert set(made.values()) == {NewestPage}
