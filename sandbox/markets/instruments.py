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


@dataclass(kw_only=True, frozen=True, slots=True)
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
    Instrument(
        base="BTC",
        quote="USDT",
        price_decimals=2,
        lot_decimals=5,
        typical_price=60000.0,
        daily_volatility=0.030,
        orders_per_minute=160.0,
        lots_per_order=900,
        listed_ms=_2019,
    ),
    Instrument(
        base="ETH",
        quote="USDT",
        price_decimals=2,
        lot_decimals=4,
        typical_price=2900.0,
        daily_volatility=0.036,
        orders_per_minute=120.0,
        lots_per_order=1800,
        listed_ms=_2019,
    ),
    Instrument(
        base="BNB",
        quote="USDT",
        price_decimals=2,
        lot_decimals=3,
        typical_price=310.0,
        daily_volatility=0.034,
        orders_per_minute=60.0,
        lots_per_order=900,
        listed_ms=_2019,
    ),
    Instrument(
        base="SOL",
        quote="USDT",
        price_decimals=2,
        lot_decimals=3,
        typical_price=74.0,
        daily_volatility=0.050,
        orders_per_minute=80.0,
        lots_per_order=6000,
        listed_ms=utc_ms("2020-08-11T06:00:00"),
    ),
    Instrument(
        base="XRP",
        quote="USDT",
        price_decimals=4,
        lot_decimals=1,
        typical_price=0.52,
        daily_volatility=0.042,
        orders_per_minute=60.0,
        lots_per_order=4500,
        listed_ms=_2019,
    ),
    Instrument(
        base="ADA",
        quote="USDT",
        price_decimals=4,
        lot_decimals=1,
        typical_price=0.41,
        daily_volatility=0.044,
        orders_per_minute=40.0,
        lots_per_order=5200,
        listed_ms=_2019,
    ),
    Instrument(
        base="DOGE",
        quote="USDT",
        price_decimals=5,
        lot_decimals=0,
        typical_price=0.085,
        daily_volatility=0.050,
        orders_per_minute=50.0,
        lots_per_order=2600,
        listed_ms=utc_ms("2019-07-05T12:00:00"),
    ),
    Instrument(
        base="SHIB",
        quote="USDT",
        price_decimals=8,
        lot_decimals=0,
        typical_price=0.000011,
        daily_volatility=0.055,
        orders_per_minute=30.0,
        lots_per_order=9_000_000,
        listed_ms=utc_ms("2021-05-10T11:00:00"),
    ),
    Instrument(
        base="LTC",
        quote="USDT",
        price_decimals=2,
        lot_decimals=3,
        typical_price=84.0,
        daily_volatility=0.036,
        orders_per_minute=24.0,
        lots_per_order=1500,
        listed_ms=_2019,
    ),
    Instrument(
        base="ETH",
        quote="BTC",
        price_decimals=5,
        lot_decimals=3,
        typical_price=0.052,
        daily_volatility=0.022,
        orders_per_minute=9.0,
        lots_per_order=240,
        listed_ms=_2019,
    ),
    # Most minutes of this market have no trade.
    Instrument(
        base="LTC",
        quote="BNB",
        price_decimals=4,
        lot_decimals=3,
        typical_price=0.27,
        daily_volatility=0.030,
        orders_per_minute=0.6,
        lots_per_order=700,
        listed_ms=_2019,
    ),
    # Delisted: its history remains, but it no longer trades.
    Instrument(
        base="WAVES",
        quote="USDT",
        price_decimals=4,
        lot_decimals=2,
        typical_price=5.2,
        daily_volatility=0.050,
        orders_per_minute=8.0,
        lots_per_order=2600,
        listed_ms=_2019,
        delisted_ms=utc_ms("2024-06-17T03:00:00"),
        status="BREAK",
    ),
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
    return Instrument(
        base=base,
        quote=quote,
        price_decimals=price_decimals,
        lot_decimals=3,
        typical_price=price,
        daily_volatility=0.04,
        orders_per_minute=4.0 + draw % 16,
        lots_per_order=20_000,
        listed_ms=listed_ms,
    )
