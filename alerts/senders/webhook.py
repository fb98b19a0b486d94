"""Webhooks according to the Standard Webhooks specification: one signed POST per alert.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import asyncio
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import aiohttp
from standardwebhooks.webhooks import Webhook

from alerts.alert import Delivery
from alerts.senders.addresses import PublicResolver, check_literal
from alerts.senders.sender import DeliveryFailed, Failure
from candlewright.version import VERSION
from core.settings_alerts import DestinationSettings

__all__ = ["WebhookSender"]

_SECONDS = 10.0


class WebhookSender:
    """Redirects are not followed, because the signature is meant for the address in the settings."""

    def __init__(self, settings: DestinationSettings) -> None:
        self._url = settings.url.get_secret_value()
        self._allow_private = settings.allow_private
        self._signers = [Webhook(secret.get_secret_value()) for secret in settings.secret]
        self._session: aiohttp.ClientSession | None = None

    async def send(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            await self._post(delivery)

    async def _post(self, delivery: Delivery) -> None:
        if not self._allow_private:
            check_literal((urlsplit(self._url).hostname or "").strip("[]"))
        try:
            async with (
                asyncio.timeout(_SECONDS),
                self._open().post(
                    self._url, data=delivery.body.encode(), headers=self._headers(delivery), allow_redirects=False
                ) as answer,
            ):
                status, retry_after = answer.status, answer.headers.get("Retry-After", "")
        except TimeoutError as error:
            raise DeliveryFailed(f"no answer within {_SECONDS:.0f} s", Failure.SLOW) from error
        except aiohttp.ClientConnectorCertificateError as error:
            raise DeliveryFailed("the certificate is not valid for this address", Failure.CERTIFICATE) from error
        except aiohttp.ClientConnectorError as error:
            if isinstance(refused := error.__cause__ or error.os_error, DeliveryFailed):
                raise refused from error
            raise DeliveryFailed(f"cannot connect: {_reason(error)}", Failure.UNREACHABLE) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # The library's text may quote the address, and with it a token.
            raise DeliveryFailed(f"the connection failed: {type(error).__name__}", Failure.CUT) from error
        if not 200 <= status < 300:
            redirected = " (redirects are not followed)" if 300 <= status < 400 else ""
            raise DeliveryFailed(f"HTTP {status}{redirected}", _failure(status), _seconds(retry_after))

    def _headers(self, delivery: Delivery) -> dict[str, str]:
        now = datetime.now(UTC)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"candlewright/{VERSION}",
            "webhook-id": delivery.alert_id,
            "webhook-timestamp": str(int(now.timestamp())),
        }
        if self._signers:
            headers["webhook-signature"] = " ".join(
                signer.sign(delivery.alert_id, now, delivery.body) for signer in self._signers
            )
        return headers

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            # The machine's certificate authorities, or those of SSL_CERT_FILE.
            tls = ssl.create_default_context()
            resolver = None if self._allow_private else PublicResolver()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=resolver, ssl=tls, use_dns_cache=False),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                # `_post` limits the time.
                timeout=aiohttp.ClientTimeout(),
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _failure(status: int) -> Failure:
    if status == 429:
        return Failure.RATE_LIMITED
    return {3: Failure.REDIRECT, 5: Failure.SERVER_ERROR}.get(status // 100, Failure.REFUSED)


def _reason(error: aiohttp.ClientConnectorError) -> str:
    return error.os_error.strerror or type(error.os_error).__name__


def _seconds(retry_after: str) -> float | None:
    """A Retry-After header, in seconds or as a date; None if it is unusable."""
    if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10:
        return float(retry_after)
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
