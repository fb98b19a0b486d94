"""Ends the minutes of tickers that fall silent, because nothing else tracks time at the source of a gateway's ticks.

A bar is final once something newer is known. While ticks arrive as they happen, a ticker's time advances from its
newest tick, but only to the end of that tick's minute. Ticks from the past say nothing about the current time, so
their last bar waits for the next tick.

The minutes still to end are in a table, so that the next gateway ends those of a killed one.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from bus import topics
from bus.api import Bus, Record
from candlewright.wire import streams, tick_columns
from candlewright.wire.errors import BusError
from core.metrics import REGISTRY, Counter
from protobuf import records_pb2 as records

__all__ = ["TABLE", "TickClocks"]

#: Ticker -> end of the minute of its newest tick, as digits.
TABLE = "gateway_minutes"
_KEEP_SECONDS = 86_400.0
_SECOND = 1_000_000_000
_MINUTE = 60 * _SECOND
#: Ticks that differ more than this from now do not count as arriving as they happen.
_LIVE_NS = 10 * _SECOND
#: Allowance for ticks in transit while a minute ends.
_GRACE_NS = 3 * _SECOND
#: Allowance for ticks that clients could not send until a gateway was back.
_RESTART_GRACE_NS = 30 * _SECOND
_MAX_TICKERS = 100_000
CLOCKS = Counter(
    "candlewright_gateways_minutes_ended_total", "Minutes ended because no later tick arrived", registry=REGISTRY
)


class TickClocks:
    """Thread-safe; call `publish_due` about once a second."""

    def __init__(self, bus: Bus, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._bus = bus
        self._now_ns = now_ns
        self._ends: dict[str, int] = {}
        self._unsaved: dict[str, int] = {}
        #: None until the table has been read; empty once its contents are in `_ends`.
        self._found: dict[str, int] | None = None
        self._found_at = 0
        self._lock = threading.Lock()
        self._saving = threading.Lock()

    def published(self, topic: str, batch: Iterable[Record]) -> None:
        """Note records that `gateways.records` made, of any topic, once they are on the bus."""
        if topic != topics.TICKS:
            return
        for record in batch:
            columns = tick_columns.decode(record.value)
            newest = int(columns.timestamp.max())
            if abs(newest - self._now_ns()) <= _LIVE_NS:
                self._note({columns.ticker: newest - newest % _MINUTE + _MINUTE})
        try:
            self._save()
        except BusError:
            # The ticks are on the bus anyway; `publish_due` saves.
            return

    def publish_due(self) -> int:
        """Publish the ends of minutes that are over; returns how many. Raises BusError."""
        now = self._now_ns()
        self._find(now)
        self._save()
        with self._lock:
            due = {ticker: end for ticker, end in self._ends.items() if end <= now - _GRACE_NS}
        if not due:
            return 0
        numbers = self._bus.last_sequences([streams.ticks(ticker) for ticker in due])
        marks = [_mark(ticker, end, number) for (ticker, end), number in zip(due.items(), numbers, strict=True)]
        self._bus.publish(topics.TICK_MARKS, marks)
        CLOCKS.inc(len(due))
        with self._lock:
            self._ends = {ticker: end for ticker, end in self._ends.items() if due.get(ticker) != end}
        saved = self._bus.get(TABLE, list(due))
        known = {ticker: _end(own) for ticker, own in zip(due, saved, strict=True) if own is not None}
        # Rows that no gateway wrote are dropped with the expired ones.
        over = [ticker for ticker, end in known.items() if end is None or end <= due[ticker]]
        self._bus.delete(TABLE, over)
        return len(due)

    def _note(self, ends: Mapping[str, int], *, is_saved: bool = False) -> None:
        with self._lock:
            for ticker, end in ends.items():
                if end > self._ends.get(ticker, 0) and len(self._ends) < _MAX_TICKERS:
                    self._ends[ticker] = end
                    if not is_saved:
                        self._unsaved[ticker] = end

    def _save(self) -> None:
        with self._saving:
            with self._lock:
                ends, self._unsaved = self._unsaved, {}
            try:
                self._bus.put(TABLE, {ticker: b"%d" % end for ticker, end in ends.items()}, keep_seconds=_KEEP_SECONDS)
            except BusError:
                with self._lock:
                    self._unsaved = {**ends, **self._unsaved}
                raise

    def _find(self, now: int) -> None:
        """Minutes left by an earlier gateway or held by another live one: ending a minute twice does no harm."""
        if self._found is None:
            found = {ticker: _end(end) for ticker, end in self._bus.items(TABLE).items()}
            self._found = {ticker: end for ticker, end in found.items() if end is not None}
            self._found_at = now
        if self._found and now >= self._found_at + _RESTART_GRACE_NS:
            self._note(self._found, is_saved=True)
            self._found = {}


def _end(saved: bytes) -> int | None:
    """None for an invalid time: any program may write to the bus."""
    return int(saved) if len(saved) < 20 and saved.isdigit() else None


def _mark(ticker: str, end: int, number: int) -> Record:
    mark = records.TickMark(ticker=ticker, clock=records.Clock(exchange_time=end, sequence=number))
    key = ticker.encode()
    return Record(mark.SerializeToString(), key=key, partition_key=key)
