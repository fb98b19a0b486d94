"""Finds the holes in a job's candles as they pass, so that a year of minutes needs no memory."""

from dataclasses import dataclass, field

import numpy as np

from candlewright.wire.grid import SECOND, count_opens, first_open_from
from ingestor.candles import Candles


@dataclass(kw_only=True, slots=True)
class Coverage:
    """Takes ascending candles on the grid from `start` on; the next ones must open at `next_open` or later. All times
    in ns.
    """

    start: int
    period_seconds: int
    rows: int = 0
    first_open: int = 0
    last_open: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)
    next_open: int = 0

    def __post_init__(self) -> None:
        self.next_open = first_open_from(self.start, self.period_seconds)

    def add(self, candles: Candles) -> None:
        if not len(candles):
            return
        period = self.period_seconds * SECOND
        times = candles.open_time
        if times[0] > self.next_open:
            self.holes.append((self.next_open, int(times[0])))
        (gaps,) = np.nonzero(np.diff(times) > period)
        self.holes.extend((int(times[gap]) + period, int(times[gap + 1])) for gap in gaps)
        if not self.rows:
            self.first_open = int(times[0])
        self.rows += len(times)
        self.last_open = int(times[-1])
        self.next_open = self.last_open + period

    def close(self, end: int) -> int:
        """End the range at `end`; returns how many candles a complete answer would have had."""
        missing = count_opens(self.next_open, end, self.period_seconds)
        if missing:
            self.holes.append((self.next_open, self.next_open + missing * self.period_seconds * SECOND))
        return count_opens(self.start, max(end, self.next_open), self.period_seconds)
