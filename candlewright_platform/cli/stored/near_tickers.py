"""The stored tickers closest to a requested one without stored rows."""

import re
from difflib import SequenceMatcher, get_close_matches

from candlewright.settings import ClientConfig
from candlewright.wire.errors import CandlewrightError
from candlewright.wire.nearest import did_you_mean
from candlewright_platform.lake import are_near
from core.settings import Settings

_MOST, _CUTOFF = 3, 0.7
_PARTS, _PART_CUTOFF = re.compile(r"[/.]"), 0.6


def near_stored(settings: ClientConfig, ticker: str) -> str:
    """The end of a sentence; empty if the tables cannot be read from here, or have the ticker or no similar one."""
    if not isinstance(settings, Settings) or not are_near(settings):
        return ""
    try:
        from iceberg.read import is_stored, stored_tickers

        known = [] if is_stored(settings, ticker) else stored_tickers(settings)
    except (CandlewrightError, ImportError):
        return ""
    return did_you_mean([each for each in get_close_matches(ticker, known, _MOST, _CUTOFF) if _are_alike(ticker, each)])


def _are_alike(ticker: str, other: str) -> bool:
    """Compared part by part: two markets are not similar merely because their venue is the same."""
    parts = zip(_PARTS.split(ticker), _PARTS.split(other), strict=False)
    return all(SequenceMatcher(None, one, two).ratio() >= _PART_CUTOFF for one, two in parts)
