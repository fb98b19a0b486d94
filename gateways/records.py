"""What clients of a gateway may publish, and to which topics: the one place that says so for all gateways.

A topic of their own takes any bytes. A topic of the platform takes the message that its readers expect, and gets the
key, the partition and the number that the platform's own writers give it.
"""

import math
import time
from collections.abc import Mapping

from google.protobuf.message import DecodeError, Message

from bus import topics
from bus.api import Record, SequenceStamp, StoredRecord
from bus.stamps import varint
from core.errors import BadFrame, InvalidRequest
from protobuf import candlewright_pb2 as cw
from protobuf import ingestor_pb2 as ing
from protobuf import tick_columns
from venues.grid import EARLIEST_NS, LATEST_NS, SECOND, WEEK_SECONDS, open_containing
from venues.ticker import Ticker

__all__ = ["INNER_PREFIX", "MAX_TOPIC_BYTES", "as_published", "is_named", "is_platform", "is_visible", "record_of"]

#: Topics that gateways keep for themselves begin with this, and are hidden from all clients.
INNER_PREFIX = "__"
#: Of topics that clients of Kafka know.
MAX_TOPIC_BYTES = 249
_INNER = frozenset(
    {
        topics.REQUESTS,
        topics.HISTORY,
        topics.HISTORY_OUTCOMES,
        topics.SNAPSHOTS,
        topics.TICK_MARKS,
        topics.TRIGGER_CONTROLS,
        topics.TRIGGER_PROGRESS,
    }
)
_PLATFORM = frozenset({topics.TICKS, topics.OHLC, topics.TRIGGER_EVENTS, topics.NOTIFICATIONS})
#: Tags under which the bus appends the number: TickBatch.first_sequence, OHLCV.sequence, CEPTriggerEvent.context.
_TICKS_TAG, _BAR_TAG, _CONTEXT_TAG = b"\x10", b"\x68", b"\x2a"
#: A Tick is small; what is larger is not looked at as one.
_MAX_TICK_BYTES = 4 << 10
_MAX_ID_BYTES = 200
#: As for trades of foreign ingestors: clocks differ by seconds.
_MAX_AHEAD_NS = 3_600 * SECOND


def is_visible(topic: str) -> bool:
    """Whether clients may know of `topic`; what they may not is answered as a topic that does not exist."""
    return bool(topic) and topic not in _INNER and not topic.startswith(INNER_PREFIX)


def is_named(topic: str) -> bool:
    """Whether there may be a topic of this name that clients see."""
    return is_visible(topic) and len(topic.encode()) <= MAX_TOPIC_BYTES and topic.isprintable()


def is_platform(topic: str) -> bool:
    """Whether the platform itself writes `topic`, and settles how many partitions it has."""
    return topic in _PLATFORM


def record_of(
    topic: str,
    value: bytes,
    *,
    key: bytes | None = None,
    partition: int | None = None,
    headers: Mapping[str, str] | None = None,
    now_ns: int | None = None,
    max_topic_bytes: int = MAX_TOPIC_BYTES,
) -> Record:
    """The record that `value` becomes on `topic`. `key`, `partition` and `headers` hold for topics of clients; on the
    platform's the key and the partition come from the record itself, and there are no headers. `now_ns`: the time that
    ticks must not lie far ahead of, by default this machine's. `max_topic_bytes`: of protocols with longer names.

    Raises InvalidRequest, with a sentence for the client, for a topic that is not visible, a name that no topic can
    have, and a value that the readers of the platform's topic could not take.
    """
    if not is_visible(topic) or len(topic.encode()) > max_topic_bytes or not topic.isprintable():
        raise InvalidRequest(f"there is no topic {topic!r} that a client may publish to")
    if topic == topics.NOTIFICATIONS:
        raise InvalidRequest("the topic notifications is written by the platform alone")
    if topic == topics.TICKS:
        return _ticks(value, time.time_ns() if now_ns is None else now_ns)
    if topic == topics.OHLC:
        return _bar(value)
    if topic == topics.TRIGGER_EVENTS:
        return _event(value)
    return Record(value, key=key, headers=headers or {}, partition=partition)


def as_published(record: StoredRecord) -> bytes:
    """The value as its writer gave it where the message has no field for the number that the bus appended: of a Tick.
    In all others the number is part of the message.
    """
    value = record.value
    if record.topic != topics.TICKS or record.sequence is None or len(value) > _MAX_TICK_BYTES:
        return value
    number = _TICKS_TAG + varint(record.sequence)
    return value[: -len(number)] if value.endswith(number) and _is_tick(value) else value


def _is_tick(value: bytes) -> bool:
    # The time of a Tick has another wire type than those of a TickBatch, so that one message is not read as the other.
    try:
        return cw.Tick.FromString(value).timestamp != 0
    except DecodeError:
        return False


def _ticks(value: bytes, now_ns: int) -> Record:
    try:
        columns = tick_columns.decode(value)
    except BadFrame as error:
        raise InvalidRequest(f"a record of ticks is a TickBatch or a Tick: {error.text}") from error
    if not len(columns):
        raise InvalidRequest(_why_no_tick(value))
    _check_ticker(columns.ticker)
    if columns.timestamp.max() > now_ns + _MAX_AHEAD_NS:
        # It would end the bars before it, and all ticks of the time until then would come too late.
        raise InvalidRequest(f"the timestamp {columns.timestamp.max()} is more than an hour ahead")
    for at, price, size, trade_id in zip(
        columns.timestamp.tolist(),
        columns.price.tolist(),
        columns.size.tolist(),
        columns.trade_id.tolist(),
        strict=True,
    ):
        _check_time("timestamp", at)
        if not math.isfinite(price):
            raise InvalidRequest(f"the price {price} is no number")
        if not (math.isfinite(size) and size >= 0):
            raise InvalidRequest(f"the size {size} is no amount")
        if not trade_id:
            raise InvalidRequest("a trade_id is empty: it tells a trade from its repetition")
    if columns.clock_ahead is not None:
        # Said by ingestors of trades that they had to ask for.
        batch = cw.TickBatch.FromString(value)
        batch.ClearField("clock_ahead")
        value = batch.SerializeToString()
    key = columns.ticker.encode()
    stamp = SequenceStamp(f"TICKS:{columns.ticker}", len(columns), tag=_TICKS_TAG)
    return Record(value, key=key, partition_key=key, sequence=stamp)


def _why_no_tick(value: bytes) -> str:
    try:
        tick = cw.Tick.FromString(value)
    except DecodeError:
        return "a record of ticks is a TickBatch with ticks, or a Tick"
    if tick.timestamp and not tick.trade_id:
        return "the trade_id is empty: it tells a trade from its repetition"
    if tick.trade_id and not tick.timestamp:
        return "the timestamp is missing: nanoseconds since 1970, UTC"
    return "a record of ticks is a TickBatch with ticks, or a Tick"


def _bar(value: bytes) -> Record:
    bar = cw.OHLCV()
    _parse(bar, value, "a record of ohlc is one OHLCV")
    _check_ticker(bar.ticker)
    if not 1 <= bar.period_seconds <= WEEK_SECONDS:
        raise InvalidRequest(f"the period_seconds {bar.period_seconds} is not between 1 and a week")
    _check_time("open_time", bar.open_time)
    if open_containing(bar.open_time, bar.period_seconds) != bar.open_time:
        raise InvalidRequest(f"the open_time {bar.open_time} is no multiple of {bar.period_seconds} seconds")
    prices = (bar.open, bar.high, bar.low, bar.close)
    if not all(map(math.isfinite, (*prices, bar.volume, bar.quote_volume))):
        raise InvalidRequest("a price or volume of the bar is no number")
    if bar.high != max(prices) or bar.low != min(prices) or bar.volume < 0:
        raise InvalidRequest("the high is not the highest price, the low not the lowest, or the volume below zero")
    key = bar.ticker.encode()
    stamp = SequenceStamp(f"OHLC:{bar.ticker}:{bar.period_seconds}", tag=_BAR_TAG)
    return Record(value, key=key, partition_key=key, sequence=stamp)


def _event(value: bytes) -> Record:
    event = ing.CEPTriggerEvent()
    _parse(event, value, "a record of trigger_events is one CEPTriggerEvent")
    if not 0 < len(event.trigger_id.encode()) <= _MAX_ID_BYTES:
        raise InvalidRequest(f"the trigger_id is empty or has more than {_MAX_ID_BYTES} bytes")
    if not event.context.get("event_id"):
        raise InvalidRequest("the context names no event_id: it tells an event from its repetition")
    _check_time("timestamp", event.timestamp)
    width = len(event.schema.column_names)
    if len(event.schema.column_types) != width or any(len(row.values) != width for row in event.rows):
        raise InvalidRequest("the rows of the event do not have the columns of its schema")
    for row in event.rows:
        for cell in row.values:
            _parse(ing.FieldValue(), cell, "a value of the event's rows is no FieldValue")
    ticker = event.context.get("ticker", "")
    if ticker:
        _check_ticker(ticker)
    key = event.trigger_id.encode()
    stamp = SequenceStamp(f"TRIGGER:{event.trigger_id}", context_tag=_CONTEXT_TAG)
    return Record(value, key=key, partition_key=ticker.encode() or key, sequence=stamp)


def _parse(message: Message, value: bytes, sentence: str) -> None:
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise InvalidRequest(sentence) from error


def _check_ticker(ticker: str) -> None:
    Ticker.parse(ticker)


def _check_time(name: str, value: int) -> None:
    if not EARLIEST_NS <= value < LATEST_NS:
        raise InvalidRequest(f"the {name} {value} is no time in nanoseconds since 1970, UTC")
