"""The text of an alert: the body of a webhook, and the message for people."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from alerts.alert import Alert, Delivery
from candlewright.wire.times import iso_nanoseconds
from core.log import get_logger
from triggers.texts.alerts import AlertAsked, render

__all__ = ["body_of", "digest_of", "worded"]

log = get_logger()

#: The most titles that a digest quotes.
_QUOTED = 5


def body_of(alert: Alert) -> str:
    """JSON with `type`, `timestamp` and `data`, as the Standard Webhooks specification recommends."""
    data: dict[str, Any] = {"event_id": alert.alert_id, "trigger_id": alert.trigger_id, "ticker": alert.ticker}
    if alert.kind == "event":
        data["row"] = dict(alert.row)
    if alert.kind != "event" or alert.is_worded:
        data["text"] = alert.text
    if alert.resolves:
        data |= {"resolves": alert.resolves, "kind": alert.kind}
    body = {
        "type": "resolved" if alert.resolves else alert.kind,
        "timestamp": iso_nanoseconds(alert.time_ns),
        "data": data,
    }
    return orjson.dumps(body).decode()


def worded(alert: Alert, asked: AlertAsked) -> Alert:
    """The alert with its trigger's own text. If the template fails for these values, the default text is used."""
    if alert.kind != "event":
        return alert
    alert = replace(alert, resolved_by=asked.resolved_by)
    if not asked.message:
        return replace(alert, to=asked.to)
    values = {
        **alert.row,
        "trigger_id": alert.trigger_id,
        "ticker": alert.ticker,
        "time": iso_nanoseconds(alert.time_ns),
    }
    try:
        text = render(asked.message, values)
    except ValueError as error:
        log.warning("message_not_rendered", trigger=alert.trigger_id, error=str(error))
        return replace(alert, to=asked.to)
    return replace(alert, to=asked.to, text=text, is_worded=True)


def digest_of(deliveries: Sequence[Delivery]) -> tuple[str, str]:
    """(title, text) of one message for several alerts."""
    counts = Counter(delivery.queue for delivery in deliveries).most_common()
    named = ", ".join(f"{name} ({count})" for name, count in counts[:_QUOTED])
    rest = f" and {len(counts) - _QUOTED} more" if len(counts) > _QUOTED else ""
    lines = [f"{len(deliveries)} alerts: {named}{rest}", *(delivery.title for delivery in deliveries[-_QUOTED:])]
    return f"{len(deliveries)} alerts", "\n".join(lines)
