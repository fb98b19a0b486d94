"""Configures stock ccxt exchanges: without ccxt's limiter, spot markets only, with access to each reply's headers."""

from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

from candlewright.wire.errors import ConfigurationError, ExchangeError
from ingestor.exchange import addresses
from ingestor.exchange.ccxt_classes import exchange_class, exchange_ids
from ingestor.exchange.errors import Reply
from ingestor.venues import VenueDescription

#: The newest HTTP reply of the running task, so that concurrent calls on one instance do not mix up their replies.
_reply: ContextVar[Reply | None] = ContextVar("exchange_reply", default=None)


def last_reply() -> Reply | None:
    return _reply.get()


def build(venue: VenueDescription, *, url: str, timeout_seconds: float, streaming: bool = False) -> Any:
    """A ccxt exchange; with `url`, all its traffic goes only to that server.

    With `streaming`, a ccxt.pro exchange behind the venue's hooks. Numbers stay text until they are parsed once. Raises
    ConfigurationError if ccxt does not have the id.
    """
    ccxt_id = venue.ccxt_id
    if ccxt_id not in exchange_ids(streaming=streaming):
        raise ConfigurationError(f"ccxt has no exchange {ccxt_id!r}{' that streams' if streaming else ''}")
    stock = exchange_class(ccxt_id, streaming=streaming)
    if streaming and venue.stream is not None:
        stock = type(stock.__name__, (venue.stream.hooks, stock), {})
    exchange = _observed(stock)({"enableRateLimit": False, "timeout": int(timeout_seconds * 1_000)})
    exchange.number = str
    if venue.has_spot_switch:
        exchange.options["fetchMarkets"] = {**(exchange.options.get("fetchMarkets") or {}), "types": ["spot"]}
    if not venue.needs_currencies:
        exchange.has["fetchCurrencies"] = False
    exchange.allowed_host = ""
    if url:
        exchange.urls["api"] = addresses.redirected(exchange.urls["api"], url)
        exchange.allowed_host = urlsplit(url).netloc
    return exchange


def _observed(stock: type[Any]) -> type[Any]:
    class Observed(stock):  # type: ignore[misc]
        allowed_host: str

        async def fetch(self, url: str, *rest: Any, **named: Any) -> Any:
            if self.allowed_host and urlsplit(url).netloc != self.allowed_host:
                raise ExchangeError(f"{url} is not on {self.allowed_host}, the only server that is allowed")
            _reply.set(None)
            try:
                return await super().fetch(url, *rest, **named)
            except Exception as error:
                # Calls that ccxt gathers run in separate tasks, whose context variables are not visible here.
                error.reply = _reply.get()  # type: ignore[attr-defined]
                raise

        def handle_errors(self, code: int, reason: str, url: str, method: str, headers: Any, *rest: Any) -> Any:
            _reply.set(Reply(code, {name.lower(): value for name, value in headers.items()}))
            return super().handle_errors(code, reason, url, method, headers, *rest)

    Observed.__name__ = Observed.__qualname__ = stock.__name__
    return Observed
