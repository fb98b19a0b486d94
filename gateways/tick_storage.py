"""Ticks that come through gateways are stored in the table of ticks, as those of a request that asks for ticks are.

The pipeline stores the ticks of a ticker while it is told to. Of what requests want the broker tells it; of a ticker
that no request names, or one that cannot be served, whoever publishes its ticks.
"""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bus import topics
from bus.api import Bus, Record
from protobuf import records_pb2 as records

__all__ = ["TickStorage"]

#: Said again in any case.
_AGAIN_SECONDS = 60.0
#: The broker says what requests want from then on, when that changes: it is looked for so often, and said again.
_LOOK_SECONDS = 1.0
_MAX_TICKERS = 100_000


class _Told(NamedTuple):
    """`wanted`: what requests wanted when it was looked at last."""

    looked_at: float
    again_at: float
    wanted: bytes


class TickStorage:
    """Used by one thread at a time for each ticker; one that is told of twice is told of the same."""

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self._clock = clock
        self._told: dict[str, _Told] = {}

    def want(self, tickers: Iterable[str]) -> None:
        """To be called before ticks of `tickers` are published. Raises BusError."""
        now = self._clock()
        asked = {ticker: self._told.get(ticker) for ticker in tickers}
        looked = {ticker: told for ticker, told in asked.items() if not told or told.looked_at <= now - _LOOK_SECONDS}
        if not looked:
            return
        marks: list[Record] = []
        news: dict[str, _Told] = {}
        for (ticker, told), found in zip(looked.items(), self._bus.get(topics.TABLE_WANTED, list(looked)), strict=True):
            wanted, again_at = found or b"", now + _AGAIN_SECONDS
            if told and wanted != told.wanted:
                # What the broker says of it may be behind this on its way.
                again_at = now + _LOOK_SECONDS
            elif told and now < told.again_at:
                news[ticker] = told._replace(looked_at=now)
                continue
            news[ticker] = _Told(now, again_at, wanted)
            marks.append(_mark(ticker, wanted))
        if marks:
            self._bus.publish(topics.TICK_MARKS, marks)
        if len(self._told) + len(news) > _MAX_TICKERS:
            self._told.clear()
        self._told.update(news)


def _mark(ticker: str, wanted: bytes) -> Record:
    """What is wanted already, and ticks."""
    mark = records.TickMark(ticker=ticker, wanted=records.Wanted.FromString(wanted))
    mark.wanted.ticks = True
    key = ticker.encode()
    return Record(mark.SerializeToString(), key=key, partition_key=key)
