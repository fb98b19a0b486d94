"""Live messages as JSON."""

import base64
import math
from typing import Any

from google.protobuf.message import Message

from candlewright.client import Bar, Notification, Snapshot, TriggerEvent
from candlewright.client.live.items import Ticks
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from console.times import iso

__all__ = ["bar_json", "event_json", "final_json", "message_json", "snapshot_json"]


def message_json(message: Message, skipped: int = 0) -> tuple[str, dict[str, Any]] | None:
    """The kind and the content of a topic's message, without its first `skipped` numbers; None for a message that does
    not belong on a topic.
    """
    if isinstance(message, cw.TickBatch):
        return "ticks", _ticks_json(message, skipped)
    if isinstance(message, cw.OHLCV):
        return "bar", bar_json(Bar.from_message(message))
    if isinstance(message, cw.Snapshot):
        return "snapshot", snapshot_json(Snapshot.from_message(message))
    if isinstance(message, ing.CEPTriggerEvent):
        return "event", event_json(TriggerEvent.from_message(message))
    if isinstance(message, ing.HistoryReadyNotification):
        return "final", final_json(Notification.from_message(message))
    return None


def _ticks_json(message: cw.TickBatch, skipped: int) -> dict[str, Any]:
    ticks = [
        {
            "sequence": tick.sequence,
            "trade_id": tick.trade_id,
            "timestamp": iso(tick.timestamp),
            "price": _number(tick.price),
            "size": _number(tick.size),
            "side": tick.side,
            "received_at": iso(tick.received_at),
        }
        for tick in Ticks(message.ticker).items(message, skipped)
    ]
    return {"sequence": message.first_sequence + skipped, "ticker": message.ticker, "ticks": ticks}


def bar_json(bar: Bar) -> dict[str, Any]:
    return {
        "sequence": bar.sequence,
        "ticker": bar.ticker,
        "period_seconds": bar.period_seconds,
        "open_time": iso(bar.open_time),
        "open": _number(bar.open),
        "high": _number(bar.high),
        "low": _number(bar.low),
        "close": _number(bar.close),
        "volume": _number(bar.volume),
        "quote_volume": bar.quote_volume,
        "trade_count": bar.trade_count,
        "complete": bar.complete,
        "revision": bar.revision,
        "source": bar.source,
    }


def snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    names = ("last", "bid", "ask", "bid_size", "ask_size", "volume_24h")
    return {
        "sequence": snapshot.sequence,
        "ticker": snapshot.ticker,
        "exchange_time": iso(snapshot.exchange_time),
        "received_at": iso(snapshot.received_at),
        **{name: getattr(snapshot, name) for name in names},
    }


def event_json(event: TriggerEvent) -> dict[str, Any]:
    kinds = dict(zip(event.columns, event.column_types, strict=True))
    return {
        "sequence": event.sequence,
        "event_id": event.event_id,
        "trigger_id": event.trigger_id,
        "ticker": event.ticker,
        "time": iso(event.time),
        "match_number": event.match_number,
        "columns": list(event.columns),
        "column_types": list(event.column_types),
        "rows": [{name: _value(kinds[name], value) for name, value in row.items()} for row in event.rows],
    }


def final_json(final: Notification) -> dict[str, Any]:
    return {
        "request_id": final.request_id,
        "ticker": final.ticker,
        "period_seconds": final.period_seconds,
        "start": iso(final.start),
        "end": iso(final.end),
        "status": final.status.value,
        "error_message": final.error_message,
        "table": final.table,
        "row_count": final.row_count,
        "completed_at": iso(final.completed_at),
    }


def _value(kind: str, value: Any) -> Any:
    if kind.startswith("TIMESTAMP") and isinstance(value, int):
        return iso(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _number(value) if isinstance(value, float) else value


def _number(value: float) -> float | None:
    """JSON has neither infinities nor NaN."""
    return value if math.isfinite(value) else None
