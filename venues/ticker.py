"""Tickers in Nautilus form: `BASE/QUOTE.VENUE`, venue in capitals."""

import re
from dataclasses import dataclass

from core.errors import InvalidRequest

MAX_TICKER_BYTES = 100
_ASSET = r"[^\s/:.#\x00-\x1f]+(?:\.[^\s/:.#\x00-\x1f]+)*"
_TICKER = re.compile(rf"(?P<symbol>{_ASSET}/{_ASSET})\.(?P<venue>[A-Z][A-Z0-9_]*)")

#: Venue names whose ccxt id is not simply the name in lower case.
CCXT_IDS = {"COINBASEPRO": "coinbaseexchange", "GDAX": "coinbaseexchange"}


@dataclass(frozen=True, slots=True)
class Ticker:
    """`symbol` is ccxt's unified spot symbol (`BTC/USDT`); `str()` gives the text back byte for byte."""

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
        if len(text.encode("utf-8", "replace")) > MAX_TICKER_BYTES:
            raise InvalidRequest(f"a ticker has at most {MAX_TICKER_BYTES} bytes")
        match = _TICKER.fullmatch(text)
        if match is None:
            raise InvalidRequest(f"{text!r} is no ticker: write BASE/QUOTE.VENUE, such as BTC/USDT.BINANCE")
        return cls(match["symbol"], match["venue"])


def ccxt_id(venue: str) -> str:
    return CCXT_IDS.get(venue, venue.lower())
