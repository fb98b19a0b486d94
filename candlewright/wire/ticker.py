"""Tickers in Nautilus form: `BASE/QUOTE.VENUE`, with the venue in capitals."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.nearest import did_you_mean

MAX_TICKER_BYTES = 100
_ASSET = r"[^\s/:.#\x00-\x1f]+(?:\.[^\s/:.#\x00-\x1f]+)*"
_TICKER = re.compile(rf"(?P<symbol>{_ASSET}/{_ASSET})\.(?P<venue>[A-Z][A-Z0-9_]*)")

#: Venue names whose ccxt id is not simply the name in lower case.
CCXT_IDS = {"COINBASEPRO": "coinbaseexchange", "GDAX": "coinbaseexchange"}


#: Quote currencies by which a symbol without a slash is split.
_QUOTES = ("FDUSD", "USDT", "USDC", "BUSD", "TUSD", "USD", "EUR", "GBP", "JPY", "TRY", "BTC", "ETH", "BNB", "DAI")


def refusal(text: str, near: Sequence[str] = ()) -> str:
    """Why `text` is not a ticker. `near`: similar listed ones, if they are known."""
    if len(text.encode("utf-8", "replace")) > MAX_TICKER_BYTES:
        return f"a ticker has at most {MAX_TICKER_BYTES} bytes"
    proposals = list(near) or _well_formed(text)
    example = "" if proposals else ", such as BTC/USDT.BINANCE"
    return f"{text!r} is not a valid ticker (expected BASE/QUOTE.VENUE{example}){did_you_mean(proposals)}"


def _well_formed(text: str) -> list[str]:
    """The probable ticker: other cases and separators, the venue in front, no slash."""
    symbol, _, venue = text.strip().upper().rpartition(".")
    if not symbol and ":" in venue:
        venue, _, symbol = venue.partition(":")
    symbol = re.sub("[-_:]", "/", symbol)
    for quote in _QUOTES if "/" not in symbol else ():
        if symbol.endswith(quote) and symbol != quote:
            symbol = f"{symbol.removesuffix(quote)}/{quote}"
            break
    found = f"{symbol}.{venue}"
    return [found] if _TICKER.fullmatch(found) else []


@dataclass(frozen=True, slots=True)
class Ticker:
    """`symbol` is ccxt's unified spot symbol (`BTC/USDT`); `str()` returns the text byte for byte."""

    symbol: str
    venue: str

    def __str__(self) -> str:
        return f"{self.symbol}.{self.venue}"

    @property
    def ccxt_id(self) -> str:
        return ccxt_id(self.venue)

    @classmethod
    def parse(cls, text: str) -> "Ticker":
        """Split at the last dot; raises InvalidRequest with a sentence for the client."""
        match = _TICKER.fullmatch(text) if len(text.encode("utf-8", "replace")) <= MAX_TICKER_BYTES else None
        if match is None:
            raise InvalidRequest(refusal(text))
        return cls(match["symbol"], match["venue"])


def ccxt_id(venue: str) -> str:
    return CCXT_IDS.get(venue, venue.lower())
