"""What clients of any gateway may publish, and to which topics.

A client's own topic takes any bytes. A topic of the platform takes only the message that its readers expect, with the
key, partition and number that the platform's own writers would set.
"""

import math
import time
from collections.abc import Mapping

from google.protobuf.message import DecodeError, Message

from bus import topics
from bus.api import Record, SequenceStamp, StoredRecord
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire import streams, tick_columns
from candlewright.wire.errors import BadFrame, InvalidRequest
from candlewright.wire.grid import EARLIEST_NS, LATEST_NS, SECOND, WEEK_SECONDS, open_containing
from candlewright.wire.ticker import Ticker
from candlewright.wire.varint import varint
from core.settings import TicksSettings

__all__ = [
    "INNER_PREFIX",
    "MAX_AHEAD_NS",
    "MAX_TOPIC_BYTES",
    "as_published",
    "is_named",
    "is_platform",
    "is_tick",
    "is_visible",
    "record_of",
]

#: Prefix of the topics that gateways use internally; they are hidden from all clients.
INNER_PREFIX = "__"
#: Length limit of topic names in Kafka.
MAX_TOPIC_BYTES = 249
#: OHLCV.from_client = true: such a bar reaches topics and triggers, but no table.
_FROM_CLIENT = b"\x78\x01"
#: A Tick is small; larger values are not parsed as one.
_MAX_TICK_BYTES = 4 << 10
_MAX_ID_BYTES = 200
#: A record further ahead would end all earlier bars, and make every record until that time late. Readers put such
#: records aside; refusing them here also informs the sender.
MAX_AHEAD_NS = TicksSettings().max_ahead_ns


def is_visible(topic: str) -> bool:
    """Whether clients may see `topic`; a hidden topic is answered as one that does not exist."""
    known = topics.TOPICS.get(topic)
    return bool(topic) and not topic.startswith(INNER_PREFIX) and (known is None or known.is_public)


def is_named(topic: str) -> bool:
    """Whether a topic that clients see may have this name."""
    return is_visible(topic) and len(topic.encode()) <= MAX_TOPIC_BYTES and topic.isprintable()


def is_platform(topic: str) -> bool:
    """Whether the platform itself writes `topic`, and so decides how many partitions it has."""
    return topic in topics.TOPICS and topics.TOPICS[topic].is_public


def record_of(
    topic: str,
    value: bytes,
    *,
    key: bytes | None = None,
    partition: int | None = None,
    headers: Mapping[str, str] | None = None,
    now_ns: int | None = None,
    max_ahead_ns: int = MAX_AHEAD_NS,
    max_topic_bytes: int = MAX_TOPIC_BYTES,
) -> Record:
    """The record that `value` becomes on `topic`. `key`, `partition` and `headers` apply to clients' own topics; on the
    platform's topics, key and partition come from the record itself, and headers are dropped. `now_ns`: ticks and bars
    may be at most `max_ahead_ns` ahead of this time, by default this machine's. `max_topic_bytes`: for protocols that
    allow longer names.

    Raises InvalidRequest, with a sentence for the client, for a hidden topic, an invalid topic name, and a value that
    the readers of the platform's topic could not take.
    """
    if not is_visible(topic) or len(topic.encode()) > max_topic_bytes or not topic.isprintable():
        raise InvalidRequest(f"there is no topic {topic!r} that a client may publish to")
    if topic == topics.NOTIFICATIONS:
        raise InvalidRequest("only the platform writes to the topic notifications")
    if topic == topics.TICKS:
        return _ticks(value, time.time_ns() if now_ns is None else now_ns, max_ahead_ns)
    if topic == topics.OHLC:
        return _bar(value, time.time_ns() if now_ns is None else now_ns, max_ahead_ns)
    if topic == topics.TRIGGER_EVENTS:
        return _event(value)
    return Record(value, key=key, headers=headers or {}, partition=partition)


def as_published(record: StoredRecord) -> bytes:
    """The value as its writer gave it. A Tick has no field for the number that the bus appended, so the number is
    removed; in every other message it is a field.
    """
    value = record.value
    if record.topic != topics.TICKS or record.sequence is None:
        return value
    number = streams.TICKS.tag + varint(record.sequence)
    return value[: -len(number)] if value.endswith(number) and is_tick(value) else value


def is_tick(value: bytes) -> bool:
    """Whether a record of the topic ticks is a Tick. Its time has a different wire type from a TickBatch's, so neither
    message parses as the other.
    """
    try:
        return len(value) <= _MAX_TICK_BYTES and cw.Tick.FromString(value).timestamp != 0
    except DecodeError:
        return False


def _ticks(value: bytes, now_ns: int, max_ahead_ns: int) -> Record:
    try:
        columns = tick_columns.decode(value)
    except BadFrame as error:
        raise InvalidRequest(f"a record of ticks is a TickBatch or a Tick: {error.text}") from error
    if not len(columns):
        raise InvalidRequest(_why_no_tick(value))
    _check_ticker(columns.ticker)
    _check_not_ahead("timestamp", int(columns.timestamp.max()), now_ns, max_ahead_ns)
    for at, price, size, trade_id in zip(
        columns.timestamp.tolist(),
        columns.price.tolist(),
        columns.size.tolist(),
        columns.trade_id.tolist(),
        strict=True,
    ):
        _check_time("timestamp", at)
        if not math.isfinite(price):
            raise InvalidRequest(f"the price {price} is not a finite number")
        if not (math.isfinite(size) and size >= 0):
            raise InvalidRequest(f"the size {size} is not a valid amount")
        if not trade_id:
            raise InvalidRequest("a trade_id is empty: it distinguishes a trade from its repetition")
    if columns.clock_ahead is not None or columns.exchange_ahead is not None:
        # Only ingestors know this.
        batch = cw.TickBatch.FromString(value)
        batch.ClearField("clock_ahead")
        batch.ClearField("exchange_ahead")
        value = batch.SerializeToString()
    key = columns.ticker.encode()
    stamp = SequenceStamp(streams.ticks(columns.ticker), len(columns), tag=streams.TICKS.tag)
    return Record(value, key=key, partition_key=key, sequence=stamp)


def _why_no_tick(value: bytes) -> str:
    try:
        tick = cw.Tick.FromString(value)
    except DecodeError:
        return "a record of ticks is a TickBatch with ticks, or a Tick"
    if tick.timestamp and not tick.trade_id:
        return "the trade_id is empty: it distinguishes a trade from its repetition"
    if tick.trade_id and not tick.timestamp:
        return "the timestamp is missing: nanoseconds since 1970, UTC"
    return "a record of ticks is a TickBatch with ticks, or a Tick"


def _bar(value: bytes, now_ns: int, max_ahead_ns: int) -> Record:
    bar = cw.OHLCV()
    _parse(bar, value, "a record of ohlc is one OHLCV")
    _check_ticker(bar.ticker)
    if not 1 <= bar.period_seconds <= WEEK_SECONDS:
        raise InvalidRequest(f"the period_seconds {bar.period_seconds} is not between 1 and a week")
    _check_time("open_time", bar.open_time)
    _check_not_ahead("open_time", bar.open_time, now_ns, max_ahead_ns)
    if open_containing(bar.open_time, bar.period_seconds) != bar.open_time:
        raise InvalidRequest(f"the open_time {bar.open_time} is not a multiple of {bar.period_seconds} seconds")
    prices = (bar.open, bar.high, bar.low, bar.close)
    if not all(map(math.isfinite, (*prices, bar.volume, bar.quote_volume))):
        raise InvalidRequest("a price or volume of the bar is not a finite number")
    if bar.high != max(prices) or bar.low != min(prices) or bar.volume < 0:
        raise InvalidRequest("the high is not the highest price, the low not the lowest, or the volume below zero")
    key = bar.ticker.encode()
    stamp = SequenceStamp(streams.bars(bar.ticker, bar.period_seconds), tag=streams.BARS.tag)
    # In protobuf the last occurrence of a field wins.
    return Record(value + _FROM_CLIENT, key=key, partition_key=key, sequence=stamp)


def _event(value: bytes) -> Record:
    event = ing.CEPTriggerEvent()
    _parse(event, value, "a record of trigger_events is one CEPTriggerEvent")
    if not 0 < len(event.trigger_id.encode()) <= _MAX_ID_BYTES:
        raise InvalidRequest(f"the trigger_id is empty or has more than {_MAX_ID_BYTES} bytes")
    if not event.context.get("event_id"):
        raise InvalidRequest("the context has no event_id: it distinguishes an event from its repetition")
    _check_time("timestamp", event.timestamp)
    width = len(event.schema.column_names)
    if len(event.schema.column_types) != width or any(len(row.values) != width for row in event.rows):
        raise InvalidRequest("the rows of the event do not have the columns of its schema")
    for row in event.rows:
        for cell in row.values:
            _parse(ing.FieldValue(), cell, "a value in the event's rows is not a FieldValue")
    ticker = event.context.get("ticker", "")
    if ticker:
        _check_ticker(ticker)
    key = event.trigger_id.encode()
    stamp = SequenceStamp(streams.trigger(event.trigger_id), context_tag=streams.TRIGGERS.tag)
    return Record(value, key=key, partition_key=ticker.encode() or key, sequence=stamp)


def _parse(message: Message, value: bytes, sentence: str) -> None:
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise InvalidRequest(sentence) from error


def _check_ticker(ticker: str) -> None:
    Ticker.parse(ticker)


def _check_not_ahead(name: str, value: int, now_ns: int, max_ahead_ns: int) -> None:
    if value > now_ns + max_ahead_ns:
        raise InvalidRequest(
            f"the {name} {value} is {(value - now_ns) / SECOND:.1f} s ahead of the platform's clock, more than"
            f" ticks.max_ahead_seconds = {max_ahead_ns / SECOND:g}"
        )


def _check_time(name: str, value: int) -> None:
    if not EARLIEST_NS <= value < LATEST_NS:
        raise InvalidRequest(f"the {name} {value} is not a time in nanoseconds since 1970, UTC")
