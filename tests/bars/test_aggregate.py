import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bars import Bars, aggregate, exact, from_trades, merge, roll_up
from candlewright.wire.grid import SECOND, WEEK_SECONDS, open_containing

Trade = tuple[int, int, int, float, float]  # group, time (ns), id, price, size

_TRADES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 400).map(lambda s: 1_700_000_000 * SECOND + s * SECOND),
        st.decimals(1, 100, places=2).map(float),
        st.decimals(0, 10, places=8).map(float),
    ),
    min_size=1,
    max_size=60,
).map(lambda rows: [(g, t, i, p, s) for i, (g, t, p, s) in enumerate(rows)])


def _bars(trades: list[Trade], period_seconds: int) -> Bars:
    group, time, trade_id, price, size = zip(*trades, strict=True)
    return from_trades(
        np.array(group, np.int64),
        np.array(time, np.int64),
        np.array(trade_id, np.int64),
        price=np.array(price, np.float64),
        size=np.array(size, np.float64),
        period_seconds=period_seconds,
    )


def _rows(bars: Bars) -> list[tuple[object, ...]]:
    columns = (bars.group, bars.open_time, bars.open, bars.high, bars.low, bars.close)
    sums = (exact.to_doubles(bars.volume), exact.to_doubles(bars.quote_volume), bars.trade_count)
    return list(zip(*(column.tolist() for column in (*columns, *sums)), strict=True))


def _reference(trades: list[Trade], period_seconds: int) -> list[tuple[object, ...]]:
    members: dict[tuple[int, int], list[Trade]] = defaultdict(list)
    for trade in sorted(trades):
        members[trade[0], open_containing(trade[1], period_seconds)].append(trade)
    rows: list[tuple[object, ...]] = []
    for (group, open_time), inside in sorted(members.items()):
        prices = [trade[3] for trade in inside]
        sizes = [Decimal(repr(trade[4])) for trade in inside]
        quote = sum((Decimal(repr(p)) * s for p, s in zip(prices, sizes, strict=True)), Decimal(0))
        summary = (prices[0], max(prices), min(prices), prices[-1], float(sum(sizes)), float(quote), len(inside))
        rows.append((group, open_time, *summary))
    return rows


@given(_TRADES, st.randoms(use_true_random=False), st.sampled_from([1, 60, 300]))
def test_trades_in_any_order_give_the_bars_of_a_plain_loop(trades: list[Trade], random: object, seconds: int) -> None:
    shuffled = trades[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert _rows(_bars(shuffled, seconds)) == _reference(trades, seconds)


@given(_TRADES, st.data())
def test_any_batches_merge_to_the_same_bars(trades: list[Trade], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, 3), min_size=len(trades), max_size=len(trades)))
    batches = [[t for t, place in zip(trades, places, strict=True) if place == batch] for batch in range(4)]
    parts = [_bars(batch, 60) for batch in batches if batch]
    for few in (0, len(trades)):
        with patch.object(aggregate, "_FEW", few):
            assert _rows(merge(parts)) == _rows(_bars(trades, 60))


@given(_TRADES, st.sampled_from([60, 300, 3_600, WEEK_SECONDS]))
def test_longer_bars_made_of_shorter_ones_equal_those_made_of_trades(trades: list[Trade], seconds: int) -> None:
    assert _rows(roll_up(_bars(trades, 1), seconds)) == _rows(_bars(trades, seconds))


def test_periods_that_do_not_divide_are_refused() -> None:
    bars = _bars([(0, 0, 1, 1.0, 1.0)], 60)
    with pytest.raises(ValueError, match="bars of 90 s cannot be made from bars of 60 s"):
        roll_up(bars, 90)
    with pytest.raises(ValueError, match="604800 s"):
        roll_up(_bars([(0, 0, 1, 1.0, 1.0)], WEEK_SECONDS // 4), WEEK_SECONDS)
    with pytest.raises(ValueError, match="the same period"):
        merge([bars, roll_up(bars, 300)])


def test_no_trades_make_no_bars() -> None:
    empty = np.empty(0, np.int64)
    assert len(from_trades(empty, empty, empty, price=np.empty(0), size=np.empty(0), period_seconds=60)) == 0


def test_recorded_kraken_trades_make_the_exchanges_own_candles(shared_data: Path) -> None:
    reply = json.loads((shared_data / "kraken" / "xbtusdt_trades_rest.json").read_text())["result"]
    trades = next(rows for key, rows in reply.items() if key != "last")
    rows = [(0, round(Decimal(str(t[2])) * SECOND), int(t[6]), float(t[0]), float(t[1])) for t in trades]
    ours = {row[1]: row[2:] for row in _rows(_bars(rows, 60))}
    candles = json.loads((shared_data / "kraken" / "xbtusdt_ohlc_1m_rest.json").read_text())["result"]
    theirs = {
        int(c[0]) * SECOND: (*map(float, c[1:5]), float(c[6]), int(c[7]))
        for c in next(rows for key, rows in candles.items() if key != "last")
    }
    first, last = min(ours), max(ours)
    complete = [open_time for open_time in range(first + 60 * SECOND, last, 60 * SECOND) if open_time in theirs]
    with_trades = [open_time for open_time in complete if theirs[open_time][5]]
    assert len(complete) == 409
    assert [ours[o][:5] + ours[o][6:] for o in with_trades] == [theirs[o] for o in with_trades]
    assert all(open_time not in ours for open_time in complete if not theirs[open_time][5])


def test_recorded_binance_trades_across_midnight_equal_a_plain_loop(shared_data: Path) -> None:
    rows: list[Trade] = []
    for day in ("08", "09"):
        with gzip.open(shared_data / "binance" / f"btcusdt_spot_ws_202408{day}.gz", "rt") as lines:
            for line in lines:
                frame = json.loads(line.split(" ", 1)[1])
                trade = frame.get("data", frame)
                if trade.get("e") == "trade":
                    time = int(trade["T"]) * 1_000_000
                    rows.append((0, time, int(trade["t"]), float(trade["p"]), float(trade["q"])))
    assert len(rows) == 19_904
    assert _rows(_bars(rows[::-1], 60)) == _reference(rows, 60)


def test_a_bar_is_derived_if_an_aggregate_replaces_trades() -> None:
    minute = 60 * SECOND
    time = np.array([0, 10 * SECOND, minute, 3 * minute])
    zeros, ones = np.zeros(4, np.int64), np.ones(4)
    is_aggregate = np.array([False, True, False, False])
    made = from_trades(
        zeros,
        time,
        np.arange(4),
        price=ones,
        size=ones,
        period_seconds=60,
        count=np.array([1, 5, 1, 1]),
        is_aggregate=is_aggregate,
    )
    assert (made.is_derived.tolist(), made.trade_count.tolist()) == ([True, False, False], [6, 1, 1])
    assert roll_up(made, 120).is_derived.tolist() == [True, False]
    alone = from_trades(zeros[:1], time[:1] + SECOND, zeros[:1] + 9, price=ones[:1], size=ones[:1], period_seconds=60)
    assert merge([alone, made]).is_derived.tolist() == [True, False, False]


def test_bars_of_a_group_in_any_order_roll_up_to_the_same() -> None:
    trades = [(0, 60 * SECOND * n, n, float(n + 1), 1.0) for n in range(6)]
    bars = _bars(trades, 60)
    assert _rows(roll_up(bars.take(np.array([3, 1, 0, 5, 4, 2])), 180)) == _rows(roll_up(bars, 180))
