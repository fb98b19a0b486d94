"""Rules for keeping candles fresh, from the settings and `candlewright keep add`, and the series that they name.
Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from candlewright.wire.periods import parse_period
from candlewright.wire.times import to_nanoseconds
from core.settings_keep import KeepSettings, Pattern

SECOND_NS = 1_000_000_000


class Key(NamedTuple):
    """The key of a series."""

    ticker: str
    period_seconds: int

    @property
    def venue(self) -> str:
        return self.ticker.rpartition(".")[2]

    @property
    def name(self) -> str:
        return f"{self.ticker} {self.period_seconds}"


class Wanted(NamedTuple):
    """A series is kept from `since` (ns) on, and requested every `every` ns."""

    since: int
    every: int


@dataclass(frozen=True, slots=True)
class Listed:
    """An ingestor's description of its venue: the trading symbols, how many candles it keeps (0 = all), and its periods
    (empty = unknown).
    """

    symbols: frozenset[str]
    depth_candles: int = 0
    periods: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    patterns: tuple[Pattern, ...]
    periods: tuple[int, ...]
    since: int
    every: int
    #: True for a rule added by a command, False for one from the settings.
    is_added: bool

    @classmethod
    def of(cls, name: str, settings: KeepSettings, *, is_added: bool) -> "Rule":
        return cls(
            name,
            tuple(map(Pattern.parse, settings.tickers)),
            tuple(map(parse_period, settings.periods)),
            to_nanoseconds(settings.since),
            int(settings.every_seconds * SECOND_NS),
            is_added,
        )

    @property
    def venues(self) -> set[str]:
        return {pattern.venue for pattern in self.patterns}

    def keys(self, venues: Mapping[str, Listed]) -> Iterable[Key]:
        """The series of the markets that trade."""
        for pattern in self.patterns:
            listed = venues.get(pattern.venue)
            for symbol in _symbols(pattern, listed.symbols) if listed else ():
                for period_seconds in self.periods:
                    yield Key(f"{symbol}.{pattern.venue}", period_seconds)

    def matches(self, key: Key) -> bool:
        symbol, _, venue = key.ticker.rpartition(".")
        return key.period_seconds in self.periods and any(
            pattern.venue == venue and fnmatchcase(symbol, pattern.symbol) for pattern in self.patterns
        )


def wanted_series(rules: Iterable[Rule], venues: Mapping[str, Listed]) -> dict[Key, Wanted]:
    """The series that the rules name. If several rules name one, the earliest start and the shortest interval apply."""
    found: dict[Key, Wanted] = {}
    for rule in rules:
        for key in rule.keys(venues):
            every = max(rule.every, key.period_seconds * SECOND_NS)
            known = found.get(key)
            found[key] = Wanted(rule.since, every) if known is None else Wanted(*map(min, known, (rule.since, every)))
    return found


def settings_rules(settings: Iterable[KeepSettings]) -> list[Rule]:
    return [Rule.of(f"settings-{number}", each, is_added=False) for number, each in enumerate(settings, 1)]


def _symbols(pattern: Pattern, symbols: frozenset[str]) -> Iterable[str]:
    if not pattern.is_glob:
        return (pattern.symbol,) if pattern.symbol in symbols else ()
    return (symbol for symbol in symbols if fnmatchcase(symbol, pattern.symbol))
