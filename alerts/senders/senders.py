"""Chooses the sender of a destination."""

from alerts.senders.sender import Sender
from alerts.senders.service import ServiceSender
from alerts.senders.webhook import WebhookSender
from core.settings_alerts import DestinationSettings

__all__ = ["sender_of"]


def sender_of(name: str, settings: DestinationSettings) -> Sender:
    """Raises ConfigurationError for an address that no sender supports."""
    return WebhookSender(settings) if settings.is_webhook else ServiceSender(name, settings)
