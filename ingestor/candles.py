"""Candles of one market and period as columns, and their conversion from an exchange's rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candlewright.wire.errors import BadReply

Times = NDArray[np.int64]
Doubles = NDArray[np.float64]
Counts = NDArray[np.uint64]


@dataclass(kw_only=True, frozen=True, slots=True, eq=False)
class Candles:
    """Columns of equal length, ascending and unique by `open_time` (ns); an optional column is None if the exchange
    does not report it.
    """

    open_time: Times
    open: Doubles
    high: Doubles
    low: Doubles
    close: Doubles
    volume: Doubles
    quote_volume: Doubles | None = None
    trade_count: Counts | None = None

    def __len__(self) -> int:
        return len(self.open_time)

    @property
    def first_open(self) -> int:
        return int(self.open_time[0])

    @property
    def last_open(self) -> int:
        return int(self.open_time[-1])

    def take(self, chosen: slice | NDArray[Any]) -> "Candles":
        quote_volume, trade_count = self.quote_volume, self.trade_count
        return Candles(
            open_time=self.open_time[chosen],
            open=self.open[chosen],
            high=self.high[chosen],
            low=self.low[chosen],
            close=self.close[chosen],
            volume=self.volume[chosen],
            quote_volume=None if quote_volume is None else quote_volume[chosen],
            trade_count=None if trade_count is None else trade_count[chosen],
        )

    def between(self, start: int, end: int) -> "Candles":
        """The candles with start <= open time < end (ns)."""
        first, last = np.searchsorted(self.open_time, (start, end))
        if first == 0 and last == len(self):
            return self
        return self.take(slice(int(first), int(last)))


def joined(parts: Sequence[Candles]) -> Candles:
    """`parts` concatenated; each is later than the previous one, and there is at least one."""
    if len(parts) == 1:
        return parts[0]
    quote_volumes = [part.quote_volume for part in parts if part.quote_volume is not None]
    trade_counts = [part.trade_count for part in parts if part.trade_count is not None]
    return Candles(
        open_time=np.concatenate([part.open_time for part in parts]),
        open=np.concatenate([part.open for part in parts]),
        high=np.concatenate([part.high for part in parts]),
        low=np.concatenate([part.low for part in parts]),
        close=np.concatenate([part.close for part in parts]),
        volume=np.concatenate([part.volume for part in parts]),
        quote_volume=np.concatenate(quote_volumes) if len(quote_volumes) == len(parts) else None,
        trade_count=np.concatenate(trade_counts) if len(trade_counts) == len(parts) else None,
    )


def _doubles(column: Iterable[Any], count: int) -> Doubles:
    # Text is parsed once, with correct rounding; a JSON number is already a double.
    return np.fromiter(map(float, column), np.float64, count)


def _integers(column: Iterable[Any], count: int) -> Times:
    return np.fromiter(map(int, column), np.int64, count)


@dataclass(kw_only=True, frozen=True, slots=True)
class RowLayout:
    """The layout of an exchange's rows: the index (or key) of each value, and the length of its time unit in ns."""

    time: int | str
    open: int | str
    high: int | str
    low: int | str
    close: int | str
    volume: int | str
    quote_volume: int | str | None = None
    trade_count: int | str | None = None
    time_unit_ns: int = 1_000_000

    def read(self, rows: Sequence[Any]) -> Candles:
        """Columns of `rows`, in any order; raises BadReply if they are not candles."""
        if not rows:
            return EMPTY
        try:
            candles = self._read(rows)
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            raise BadReply(f"rows that are not candles: {error}") from error
        return checked(candles)

    def _read(self, rows: Sequence[Any]) -> Candles:
        count = len(rows)
        if isinstance(rows[0], dict):
            columns: Any = {key: [row[key] for row in rows] for key in self._places()}
        else:
            columns = list(zip(*rows, strict=True))
        quote_volume, trade_count = self.quote_volume, self.trade_count
        return Candles(
            open_time=_integers(columns[self.time], count) * self.time_unit_ns,
            open=_doubles(columns[self.open], count),
            high=_doubles(columns[self.high], count),
            low=_doubles(columns[self.low], count),
            close=_doubles(columns[self.close], count),
            volume=_doubles(columns[self.volume], count),
            quote_volume=None if quote_volume is None else _doubles(columns[quote_volume], count),
            trade_count=None if trade_count is None else _integers(columns[trade_count], count).astype(np.uint64),
        )

    def _places(self) -> list[int | str]:
        places = [self.time, self.open, self.high, self.low, self.close, self.volume]
        return [*places, *(place for place in (self.quote_volume, self.trade_count) if place is not None)]


def checked(candles: Candles) -> Candles:
    """The candles, sorted and unique by open time; raises BadReply for impossible values."""
    values = (candles.open, candles.high, candles.low, candles.close, candles.volume)
    if not all(np.isfinite(column).all() for column in values):
        raise BadReply("a candle holds a value that is not a number")
    # Real replies may contain an open or close outside high and low, which is stored as received; a high below the low
    # is an error.
    if (candles.high < candles.low).any():
        raise BadReply("a candle's high is below its low")
    if (candles.volume < 0).any() or (candles.open_time < 0).any():
        raise BadReply("a candle holds a negative volume or time")
    if len(candles) > 1 and (np.diff(candles.open_time) <= 0).any():
        # Of equal open times, the last one that the exchange sent counts.
        order = np.argsort(candles.open_time, kind="stable")
        times = candles.open_time[order]
        is_last = np.append(times[1:] != times[:-1], True)
        return candles.take(order[is_last])
    return candles


_NO_DOUBLES = np.empty(0, np.float64)
EMPTY = Candles(
    open_time=np.empty(0, np.int64),
    open=_NO_DOUBLES,
    high=_NO_DOUBLES,
    low=_NO_DOUBLES,
    close=_NO_DOUBLES,
    volume=_NO_DOUBLES,
)
