"""Converts records of numbered topics to published messages, live and for TopicReplay."""

from dataclasses import dataclass

from google.protobuf.message import DecodeError, Message

from bus.api import StoredRecord
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.frames import fits
from candlewright.wire.streams import Stream
from relay import metrics


@dataclass(frozen=True, slots=True)
class Numbered:
    """A message with the numbers `first` to `last` of `topic`. `body`: type id and message; `at_ms`: when the bus took
    it, by its clock.
    """

    topic: str
    first: int
    last: int
    body: bytes
    at_ms: int


def numbered(stream: Stream, record: StoredRecord) -> Numbered | None:
    """The message of a record; None (counted) if it has no number or cannot be read, since it must not stop later
    records.
    """
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
    """The reason why `numbered` returned None."""
    return f"not a message {stream.message.DESCRIPTOR.name} with a number that subscribers can take"


def _batch_of_one(value: bytes) -> cw.TickBatch | None:
    """A gateway's single Tick as a TickBatch, since the public topic carries only batches."""
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
    """The record's value; a batch that lacks its own number gets it."""
    if not isinstance(message, cw.TickBatch) or message.first_sequence == first:
        return record.value
    message.first_sequence = first
    return message.SerializeToString()
