"""Telegram, Slack, e-mail and the other services that Apprise supports."""

import asyncio
import logging
import warnings
from collections.abc import Sequence

from alerts.alert import Delivery
from alerts.message import digest_of
from alerts.senders.addresses import PublicResolver
from alerts.senders.sender import DeliveryFailed, Failure
from candlewright.wire.errors import ConfigurationError
from core.settings_alerts import DestinationSettings

__all__ = ["ServiceSender"]

_SECONDS = 30.0


class ServiceSender:
    """Raises ConfigurationError for an address that Apprise does not support."""

    def __init__(self, name: str, settings: DestinationSettings) -> None:
        # Apprise logs addresses, and with them secrets.
        logging.getLogger("apprise").disabled = True
        self._settings = settings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            # Imported here, because it costs half a second and 30 MB that a platform with only webhooks does not need.
            import apprise

            self._apprise = apprise.Apprise()
            is_known = self._apprise.add(settings.url.get_secret_value())
        if not is_known:
            raise ConfigurationError(f"alerts.{name}.url: Apprise does not accept this {settings.scheme}:// address")
        self._hosts = [host for service in self._apprise if (host := getattr(service, "host", ""))]

    async def send(self, deliveries: Sequence[Delivery]) -> None:
        if not self._settings.allow_private:
            await self._check_hosts()
        title, text = (deliveries[0].title, deliveries[0].text) if len(deliveries) == 1 else digest_of(deliveries)
        try:
            async with asyncio.timeout(_SECONDS):
                is_taken = await self._apprise.async_notify(
                    body=text or title, title=title, body_format=self._settings.format
                )
        except TimeoutError as error:
            raise DeliveryFailed(f"no answer within {_SECONDS:.0f} s", Failure.SLOW) from error
        except Exception as error:  # Apprise's services raise whatever their libraries raise.
            raise DeliveryFailed(f"the service failed: {type(error).__name__}", Failure.CUT) from error
        if not is_taken:
            raise DeliveryFailed("the service did not accept it", Failure.REFUSED)

    async def _check_hosts(self) -> None:
        resolver = PublicResolver()
        for host in self._hosts:
            try:
                await resolver.resolve(host.strip("[]"))
            except OSError as error:
                raise DeliveryFailed("the name of the host cannot be resolved", Failure.UNREACHABLE) from error

    async def close(self) -> None:
        """Apprise keeps nothing open."""
