"""A record of the bus as Numaflow receives it."""

from collections.abc import Callable
from functools import lru_cache

from google.protobuf.message import DecodeError

from bus import topics
from bus.api import StoredRecord
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire import tick_columns
from candlewright.wire.errors import BadFrame, InvalidRequest
from candlewright.wire.ticker import Ticker
from gateways.numaflow import metrics
from gateways.numaflow.partitions import RecordId, wire_offset
from gateways.records import as_published, is_tick
from protobuf import source_superset_pb2 as source

#: The limit of one message on both sides.
MAX_MESSAGE_BYTES = 64 << 20
_NS = 1_000_000_000
_STATUS = source.ReadResponse.Status()


def response_of(record: StoredRecord, record_id: RecordId) -> source.ReadResponse:
    """`event_time` is that of the trade (in a TickBatch the oldest, as a lower bound), of the bar's close, or of the
    event. For all other records, and those that do not fit their topic, it is when the bus took them.
    """
    headers = {_text(name): _text(value) for name, value in record.headers.items()}
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
    """`exchange:symbol` for a ticker; any other key unchanged."""
    try:
        ticker = Ticker.parse(text)
    except InvalidRequest:
        return text
    return f"{ticker.venue}:{ticker.symbol}"


def _text(value: str) -> str:
    """Writers of other protocols may have put non-text bytes in a header."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _tick(value: bytes, headers: dict[str, str]) -> tuple[str, int]:
    columns = tick_columns.decode(value)
    if not len(columns):
        raise ValueError("no tick")
    headers["kind"] = "tick"
    headers["schema"] = (cw.Tick if len(columns) == 1 and is_tick(value) else cw.TickBatch).DESCRIPTOR.full_name
    return columns.ticker, int(columns.timestamp.min())


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
