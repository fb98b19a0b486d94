"""TopicReplay: numbered messages of a topic, read from the bus again."""

from google.protobuf.message import DecodeError

from bus.api import Bus
from core.errors import InvalidRequest, OffsetOutOfRange
from protobuf import candlewright_pb2 as cw
from relay import metrics
from relay.settings import RelayLimits
from relay.topics import Stream, stream_of


class NotKept(InvalidRequest):
    """A number that was trimmed, or not given out yet."""


def replay(bus: Bus, query: cw.TopicReplay, limits: RelayLimits) -> list[cw.TopicRecord]:
    """The messages that hold the numbers asked for, in order; the last is marked.

    Raises InvalidRequest (NotKept where the numbers are the reason) with a sentence for the client, and BusError.
    """
    stream = stream_of(query.topic)
    if stream is None:
        raise InvalidRequest(
            f"{query.topic[:200]!r} is no numbered topic; those are SNAPSHOT:…, TICKS:…, OHLC:… and TRIGGER:…, in full."
        )
    newest = bus.last_sequence(query.topic)
    first = max(1, query.from_sequence)
    last = min(query.to_sequence or newest, newest)
    if query.to_sequence and query.to_sequence < first:
        raise InvalidRequest(f"from_sequence {first} is behind to_sequence {query.to_sequence}.")
    if first > newest:
        raise NotKept(f"{query.topic} has no number {first} yet; the newest is {newest}.")
    if last - first >= limits.max_topic_records * 100:
        raise InvalidRequest(f"These are {last - first + 1} numbers; ask for fewer at a time.")
    records = _read(bus, stream, query.topic, first, last, limits)
    records[-1].is_final = True
    return records


def _read(bus: Bus, stream: Stream, topic: str, first: int, last: int, limits: RelayLimits) -> list[cw.TopicRecord]:
    gone = NotKept(f"Number {first} of {topic} is no longer kept.")
    start = bus.locate(stream.bus_topic, topic, first)
    if start is None:
        raise gone
    found: list[cw.TopicRecord] = []
    head = bytes((stream.type_id,))
    expected, offset, size = first, start.offset, 0
    while expected <= last:
        try:
            records = bus.read(stream.bus_topic, start.partition, offset)
        except OffsetOutOfRange as error:
            raise gone from error
        if not records:
            raise gone
        for record in records:
            span = _span(stream, topic, record.value, record.sequence)
            if span is None or span[1] < expected:
                continue
            if span[0] > expected:
                raise gone
            found.append(cw.TopicRecord(topic=topic, sequence=span[0], body=head + record.value))
            expected, size = span[1] + 1, size + len(record.value)
            if len(found) > limits.max_topic_records or size > limits.max_topic_bytes_read:
                raise InvalidRequest(f"More than {len(found) - 1} messages at once are too much; ask for fewer.")
            if expected > last:
                break
        offset = records[-1].offset + 1
    return found


def _span(stream: Stream, topic: str, value: bytes, sequence: int | None) -> tuple[int, int] | None:
    """First and last number that a record holds; None for a record of another topic."""
    if sequence is None:
        return None
    try:
        message = stream.message.FromString(value)
    except DecodeError:
        metrics.BAD_RECORDS.labels(stream.bus_topic).inc()
        return None
    if stream.name_of(message) != topic:
        return None
    return sequence, sequence + max(1, stream.count_of(message)) - 1
