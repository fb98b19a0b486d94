"""Bars of many tickers and periods from a stream of trades: published once when final, revised by late trades.

Event time decides: a bar is final when its ticker's clock (the newest trade, or the exchange's own time) has passed its
end plus the allowed lateness. Clocks are per ticker, so a fast venue never cuts off a slow one. Each period keeps its
own partial bars and is fed by the bars of the longest period that divides it, so each trade is processed once. Trades
change only the bars in progress of the shortest period; those of a longer one are brought up to date when one of them
may be published.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from bars.aggregate import Bars, from_trades, merge, roll_up
from bars.level import Left, Level
from bars.seen import SeenIds
from candlewright.wire.grid import SECOND, open_containing, origin_of

__all__ = ["NEVER", "BarMaker", "MadeBars", "TickerState", "Trades"]

NEVER = -(1 << 62)
_FOR_EVER = 1 << 62
#: At most this many bars wait to be added to those of a longer period, in at most this many pieces.
_MAX_WAITING, _MAX_PIECES = 100_000, 64
#: The maker remembers which bars are settled for at most this many forgotten tickers; beyond that, the oldest are
#: dropped.
_MAX_RETIRED = 50_000
#: Gaps kept per ticker; beyond that, the two oldest are merged into one that spans both.
_MAX_GAPS = 1_000


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
        """How many trades each row represents."""
        return np.ones(len(self.time), np.int64) if self.last_order is None else self.last_order - self.order + 1


@dataclass(frozen=True, slots=True)
class MadeBars:
    """Bars to publish; row i belongs to `tickers[bars.group[i]]`. Revision 0 is the first; complete is False if trades
    are missing.
    """

    bars: Bars
    revision: NDArray[np.int64]
    complete: NDArray[np.bool_]


@dataclass(slots=True)
class TickerState:
    """`settled`: bars that ended by this time are forgotten; `covered_from`: no trade since this time is missing."""

    seen: SeenIds = field(default_factory=SeenIds)
    clock: int = NEVER
    settled: int = NEVER
    covered_from: int = NEVER
    gaps: list[tuple[int, int]] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class BarMaker:
    """`periods`: in seconds, made for every ticker; each is a multiple of the shortest, on the same grid (ValueError
    otherwise). `wanted`: further periods, each made only for the tickers that want it.

    `lateness_ns`: how long after its end a bar waits for trades. `horizon_ns`: how long a published bar can still be
    revised; a trade for an older bar is counted in `too_late` and otherwise ignored.
    """

    periods: Sequence[int]
    lateness_ns: int = 0
    horizon_ns: int = 3_600 * SECOND
    tickers: list[str] = field(default_factory=list)
    states: list[TickerState] = field(default_factory=list)
    levels: dict[int, Level] = field(default_factory=dict)
    duplicates: int = 0
    too_late: int = 0
    #: The time before which a forgotten ticker's bars are settled; the ticker that was forgotten first comes first.
    retired: dict[str, int] = field(default_factory=dict)
    wanted: dict[str, frozenset[int]] = field(default_factory=dict)
    #: By ticker number and period, for periods no longer wanted, until none of their bars can be revised.
    left: dict[tuple[int, int], Left] = field(default_factory=dict)
    #: Incremented by each `take`, and each time a ticker drops a period; shows what has changed since.
    step: int = 0
    _number: dict[str, int] = field(default_factory=dict)
    #: By period: bars of the period that it is made from, which its own bars do not contain yet.
    _waiting: dict[int, list[Bars]] = field(default_factory=dict, compare=False)
    #: By period and ticker number: the last end of a bar that the ticker's clock had passed when finished bars were
    #: last collected; empty if something other than new trades may have changed bars since.
    _looked: dict[int, NDArray[np.int64]] = field(default_factory=dict, compare=False)
    #: The periods with trades since then for a bar that had ended.
    _revised: set[int] = field(default_factory=set, compare=False)

    def __post_init__(self) -> None:
        self.periods = sorted(set(self.periods))
        base = self.periods[0]
        for period in self.periods:
            if not _divides(base, period):
                raise ValueError(f"bars of {period} s cannot be made from bars of {base} s")
        self.levels = self.levels or {period: Level(period_seconds=period) for period in self.periods}
        self._number = {ticker: number for number, ticker in enumerate(self.tickers)}

    def want(self, ticker: str, periods: Collection[int]) -> None:
        """From now on, make bars of these periods for `ticker`, and of no others besides `self.periods`. Raises
        ValueError unless the shortest period divides them.

        Bars start from what shorter periods still hold, and are complete if that reaches back far enough. Bars
        published before their period was dropped continue their revisions.
        """
        self.pass_on()
        wanted = frozenset(periods).difference(self.periods)
        for period in wanted:
            if not _divides(self.periods[0], period):
                raise ValueError(f"bars of {period} s cannot be made from bars of {self.periods[0]} s")
        before = self.wanted.pop(ticker, frozenset())
        if wanted:
            self.wanted[ticker] = wanted
        number = self._number.get(ticker)
        if number is not None:
            for period in sorted(before - wanted):
                self._leave(number, period)
            self.step += 1
            for period in sorted(wanted - before):
                self._enter(number, period)

    def keep_only(self, periods: Sequence[int], wanted: Mapping[str, Collection[int]]) -> None:
        """Make all other periods only for the tickers in `wanted`; converts a state that made them for every ticker."""
        self.pass_on()
        further = frozenset(self.periods).difference(periods)
        self.periods = sorted(periods)
        for period in further:
            self.levels[period].begins = dict.fromkeys(range(len(self.tickers)), NEVER)
        self.wanted = dict.fromkeys(self.tickers, further) if further else {}
        for ticker in {*self.tickers, *wanted}:
            self.want(ticker, wanted.get(ticker, ()))
        self._drop_empty()

    def _enter(self, number: int, period: int) -> None:
        level = self.levels.setdefault(period, Level(period_seconds=period, begins={}))
        state = self.states[number]
        since = max(state.settled, state.covered_from)
        level.enter(
            number, self.levels[self._source(period)], since, left=self.left.pop((number, period), None), step=self.step
        )

    def _leave(self, number: int, period: int) -> None:
        level = self.levels[period]
        left = level.leave(number, self.states[number].settled, self.step)
        if left is not None:
            self.left[number, period] = left
        if not level.begins:
            del self.levels[period]

    def start(self, ticker: str, covered_from: int) -> None:
        """Trades of `ticker` are complete from this time (ns) on; bars that open earlier are incomplete.

        If the ticker restarts, its bars in progress restart too, since the `seed` of the new run contains what they
        held from the earlier one.
        """
        self.pass_on()
        number, state = self._of(ticker)
        state.covered_from = covered_from
        for level in self.levels.values():
            level.begin_anew(number, covered_from)

    def seed(self, ticker: str, bars: Bars) -> None:
        """Closed candles of the exchange that end where `ticker`'s coverage, or a shorter candle, begins. They become
        part only of the longer bars in progress there. Do not pass candles for a time whose trades are already counted.
        """
        self.pass_on()
        number, state = self._of(ticker)
        if len(bars) == 0:
            return
        numbered = replace(bars, group=np.full(len(bars), number))
        for period, level in self.levels.items():
            if not level.takes(number) or period <= bars.period_seconds or not _divides(bars.period_seconds, period):
                continue
            in_progress = bars.open_time >= open_containing(state.covered_from, period)
            if in_progress.any():
                level.feed(roll_up(numbered.take(in_progress), period), self.step)
                level.add_seeded(number, int(bars.open_time[in_progress].min()))

    def add(self, batches: Iterable[Trades]) -> None:
        """Count each trade once. Trades of bars beyond the horizon are counted in `too_late`."""
        given = [batch for batch in batches if len(batch.time)]
        # In the order of the bars, so that trades need not be sorted if those of each ticker are in order.
        kept = sorted(self._fresh(given), key=itemgetter(0))
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
        made = from_trades(
            group,
            time,
            order,
            price=price,
            size=size,
            period_seconds=self.periods[0],
            count=count,
            is_aggregate=is_aggregate,
        )
        self._feed(self.periods[0], made)

    def pass_on(self) -> None:
        """Bring the bars of longer periods up to date before anything reads or changes them."""
        self._looked.clear()
        self._revised.clear()
        if self._waiting:
            for period in sorted(self.levels):
                self._bring_up_to_date(period)

    def _feed(self, period: int, fed: Bars) -> None:
        """Add to the bars of a period, and leave the same for those that are made from them."""
        self.levels[period].feed(fed, self.step)
        self._note_revised(period, fed)
        for longer in _made_from(tuple(self.periods), tuple(self.levels)).get(period, ()):
            waiting = self._waiting.setdefault(longer, [])
            waiting.append(fed)
            self._note_revised(longer, fed)
            if len(waiting) > _MAX_PIECES:
                waiting[:] = [merge(waiting)]
                if len(waiting[0]) > _MAX_WAITING:
                    self._bring_up_to_date(longer)

    def _bring_up_to_date(self, period: int) -> None:
        if (waiting := self._waiting.pop(period, None)) is None:
            return
        own = self.levels[period].chosen(merge(waiting))
        if len(own):
            self._feed(period, roll_up(own, period))

    def _note_revised(self, period: int, fed: Bars) -> None:
        """Note whether a bar of the period had ended before it got these."""
        looked = self._looked.get(period)
        if looked is not None and period not in self._revised:
            # A ticker that is new since then makes all its bars due.
            known = fed.group < len(looked)
            ends = (fed.open_time - origin_of(period)) // (period * SECOND)
            if (ends[known] < looked[fed.group[known]]).any():
                self._revised.add(period)

    def advance(self, clocks: Mapping[str, int]) -> None:
        """Set the exchange's time (ns) of tickers; a clock never goes back."""
        for ticker, time in clocks.items():
            state = self._of(ticker)[1]
            state.clock = max(state.clock, time)

    def clock(self, ticker: str) -> int:
        """The newest known time (ns) of `ticker`; NEVER if none is known."""
        number = self._number.get(ticker)
        return NEVER if number is None else self.states[number].clock

    def closes_none(self, ticker: str, oldest: int, newest: int) -> bool:
        """Whether trades of these times (ns) neither end a bar of the ticker nor belong to one that has ended."""
        clock = self.clock(ticker)
        if clock == NEVER:
            return False
        start = open_containing(clock - self.lateness_ns, self.periods[0])
        end = start + self.periods[0] * SECOND
        return start <= oldest and newest - self.lateness_ns < end

    def mark_gap(self, ticker: str, start: int, end: int) -> None:
        """Trades of [start, end) are missing: overlapping bars are incomplete (published again if they were not)."""
        number, state = self._of(ticker)
        if (start, end) not in state.gaps:
            state.gaps.append((start, end))
            if len(state.gaps) > _MAX_GAPS:
                (first, one_end), (_, other_end), *others = sorted(state.gaps)
                state.gaps = [(first, max(one_end, other_end)), *others]
            self._touch(number, start, end)

    def clear_gap(self, ticker: str, start: int, end: int) -> None:
        """Remove the gap with these bounds, whose missing trades have arrived; an unknown gap is ignored."""
        number, state = self._of(ticker)
        if (start, end) in state.gaps:
            state.gaps.remove((start, end))
            self._touch(number, start, end)

    def take(self) -> list[MadeBars]:
        """The bars that became final or were revised since the last call, shortest period first."""
        made: list[MadeBars] = []
        clocks = np.array([state.clock for state in self.states], np.int64)
        if not self._may_be_due(self.periods[0], clocks):
            # Every longer bar ends together with one of the shortest period.
            self.step += 1
            return made
        for place, period in enumerate(sorted(self.levels)):
            level = self.levels[period]
            if not place or self._may_be_due(period, clocks):
                self._bring_up_to_date(period)
                due = level.take_due(clocks, self.lateness_ns)
                if due is not None:
                    made.append(MadeBars(*due, self._is_complete(level, due[0])))
            level.prune(clocks - self.horizon_ns)
        longest = max(self.levels) * SECOND
        for state in self.states:
            state.settled = max(state.settled, state.clock - self.horizon_ns)
            state.gaps = [gap for gap in state.gaps if gap[1] > state.settled - longest]
        self.left = {key: left for key, left in self.left.items() if left.until > self.states[key[0]].settled}
        self.step += 1
        return made

    def _may_be_due(self, period: int, clocks: NDArray[np.int64]) -> bool:
        """Whether a bar of the period may have become final or been revised: a clock has passed the end of one, or a
        trade has arrived for one that had ended.
        """
        looked = (clocks - self.lateness_ns - origin_of(period)) // (period * SECOND)
        before = self._looked.get(period)
        self._looked[period] = looked
        if before is not None and period not in self._revised and np.array_equal(before, looked):
            return False
        self._revised.discard(period)
        return True

    def retire(self, tickers: Collection[str]) -> None:
        """Expect no more trades of these tickers: the next `take` makes their bars in progress final as they are, but
        incomplete. `forget` them afterwards. Unknown tickers are ignored.
        """
        if not tickers:
            return
        self.pass_on()
        for number, state in self._known(tickers):
            ends = [end for level in self.levels.values() if (end := level.end_of(number)) is not None]
            state.gaps.append((state.clock + 1, _FOR_EVER))
            state.clock = max([state.clock, *(end + self.lateness_ns for end in ends)])

    def forget(self, tickers: Collection[str]) -> None:
        """Forget retired tickers whose bars have been taken. A later trade counts only if its time is after the
        forgotten bars; otherwise it is too late. `tickers` becomes a new list, so earlier numbers refer to the old one.
        """
        gone = {number: max(state.settled, state.clock - self.lateness_ns) for number, state in self._known(tickers)}
        if not gone:
            return
        self.pass_on()
        self.retired |= {self.tickers[number]: settled for number, settled in gone.items()}
        for ticker in list(islice(self.retired, max(0, len(self.retired) - _MAX_RETIRED))):
            del self.retired[ticker]
        kept = [number for number in range(len(self.tickers)) if number not in gone]
        for level in self.levels.values():
            level.renumber(kept, len(self.tickers))
        self._drop_empty()
        new = {old: number for number, old in enumerate(kept)}
        self.left = {(new[old], period): left for (old, period), left in self.left.items() if old in new}
        self.states = [self.states[number] for number in kept]
        self.tickers = [self.tickers[number] for number in kept]
        self._number = {ticker: number for number, ticker in enumerate(self.tickers)}

    def _known(self, tickers: Collection[str]) -> list[tuple[int, TickerState]]:
        numbers = [self._number[ticker] for ticker in tickers if ticker in self._number]
        return [(number, self.states[number]) for number in numbers]

    def _drop_empty(self) -> None:
        self.levels = {period: level for period, level in self.levels.items() if level.begins != {}}

    def _source(self, period_seconds: int) -> int:
        return _source_of(tuple(self.periods), period_seconds)

    def _of(self, ticker: str) -> tuple[int, TickerState]:
        number = self._number.get(ticker)
        if number is None:
            number = self._number[ticker] = len(self.tickers)
            self.tickers.append(ticker)
            self.states.append(TickerState(settled=self.retired.pop(ticker, NEVER)))
            for period in self.wanted.get(ticker, ()):
                begins = self.levels.setdefault(period, Level(period_seconds=period, begins={})).begins
                if begins is not None:
                    begins[number] = NEVER
        return number, self.states[number]

    def _fresh(self, batches: Sequence[Trades]) -> list[tuple[int, Trades]]:
        """The trades that count, with the numbers of their tickers."""
        kept = []
        for trades, (oldest, newest, is_run) in zip(batches, _extents(batches), strict=True):
            number, state = self._of(trades.ticker)
            state.clock = max(state.clock, newest)
            if state.covered_from == NEVER:
                state.covered_from = oldest
            # A trade counts in the bars of all periods or of none; bars of the shortest period are forgotten first.
            counted_from = open_containing(state.settled, self.periods[0])
            if is_run and oldest >= counted_from and state.seen.extend(int(trades.order[0]), int(trades.order[-1])):
                kept.append((number, trades))
            elif (part := self._sifted(trades, state, counted_from)) is not None:
                kept.append((number, part))
        return kept

    def _sifted(self, trades: Trades, state: TickerState, counted_from: int) -> Trades | None:
        if trades.last_order is None:
            fresh, forgotten = state.seen.add(trades.order)
        else:
            fresh, forgotten = _add_ranges(state.seen, trades.order, trades.last_order)
        in_time = trades.time >= counted_from
        self.too_late += forgotten + int((fresh & ~in_time).sum())
        self.duplicates += int((~fresh).sum()) - forgotten
        kept = fresh & in_time
        if kept.all():
            return trades
        return trades.take(kept) if kept.any() else None

    def _touch(self, number: int, start: int, end: int) -> None:
        self.pass_on()
        for level in self.levels.values():
            level.touch(number, start, end, step=self.step)

    def _is_complete(self, level: Level, bars: Bars) -> NDArray[np.bool_]:
        numbers, at = np.unique(bars.group, return_inverse=True)
        covered = np.array([level.covered(number, self.states[number].covered_from) for number in numbers.tolist()])
        complete = bars.open_time >= covered[at]
        end = bars.open_time + bars.period_seconds * SECOND
        for number in numbers.tolist():
            for start, stop in self.states[number].gaps:
                complete &= ~((bars.group == number) & (bars.open_time < stop) & (end > start))
        return complete


def _extents(batches: Sequence[Trades]) -> Iterator[tuple[int, int, bool]]:
    """Of each batch its oldest and newest time (ns), and whether each trade's number is one more than the previous
    one's. Each batch has a trade.
    """
    if not batches:
        return
    starts = np.cumsum([0, *(len(batch.time) for batch in batches[:-1])])
    time = np.concatenate([batch.time for batch in batches])
    order = np.concatenate([batch.order for batch in batches])
    follows = np.ones(len(order), np.bool_)
    follows[1:] = order[1:] == order[:-1] + 1
    follows[starts] = True
    oldest, newest = np.minimum.reduceat(time, starts).tolist(), np.maximum.reduceat(time, starts).tolist()
    is_run = np.logical_and.reduceat(follows, starts).tolist()
    for number, batch in enumerate(batches):
        yield oldest[number], newest[number], is_run[number] and batch.last_order is None


def _divides(shorter: int, longer: int) -> bool:
    return longer % shorter == 0 and origin_of(longer) % (shorter * SECOND) == origin_of(shorter) % (shorter * SECOND)


def _source_of(periods: Sequence[int], period_seconds: int) -> int:
    return max(shorter for shorter in periods if shorter < period_seconds and _divides(shorter, period_seconds))


@lru_cache(maxsize=1_024)
def _made_from(periods: tuple[int, ...], made: tuple[int, ...]) -> Mapping[int, Sequence[int]]:
    """For each of `periods`, those of `made` whose bars are made from its bars."""
    found: dict[int, list[int]] = {}
    for period in made:
        if period != periods[0]:
            found.setdefault(_source_of(periods, period), []).append(period)
    return found


def _add_ranges(seen: SeenIds, first: NDArray[np.int64], last: NDArray[np.int64]) -> tuple[NDArray[np.bool_], int]:
    """SeenIds.add for aggregates: an aggregate is new if all its trades are new; a partially new one is not counted."""
    fresh = np.zeros(len(first), np.bool_)
    forgotten = 0
    for i, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        if seen.has_any(low, high):
            forgotten += int(low <= seen.floor)
            continue
        seen.add(np.arange(low, high + 1))
        fresh[i] = True
    return fresh, forgotten
