"""Bars of many tickers and periods from a stream of trades: published once when final, revised by what comes late.

Event time decides: a bar is final when its ticker's clock (the newest trade, or what the exchange says) has passed its
end and the allowed lateness. Clocks are per ticker, so that a fast venue never cuts off a slow one. Each period keeps
its own partial bars and is fed by the rolled-up bars of the next shorter one, so that trades are touched once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bars.aggregate import Bars, from_trades, merge, roll_up
from bars.seen import SeenIds
from venues.grid import SECOND, open_containing, origin_of

__all__ = ["BarMaker", "MadeBars", "Trades"]

_NEVER = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Trades:
    """Columns of one ticker's trades, in any order. `order` is the exchange's order of trades and their identity."""

    ticker: str
    time: NDArray[np.int64]
    order: NDArray[np.int64]
    price: NDArray[np.float64]
    size: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MadeBars:
    """Bars to publish, of `tickers[bars.group[i]]`; revision 0 = first; complete False = trades are missing."""

    bars: Bars
    revision: NDArray[np.int64]
    complete: NDArray[np.bool_]


@dataclass(slots=True)
class _Level:
    """The bars of one period that can still change; revision -1 = not yet published."""

    bars: Bars | None = None
    revision: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    is_changed: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))


@dataclass(slots=True)
class _Ticker:
    seen: SeenIds
    clock: int = _NEVER
    settled: int = _NEVER
    covered_from: int = _NEVER


@dataclass(slots=True)
class BarMaker:
    """`periods`: seconds, each longer one made of whole bars of the next shorter one (ValueError otherwise).

    `lateness_ns`: how long after its end a bar waits for trades. `horizon_ns`: how long a published bar can still be
    revised; a trade for an older bar is counted in `too_late` and changes nothing.
    """

    periods: Sequence[int]
    lateness_ns: int = 0
    horizon_ns: int = 3_600 * SECOND
    tickers: list[str] = field(default_factory=list)
    duplicates: int = 0
    too_late: int = 0
    _number: dict[str, int] = field(default_factory=dict)
    _state: list[_Ticker] = field(default_factory=list)
    _levels: list[_Level] = field(default_factory=list)
    _gaps: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.periods = sorted(set(self.periods))
        for shorter, longer in zip(self.periods, self.periods[1:], strict=False):
            if longer % shorter or origin_of(longer) % (shorter * SECOND):
                raise ValueError(f"{longer} s is not made of bars of {shorter} s")
        self._levels = [_Level() for _ in self.periods]

    def start(self, ticker: str, covered_from: int) -> None:
        """Trades of `ticker` are complete from this time (ns) on: bars that open earlier are not complete."""
        self._of(ticker)[1].covered_from = covered_from

    def seed(self, ticker: str, bars: Bars) -> None:
        """Give what is known of bars in progress: partial bars of one of `periods`, of trades that will not come."""
        number, state = self._of(ticker)
        level = self._levels[list(self.periods).index(bars.period_seconds)]
        self._feed(level, replace(bars, group=np.full(len(bars), number)))
        if len(bars):
            state.covered_from = min(state.covered_from, int(bars.open_time.min()))

    def add(self, batches: Iterable[Trades]) -> None:
        """Count each trade once. Trades of bars past the horizon are counted in `too_late`."""
        kept = [part for batch in batches if (part := self._fresh(batch)) is not None]
        if not kept:
            return
        group = np.repeat(np.array([number for number, _ in kept]), [len(part.time) for _, part in kept])
        time, order, price, size = (
            np.concatenate(columns)
            for columns in zip(*((p.time, p.order, p.price, p.size) for _, p in kept), strict=True)
        )
        fed = from_trades(group, time, order, price, size, self.periods[0])
        for level, period in zip(self._levels, self.periods, strict=True):
            fed = fed if period == fed.period_seconds else roll_up(fed, period)
            self._feed(level, fed)

    def advance(self, clocks: Mapping[str, int]) -> None:
        """The exchange's time (ns) of tickers; a clock never goes back."""
        for ticker, time in clocks.items():
            state = self._of(ticker)[1]
            state.clock = max(state.clock, time)

    def mark_gap(self, ticker: str, start: int, end: int) -> None:
        """Trades of [start, end) are missing: bars that overlap it are not complete (again published if they were)."""
        number = self._of(ticker)[0]
        self._gaps.setdefault(number, []).append((start, end))
        self._touch(number, start, end)

    def clear_gap(self, ticker: str, start: int, end: int) -> None:
        """The trades that `mark_gap` missed with these bounds have come; an unknown gap is ignored."""
        number = self._of(ticker)[0]
        if (start, end) in self._gaps.get(number, ()):
            self._gaps[number].remove((start, end))
            self._touch(number, start, end)

    def take(self) -> list[MadeBars]:
        """The bars that became final or were revised since the last call, shortest period first."""
        made = [bars for level in self._levels if (bars := self._take(level)) is not None]
        for state in self._state:
            state.settled = max(state.settled, state.clock - self.horizon_ns)
        return made

    def _of(self, ticker: str) -> tuple[int, _Ticker]:
        number = self._number.get(ticker)
        if number is None:
            number = self._number[ticker] = len(self.tickers)
            self.tickers.append(ticker)
            self._state.append(_Ticker(SeenIds()))
        return number, self._state[number]

    def _fresh(self, trades: Trades) -> tuple[int, Trades] | None:
        if len(trades.time) == 0:
            return None
        number, state = self._of(trades.ticker)
        state.clock = max(state.clock, int(trades.time.max()))
        if state.covered_from == _NEVER:
            state.covered_from = int(trades.time.min())
        fresh, forgotten = state.seen.add(trades.order)
        # A trade counts in the bars of all periods or of none; those of the shortest are let go of first.
        in_time = trades.time >= open_containing(state.settled, self.periods[0])
        self.too_late += forgotten + int((fresh & ~in_time).sum())
        self.duplicates += int((~fresh).sum()) - forgotten
        kept = fresh & in_time
        if kept.all():
            return number, trades
        if not kept.any():
            return None
        return number, Trades(
            trades.ticker, trades.time[kept], trades.order[kept], trades.price[kept], trades.size[kept]
        )

    def _feed(self, level: _Level, fed: Bars) -> None:
        if level.bars is None or len(level.bars) == 0:
            level.bars = fed
            level.revision = np.full(len(fed), -1)
            level.is_changed = np.ones(len(fed), np.bool_)
            return
        held = level.bars
        at = _find(held, fed)
        is_held = at >= 0
        touched = np.zeros(len(held), np.bool_)
        touched[at[is_held]] = True
        changed = merge([held.take(touched), fed])
        revision = np.full(len(changed), -1)
        revision[_find(changed, held.take(touched))] = level.revision[touched]
        whole = merge([held.take(~touched), changed])
        places = _find(whole, changed)
        new_revision = np.empty(len(whole), np.int64)
        is_changed = np.empty(len(whole), np.bool_)
        stays = np.ones(len(whole), np.bool_)
        stays[places] = False
        new_revision[places], is_changed[places] = revision, True
        new_revision[stays], is_changed[stays] = level.revision[~touched], level.is_changed[~touched]
        level.bars, level.revision, level.is_changed = whole, new_revision, is_changed

    def _touch(self, number: int, start: int, end: int) -> None:
        for level in self._levels:
            if level.bars is not None:
                bar_end = level.bars.open_time + level.bars.period_seconds * SECOND
                level.is_changed |= (level.bars.group == number) & (level.bars.open_time < end) & (bar_end > start)

    def _take(self, level: _Level) -> MadeBars | None:
        bars = level.bars
        if bars is None or len(bars) == 0:
            return None
        clock = np.array([state.clock for state in self._state])[bars.group]
        end = bars.open_time + bars.period_seconds * SECOND
        due = level.is_changed & (end + self.lateness_ns <= clock)
        level.revision[due] += 1
        level.is_changed[due] = False
        made = MadeBars(bars.take(due), level.revision[due], self._is_complete(bars.take(due))) if due.any() else None
        keep = level.is_changed | (end + self.horizon_ns > clock) | (level.revision < 0)
        if not keep.all():
            level.bars, level.revision, level.is_changed = bars.take(keep), level.revision[keep], level.is_changed[keep]
        return made

    def _is_complete(self, bars: Bars) -> NDArray[np.bool_]:
        covered = np.array([state.covered_from for state in self._state])
        complete = bars.open_time >= covered[bars.group]
        end = bars.open_time + bars.period_seconds * SECOND
        for number, gaps in self._gaps.items():
            for start, stop in gaps:
                complete &= ~((bars.group == number) & (bars.open_time < stop) & (end > start))
        return complete


def _find(sorted_bars: Bars, wanted: Bars) -> NDArray[np.intp]:
    """Row of each wanted (group, open_time) in `sorted_bars`, -1 where it is not."""
    # Both keys in one number that sorts alike: times are below 2**63 and groups are few.
    low = min(int(sorted_bars.open_time.min(initial=0)), int(wanted.open_time.min(initial=0)))
    step = sorted_bars.period_seconds * SECOND
    opens = max(int(sorted_bars.open_time.max(initial=0)), int(wanted.open_time.max(initial=0))) - low
    width = opens // step + 2
    keys = sorted_bars.group * width + (sorted_bars.open_time - low) // step
    asked = wanted.group * width + (wanted.open_time - low) // step
    at = np.searchsorted(keys, asked)
    at[at == len(keys)] = 0
    return np.where(keys[at] == asked, at, -1) if len(keys) else np.full(len(asked), -1)
