"""Bars of many tickers and periods from a stream of trades: published once when final, revised by what comes late.

Event time decides: a bar is final when its ticker's clock (the newest trade, or what the exchange says) has passed its
end and the allowed lateness. Clocks are per ticker, so that a fast venue never cuts off a slow one. Each period keeps
its own partial bars and is fed by the bars of the longest period that divides it, so that trades are touched once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bars.aggregate import Bars, from_trades, roll_up
from bars.level import Level
from bars.seen import SeenIds
from venues.grid import SECOND, open_containing, origin_of

__all__ = ["NEVER", "BarMaker", "MadeBars", "TickerState", "Trades"]

NEVER = -(1 << 62)
_FOR_EVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Trades:
    """Columns of one ticker's trades, in any order. `order` is the exchange's order of trades and their identity.

    With `last_order` and `count` each row is an exchange's aggregate of the trades `order` to `last_order`.
    """

    ticker: str
    time: NDArray[np.int64]
    order: NDArray[np.int64]
    price: NDArray[np.float64]
    size: NDArray[np.float64]
    last_order: NDArray[np.int64] | None = None

    def take(self, mask: NDArray[np.bool_]) -> "Trades":
        last = None if self.last_order is None else self.last_order[mask]
        return Trades(self.ticker, self.time[mask], self.order[mask], self.price[mask], self.size[mask], last)

    @property
    def count(self) -> NDArray[np.int64]:
        """How many trades each row stands for."""
        return np.ones(len(self.time), np.int64) if self.last_order is None else self.last_order - self.order + 1


@dataclass(frozen=True, slots=True)
class MadeBars:
    """Bars to publish, of `tickers[bars.group[i]]`; revision 0 = first; complete False = trades are missing."""

    bars: Bars
    revision: NDArray[np.int64]
    complete: NDArray[np.bool_]


@dataclass(slots=True)
class TickerState:
    """`settled`: bars that ended by then were let go of; `covered_from`: no trade since then is missing."""

    seen: SeenIds = field(default_factory=SeenIds)
    clock: int = NEVER
    settled: int = NEVER
    covered_from: int = NEVER
    gaps: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class BarMaker:
    """`periods`: seconds, all multiples of the shortest on one grid (ValueError otherwise).

    `lateness_ns`: how long after its end a bar waits for trades. `horizon_ns`: how long a published bar can still be
    revised; a trade for an older bar is counted in `too_late` and changes nothing.
    """

    periods: Sequence[int]
    lateness_ns: int = 0
    horizon_ns: int = 3_600 * SECOND
    tickers: list[str] = field(default_factory=list)
    states: list[TickerState] = field(default_factory=list)
    levels: dict[int, Level] = field(default_factory=dict)
    duplicates: int = 0
    too_late: int = 0
    #: Of tickers that were let go of: the time before which their bars are decided.
    retired: dict[str, int] = field(default_factory=dict)
    _number: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.periods = sorted(set(self.periods))
        base = self.periods[0]
        for period in self.periods:
            if not _divides(base, period):
                raise ValueError(f"{period} s is not made of bars of {base} s")
        self.levels = self.levels or {period: Level(period) for period in self.periods}
        self._number = {ticker: number for number, ticker in enumerate(self.tickers)}

    def add_period(self, period_seconds: int) -> None:
        """Make bars of one more period from now on; ValueError unless the shortest period divides it.

        Bars in progress begin with what shorter periods still hold, and are complete where that reaches back enough.
        """
        if period_seconds in self.levels:
            return
        if not _divides(self.periods[0], period_seconds):
            raise ValueError(f"{period_seconds} s is not made of bars of {self.periods[0]} s")
        level = self.levels[period_seconds] = Level(period_seconds)
        level.since = {number: max(state.settled, state.covered_from) for number, state in enumerate(self.states)}
        source = self.levels[self._source(period_seconds)].bars
        self.periods = sorted(self.levels)
        if source is not None and len(source):
            level.feed(roll_up(source, period_seconds))

    def start(self, ticker: str, covered_from: int) -> None:
        """Trades of `ticker` are complete from this time (ns) on: bars that open earlier are not complete.

        For a ticker that starts again, the bars in progress begin anew: what they held of the earlier run comes with
        the `seed` of this one.
        """
        number, state = self._of(ticker)
        state.covered_from = covered_from
        for level in self.levels.values():
            level.begin_anew(number, covered_from)

    def seed(self, ticker: str, bars: Bars) -> None:
        """Closed candles of the exchange that end where `ticker` is covered, or where shorter ones go on: they become
        part of the longer bars in progress there, and of nothing else. Candles of a time whose trades were already
        counted must not be given.
        """
        number, state = self._of(ticker)
        if len(bars) == 0:
            return
        numbered = replace(bars, group=np.full(len(bars), number))
        for period, level in self.levels.items():
            if period <= bars.period_seconds or not _divides(bars.period_seconds, period):
                continue
            in_progress = bars.open_time >= open_containing(state.covered_from, period)
            if in_progress.any():
                level.feed(roll_up(numbered.take(in_progress), period))
                level.add_seeded(number, int(bars.open_time[in_progress].min()))

    def add(self, batches: Iterable[Trades]) -> None:
        """Count each trade once. Trades of bars past the horizon are counted in `too_late`."""
        kept = [part for batch in batches if (part := self._fresh(batch)) is not None]
        if not kept:
            return
        lengths = [len(part.time) for _, part in kept]
        group = np.repeat(np.array([number for number, _ in kept]), lengths)
        time, order, price, size = (
            np.concatenate(columns)
            for columns in zip(*((p.time, p.order, p.price, p.size) for _, p in kept), strict=True)
        )
        count = is_aggregate = None
        if any(part.last_order is not None for _, part in kept):
            count = np.concatenate([part.count for _, part in kept])
            is_aggregate = np.repeat([part.last_order is not None for _, part in kept], lengths)
        fed = {self.periods[0]: from_trades(group, time, order, price, size, self.periods[0], count, is_aggregate)}
        for period in self.periods:
            if period not in fed:
                fed[period] = roll_up(fed[self._source(period)], period)
            self.levels[period].feed(fed[period])

    def advance(self, clocks: Mapping[str, int]) -> None:
        """The exchange's time (ns) of tickers; a clock never goes back."""
        for ticker, time in clocks.items():
            state = self._of(ticker)[1]
            state.clock = max(state.clock, time)

    def clock(self, ticker: str) -> int:
        """The newest time (ns) known of `ticker`; NEVER when there is none."""
        number = self._number.get(ticker)
        return NEVER if number is None else self.states[number].clock

    def mark_gap(self, ticker: str, start: int, end: int) -> None:
        """Trades of [start, end) are missing: bars that overlap it are not complete (again published if they were)."""
        number, state = self._of(ticker)
        if (start, end) not in state.gaps:
            state.gaps.append((start, end))
            self._touch(number, start, end)

    def clear_gap(self, ticker: str, start: int, end: int) -> None:
        """The trades that `mark_gap` missed with these bounds have come; an unknown gap is ignored."""
        number, state = self._of(ticker)
        if (start, end) in state.gaps:
            state.gaps.remove((start, end))
            self._touch(number, start, end)

    def take(self) -> list[MadeBars]:
        """The bars that became final or were revised since the last call, shortest period first."""
        made = []
        clocks = np.array([state.clock for state in self.states], np.int64)
        for period in self.periods:
            level = self.levels[period]
            due = level.take_due(clocks, self.lateness_ns)
            if due is not None:
                made.append(MadeBars(*due, self._is_complete(level, due[0])))
            level.prune(clocks - self.horizon_ns)
        for state in self.states:
            state.settled = max(state.settled, state.clock - self.horizon_ns)
            state.gaps = [gap for gap in state.gaps if gap[1] > state.settled - self.periods[-1] * SECOND]
        return made

    def retire(self, tickers: Collection[str]) -> None:
        """Nothing more is to come of these: with the next `take` their bars in progress are final as they stand, but
        not complete. `forget` them after it. Unknown tickers are ignored.
        """
        for number, state in self._known(tickers):
            ends = [end for level in self.levels.values() if (end := level.end_of(number)) is not None]
            state.gaps.append((state.clock + 1, _FOR_EVER))
            state.clock = max([state.clock, *(end + self.lateness_ns for end in ends)])

    def forget(self, tickers: Collection[str]) -> None:
        """Let go of retired tickers whose bars were taken. A trade that comes later counts when its time lies past the
        bars that there were, and is too late otherwise. `tickers` becomes a new list, so that numbers given out before
        hold for the old one.
        """
        gone = {number: max(state.settled, state.clock - self.lateness_ns) for number, state in self._known(tickers)}
        if not gone:
            return
        self.retired |= {self.tickers[number]: settled for number, settled in gone.items()}
        kept = [number for number in range(len(self.tickers)) if number not in gone]
        for level in self.levels.values():
            level.renumber(kept, len(self.tickers))
        self.states = [self.states[number] for number in kept]
        self.tickers = [self.tickers[number] for number in kept]
        self._number = {ticker: number for number, ticker in enumerate(self.tickers)}

    def _known(self, tickers: Collection[str]) -> list[tuple[int, TickerState]]:
        numbers = [self._number[ticker] for ticker in tickers if ticker in self._number]
        return [(number, self.states[number]) for number in numbers]

    def _source(self, period_seconds: int) -> int:
        return max(
            shorter for shorter in self.periods if shorter < period_seconds and _divides(shorter, period_seconds)
        )

    def _of(self, ticker: str) -> tuple[int, TickerState]:
        number = self._number.get(ticker)
        if number is None:
            number = self._number[ticker] = len(self.tickers)
            self.tickers.append(ticker)
            self.states.append(TickerState(settled=self.retired.pop(ticker, NEVER)))
        return number, self.states[number]

    def _fresh(self, trades: Trades) -> tuple[int, Trades] | None:
        if len(trades.time) == 0:
            return None
        number, state = self._of(trades.ticker)
        state.clock = max(state.clock, int(trades.time.max()))
        if state.covered_from == NEVER:
            state.covered_from = int(trades.time.min())
        if trades.last_order is None:
            fresh, forgotten = state.seen.add(trades.order)
        else:
            fresh, forgotten = _add_ranges(state.seen, trades.order, trades.last_order)
        # A trade counts in the bars of all periods or of none; those of the shortest are let go of first.
        in_time = trades.time >= open_containing(state.settled, self.periods[0])
        self.too_late += forgotten + int((fresh & ~in_time).sum())
        self.duplicates += int((~fresh).sum()) - forgotten
        kept = fresh & in_time
        if kept.all():
            return number, trades
        return (number, trades.take(kept)) if kept.any() else None

    def _touch(self, number: int, start: int, end: int) -> None:
        for level in self.levels.values():
            level.touch(number, start, end)

    def _is_complete(self, level: Level, bars: Bars) -> NDArray[np.bool_]:
        covered = np.array([level.covered(number, state.covered_from) for number, state in enumerate(self.states)])
        complete = bars.open_time >= covered[bars.group]
        end = bars.open_time + bars.period_seconds * SECOND
        for number in np.unique(bars.group).tolist():
            for start, stop in self.states[number].gaps:
                complete &= ~((bars.group == number) & (bars.open_time < stop) & (end > start))
        return complete


def _divides(shorter: int, longer: int) -> bool:
    return longer % shorter == 0 and origin_of(longer) % (shorter * SECOND) == origin_of(shorter) % (shorter * SECOND)


def _add_ranges(seen: SeenIds, first: NDArray[np.int64], last: NDArray[np.int64]) -> tuple[NDArray[np.bool_], int]:
    """As SeenIds.add for aggregates: one is new when all of its trades are; one that is new in part is not counted."""
    fresh = np.zeros(len(first), np.bool_)
    forgotten = 0
    for i, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        if seen.has_any(low, high):
            forgotten += int(low <= seen.floor)
            continue
        seen.add(np.arange(low, high + 1))
        fresh[i] = True
    return fresh, forgotten
