"""The stored tickers closest to one that was requested and of which nothing is stored."""

from difflib import get_close_matches

from candlewright.settings import ClientConfig
from candlewright.wire.errors import CandlewrightError
from candlewright.wire.nearest import did_you_mean
from candlewright_platform.lake import are_near
from core.settings import Settings

_MOST, _CUTOFF = 3, 0.7


def near_stored(settings: ClientConfig, ticker: str) -> str:
    """The end of a sentence; empty where the tables cannot be read from here, or have none like it."""
    if not isinstance(settings, Settings) or not are_near(settings):
        return ""
    try:
        from iceberg.read import stored_tickers

        known = stored_tickers(settings)
    except (CandlewrightError, ImportError):
        return ""
    return did_you_mean([each for each in get_close_matches(ticker, known, _MOST, _CUTOFF) if each != ticker])
