"""Generated markets: every view of one market adds up to every other, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.generated.market import GeneratedMarket
from sandbox.markets.instruments import DEFAULT_INSTRUMENTS, Instrument, make_instrument, utc_ms
from sandbox.markets.intervals import DAY, HOUR, INTERVALS, MINUTE, SECOND
from sandbox.markets.market import Trades
from sandbox.markets.noise import Ints
from tests.rounds import rounds

NOW = utc_ms("2026-03-05T13:37:21") + 345
BTC = DEFAULT_INSTRUMENTS[0]
SOL = next(i for i in DEFAULT_INSTRUMENTS if i.base == "SOL")
QUIET = next(i for i in DEFAULT_INSTRUMENTS if i.symbol == "LTCBNB")
DELISTED = next(i for i in DEFAULT_INSTRUMENTS if i.status == "BREAK")
MINUTES = INTERVALS["1m"]

_markets: dict[tuple[str, int], GeneratedMarket] = {}


def market_of(instrument: Instrument, seed: int = 7) -> GeneratedMarket:
    """One market per instrument and seed for the whole module; tests with holes make their own."""
    key = instrument.symbol, seed
    return _markets.setdefault(key, GeneratedMarket(instrument, seed))


def page(market: GeneratedMarket, interval: str, start: int | None, *, end: int | None, limit: int = 1000) -> Any:
    return orjson.loads(market.kline_page(INTERVALS[interval], start, end, limit=limit, now=NOW))


def orders_between(market: GeneratedMarket, start: int, stop: int) -> Trades:
    first, last = market.order_at(start), market.order_at(stop)
    return market.orders(first, last - first, NOW)


def fills_between(market: GeneratedMarket, start: int, stop: int) -> Trades:
    first, last = market.fill_at(start), market.fill_at(stop)
    return market.fills(first, last - first, NOW)


def candle_of(trades: Trades) -> list[int]:
    amounts = trades.price * trades.lots
    return [
        int(trades.price[0]),
        int(trades.price.max()),
        int(trades.price.min()),
        int(trades.price[-1]),
        int(trades.lots.sum()),
        int(amounts.sum()),
        int(trades.lots[trades.bought].sum()),
        int(amounts[trades.bought].sum()),
    ]


instants = st.integers(utc_ms("2021-06-01") // MINUTE, utc_ms("2024-06-01") // MINUTE).map(lambda m: m * MINUTE)


@given(instrument=st.sampled_from(DEFAULT_INSTRUMENTS), start=instants, seed=st.integers(0, 3))
@settings(max_examples=rounds(60), deadline=None)
def test_trades_add_up_to_minute_candles(instrument: Instrument, start: int, seed: int) -> None:
    market = market_of(instrument, seed)
    candles = market.candles(MINUTES, start, start + 9 * MINUTE, now=NOW)
    assert len(candles) == 10
    for row, opened in enumerate(candles.open_time.tolist()):
        orders = orders_between(market, opened, opened + MINUTE)
        fills = fills_between(market, opened, opened + MINUTE)
        assert len(fills) == candles.count[row]
        if not len(fills):
            assert len(orders) == 0
            assert candles.volume[row] == 0
            assert candles.high[row] == candles.low[row] == candles.open[row] == candles.close[row]
            continue
        expected = [
            int(column[row])
            for column in (
                candles.open,
                candles.high,
                candles.low,
                candles.close,
                candles.volume,
                candles.quote,
                candles.taker_volume,
                candles.taker_quote,
            )
        ]
        assert candle_of(orders) == expected
        assert candle_of(fills) == expected
        assert ((fills.time >= opened) & (fills.time < opened + MINUTE)).all()
        assert (fills.lots > 0).all()


@given(instrument=st.sampled_from(DEFAULT_INSTRUMENTS), start=instants)
@settings(max_examples=rounds(30), deadline=None)
def test_ids_are_contiguous_and_orders_cover_fills_exactly(instrument: Instrument, start: int) -> None:
    market = market_of(instrument)
    orders = orders_between(market, start, start + 20 * MINUTE)
    fills = fills_between(market, start, start + 20 * MINUTE)
    assert (np.diff(orders.id) == 1).all()
    assert (np.diff(fills.id) == 1).all()
    assert (np.diff(fills.time) >= 0).all()
    if not len(orders):
        return
    assert orders.first[0] == fills.id[0]
    assert orders.last[-1] == fills.id[-1]
    assert (orders.first[1:] == orders.last[:-1] + 1).all()
    for row in range(0, len(orders), 7):
        inside = (fills.id >= orders.first[row]) & (fills.id <= orders.last[row])
        assert fills.lots[inside].sum() == orders.lots[row]
        assert set(fills.price[inside].tolist()) == {int(orders.price[row])}
        assert set(fills.time[inside].tolist()) == {int(orders.time[row])}


def fold(rows: list[list[Any]], interval: str) -> Iterator[list[Any]]:
    """Merge rows of the wire format into a longer interval with exact integers (amounts have eight decimals)."""

    def units(text: str) -> int:
        return int(text.replace(".", ""))

    groups: dict[int, list[list[Any]]] = {}
    for row in rows:
        groups.setdefault(INTERVALS[interval].floor(row[0]), []).append(row)
    for opened, group in groups.items():
        yield [
            opened,
            units(group[0][1]),
            max(units(row[2]) for row in group),
            min(units(row[3]) for row in group),
            units(group[-1][4]),
            *(sum(units(row[place]) for row in group) for place in (5, 7, 9, 10)),
            sum(row[8] for row in group),
        ]


def flat(row: list[Any]) -> list[Any]:
    amounts = [int(row[place].replace(".", "")) for place in (1, 2, 3, 4, 5, 7, 9, 10)]
    return [row[0], *amounts, row[8]]


@pytest.mark.parametrize("instrument", [BTC, QUIET], ids=["busy", "quiet"])
@pytest.mark.parametrize(
    ("fine", "coarse"),
    [
        ("1s", "1m"),
        ("1m", "3m"),
        ("1m", "5m"),
        ("1m", "15m"),
        ("1m", "30m"),
        ("1m", "1h"),
        ("15m", "2h"),
        ("15m", "4h"),
        ("1h", "6h"),
        ("1h", "8h"),
        ("1h", "12h"),
        ("1h", "1d"),
        ("1d", "3d"),
        ("1d", "1w"),
        ("1d", "1M"),
    ],
)
def test_shorter_candles_merge_into_longer_ones(instrument: Instrument, fine: str, coarse: str) -> None:
    """They include the current, unfinished candle."""
    market = market_of(instrument)
    length = INTERVALS[coarse].step_ms or 31 * DAY
    start = INTERVALS[coarse].floor(NOW - 5 * length)
    span = INTERVALS[fine].step_ms * 1000
    rows = []
    while start <= NOW:
        rows += page(market, fine, start, end=start + span - 1)
        start += span
    expected = list(fold(rows, coarse))
    assert len(expected) >= 5
    assert [flat(row) for row in page(market, coarse, expected[0][0], end=None)] == expected


def test_minutes_without_trades_occur_and_are_flat_at_the_price_before() -> None:
    candles = market_of(QUIET).candles(MINUTES, NOW - DAY, NOW - MINUTE, now=NOW)
    quiet = candles.count == 0
    assert 0.2 < quiet.mean() < 0.8
    assert (candles.open[1:] == candles.close[:-1]).all()
    assert (candles.high[quiet] == candles.low[quiet]).all()


def test_a_candle_is_the_same_on_every_page() -> None:
    start = utc_ms("2023-05-17T03:11")
    wanted = page(market_of(BTC), "1m", start, end=start + 49 * MINUTE)
    assert len(wanted) == 50
    other = GeneratedMarket(BTC, 7)
    assert page(other, "1m", start - 400 * MINUTE, end=None)[400:450] == wanted
    assert page(other, "1m", None, end=start + 49 * MINUTE, limit=50) == wanted
    assert page(other, "1m", start, end=None, limit=50) == wanted


def test_another_seed_or_symbol_gives_another_market() -> None:
    start = utc_ms("2023-05-17")
    pages = [
        page(market_of(instrument, seed), "1m", start, end=None, limit=5) for instrument, seed in ((BTC, 1), (BTC, 2))
    ]
    assert pages[0] != pages[1]


GOLDEN: list[list[Any]] = [
    [
        1704067200000,
        "154766.67000000",
        "154810.41000000",
        "154738.43000000",
        "154803.76000000",
        "0.60792000",
        1704067259999,
        "94098.31401230",
        238,
        "0.38606000",
        "59755.91939810",
        "0",
    ],
    [
        1704067260000,
        "154803.76000000",
        "154805.09000000",
        "154640.40000000",
        "154654.78000000",
        "0.49962000",
        1704067319999,
        "77304.68687200",
        67,
        "0.18120000",
        "28035.75273950",
        "0",
    ],
]


def test_the_market_of_a_seed_is_this_one_forever() -> None:
    """Literal values, so that a change of the generator, which would break users' recorded results, fails."""
    rows = page(market_of(BTC, 1), "1m", utc_ms("2024-01-01"), end=None, limit=2)
    assert rows == GOLDEN


def test_path_is_continuous_over_block_bounds_and_years_stay_in_range() -> None:
    market = market_of(BTC)
    days = market.candles(INTERVALS["1d"], utc_ms("2023-01-01"), utc_ms("2025-12-31"), now=NOW)
    assert (days.open[1:] == days.close[:-1]).all()
    dollars = days.close / 100
    assert dollars.min() > 2_000
    assert dollars.max() < 2_000_000
    daily = np.abs(np.diff(np.log(dollars)))
    assert 0.005 < np.median(daily) < 0.08


def test_activity_follows_the_hours_of_the_day() -> None:
    hours = market_of(BTC).candles(INTERVALS["1h"], NOW - 60 * DAY, NOW // DAY * DAY - 1, now=NOW)
    of_day: Ints = hours.open_time // HOUR % 24
    busy, calm = hours.count[of_day == 14].mean(), hours.count[of_day == 3].mean()
    assert busy > 1.5 * calm


def test_unfinished_candle_grows_with_the_clock_and_ends_as_the_closed_one() -> None:
    market = market_of(BTC)
    opened = utc_ms("2024-02-02T10:10")

    def newest(now: int) -> Any:
        return orjson.loads(market.kline_page(MINUTES, opened, None, limit=10, now=now))[0]

    counts = [newest(opened + ms)[8] for ms in range(0, MINUTE, 5000)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    assert newest(opened + MINUTE - 1) == newest(opened + MINUTE)
    assert len(orjson.loads(market.kline_page(MINUTES, opened, None, limit=10, now=opened + MINUTE))) == 2


def test_nothing_is_later_than_now() -> None:
    market = market_of(BTC)
    newest = market.fills(market.fill_at(NOW + 1) - 1, 100, NOW)
    assert len(newest) == 1
    assert newest.time[0] <= NOW
    assert market.next_trade_time(NOW) == market.fills(int(newest.id[0]) + 1, 1, NOW + DAY).time[0]
    assert page(market, "1m", NOW + HOUR, end=None) == []


def test_history_begins_with_the_listing() -> None:
    market = market_of(SOL)
    rows = page(market, "1m", 0, end=None, limit=3)
    assert rows[0][0] == SOL.listed_ms
    assert page(market, "1m", None, end=SOL.listed_ms - 1) == []
    assert market.orders(0, 2, NOW).id.tolist() == [1]
    assert market.fills(1, 1, NOW).id.tolist() == [1]
    assert page(market, "1w", 0, end=None, limit=1)[0][0] == INTERVALS["1w"].floor(SOL.listed_ms)


def test_delisted_pair_keeps_its_history_and_trades_no_more() -> None:
    market = market_of(DELISTED)
    assert DELISTED.delisted_ms is not None
    assert page(market, "1m", None, end=None, limit=1)[0][0] == DELISTED.delisted_ms - MINUTE
    assert market.next_trade_time(DELISTED.delisted_ms) is None
    last = market.fill_at(NOW)
    assert market.fills(last - 1, 5, NOW).time[0] < DELISTED.delisted_ms


def test_hole_has_no_candles_and_no_trades_and_leaves_ids_contiguous() -> None:
    market = GeneratedMarket(BTC, 7)
    start = utc_ms("2024-01-10T06:00")
    hole = (start + 30 * MINUTE, start + 210 * MINUTE)
    before = page(market, "1m", start, end=start + 400 * MINUTE)
    market.add_hole(*hole)
    after = page(market, "1m", start, end=start + 400 * MINUTE)
    assert after == [row for row in before if not hole[0] <= row[0] < hole[1]]
    for trades in (orders_between(market, start, hole[1] + HOUR), fills_between(market, start, hole[1] + HOUR)):
        assert (np.diff(trades.id) == 1).all()
        assert not ((trades.time >= hole[0]) & (trades.time < hole[1])).any()
        assert trades.time[0] < hole[0] < hole[1] <= trades.time[-1]
    orders = orders_between(market, start, hole[1] + HOUR)
    assert (orders.first[1:] == orders.last[:-1] + 1).all()
    hours = page(market, "1h", start, end=start + 5 * HOUR)
    assert [row[0] for row in hours] == [start, *(start + n * HOUR for n in (3, 4, 5))]
    assert [flat(row) for row in hours[:2]] == list(fold(after[:60], "1h"))
    market.clear_holes()
    assert page(market, "1m", start, end=start + 400 * MINUTE) == before


def test_page_is_full_even_if_it_spans_a_hole_of_a_year() -> None:
    market = GeneratedMarket(BTC, 7)
    start = utc_ms("2022-01-01")
    market.add_hole(start + 10 * MINUTE, start + 365 * DAY)
    rows = page(market, "1m", start, end=None, limit=20)
    assert len(rows) == 20
    assert rows[9][0] == start + 9 * MINUTE
    assert rows[10][0] == start + 365 * DAY
    assert page(market, "1m", None, end=rows[-1][0], limit=20) == rows


@pytest.mark.parametrize("bounds", [(NOW // MINUTE * MINUTE + 1, NOW), (5 * MINUTE, 5 * MINUTE)])
def test_hole_that_is_not_whole_minutes_is_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="whole minutes"):
        GeneratedMarket(BTC, 7).add_hole(*bounds)


@given(start=instants, length=st.integers(1, 300))
@settings(max_examples=rounds(25), deadline=None)
def test_bounds_of_a_page_are_inclusive_open_times(start: int, length: int) -> None:
    market = market_of(BTC)
    rows = page(market, "1m", start - 59_999, end=start + (length - 1) * MINUTE)
    assert [row[0] for row in rows] == [start + n * MINUTE for n in range(length)]
    assert all(later[0] == earlier[6] + 1 for earlier, later in pairwise(rows))


def test_seconds_are_filled_and_bounded() -> None:
    rows = page(market_of(QUIET), "1s", NOW - 90 * SECOND, end=NOW)
    assert len(rows) == 90
    assert any(row[8] == 0 for row in rows)


def test_any_pair_can_be_listed() -> None:
    instrument = make_instrument("foo/usd")
    assert instrument.symbol == "FOOUSD"
    rows = page(GeneratedMarket(instrument, 1), "1m", None, end=None, limit=3)
    assert len(rows) == 3
    with pytest.raises(ValueError, match="BASE/QUOTE"):
        make_instrument("FOOUSD")


def test_decimals_that_the_wire_cannot_carry_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 8"):
        Instrument(
            base="A",
            quote="B",
            price_decimals=5,
            lot_decimals=4,
            typical_price=1.0,
            daily_volatility=0.03,
            orders_per_minute=1.0,
            lots_per_order=100,
            listed_ms=0,
        )
