"""Records of numbered topics as they are published: live, and again on TopicReplay."""

from dataclasses import dataclass

from google.protobuf.message import DecodeError, Message

from bus.api import StoredRecord
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.frames import fits
from relay import metrics
from relay.topics import Stream


@dataclass(frozen=True, slots=True)
class Numbered:
    """Numbers `first` to `last` of `topic`; `body` is the type id and the message. `at_ms`: the bus's clock."""

    topic: str
    first: int
    last: int
    body: bytes
    at_ms: int


def numbered(stream: Stream, record: StoredRecord) -> Numbered | None:
    """None (counted) for a record that has no number or cannot be read: it must not stop those after it."""
    message: Message | None
    try:
        message = stream.message.FromString(record.value)
        if isinstance(message, cw.TickBatch) and not message.timestamp:
            message = _batch_of_one(record.value)
    except DecodeError:
        message = None
    first = record.sequence
    if message is None or first is None or not fits(stream.message, record.value):
        metrics.BAD_RECORDS.labels(stream.bus_topic).inc()
        return None
    last = first + max(1, stream.count_of(message)) - 1
    body = bytes((stream.type_id,)) + _value(message, record, first)
    return Numbered(stream.name_of(message), first, last, body, record.timestamp_ms)


def unreadable(stream: Stream) -> str:
    """Why `numbered` gives None."""
    return f"not a message {stream.message.DESCRIPTOR.name} with a number that subscribers can take"


def _batch_of_one(value: bytes) -> cw.TickBatch | None:
    """A gateway's single Tick as clients get it; the topic carries batches alone."""
    tick = cw.Tick.FromString(value)
    if not tick.timestamp:
        return None
    return cw.TickBatch(
        ticker=tick.ticker,
        timestamp=[tick.timestamp],
        price=[tick.price],
        size=[tick.size],
        side=[tick.side],
        trade_id=[tick.trade_id],
        received_at=[tick.received_at],
    )


def _value(message: Message, record: StoredRecord, first: int) -> bytes:
    """The record as it is, but for a batch that does not name its number itself."""
    if not isinstance(message, cw.TickBatch) or message.first_sequence == first:
        return record.value
    message.first_sequence = first
    return message.SerializeToString()
