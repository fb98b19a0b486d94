"""TopicReplay: numbered messages of a topic, read from the bus again."""

from bus.api import Bus
from core.errors import InvalidRequest, OffsetOutOfRange
from protobuf import candlewright_pb2 as cw
from relay.numbered import numbered
from relay.settings import RelayLimits
from relay.topics import Stream, stream_of


class NotKept(InvalidRequest):
    """A number that was trimmed, or not given out yet (`newest_sequence` says which one is the newest then)."""

    def __init__(self, text: str, newest_sequence: int | None = None) -> None:
        super().__init__(text)
        self.newest_sequence = newest_sequence


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
        raise NotKept(f"{query.topic} has no number {first} yet; the newest is {newest}.", newest)
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
    expected, offset, size = first, start.offset, 0
    while expected <= last:
        try:
            records = bus.read(stream.bus_topic, start.partition, offset)
        except OffsetOutOfRange as error:
            raise gone from error
        if not records:
            raise gone
        for record in records:
            part = numbered(stream, record)
            if part is None or part.topic != topic or part.last < expected:
                continue
            if part.first > expected:
                raise gone
            found.append(cw.TopicRecord(topic=topic, sequence=part.first, body=part.body))
            expected, size = part.last + 1, size + len(part.body)
            if len(found) > limits.max_topic_records or size > limits.max_topic_bytes_read:
                raise InvalidRequest(f"More than {len(found) - 1} messages at once are too much; ask for fewer.")
            if expected > last:
                break
        offset = records[-1].offset + 1
    return found
