"""Checks that the driver delivers: queries that progress, executors, bars. Pure; times are in seconds.

A query that Spark reports as "running" may be stuck permanently, because its executors are gone or a call to the
catalog does not return. So each check compares the records of a topic with the query's progress.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from operator import itemgetter
from typing import Any

from bus.api import partition_of

#: A query with records to read that makes no progress for this long is named; after the second bound, it is a problem.
SLOW_SECONDS, STUCK_SECONDS = 20.0, 60.0
#: A cluster's driver that has lost all executors for this long restarts, since a master that lost its state or moved
#: assigns no new ones to this application.
LOST_SECONDS = 30.0
#: Trades without any bar for this long are a problem. After a pause of half this time, counting restarts, since the
#: minute of the first trade is still open.
BARLESS_SECONDS = 150.0
#: Tickers on the status page: those whose newest bars are oldest.
_SHOWN_AGES = 1_000


@dataclass(frozen=True, slots=True)
class Reading:
    """One query at one time. `marker` changes with every step; `ends`: the ends of the partitions that it reads;
    `held`: the start of what it has not finished; `is_idle`: it has nothing more to read.
    """

    marker: object
    stepped_at: float
    ends: Sequence[int]
    held: Mapping[int, int]
    is_idle: bool


@dataclass(slots=True)
class _Pace:
    marker: object = None
    stepped_at: float = 0.0
    ends_at_step: tuple[int, ...] = ()
    waiting_since: float | None = None
    lag: dict[int, int] = field(default_factory=dict)

    def observe(self, reading: Reading, at: float) -> None:
        ends = tuple(reading.ends)
        if reading.marker != self.marker or not self.ends_at_step:
            self.marker, self.ends_at_step, self.waiting_since = reading.marker, ends, None
        elif self.waiting_since is None and ends != self.ends_at_step:
            self.waiting_since = at
        self.stepped_at = reading.stepped_at
        is_done = reading.is_idle and ends == self.ends_at_step
        # The hold may lag by a step.
        self.lag = {} if is_done else {p: max(0, end - reading.held.get(p, end)) for p, end in enumerate(ends)}

    def waits(self, at: float) -> float:
        return 0.0 if self.waiting_since is None else at - self.waiting_since


@dataclass(slots=True)
class _Bars:
    """The bars of one ticker or partition. `bar_at`: when the newest bar, or the first check, was seen."""

    trades: int
    bars: int
    bar_at: float
    waiting_since: float
    traded_at: float = -math.inf

    def observe(self, trades: int, bars: int, at: float) -> None:
        if trades != self.trades:
            if not self.trades_come(at):
                self.waiting_since = at
            self.trades, self.traded_at = trades, at
        if bars != self.bars:
            self.bars, self.bar_at, self.waiting_since = bars, at, at

    def trades_come(self, at: float) -> bool:
        return at - self.traded_at < BARLESS_SECONDS / 2

    def are_missing(self, at: float) -> bool:
        return self.trades_come(at) and at - self.waiting_since >= BARLESS_SECONDS


@dataclass(kw_only=True, slots=True)
class Vitals:
    paces: dict[str, _Pace] = field(default_factory=dict)
    #: None with a local master, which has no separate executors.
    executors: int | None = None
    #: Those that can take over the tasks of a lost one at once.
    warm_executors: int | None = None
    _had_executors: bool = False
    _lost_since: float | None = None
    #: By partition (including gateways' tickers), and by live ticker.
    _partitions: dict[int, _Bars] = field(default_factory=dict)
    _tickers: dict[str, _Bars] = field(default_factory=dict)

    def observe_query(self, name: str, reading: Reading, at: float) -> None:
        self.paces.setdefault(name, _Pace()).observe(reading, at)

    def observe_executors(self, count: int | None, at: float, *, warm: int | None = None) -> None:
        self.executors, self.warm_executors = count, warm
        if count is None or count > 0:
            self._had_executors = self._had_executors or bool(count)
            self._lost_since = None
        elif self._lost_since is None:
            self._lost_since = at

    def observe_bars(self, ticks: Sequence[int], bars: Sequence[int], at: float) -> None:
        """Ends of the partitions of `ticks` and `ohlc`: a ticker has the same number in both."""
        for p, (end, bar_end) in enumerate(zip(ticks, bars, strict=False)):
            self._partitions.setdefault(p, _Bars(end, bar_end, at, at)).observe(end, bar_end, at)

    def observe_tickers(self, live: Collection[str], numbers: Mapping[str, tuple[int, int]], at: float) -> None:
        """Every live one; and of some the newest numbers of their trades and of their bars."""
        self._tickers = {ticker: own for ticker, own in self._tickers.items() if ticker in live}
        for ticker, (trades, bars) in numbers.items():
            self._tickers.setdefault(ticker, _Bars(trades, bars, at, at)).observe(trades, bars, at)

    def oldest_bar_seconds(self, at: float) -> float:
        """The largest age of a newest bar among the live tickers that trade; 0 if none trades."""
        return max((at - own.bar_at for own in list(self._tickers.values()) if own.trades_come(at)), default=0.0)

    def tickers_without_bars(self, at: float) -> list[str]:
        """Live tickers with trades but without bars, longest-waiting first."""
        found = [(own.waiting_since, ticker) for ticker, own in list(self._tickers.items()) if own.are_missing(at)]
        return [ticker for _, ticker in sorted(found)]

    def _barless_partitions(self, at: float) -> list[int]:
        """The partitions in which no trading live ticker gets bars."""
        are_missing: dict[int, set[bool]] = defaultdict(set)
        for ticker, own in list(self._tickers.items()):
            if own.trades_come(at):
                are_missing[self._partition_of(ticker)].add(own.are_missing(at))
        return sorted(p for p, found in are_missing.items() if found == {True})

    def _partition_of(self, ticker: str) -> int:
        return partition_of(ticker.encode(), len(self._partitions) or 1)

    def lost_executors_seconds(self, at: float) -> float:
        """How long all executors have been gone, if there were any."""
        return at - self._lost_since if self._had_executors and self._lost_since is not None else 0.0

    def must_begin_anew(self, at: float) -> bool:
        return self.lost_executors_seconds(at) >= LOST_SECONDS

    def is_well(self, at: float) -> bool:
        are_stuck = any(pace.waits(at) >= STUCK_SECONDS for pace in self.paces.values())
        return self.executors != 0 and not are_stuck and not self._barless_partitions(at)

    def problems(self, at: float) -> Iterator[str]:
        if self._lost_since is not None:
            yield (
                f"no executors for {at - self._lost_since:.0f} s: see whether the Spark master and its workers run and "
                "have cores free"
            )
        for name, pace in self.paces.items():
            if (waits := pace.waits(at)) >= STUCK_SECONDS:
                yield f"the {name} query has made no step for {waits:.0f} s, with {_lag_text(pace)}"
        for p in self._barless_partitions(at):
            yield f"no live ticker of partition {p} has had a bar for {BARLESS_SECONDS:.0f} s although trades arrive"

    def warnings(self, at: float) -> Iterator[str]:
        for name, pace in self.paces.items():
            if SLOW_SECONDS <= (waits := pace.waits(at)) < STUCK_SECONDS:
                yield f"the {name} query has made no step for {waits:.0f} s, with {_lag_text(pace)}"
        lacking = self.tickers_without_bars(at)
        if lacking:
            age = at - self._tickers[lacking[0]].waiting_since
            others = f", and of {len(lacking) - 1:,} others" if len(lacking) > 1 else ""
            yield f"no bar of {lacking[0]} for {age:.0f} s although its trades arrive{others}"
        named = set(map(self._partition_of, lacking))
        for p, own in self._partitions.items():
            if own.are_missing(at) and p not in named:
                yield f"no bar for {at - own.waiting_since:.0f} s although trades arrive (partition {p})"

    def to_json(self, at: float) -> dict[str, Any]:
        ages = {ticker: round(at - own.bar_at, 1) for ticker, own in list(self._tickers.items())}
        return {
            "executors": self.executors,
            "warm_executors": self.warm_executors,
            "newest_bar_seconds_ago": dict(nlargest(_SHOWN_AGES, ages.items(), key=itemgetter(1))),
            "tickers_without_bars": self.tickers_without_bars(at)[:_SHOWN_AGES],
            "queries": {
                name: {
                    "lag": sum(pace.lag.values()),
                    "lag_by_partition": {str(p): lag for p, lag in pace.lag.items() if lag},
                    "last_step_seconds_ago": round(max(0.0, at - pace.stepped_at), 1),
                    "waits_seconds": round(pace.waits(at), 1),
                }
                for name, pace in self.paces.items()
            },
        }


def _lag_text(pace: _Pace) -> str:
    behind = {p: lag for p, lag in pace.lag.items() if lag}
    worst = max(behind, key=lambda p: behind[p], default=None)
    total = f"{sum(behind.values()):,} records waiting"
    return total if worst is None or len(behind) == 1 else f"{total} (most in partition {worst}: {behind[worst]:,})"
