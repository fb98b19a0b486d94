"""The valid names closest to a misspelt one. Pure."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_MOST = 3
_CUTOFF = 0.7


def near_symbols(symbol: str, listed: Iterable[str]) -> list[str]:
    """Best first; among equally close ones, those with the same base. `symbol` may lack its slash."""
    symbol = symbol.upper()
    base, slash, _ = symbol.partition("/")
    found = get_close_matches(symbol, list(listed), 4 * _MOST, _CUTOFF)
    return sorted(found, key=lambda each: not (slash and each.startswith(base + slash)))[:_MOST]


def near_venues(venue: str, known: Iterable[str]) -> list[str]:
    return get_close_matches(venue.upper(), list(known), _MOST, _CUTOFF)


def did_you_mean(names: Sequence[str]) -> str:
    """The end of an error sentence; empty without a name."""
    if not names:
        return ""
    *others, last = names
    return f"; did you mean {', '.join(others)}{' or ' if others else ''}{last}?"
