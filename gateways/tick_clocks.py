"""Ends the minutes of tickers that fall silent: nobody else says how late it is at where a gateway's ticks come from.

A bar is final when something newer than it is known. While ticks come as they happen, time goes on from the newest one
when no further one comes, but no further than to the end of its minute. Ticks of the past say nothing of the time now:
their last bar waits for the next tick.
"""

import threading
import time
from collections.abc import Callable, Iterable

from bus import topics
from bus.api import Bus, Record
from core.metrics import REGISTRY, Counter
from protobuf import records_pb2 as records
from protobuf import tick_columns

__all__ = ["TickClocks"]

_SECOND = 1_000_000_000
_MINUTE = 60 * _SECOND
#: Ticks that are so much older than now, or newer, do not come as they happen.
_LIVE_NS = 10 * _SECOND
#: For ticks that are on their way while a minute ends.
_GRACE_NS = 3 * _SECOND
_MAX_TICKERS = 100_000
CLOCKS = Counter(
    "candlewright_gateways_minutes_ended_total", "Minutes ended because no tick came after them", registry=REGISTRY
)


class TickClocks:
    """Safe for threads; `tell` is to be called about once a second."""

    def __init__(self, bus: Bus, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._bus = bus
        self._now_ns = now_ns
        self._newest: dict[str, int] = {}
        self._lock = threading.Lock()

    def published(self, ticks: Iterable[Record]) -> None:
        """Records that `gateways.records` made for the topic of ticks, once they are on the bus."""
        for record in ticks:
            columns = tick_columns.decode(record.value)
            newest = int(columns.timestamp.max())
            with self._lock:
                is_later = newest > self._newest.get(columns.ticker, 0)
                if is_later and abs(newest - self._now_ns()) <= _LIVE_NS and len(self._newest) < _MAX_TICKERS:
                    self._newest[columns.ticker] = newest

    def tell(self) -> int:
        """Publish the ends of minutes that are over; how many. Raises BusError."""
        latest = self._now_ns() - _GRACE_NS
        with self._lock:
            ends = {ticker: newest - newest % _MINUTE + _MINUTE for ticker, newest in self._newest.items()}
            due = {ticker: end for ticker, end in ends.items() if end <= latest}
        if not due:
            return 0
        numbers = self._bus.last_sequences([f"TICKS:{ticker}" for ticker in due])
        marks = [_mark(ticker, end, number) for (ticker, end), number in zip(due.items(), numbers, strict=True)]
        self._bus.publish(topics.TICK_MARKS, marks)
        CLOCKS.inc(len(due))
        with self._lock:
            for ticker, end in due.items():
                if self._newest.get(ticker, end) < end:
                    del self._newest[ticker]
        return len(due)


def _mark(ticker: str, end: int, number: int) -> Record:
    mark = records.TickMark(ticker=ticker, clock=records.Clock(exchange_time=end, sequence=number))
    key = ticker.encode()
    return Record(mark.SerializeToString(), key=key, partition_key=key)
