"""Finds the newest trades of a ticker on the bus, from which an ingestor that takes it over continues."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bus import Bus, StoredRecord
from bus.topics import TICKS
from candlewright.wire import streams
from candlewright.wire.errors import BadFrame, OffsetOutOfRange
from ingestor.trade import ORDER, TIME, Trade, stand_in, trades_of
from protobuf import far_ahead

#: How many trades to read back, since late trades may have been published after the newest one. With non-numeric ids
#: they also serve to recognise repeats, so they are as many as a venue's longest page, or as it resends on subscribe.
TAIL_TRADES = 1_000
#: Records older than this (s) are not read; a ticker without a newer one starts afresh.
TAIL_SECONDS = 900
#: The search for the first record to read stops within this many records.
_NEAR_ENOUGH = 256


@dataclass(frozen=True, slots=True)
class Tail:
    """`sequence`: the last number assigned; `trades`: the newest trades, ascending (empty if trimmed or old)."""

    sequence: int
    trades: list[Trade]

    @property
    def last(self) -> Trade:
        return self.trades[-1]


@dataclass(slots=True)
class _Window:
    """The records of a partition from offset `first` to `end`, by key."""

    floor: int
    first: int
    end: int
    by_key: dict[bytes | None, list[StoredRecord]] = field(default_factory=lambda: defaultdict(list))


class Tails:
    """Tails of many tickers from one pass over each partition, because the successor of a dead ingestor takes over
    hundreds at once, whose records are interleaved.

    Records are kept in memory while any caller is `reading`. `read` is called from several threads.
    """

    def __init__(self, bus: Bus, max_ahead_ns: int) -> None:
        self._bus = bus
        self._max_ahead_ns = max_ahead_ns
        self._lock = threading.Lock()
        self._readers = 0
        self._windows: dict[int, _Window] = {}

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Wrap each `read` in this, including its wait for a turn."""
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if not self._readers:
                    self._windows = {}

    def read(self, ticker: str) -> Tail:
        """Raises BusUnavailable."""
        bus, name = self._bus, streams.ticks(ticker)
        newest = bus.last_sequence(name)
        if newest == 0:
            return Tail(0, [])
        wanted_from = max(1, newest - TAIL_TRADES)
        position = bus.locate(TICKS, name, wanted_from) or bus.locate(TICKS, name, newest)
        if position is None:
            return Tail(newest, [])
        with self._lock:
            found = list(self._window(position.partition, position.offset).by_key[ticker.encode()])
        trades: list[Trade] = []
        for record in found:
            if record.sequence is None or record.offset < position.offset:
                continue
            try:
                trades += self._trades(record)
            except BadFrame:
                continue
        trades.sort(key=lambda trade: (trade[ORDER], trade[TIME]))
        return Tail(newest, trades)

    def _trades(self, record: StoredRecord) -> list[Trade]:
        """The record's trades, none later than the exchange's clock was; raises BadFrame."""
        published_ns = record.timestamp_ms * 1_000_000
        checked, reason = far_ahead.checked_ticks(record.value, published_ns, self._max_ahead_ns)
        trades = trades_of(record.value)
        if not reason:
            return trades
        sound = [trade[TIME] for trade in trades_of(checked)]
        return [
            trade if time else stand_in(trade, max(sound) or published_ns)
            for trade, time in zip(trades, sound, strict=True)
        ]

    def _window(self, partition: int, offset: int) -> _Window:
        """The records from `offset`, or from the first one that is not too old, to the current end."""
        state = self._bus.state(TICKS)[partition]
        window = self._windows.get(partition)
        if window is None:
            floor = self._floor(partition, state.first, state.end)
            start = max(offset, floor)
            window = self._windows[partition] = _Window(floor, start, start)
        start = max(offset, window.floor)
        if start < window.first:
            older = self._read(partition, start, window.first)
            for key, own in older.items():
                window.by_key[key] = own + window.by_key[key]
            window.first = start
        for key, own in self._read(partition, window.end, state.end).items():
            window.by_key[key] += own
        window.end = max(window.end, state.end)
        return window

    def _read(self, partition: int, offset: int, until: int) -> dict[bytes | None, list[StoredRecord]]:
        by_key: dict[bytes | None, list[StoredRecord]] = defaultdict(list)
        while offset < until:
            try:
                found = self._bus.read(TICKS, partition, offset)
            except OffsetOutOfRange:
                # Trimmed meanwhile.
                offset = max(offset + 1, self._bus.state(TICKS)[partition].first)
                continue
            if not found:
                break
            for record in found:
                if record.offset < until:
                    by_key[record.key].append(record)
            offset = found[-1].offset + 1
        return by_key

    def _floor(self, partition: int, first: int, end: int) -> int:
        """An offset at or slightly before the first record that is not too old by the bus's clock."""
        oldest_ms = (time.time() - TAIL_SECONDS) * 1_000
        while end - first > _NEAR_ENOUGH:
            middle = (first + end) // 2
            try:
                found = self._bus.read(TICKS, partition, middle, max_records=1)
            except OffsetOutOfRange:
                first = middle + 1
                continue
            if found and found[0].timestamp_ms < oldest_ms:
                first = middle
            else:
                end = middle
        return first
