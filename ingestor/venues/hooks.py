"""What is put over ccxt.pro's exchanges: raw trades go to a `Sink` instead of a bounded cache, and connections report.

The futures of `watch_trades` are then never resolved, so that a pending call means a held subscription, and ends with
an error when the connection does.
"""

from contextvars import ContextVar
from typing import Any, Protocol

from ingestor.venues import reading

#: The ticker's key in whose task a subscription is being made.
SUBSCRIBING: ContextVar[str] = ContextVar("subscribing", default="")


class Sink(Protocol):
    """`key` is how the venue's frames name a market."""

    def trades_came(self, key: str, rows: list[Any], parse: reading.Parse) -> None: ...

    def trade_came(self, key: str, row: Any, parse: reading.Parse) -> None: ...

    def subscribed(self, key: str, url: str) -> None: ...

    def connection_opened(self, client: Any) -> None: ...

    def connection_ended(self, client: Any, reason: str) -> None: ...


class Hooks:
    """Goes in front of a ccxt.pro class; `sink` is set before the first subscription."""

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


class BinanceHooks(Hooks):
    def handle_message(self, client: Any, message: Any) -> None:
        # ccxt builds a table of forty handlers for each message; a trade needs none of it.
        if type(message) is dict and message.get("e") == "trade":
            self.sink.trade_came(message["s"], message, reading.binance_stream)
        else:
            super().handle_message(client, message)  # type: ignore[misc]

    def handle_trade(self, client: Any, message: Any) -> None:
        self.sink.trade_came(message["s"], message, reading.binance_stream)


class KrakenHooks(Hooks):
    def handle_trades(self, client: Any, message: Any) -> None:
        rows = message.get("data") or []
        if rows:
            self.sink.trades_came(rows[0]["symbol"], rows, reading.kraken_stream)


class OkxHooks(Hooks):
    def handle_trades(self, client: Any, message: Any) -> None:
        self.sink.trades_came(message["arg"]["instId"], message.get("data") or [], reading.okx)


class BybitHooks(Hooks):
    def handle_trades(self, client: Any, message: Any) -> None:
        self.sink.trades_came(message["topic"].partition(".")[2], message.get("data") or [], reading.bybit_stream)


class CoinbaseHooks(Hooks):
    def handle_trade(self, client: Any, message: Any) -> None:
        for event in message.get("events") or []:
            # Newest first.
            for row in reversed(event.get("trades") or []):
                self.sink.trade_came(row["product_id"], row, reading.coinbase)


class CoinbaseExchangeHooks(Hooks):
    def handle_trade(self, client: Any, message: Any) -> None:
        if message.get("product_id"):
            self.sink.trade_came(message["product_id"], message, reading.coinbaseexchange)
