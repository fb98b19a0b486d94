"""Partial bars as columns: made from trades, merged with each other, rolled up into longer periods.

A partial bar holds everything known about one bar so far: exact sums, and the trade order of its first and last trade,
so that partial bars from any batches, in any order, merge to the same bar. Open and close follow the exchange's trade
order, never the order of arrival.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bars import exact
from candlewright.wire.grid import SECOND, origin_of

__all__ = ["NO_QUOTE_VOLUME", "NO_TRADE_COUNT", "Bars", "from_trades", "interleave", "merge", "roll_up"]

#: Bits of `Bars.unknown`.
NO_QUOTE_VOLUME, NO_TRADE_COUNT = 1, 2
#: So few bars are sorted by two columns in less time than by one number made of them.
_FEW = 256


@dataclass(kw_only=True, frozen=True, slots=True)
class Bars:
    """Columns of equal length, one row per bar, ascending and unique by (group, open_time).

    `group` is the caller's number of a ticker; times are nanoseconds since the epoch. (first_time, first_id) and
    (last_time, last_id) are the trade order of the first and last trade. `volume` and `quote_volume` are exact.
    `is_derived`: an exchange's aggregates stand for some of the trades. `unknown`: which sums are missing, because an
    exchange's candle in the bar did not report its own.
    """

    period_seconds: int
    group: NDArray[np.int64]
    open_time: NDArray[np.int64]
    first_time: NDArray[np.int64]
    first_id: NDArray[np.int64]
    last_time: NDArray[np.int64]
    last_id: NDArray[np.int64]
    open: NDArray[np.float64]
    high: NDArray[np.float64]
    low: NDArray[np.float64]
    close: NDArray[np.float64]
    volume: exact.Scaled
    quote_volume: exact.Scaled
    trade_count: NDArray[np.int64]
    is_derived: NDArray[np.bool_]
    unknown: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.open_time)

    def take(self, index: NDArray[Any]) -> "Bars":
        """The rows that an index or mask selects."""
        taken: dict[str, Any] = {
            name: column.take(index) if isinstance(column := getattr(self, name), exact.Scaled) else column[index]
            for name in _COLUMNS
        }
        return Bars(period_seconds=self.period_seconds, **taken)

    def with_rows(self, rows: NDArray[np.intp], bars: "Bars") -> "Bars":
        """A copy with `bars` in these rows."""
        columns: dict[str, Any] = {}
        for name in _COLUMNS:
            own, new = getattr(self, name), getattr(bars, name)
            if isinstance(own, exact.Scaled):
                columns[name] = own.with_rows(rows, new)
            else:
                columns[name] = own.copy()
                columns[name][rows] = new
        return Bars(period_seconds=self.period_seconds, **columns)


_COLUMNS = tuple(field.name for field in fields(Bars)[1:])


def from_trades(
    group: NDArray[np.int64],
    time: NDArray[np.int64],
    trade_id: NDArray[np.int64],
    *,
    price: NDArray[np.float64],
    size: NDArray[np.float64],
    period_seconds: int,
    count: NDArray[np.int64] | None = None,
    is_aggregate: NDArray[np.bool_] | None = None,
) -> Bars:
    """Bars of `period_seconds` from trades in any order, each given once.

    `time` is the exchange's time in ns, `trade_id` the order of trades at the same time; prices and sizes are finite
    and not negative. `count` says how many trades each row represents, and `is_aggregate` which rows are an exchange's
    aggregates; by default each row is one trade.
    """
    open_time = _floor(time, period_seconds)
    if not _ascending(group, time, trade_id):
        order = np.lexsort((trade_id, time, group))
        group, time, trade_id, open_time = group[order], time[order], trade_id[order], open_time[order]
        price, size = price[order], size[order]
        count = None if count is None else count[order]
        is_aggregate = None if is_aggregate is None else is_aggregate[order]
    starts = _starts(group, open_time)
    ends = _ends(starts, len(group))
    sizes = exact.from_doubles(size)
    return Bars(
        period_seconds=period_seconds,
        group=group[starts],
        open_time=open_time[starts],
        first_time=time[starts],
        first_id=trade_id[starts],
        last_time=time[ends],
        last_id=trade_id[ends],
        open=price[starts],
        high=_reduce(np.maximum, price, starts),
        low=_reduce(np.minimum, price, starts),
        close=price[ends],
        volume=exact.segment_sums(sizes, starts),
        quote_volume=exact.segment_product_sums(exact.from_doubles(price), sizes, starts),
        trade_count=np.diff(starts, append=len(group)) if count is None else _reduce(np.add, count, starts),
        is_derived=np.zeros(len(starts), np.bool_)
        if is_aggregate is None
        else _reduce(np.logical_or, is_aggregate, starts),
        unknown=np.zeros(len(starts), np.uint8),
    )


def merge(parts: Sequence[Bars]) -> Bars:
    """One bar for each (group, open_time) of `parts`, which hold disjoint trades; raises ValueError if there are none,
    or if their periods differ.
    """
    bars = _joined(parts)
    if len(parts) == 1:
        return bars
    order = _order(bars)
    group, open_time = bars.group[order], bars.open_time[order]
    starts = _starts(group, open_time)
    if len(starts) == len(bars):
        return bars.take(order)
    # Usually few bars are in several parts.
    counts = np.diff(starts, append=len(bars))
    segment = np.repeat(np.arange(len(starts)), counts)
    shared = np.flatnonzero(counts[segment] > 1)
    rows = order[shared]
    order[shared] = rows[np.lexsort((bars.first_id[rows], bars.first_time[rows], segment[shared]))]
    bars = bars.take(order)
    # Parts may interleave in time: the last trade is not always in the part that started last.
    by_last = np.arange(len(bars))
    by_last[shared] = shared[np.lexsort((bars.last_id[shared], bars.last_time[shared], segment[shared]))]
    last = by_last[_ends(starts, len(bars))]
    return _summed(bars, bars.open_time, starts, last, bars.period_seconds)


def interleave(parts: Sequence[Bars]) -> tuple[Bars, NDArray[np.intp]]:
    """`merge` for parts that share no bar; also returns, for each bar, its row in the concatenated parts."""
    bars = _joined(parts)
    order = _order(bars)
    return bars.take(order), order


def roll_up(bars: Bars, period_seconds: int) -> Bars:
    """The bars of a longer period; raises ValueError unless it is a multiple of the shorter one."""
    if period_seconds % bars.period_seconds or origin_of(period_seconds) % (bars.period_seconds * SECOND):
        raise ValueError(f"bars of {period_seconds} s cannot be made from bars of {bars.period_seconds} s")
    if not _ascending(bars.group, bars.open_time, bars.first_id):
        bars = bars.take(np.lexsort((bars.open_time, bars.group)))
    open_time = _floor(bars.open_time, period_seconds)
    # All trades of a bar are within it, so the bars of a group are in trade order.
    starts = _starts(bars.group, open_time)
    return _summed(bars, open_time, starts, _ends(starts, len(bars)), period_seconds)


def _order(bars: Bars) -> NDArray[np.intp]:
    """The rows by (group, open_time), equal ones as they come."""
    if len(bars) <= _FEW:
        return np.lexsort((bars.open_time, bars.group))
    # One number with the same order; the rows are usually a few sorted runs, which are merged in one pass.
    number = (bars.open_time - bars.open_time.min()) // (bars.period_seconds * SECOND)
    return np.argsort(bars.group * (number.max() + 1) + number, kind="stable")


def _joined(parts: Sequence[Bars]) -> Bars:
    if len({part.period_seconds for part in parts}) != 1:
        raise ValueError("all bars must have the same period")
    if len(parts) == 1:
        return parts[0]
    columns = {name: _concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    return Bars(period_seconds=parts[0].period_seconds, **columns)


def _summed(
    bars: Bars,
    open_time: NDArray[np.int64],
    starts: NDArray[np.intp],
    last: NDArray[np.intp],
    period_seconds: int,
) -> Bars:
    """One bar per run of rows between consecutive `starts`; `last` gives the row of each bar's last trade."""
    return Bars(
        period_seconds=period_seconds,
        group=bars.group[starts],
        open_time=open_time[starts],
        first_time=bars.first_time[starts],
        first_id=bars.first_id[starts],
        last_time=bars.last_time[last],
        last_id=bars.last_id[last],
        open=bars.open[starts],
        high=_reduce(np.maximum, bars.high, starts),
        low=_reduce(np.minimum, bars.low, starts),
        close=bars.close[last],
        volume=exact.segment_sums(bars.volume, starts),
        quote_volume=exact.segment_sums(bars.quote_volume, starts),
        trade_count=_reduce(np.add, bars.trade_count, starts),
        is_derived=_reduce(np.logical_or, bars.is_derived, starts),
        unknown=_reduce(np.bitwise_or, bars.unknown, starts),
    )


def _floor(time: NDArray[np.int64], period_seconds: int) -> NDArray[np.int64]:
    # numpy divides by one number much faster than it takes a remainder.
    origin, step = origin_of(period_seconds), period_seconds * SECOND
    return (time - origin) // step * step + origin


def _ascending(group: NDArray[np.int64], time: NDArray[np.int64], trade_id: NDArray[np.int64]) -> bool:
    later_group = group[1:] > group[:-1]
    same_group = group[1:] == group[:-1]
    later_time = time[1:] > time[:-1]
    same_time = time[1:] == time[:-1]
    return bool(np.all(later_group | same_group & (later_time | same_time & (trade_id[1:] >= trade_id[:-1]))))


def _starts(group: NDArray[np.int64], open_time: NDArray[np.int64]) -> NDArray[np.intp]:
    if len(group) == 0:
        return np.empty(0, np.intp)
    changes = (group[1:] != group[:-1]) | (open_time[1:] != open_time[:-1])
    return np.concatenate(([0], np.flatnonzero(changes) + 1))


def _ends(starts: NDArray[np.intp], length: int) -> NDArray[np.intp]:
    return np.append(starts[1:], length)[: len(starts)] - 1


def _reduce(function: np.ufunc, column: NDArray[Any], starts: NDArray[np.intp]) -> NDArray[Any]:
    return function.reduceat(column, starts) if len(starts) else column[:0]


def _concatenate(columns: list[Any]) -> Any:
    if not isinstance(columns[0], exact.Scaled):
        return np.concatenate(columns)
    scale = max(column.scale for column in columns)
    return exact.Scaled(np.concatenate([column.at_scale(scale) for column in columns]), scale)
