"""Records of the bus as alerts. Each function raises DecodeError or ValueError for a record that does not belong on its
topic.
"""

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any

from alerts.alert import Alert
from bus import topics
from bus.api import StoredRecord
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.times import iso_nanoseconds
from protobuf import records_pb2 as rec

__all__ = ["READERS"]

_LATEST_NS = 2**63 - 1
#: The most characters of a text for people.
_MAX_TEXT = 2_000


def _event(record: StoredRecord) -> list[Alert]:
    event = ing.CEPTriggerEvent.FromString(record.value)
    names, kinds = event.schema.column_names, event.schema.column_types
    rows = [
        {name: _plain(kind, value) for name, kind, value in zip(names, kinds, row.values, strict=True)}
        for row in event.rows
    ]
    # An event of several rows shows its last one; all of them are in the table.
    row = rows[-1] if rows else {}
    ticker = event.context.get("ticker", "")
    title = f"{event.trigger_id}: {ticker}" if ticker else event.trigger_id
    text = ", ".join(f"{name} {value}" for name, value in row.items())
    return [
        Alert(
            alert_id=event.context.get("event_id", ""),
            kind="event",
            time_ns=min(event.timestamp, _LATEST_NS),
            title=title,
            text=text[:_MAX_TEXT],
            trigger_id=event.trigger_id,
            ticker=ticker,
            row=row,
        )
    ]


def _final(record: StoredRecord) -> list[Alert]:
    final = ing.HistoryReadyNotification.FromString(record.value)
    status = ing.HistoryReadyNotification.NotificationStatus
    if final.status not in (status.ERROR, status.TIMEOUT):
        return []
    name = status.Name(final.status)
    return [
        Alert(
            alert_id=f"request_failed:{final.request_id}",
            kind="request_failed",
            time_ns=final.completed_at,
            title=f"request {final.request_id}: {name}",
            text=f"history of {final.ticker} ended as {name}: {final.error_message}"[:_MAX_TEXT],
            ticker=final.ticker,
        )
    ]


def _suspended(record: StoredRecord) -> list[Alert]:
    progress = rec.TriggerProgress.FromString(record.value)
    return [
        Alert(
            alert_id=f"trigger_suspended:{each.trigger_id}:{each.version}",
            kind="trigger_suspended",
            time_ns=record.timestamp_ms * 1_000_000,
            title=f"{each.trigger_id} is suspended",
            text=f"trigger {each.trigger_id} is suspended: {each.reason}"[:_MAX_TEXT],
            trigger_id=each.trigger_id,
        )
        for each in progress.suspended
    ]


def _gap(record: StoredRecord) -> list[Alert]:
    mark = rec.TickMark.FromString(record.value)
    if mark.WhichOneof("body") != "gap" or mark.gap.is_repaired:
        return []
    return [
        Alert(
            alert_id=f"gap:{mark.gap.gap_id}",
            kind="gap",
            time_ns=mark.gap.detected_at,
            title=f"{mark.ticker}: trades are missing",
            text=f"trades of {mark.ticker} are missing: {mark.gap.reason}"[:_MAX_TEXT],
            ticker=mark.ticker,
        )
    ]


#: For each kind of alert: the topic, and how its records are read.
READERS: Mapping[str, tuple[str, Callable[[StoredRecord], list[Alert]]]] = {
    "event": (topics.TRIGGER_EVENTS, _event),
    "request_failed": (topics.NOTIFICATIONS, _final),
    "trigger_suspended": (topics.TRIGGER_PROGRESS, _suspended),
    "gap": (topics.TICK_MARKS, _gap),
}


def _plain(kind: str, data: bytes) -> Any:
    """A JSON value: times as ISO text, bytes as base64, non-finite numbers as text."""
    field = ing.FieldValue.FromString(data)
    member = field.WhichOneof("value")
    if member is None:
        return None
    value = getattr(field, member)
    if kind.startswith("TIMESTAMP"):
        return iso_nanoseconds(min(value, _LATEST_NS))
    if member == "bytes_val":
        return base64.b64encode(value).decode()
    if member == "double_val" and not math.isfinite(value):
        return str(value)
    return value
