"""The topics of the notifications socket, one row each. A numbered topic's name is also the name of its sequence on the
bus.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.frames import type_id_of

_VARINT, _BYTES = 0, 2


def ticks(ticker: str) -> str:
    return f"TICKS:{ticker}"


def bars(ticker: str, period_seconds: int | str) -> str:
    return f"OHLC:{ticker}:{period_seconds}"


def snapshot(ticker: str) -> str:
    return f"SNAPSHOT:{ticker}"


def trigger(trigger_id: str) -> str:
    return f"TRIGGER:{trigger_id}"


def response(client_id: str) -> str:
    return f"RESPONSE:{client_id}"


def history_ready(request_id: str) -> str:
    return f"HISTORY_READY:{request_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """`form`: its name, with the parts that vary in braces. `is_private`: with keys on, only the owner of the id in its
    name reads it. `messages`: what is published on it.
    """

    form: str
    is_private: bool
    messages: tuple[type[Message], ...]
    contents: str

    @property
    def prefix(self) -> str:
        return self.form.partition("{")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Topic):
    """A numbered topic. `bus_topic` carries its messages; `tag` is the protobuf tag of the field in which the bus sets
    a message's number (see `bus.api.SequenceStamp`). `name_of` returns the complete topic of a message; `count_of` how
    many numbers the message carries.
    """

    bus_topic: str
    tag: bytes
    name_of: Callable[[Any], str]
    count_of: Callable[[Any], int] = lambda message: 1

    @property
    def message(self) -> type[Message]:
        return self.messages[0]

    @property
    def type_id(self) -> int:
        return type_id_of(self.message)


def _tag(number: int, wire_type: int = _VARINT) -> bytes:
    return bytes((number << 3 | wire_type,))


SNAPSHOTS = Stream(
    form=snapshot("{ticker}"),
    is_private=False,
    messages=(cw.Snapshot,),
    contents="answers to TICKER_SNAPSHOT",
    bus_topic="snapshots",
    tag=_tag(cw.Snapshot.SEQUENCE_FIELD_NUMBER),
    name_of=lambda answer: snapshot(answer.ticker),
)
TICKS = Stream(
    form=ticks("{ticker}"),
    is_private=False,
    messages=(cw.TickBatch,),
    contents="trades; subscribing starts the realtime job",
    bus_topic="ticks",
    tag=_tag(cw.TickBatch.FIRST_SEQUENCE_FIELD_NUMBER),
    name_of=lambda batch: ticks(batch.ticker),
    count_of=lambda batch: len(batch.timestamp),
)
BARS = Stream(
    form=bars("{ticker}", "{period_seconds}"),
    is_private=False,
    messages=(cw.OHLCV,),
    contents="closed bars and their revisions; subscribing starts the realtime job",
    bus_topic="ohlc",
    tag=_tag(cw.OHLCV.SEQUENCE_FIELD_NUMBER),
    name_of=lambda bar: bars(bar.ticker, bar.period_seconds),
)
#: An event's number is an entry of its map `context`.
TRIGGERS = Stream(
    form=trigger("{trigger_id}"),
    is_private=True,
    messages=(ing.CEPTriggerEvent, cw.Error),
    contents="events of a trigger; its suspension",
    bus_topic="trigger_events",
    tag=_tag(ing.CEPTriggerEvent.CONTEXT_FIELD_NUMBER, _BYTES),
    name_of=lambda event: trigger(event.trigger_id),
)
STREAMS = (SNAPSHOTS, TICKS, BARS, TRIGGERS)

RESPONSES = Topic(
    form=response("{client_id}"),
    is_private=True,
    messages=(ing.HistoryReadyNotification, ing.CEPTriggerEvent, cw.Snapshot, cw.Error),
    contents="finals of a client's requests, and events of triggers with that callback id",
)
FINALS = Topic(
    form=history_ready("{request_id}"),
    is_private=True,
    messages=(ing.HistoryReadyNotification,),
    contents="the final of one request",
)
TOPICS = (RESPONSES, FINALS, TICKS, BARS, SNAPSHOTS, TRIGGERS)


def stream_of(topic: str) -> Stream | None:
    """The kind of a complete numbered topic; None for private topics, bare prefixes and anything else."""
    for stream in STREAMS:
        if topic.startswith(stream.prefix) and len(topic) > len(stream.prefix):
            return stream
    return None
