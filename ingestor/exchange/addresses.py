"""Points a ccxt exchange at another server: every URL keeps its path but gets the other host."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from candlewright.wire.errors import ConfigurationError

_WEBSOCKET = {"http": "ws", "https": "wss"}


def redirected(urls: Any, server: str) -> Any:
    """`urls` (nested dicts and lists of URLs) with the scheme, host and port of `server`, e.g. http://127.0.0.1:9001.

    A path in `server` goes in front of each URL's own. Websocket URLs get ws:// or wss:// accordingly.
    Raises ConfigurationError for a server that is not an http(s) URL.
    """
    base = urlsplit(server)
    if base.scheme not in _WEBSOCKET or not base.netloc:
        raise ConfigurationError(f"{server!r} is not the address of an exchange: write http://host:port")
    if isinstance(urls, dict):
        return {key: redirected(value, server) for key, value in urls.items()}
    if isinstance(urls, list):
        return [redirected(value, server) for value in urls]
    if not isinstance(urls, str):
        return urls
    # A strict parser rejects ccxt's placeholder for a host name.
    parts = urlsplit(urls.replace("{hostname}", "hostname"))
    scheme = _WEBSOCKET[base.scheme] if parts.scheme in ("ws", "wss") else base.scheme
    return urlunsplit((scheme, base.netloc, base.path.rstrip("/") + parts.path, parts.query, ""))


def hosts(urls: Any) -> Iterator[str]:
    """host:port of every URL in `urls`."""
    if isinstance(urls, dict):
        urls = list(urls.values())
    if isinstance(urls, list):
        for value in urls:
            yield from hosts(value)
    elif isinstance(urls, str):
        yield urlsplit(urls).netloc
