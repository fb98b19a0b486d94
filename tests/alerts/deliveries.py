"""Deliveries for tests."""

from typing import Any

from alerts.alert import Delivery


def delivery(alert_id: str = "dip-1", **given: Any) -> Delivery:
    """A delivery of an event of the trigger `dip` to the destination `hook`."""
    fields: dict[str, Any] = {
        "destination": "hook",
        "kind": "event",
        "trigger_id": "dip",
        "ticker": "BTC/USDT.BINANCE",
        "order": 1,
        "title": "title",
        "text": "text",
        "body": "{}",
        "taken_at": 1.0,
    }
    return Delivery(alert_id=alert_id, **fields | given)
