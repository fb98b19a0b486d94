"""What differs between the venues that can be streamed."""

from dataclasses import dataclass

from ingestor.venues.hooks import (
    BinanceHooks,
    BybitHooks,
    CoinbaseExchangeHooks,
    CoinbaseHooks,
    Hooks,
    KrakenHooks,
    OkxHooks,
)


@dataclass(frozen=True, slots=True)
class StreamVenue:
    """`is_dense`: trade ids of a market count up by one. `by_symbol`: frames name a market by ccxt's symbol, not by the
    exchange's id. `subscribe_pause`: seconds between two subscriptions on one connection.
    """

    hooks: type[Hooks]
    is_dense: bool
    by_symbol: bool = False
    subscribe_pause: float = 0.05


#: By ccxt id. Binance closes a connection that sends more than five messages a second.
STREAM_VENUES = {
    "binance": StreamVenue(BinanceHooks, is_dense=True, subscribe_pause=0.25),
    "kraken": StreamVenue(KrakenHooks, is_dense=True, by_symbol=True),
    # Its public channel joins fills of one taker order into one message, under the id of the last.
    "okx": StreamVenue(OkxHooks, is_dense=False),
    "bybit": StreamVenue(BybitHooks, is_dense=False),
    "coinbase": StreamVenue(CoinbaseHooks, is_dense=True),
    "coinbaseexchange": StreamVenue(CoinbaseExchangeHooks, is_dense=True),
}
