"""A record of the bus as Numaflow gets it."""

from collections.abc import Callable
from functools import lru_cache

from google.protobuf.message import DecodeError

from bus import topics
from bus.api import StoredRecord
from core.errors import BadFrame, InvalidRequest
from gateways.numaflow import metrics
from gateways.numaflow.partitions import RecordId, wire_offset
from gateways.records import as_published
from protobuf import candlewright_pb2 as cw
from protobuf import ingestor_pb2 as ing
from protobuf import source_superset_pb2 as source
from protobuf import tick_columns
from venues.ticker import Ticker

#: Both sides allow this much for one message.
MAX_MESSAGE_BYTES = 64 << 20
_NS = 1_000_000_000
#: A Tick is small; what is larger is not looked at as one.
_MAX_TICK_BYTES = 4 << 10
_STATUS = source.ReadResponse.Status()


def response_of(record: StoredRecord, record_id: RecordId) -> source.ReadResponse:
    """`event_time` is the trade's (of a TickBatch the oldest one's: none of it is older), a bar's close, an event's
    time; of other records, and of those that are not what their topic holds, when the bus took them.
    """
    headers = dict(record.headers)
    headers["topic"] = record.topic
    value = as_published(record)
    event_ns = record.timestamp_ms * 1_000_000
    ticker = ""
    read = _READERS.get(record.topic)
    if read is not None:
        try:
            ticker, event_ns = read(value, headers)
        except (BadFrame, DecodeError, ValueError):
            metrics.UNREADABLE.labels(record.topic).inc()
    if ticker:
        headers["ticker"] = ticker
    response = source.ReadResponse(status=_STATUS)
    result = response.result
    result.payload = value
    result.headers.update(headers)
    result.offset.offset = wire_offset(record_id)
    result.offset.partition_id = record_id.partition_id
    result.event_time.seconds, result.event_time.nanos = divmod(event_ns, _NS)
    if record.key is not None:
        result.keys.append(_key(record.key.decode(errors="replace")))
    return response


@lru_cache(10_000)
def _key(text: str) -> str:
    """`exchange:symbol` of a ticker; another key as it is."""
    try:
        ticker = Ticker.parse(text)
    except InvalidRequest:
        return text
    return f"{ticker.venue}:{ticker.symbol}"


def _tick(value: bytes, headers: dict[str, str]) -> tuple[str, int]:
    columns = tick_columns.decode(value)
    if not len(columns):
        raise ValueError("no tick")
    is_one = len(columns) == 1 and len(value) <= _MAX_TICK_BYTES and _is_tick(value)
    headers["kind"] = "tick"
    headers["schema"] = (cw.Tick if is_one else cw.TickBatch).DESCRIPTOR.full_name
    return columns.ticker, int(columns.timestamp.min())


def _is_tick(value: bytes) -> bool:
    # The time has another wire type in a TickBatch, so that one message is not read as the other.
    try:
        return cw.Tick.FromString(value).timestamp != 0
    except DecodeError:
        return False


def _bar(value: bytes, headers: dict[str, str]) -> tuple[str, int]:
    bar = cw.OHLCV.FromString(value)
    if not bar.open_time:
        raise ValueError("no bar")
    headers["kind"] = "ohlc"
    headers["schema"] = bar.DESCRIPTOR.full_name
    headers["period"] = str(bar.period_seconds)
    return bar.ticker, bar.open_time + bar.period_seconds * _NS


def _event(value: bytes, headers: dict[str, str]) -> tuple[str, int]:
    event = ing.CEPTriggerEvent.FromString(value)
    if not event.timestamp:
        raise ValueError("no event")
    headers["kind"] = "cep"
    headers["schema"] = event.DESCRIPTOR.full_name
    return event.context.get("ticker", ""), event.timestamp


_READERS: dict[str, Callable[[bytes, dict[str, str]], tuple[str, int]]] = {
    topics.TICKS: _tick,
    topics.OHLC: _bar,
    topics.TRIGGER_EVENTS: _event,
}
