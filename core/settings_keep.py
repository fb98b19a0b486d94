"""Settings of keep-fresh rules."""

import re
from collections.abc import Callable
from datetime import date
from typing import NamedTuple

from pydantic import Field, field_validator

from candlewright.settings import Group
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.periods import parse_period
from candlewright.wire.ticker import Ticker
from candlewright.wire.times import to_nanoseconds

_WILDCARDS = "*?["
_VENUE = re.compile(r"[A-Z][A-Z0-9_]*")
_MAX_PATTERN_BYTES = 100


class Pattern(NamedTuple):
    """Symbols of one venue; `symbol` may hold wildcards."""

    symbol: str
    venue: str

    @property
    def is_glob(self) -> bool:
        return any(each in self.symbol for each in _WILDCARDS)

    def __str__(self) -> str:
        return f"{self.symbol}.{self.venue}"

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """From a ticker, or one with wildcards before the venue, such as `*/USDT.BINANCE`. Raises InvalidRequest."""
        symbol, _, venue = text.rpartition(".")
        pattern = cls(symbol, venue)
        if not pattern.is_glob and not any(each in venue for each in _WILDCARDS):
            Ticker.parse(text)
        elif not symbol or not _VENUE.fullmatch(venue) or len(text.encode()) > _MAX_PATTERN_BYTES:
            raise InvalidRequest(
                f"{text!r} is not a pattern of tickers: wildcards go before the venue, as in */USDT.BINANCE"
            )
        return pattern


class KeepSettings(Group):
    """Candles that are fetched from `since` on, and then every `every_seconds`. `tickers`: `BASE/QUOTE.VENUE`, in which
    `*` and `?` match any market of the venue.
    """

    tickers: tuple[str, ...] = Field(min_length=1, max_length=1_000)
    periods: tuple[str, ...] = Field(("1m",), min_length=1, max_length=100)
    since: str
    every_seconds: float = Field(900.0, ge=10)

    @field_validator("tickers", "periods", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("tickers")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            _checked(Pattern.parse, each)
        return value

    @field_validator("periods")
    @classmethod
    def _periods(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            _checked(parse_period, each)
        return value

    @field_validator("since", mode="before")
    @classmethod
    def _time(cls, value: object) -> object:
        # TOML has native dates.
        text = value.isoformat() if isinstance(value, date) else value
        if isinstance(text, str):
            _checked(to_nanoseconds, text)
        return text


def _checked(parse: Callable[[str], object], text: str) -> None:
    """pydantic reports a ValueError with its field."""
    try:
        parse(text)
    except InvalidRequest as error:
        raise ValueError(str(error)) from error
