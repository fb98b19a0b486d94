"""The form in which a venue's file declares the exchange's answers: pure functions from parameters to JSON objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from sandbox.behaviour.clock import ExchangeClock
from sandbox.markets.intervals import Interval
from sandbox.markets.market import Market
from sandbox.venues.recordings import Recordings

Parameters = Mapping[str, str]
Reply = dict[str, Any] | list[Any]
_FAR = 1 << 53


@dataclass(frozen=True, slots=True)
class Scene:
    """The data from which replies are made. `markets`: generated markets by BASE-QUOTE."""

    recordings: Recordings
    markets: Mapping[str, Market]
    clock: ExchangeClock

    @property
    def now(self) -> int:
        return self.clock.now()


#: None: the requested object does not exist, or a parameter is invalid.
Answer = Callable[[Scene, Parameters], Reply | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class VenueShape:
    """`routes` maps paths to functions that answer; `{product}` in a path matches one segment, which becomes a
    parameter of that name.
    """

    name: str
    routes: Mapping[str, Answer]


def newest(
    market: Market, interval: Interval, first: int, *, last: int | None, limit: int, now: int
) -> list[list[Any]]:
    """The newest rows that open in [first, last], ascending; `last` None: up to now."""
    last = _FAR if last is None else last
    if last < first:
        return []
    return [row for row in rows_of(market.kline_page(interval, None, last, limit=limit, now=now)) if row[0] >= first]


def rows_of(page: bytes) -> list[list[Any]]:
    """The rows of a page in the sandbox's own form."""
    rows: list[list[Any]] = orjson.loads(page)
    return rows


def limit_of(parameters: Parameters, default: int, largest: int) -> int:
    text = parameters.get("limit", "")
    return min(int(text), largest) if text.isdecimal() and int(text) else default


def whole(parameters: Parameters, name: str) -> int | None:
    """A parameter as an integer; None if it is absent."""
    return int(parameters[name]) if name in parameters else None
