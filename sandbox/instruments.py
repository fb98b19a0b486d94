"""The instruments that the sandbox lists, and the properties of their generated markets."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime

QUOTES = ("USDT", "USDC", "FDUSD", "TUSD", "BUSD", "USD", "EUR", "BTC", "ETH", "BNB")
_DOLLARS = ("USDC", "FDUSD", "TUSD", "BUSD", "USD", "EUR")  # near enough to a dollar to keep the price of the USDT pair


def utc_ms(text: str) -> int:
    """Milliseconds since the epoch of an ISO date or time; a time without a zone is UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Instrument:
    """One listed pair. Prices are integer ticks of 10**-price_decimals, sizes integer lots of 10**-lot_decimals.

    The two decimals add up to 8 at most, so that every quote amount is exact in the 8 decimals of the wire.
    """

    base: str
    quote: str
    price_decimals: int
    lot_decimals: int
    typical_price: float
    daily_volatility: float
    orders_per_minute: float
    lots_per_order: int
    listed_ms: int
    delisted_ms: int | None = None
    status: str = "TRADING"

    def __post_init__(self) -> None:
        if self.price_decimals + self.lot_decimals > 8:
            raise ValueError(f"{self.symbol}: price and lot decimals add up to more than 8")

    @property
    def symbol(self) -> str:
        """The exchange's own name, for example BTCUSDT."""
        return self.base + self.quote


_2019 = utc_ms("2019-01-01")

DEFAULT_INSTRUMENTS: tuple[Instrument, ...] = (
    Instrument("BTC", "USDT", 2, 5, 60000.0, 0.030, 160.0, 900, _2019),
    Instrument("ETH", "USDT", 2, 4, 2900.0, 0.036, 120.0, 1800, _2019),
    Instrument("BNB", "USDT", 2, 3, 310.0, 0.034, 60.0, 900, _2019),
    Instrument("SOL", "USDT", 2, 3, 74.0, 0.050, 80.0, 6000, utc_ms("2020-08-11T06:00:00")),
    Instrument("XRP", "USDT", 4, 1, 0.52, 0.042, 60.0, 4500, _2019),
    Instrument("ADA", "USDT", 4, 1, 0.41, 0.044, 40.0, 5200, _2019),
    Instrument("DOGE", "USDT", 5, 0, 0.085, 0.050, 50.0, 2600, utc_ms("2019-07-05T12:00:00")),
    Instrument("SHIB", "USDT", 8, 0, 0.000011, 0.055, 30.0, 9_000_000, utc_ms("2021-05-10T11:00:00")),
    Instrument("LTC", "USDT", 2, 3, 84.0, 0.036, 24.0, 1500, _2019),
    Instrument("ETH", "BTC", 5, 3, 0.052, 0.022, 9.0, 240, _2019),
    # Most minutes of this market have no trade.
    Instrument("LTC", "BNB", 4, 3, 0.27, 0.030, 0.6, 700, _2019),
    # Delisted: its history remains, but it no longer trades.
    Instrument("WAVES", "USDT", 4, 2, 5.2, 0.050, 8.0, 2600, _2019, utc_ms("2024-06-17T03:00:00"), "BREAK"),
)


def make_instrument(pair: str, listed_ms: int = _2019) -> Instrument:
    """An instrument for any pair named BASE/QUOTE, with the price of its USDT pair or one drawn from its name.

    Raises ValueError if the text is not BASE/QUOTE.
    """
    base, slash, quote = pair.strip().upper().partition("/")
    if not slash or not base.isalnum() or not quote.isalnum():
        raise ValueError(f"{pair!r} is not a pair of the form BASE/QUOTE")
    for known in DEFAULT_INSTRUMENTS:
        if (known.base, known.quote) == (base, quote):
            return known
    for known in DEFAULT_INSTRUMENTS:
        if known.base == base and known.quote == "USDT" and quote in _DOLLARS:
            return replace(known, quote=quote)
    draw = int.from_bytes(hashlib.blake2b(f"{base}/{quote}".encode(), digest_size=4).digest(), "little")
    price = 10.0 ** (draw % 400 / 100.0 - 1.0)
    price_decimals = 2 if price >= 20 else 4
    return Instrument(base, quote, price_decimals, 3, price, 0.04, 4.0 + draw % 16, 20_000, listed_ms)
