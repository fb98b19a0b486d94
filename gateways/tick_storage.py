"""Ticks that come through gateways are stored in the table of ticks, as those of a request that asks for ticks are.

The pipeline stores the ticks of a ticker while it is told to. Of what requests want the broker tells it; of a ticker
that no request names, or one that cannot be served, whoever publishes its ticks.
"""

import time
from collections.abc import Callable, Iterable

from bus import topics
from bus.api import Bus, Record
from protobuf import records_pb2 as records

__all__ = ["TickStorage"]

#: The broker says what requests want from then on, when that changes; so it is said again.
_AGAIN_SECONDS = 60.0
_MAX_TICKERS = 100_000


class TickStorage:
    """Used by one thread at a time for each ticker; one that is told of twice is told of the same."""

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self._clock = clock
        self._told_at: dict[str, float] = {}

    def want(self, tickers: Iterable[str]) -> None:
        """To be called before ticks of `tickers` are published. Raises BusError."""
        now = self._clock()
        due = [ticker for ticker in dict.fromkeys(tickers) if self._told_at.get(ticker, -1e9) <= now - _AGAIN_SECONDS]
        if not due:
            return
        found = self._bus.get(topics.TABLE_WANTED, due)
        self._bus.publish(
            topics.TICK_MARKS, [_mark(ticker, wanted or b"") for ticker, wanted in zip(due, found, strict=True)]
        )
        if len(self._told_at) + len(due) > _MAX_TICKERS:
            self._told_at.clear()
        self._told_at.update(dict.fromkeys(due, now))


def _mark(ticker: str, wanted: bytes) -> Record:
    """What is wanted already, and ticks."""
    mark = records.TickMark(ticker=ticker, wanted=records.Wanted.FromString(wanted))
    mark.wanted.ticks = True
    key = ticker.encode()
    return Record(mark.SerializeToString(), key=key, partition_key=key)
