"""Has ticks from gateways stored in the table of ticks, like those of a request that asks for ticks.

The pipeline stores the ticks of a ticker while someone declares them wanted. The broker does so for the tickers of
requests; for a ticker that no request names, or that cannot be served, the publisher of its ticks does.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from google.protobuf.message import DecodeError

from bus import topics
from bus.api import Bus, Record
from protobuf import records_pb2 as records

__all__ = ["TickStorage"]

#: A declaration is repeated after this time in any case.
_AGAIN_SECONDS = 60.0
#: The broker overwrites the declaration when requests change, so check this often, and declare again if it did.
_LOOK_SECONDS = 1.0
_MAX_TICKERS = 100_000


class _Told(NamedTuple):
    """`wanted`: what requests wanted at the last check."""

    looked_at: float
    again_at: float
    wanted: bytes


class TickStorage:
    """Use each ticker from one thread at a time. A ticker declared twice gets the same declaration."""

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self._clock = clock
        self._told: dict[str, _Told] = {}

    def expect(self, topic: str, batch: Iterable[Record]) -> None:
        """Call before publishing records of any topic. Raises BusError."""
        if topic == topics.TICKS:
            self.want(record.key.decode() for record in batch if record.key is not None)

    def want(self, tickers: Iterable[str]) -> None:
        """Call before publishing ticks of `tickers`. Raises BusError."""
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
                # The broker's own declaration may still be in transit, and arrive after this one.
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
    """What is wanted already, plus ticks."""
    mark = records.TickMark(ticker=ticker)
    # Ignore an unreadable row; the broker writes it again when it starts.
    with suppress(DecodeError):
        mark.wanted.ParseFromString(wanted)
    mark.wanted.ticks = True
    key = ticker.encode()
    return Record(mark.SerializeToString(), key=key, partition_key=key)
