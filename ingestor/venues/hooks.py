"""Mixins for ccxt.pro's exchanges: raw trades go to a `Sink` instead of a bounded cache, and connections report their
state.

The futures of `watch_trades` are then never resolved, so a pending call is a held subscription, and fails when its
connection ends.
"""

from contextvars import ContextVar
from typing import Any, Protocol

from ingestor.venues.reading import Parse

#: The key of the ticker for which the current task subscribes.
SUBSCRIBING: ContextVar[str] = ContextVar("subscribing", default="")


class Sink(Protocol):
    """Receives trades and connection events. `key` is the name of a market in the venue's frames."""

    def trades_came(self, key: str, rows: list[Any], parse: Parse) -> None: ...

    def trade_came(self, key: str, row: Any, parse: Parse) -> None: ...

    def subscribed(self, key: str, url: str) -> None: ...

    def connection_opened(self, client: Any) -> None: ...

    def connection_ended(self, client: Any, reason: str) -> None: ...


class Hooks:
    """Mixed in ahead of a ccxt.pro class; `sink` is set before the first subscription."""

    sink: Sink

    def watch(self, url: str, *arguments: Any, **named: Any) -> Any:
        self._note(url)
        return super().watch(url, *arguments, **named)  # type: ignore[misc]

    def watch_multiple(self, url: str, *arguments: Any, **named: Any) -> Any:
        self._note(url)
        return super().watch_multiple(url, *arguments, **named)  # type: ignore[misc]

    def _note(self, url: str) -> None:
        key = SUBSCRIBING.get()
        if key:
            self.sink.subscribed(key, url)

    def on_connected(self, client: Any, message: Any = None) -> None:
        super().on_connected(client, message)  # type: ignore[misc]
        self.sink.connection_opened(client)

    def on_error(self, client: Any, error: Any) -> None:
        super().on_error(client, error)  # type: ignore[misc]
        self.sink.connection_ended(client, str(error))

    def on_close(self, client: Any, error: Any) -> None:
        super().on_close(client, error)  # type: ignore[misc]
        self.sink.connection_ended(client, f"closed with {error}")
