"""The candle intervals of the exchange and their calendar."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from sandbox.markets.noise import Ints

SECOND = 1_000
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
_MONDAY = 4 * DAY  # the first Monday after the epoch, a Thursday


@dataclass(frozen=True, slots=True)
class Interval:
    """A fixed step in ms from an origin, or a calendar month (step_ms 0)."""

    name: str
    step_ms: int
    origin_ms: int = 0

    def floor(self, time_ms: int) -> int:
        """The open time of the candle that holds time_ms."""
        if self.step_ms:
            return (time_ms - self.origin_ms) // self.step_ms * self.step_ms + self.origin_ms
        return month_start(month_index(time_ms))

    def ceil(self, time_ms: int) -> int:
        """The first open time at or after time_ms."""
        opened = self.floor(time_ms)
        return opened if opened == time_ms else self.shift(opened, 1)

    def shift(self, open_ms: int, count: int) -> int:
        """The open time `count` candles after (before, if negative) the given one."""
        if self.step_ms:
            return open_ms + count * self.step_ms
        return month_start(month_index(open_ms) + count)

    def count(self, first_open: int, last_open: int) -> int:
        """How many candles open in [first_open, last_open], both open times."""
        if last_open < first_open:
            return 0
        if self.step_ms:
            return (last_open - first_open) // self.step_ms + 1
        return month_index(last_open) - month_index(first_open) + 1

    def opens(self, first_open: int, count: int) -> Ints:
        """`count` consecutive open times from first_open."""
        if self.step_ms:
            return first_open + np.arange(count, dtype=np.int64) * self.step_ms
        first = month_index(first_open)
        return np.array([month_start(first + i) for i in range(count)], dtype=np.int64)


def month_index(time_ms: int) -> int:
    """Months since January of the year 0."""
    moment = datetime.fromtimestamp(time_ms // 1000, tz=UTC)
    return moment.year * 12 + moment.month - 1


def month_start(index: int) -> int:
    """The first millisecond of that month."""
    return round(datetime(index // 12, index % 12 + 1, 1, tzinfo=UTC).timestamp()) * 1000


INTERVALS: dict[str, Interval] = {
    interval.name: interval
    for interval in (
        Interval("1s", SECOND),
        Interval("1m", MINUTE),
        Interval("3m", 3 * MINUTE),
        Interval("5m", 5 * MINUTE),
        Interval("15m", 15 * MINUTE),
        Interval("30m", 30 * MINUTE),
        Interval("1h", HOUR),
        Interval("2h", 2 * HOUR),
        Interval("4h", 4 * HOUR),
        Interval("6h", 6 * HOUR),
        Interval("8h", 8 * HOUR),
        Interval("12h", 12 * HOUR),
        Interval("1d", DAY),
        Interval("3d", 3 * DAY),
        Interval("1w", 7 * DAY, _MONDAY),
        Interval("1M", 0),
    )
}
