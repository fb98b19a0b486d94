"""Checks records of the live topics for their readers: invalid records are put aside, and the rest continues."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from google.protobuf.message import DecodeError

from bus import Bus, StoredRecord
from bus import topics as bus_topics
from bus.api import partition_of
from bus.dead_letters import Letter, put_aside
from candlewright.wire import tick_columns
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.errors import BadFrame
from protobuf import far_ahead
from protobuf import records_pb2 as records
from triggers.records.rows import ticker_of

__all__ = ["PART", "CheckedRecords", "Place"]

#: Topic, partition and offset.
Place = tuple[str, int, int]

#: The part named in dead letters; bars and triggers read the same records, and put the same ones aside.
PART = "live"
#: The part for topics that only triggers read.
_TRIGGERS_PART = "triggers"
_TRIGGER_TOPICS = frozenset({bus_topics.OHLC, bus_topics.TRIGGER_CONTROLS, bus_topics.TRIGGER_EVENTS})
_NS_PER_MS = 1_000_000
#: OHLCV.from_client = true in wire format.
_FROM_CLIENT = b"\x78\x01"


class CheckedRecords:
    """Call `values` with the records read, `refuse` for those that the reader rejects, and `put_aside` before the end
    of the micro-batch. The result is the same when a micro-batch runs again, because a record is judged only by its
    content, the bus's clock when it arrived, and its ingestor's measurements.

    `partitions`: the topics' number of partitions, 0 if a ticker's records may be in any of them. `excluded`: positions
    of records that give no values. `size`: bytes of the records checked.
    """

    def __init__(self, max_ahead_ns: int, partitions: int = 0, excluded: Iterable[Place] = ()) -> None:
        self._max_ahead_ns = max_ahead_ns
        self._partitions = partitions
        self._letters: dict[Place, Letter] = {}
        self.excluded: set[Place] = set(excluded)
        self.size = 0
        self._given: dict[int, tuple[bytes, StoredRecord]] = {}

    def values(self, found: Iterable[StoredRecord]) -> list[bytes]:
        return [value for record in found if (value := self._value(record)) is not None]

    def refuse(self, refused: Iterable[tuple[bytes, str]]) -> None:
        """Report values since the last call that their reader rejects, entirely or in part, with the reason."""
        for value, reason in refused:
            if (given := self._given.get(id(value))) is not None:
                self._note(given[1], reason)
        self._given.clear()

    def exclude(self, bad: Sequence[tuple[StoredRecord, str]]) -> None:
        """Return no values of these records from now on."""
        for record, reason in bad:
            self._note(record, reason)
            self.excluded.add(_place(record))

    @property
    def has_refused(self) -> bool:
        """Whether records were refused since the last `put_aside`."""
        return bool(self._letters)

    def put_aside(self, bus: Bus) -> None:
        """Write the refused records as dead letters. Raises BusUnavailable."""
        for part in (PART, _TRIGGERS_PART):
            letters = [each for each in self._letters.values() if (each.topic in _TRIGGER_TOPICS) == (part != PART)]
            put_aside(bus, part, letters)
        self._letters.clear()

    def _note(self, record: StoredRecord, reason: str) -> None:
        """Note a refused record; it gets one letter, with the first reason."""
        self._letters.setdefault(_place(record), Letter.of(record, reason))

    def _value(self, record: StoredRecord) -> bytes | None:
        self.size += len(record.value)
        if _place(record) in self.excluded:
            return None
        published_ns = record.timestamp_ms * _NS_PER_MS
        value: bytes | None = record.value
        reason = ""
        if record.topic == bus_topics.TICKS:
            if reason := self._problem_with_place(_ticker_of_ticks(record.value), record.partition):
                value = None
            else:
                value, reason = far_ahead.checked_ticks(record.value, published_ns, self._max_ahead_ns)
        elif record.topic == bus_topics.OHLC:
            reason = self._problem_with_bar(record, published_ns)
        elif record.topic == bus_topics.TICK_MARKS:
            reason = self._problem_with_mark(record, published_ns)
        if reason and record.topic != bus_topics.TICKS:
            value = None
        if reason:
            self._note(record, reason)
        if value is not None:
            self._given[id(value)] = (value, record)
        return value

    def _problem_with_bar(self, record: StoredRecord, published_ns: int) -> str:
        """The reason why a client's bar is refused, or an empty string; the platform's own bars are made from checked
        trades.
        """
        if _FROM_CLIENT not in record.value:
            return ""
        try:
            bar = OHLCV.FromString(record.value)
        except DecodeError:
            # For the reader to refuse.
            return ""
        if not bar.from_client or bar.open_time <= published_ns + self._max_ahead_ns:
            return ""
        return far_ahead.reason_of(
            bar.ticker, bar.open_time, published_ns + self._max_ahead_ns, max_ahead_ns=self._max_ahead_ns
        )

    def _problem_with_mark(self, record: StoredRecord, published_ns: int) -> str:
        try:
            mark = records.TickMark.FromString(record.value)
        except DecodeError:
            # For the reader to refuse.
            return ""
        problem = self._problem_with_place(mark.ticker, record.partition)
        return problem or far_ahead.checked_mark(mark, published_ns, self._max_ahead_ns)

    def _problem_with_place(self, ticker: str, partition: int) -> str:
        if not ticker or not self._partitions or _own(ticker, self._partitions) == partition:
            return ""
        return f"{ticker[:100]} belongs to another partition"


def _place(record: StoredRecord) -> Place:
    return record.topic, record.partition, record.offset


@lru_cache(maxsize=100_000)
def _own(ticker: str, partitions: int) -> int:
    return partition_of(ticker.encode(), partitions)


def _ticker_of_ticks(value: bytes) -> str:
    """The record's ticker; empty if it cannot be read, in which case its reader refuses it."""
    ticker = ticker_of(value)
    if ticker is not None:
        return ticker
    try:
        return tick_columns.decode(value).ticker
    except BadFrame:
        return ""
