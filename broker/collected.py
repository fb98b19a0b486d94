"""Collects the candles that a foreign ingestor sends for its job, and finds the holes in a set of candles."""

from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite

from broker.events import Candle, Range
from candlewright.wire import grid

MAX_ROWS_PER_JOB = 1_000_000


@dataclass(slots=True)
class Collected:
    """Candles by open time. After the first problem everything else is ignored."""

    candles: dict[int, Candle] = field(default_factory=dict)
    received: int = 0
    claimed: int = 0
    problem: str = ""

    def add(self, candles: tuple[Candle, ...], start: int, end: int, *, period_seconds: int) -> int:
        """Add the candles of one frame, checked against the piece; returns how many rows were added."""
        before = len(self.candles)
        period = period_seconds * grid.SECOND
        origin = grid.origin_of(period_seconds)
        for candle in candles:
            self.received += 1
            if not start <= candle.open_time < end or (candle.open_time - origin) % period:
                self.problem = f"open time {candle.open_time} is not one of the asked range and period"
            elif not _is_sound(candle):
                self.problem = f"the candle at {candle.open_time} has impossible prices or volume"
            elif self.candles.setdefault(candle.open_time, candle) != candle:
                self.problem = f"two different candles at {candle.open_time}"
            elif len(self.candles) > MAX_ROWS_PER_JOB:
                self.problem = f"more than {MAX_ROWS_PER_JOB} candles in one job"
            if self.problem:
                break
        return len(self.candles) - before

    def closed_ns(self, exchange_ns: int) -> int:
        """`exchange_ns`, or the open time of candles that the sender marks as unfinished after complete ones: it knows
        the clock of its exchange.
        """
        unfinished = min(
            (each.open_time for each in self.candles.values() if not each.is_complete), default=exchange_ns
        )
        finished = max((each.open_time for each in self.candles.values() if each.is_complete), default=unfinished)
        return min(exchange_ns, unfinished) if finished < unfinished else exchange_ns

    def closed(self, period_seconds: int, closed_ns: int, limit: int | None) -> tuple[Candle, ...]:
        """The first `limit` candles that had closed at `closed_ns`, ascending."""
        newest = grid.open_containing(closed_ns, period_seconds)
        ordered = sorted(candle for candle in self.candles.values() if candle.open_time < newest)
        return tuple(ordered[:limit])


def _is_sound(candle: Candle) -> bool:
    low, high = candle.low, candle.high
    return (
        isfinite(low)
        and isfinite(high)
        and low <= candle.open <= high
        and low <= candle.close <= high
        and 0 <= candle.volume < float("inf")
        and (candle.quote_volume is None or isfinite(candle.quote_volume))
    )


def coverage(opens: list[int], start: int, end: int, *, period_seconds: int) -> tuple[int, tuple[Range, ...]]:
    """The number of expected candles in [start, end), and the holes."""
    period = period_seconds * grid.SECOND
    first = grid.first_open_from(start, period_seconds)
    if first >= end:
        return 0, ()
    # Rounded up: a candle that opens before the end counts.
    expected = -(-(end - first) // period)
    if not opens:
        return expected, ((first, min(first + expected * period, end)),)
    edges = [first - period, *opens, first + expected * period]
    # A hole ends with the range, even inside a candle.
    holes = tuple((left + period, min(right, end)) for left, right in pairwise(edges) if right - left > period)
    return expected, holes
