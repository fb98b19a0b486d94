"""TopicReplay: numbered messages of a topic, read from the bus again."""

from collections.abc import Sequence

from bus.api import Bus, Log, StoredRecord
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import InvalidRequest, OffsetOutOfRange
from candlewright.wire.streams import Stream, stream_of
from relay.live.numbered import Numbered, numbered
from relay.settings import RelayLimits

_MILLISECOND = 1_000_000


class NotKept(InvalidRequest):
    """A number was trimmed or is not assigned yet; then `newest_sequence` is the newest."""

    def __init__(self, text: str, newest_sequence: int | None = None) -> None:
        super().__init__(text)
        self.newest_sequence = newest_sequence


def replay(bus: Bus, query: cw.TopicReplay, limits: RelayLimits) -> list[cw.TopicRecord]:
    """The messages with the requested numbers, in order; the last one is marked.

    Raises InvalidRequest (NotKept if the numbers are the reason) with a sentence for the client, and BusError.
    """
    stream = stream_of(query.topic)
    if stream is None:
        raise InvalidRequest(
            f"{query.topic[:200]!r} is not a numbered topic: name SNAPSHOT:…, TICKS:…, OHLC:… or TRIGGER:… in full."
        )
    newest = bus.last_sequence(query.topic)
    first = max(1, query.from_sequence)
    last = min(query.to_sequence or newest, newest)
    if query.to_sequence and query.to_sequence < first:
        raise InvalidRequest(f"from_sequence {first} is after to_sequence {query.to_sequence}.")
    if first > newest:
        raise NotKept(f"{query.topic} has no number {first} yet; the newest is {newest}.", newest)
    if last - first >= limits.max_topic_records * 100:
        raise InvalidRequest(f"These are {last - first + 1} numbers; ask for fewer at a time.")
    records = _read(bus, stream, query.topic, first, last, limits)
    records[-1].is_final = True
    return records


def _read(bus: Log, stream: Stream, topic: str, first: int, last: int, limits: RelayLimits) -> list[cw.TopicRecord]:
    """Read the records of the numbers. They may be in several partitions, as for a trigger on several tickers."""
    search = _Search(bus, stream, topic, last=last)
    found: list[cw.TopicRecord] = []
    expected, size = first, 0
    while expected <= last:
        part = search.record_of(expected)
        if part is None:
            raise NotKept(f"Number {first} of {topic} is no longer kept.")
        published_at = part.at_ms * _MILLISECOND
        found.append(cw.TopicRecord(topic=topic, sequence=part.first, body=part.body, published_at=published_at))
        expected, size = part.last + 1, size + len(part.body)
        if len(found) > limits.max_topic_records or size > limits.max_topic_bytes_read:
            raise InvalidRequest(f"More than {len(found) - 1} messages at once are too much; ask for fewer.")
    return found


class _Search:
    """Reads each record at most once: records read while searching for one number are kept for the next ones."""

    def __init__(self, bus: Log, stream: Stream, topic: str, *, last: int) -> None:
        self._bus = bus
        self._stream = stream
        self._topic = topic
        self._last = last
        self._met: dict[int, Numbered] = {}
        self._read_to: dict[int, int] = {}

    def record_of(self, number: int) -> Numbered | None:
        """The record of a number; None if it is not kept. Call with ascending numbers."""
        place = None if number in self._met else self._bus.locate(self._stream.bus_topic, self._topic, number)
        while place is not None and number not in self._met:
            offset = max(place.offset, self._read_to.get(place.partition, 0))
            try:
                records = self._bus.read(self._stream.bus_topic, place.partition, offset)
            except OffsetOutOfRange:
                break
            if not records or self._goes_on_without(number, records):
                break
            self._read_to[place.partition] = records[-1].offset + 1
        return self._met.pop(number, None)

    def _goes_on_without(self, number: int, records: Sequence[StoredRecord]) -> bool:
        """Keep the records of the topic; True if they begin after `number`."""
        parts = (numbered(self._stream, record) for record in records)
        own = [part for part in parts if part is not None and part.topic == self._topic and part.last >= number]
        self._met.update({max(part.first, number): part for part in own if part.first <= self._last})
        return bool(own) and number not in self._met
