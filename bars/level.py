"""The bars of one period that can still change."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bars.aggregate import Bars, interleave, merge, roll_up
from candlewright.wire.grid import SECOND, first_open_from, open_containing

__all__ = ["Left", "Level"]

_ALWAYS = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Left:
    """A ticker's published bars when their period stopped being wanted, if they can still be revised.

    `until`: the end of the last bar; `step`: the maker's step in which the period was dropped; `revisions`: non-zero
    revisions by open time.
    """

    until: int
    step: int
    revisions: dict[int, int]


@dataclass(kw_only=True, slots=True)
class Level:
    """The bars of one period, with a row each in `bars`, `revision` (-1 = not yet published), `is_changed` (since it
    was published), and `born` and `changed` (the maker's step in which it began and last changed).

    By ticker number: `since` is when this period was added to a running maker; `seeded` is the open time from which the
    exchange's own candles fill the bar in progress until the ticker is covered; `begins` is the first open time to make
    (other tickers have no bars; None means all bars of all tickers). `anew` holds the last revision and the birth step
    of published bars that were restarted, by ticker number and open time.
    """

    period_seconds: int
    bars: Bars | None = None
    revision: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    is_changed: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    born: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    changed: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    since: dict[int, int] = field(default_factory=dict)
    seeded: dict[int, int] = field(default_factory=dict)
    anew: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    begins: dict[int, int] | None = None

    def chosen(self, source: Bars) -> Bars:
        """The rows of the shorter bars from which this level makes its bars."""
        if self.begins is None:
            return source
        numbers = np.array(sorted(self.begins), np.int64)
        if not len(numbers):
            return source.take(np.zeros(len(source), np.bool_))
        first = np.array([self.begins[number] for number in numbers.tolist()], np.int64)
        at = np.minimum(np.searchsorted(numbers, source.group), len(numbers) - 1)
        is_made = (numbers[at] == source.group) & (source.open_time >= first[at])
        return source if is_made.all() else source.take(is_made)

    def takes(self, number: int) -> bool:
        return self.begins is None or number in self.begins

    def feed(self, fed: Bars, step: int) -> None:
        """Merge in `fed`, whose trades no bar here contains yet."""
        if self.bars is None or len(self.bars) == 0:
            self.bars = fed
            self.revision, self.born = self._origins(fed, step)
            self.is_changed = np.ones(len(fed), np.bool_)
            self.changed = np.full(len(fed), step)
            return
        held = self.bars
        at = _find(held, fed)
        is_known = at >= 0
        if is_known.all():
            self.bars = held.with_rows(at, merge([held.take(at), fed]))
            self.is_changed[at], self.changed[at] = True, step
            return
        touched = np.zeros(len(held), np.bool_)
        touched[at[is_known]] = True
        # `fed` has the same keys as the bars that it changes, in the same order.
        changed = merge([held.take(touched), fed.take(is_known)])
        new = fed.take(~is_known)
        self.bars, order = interleave([held.take(~touched), changed, new])
        new_revision, new_born = self._origins(new, step)
        revision = np.concatenate((self.revision[~touched], self.revision[touched], new_revision))
        born = np.concatenate((self.born[~touched], self.born[touched], new_born))
        is_changed = np.concatenate((self.is_changed[~touched], np.ones(len(changed) + len(new), np.bool_)))
        changed_at = np.concatenate((self.changed[~touched], np.full(len(changed) + len(new), step)))
        self.revision, self.is_changed = revision[order], is_changed[order]
        self.born, self.changed = born[order], changed_at[order]

    def enter(self, number: int, source: "Level", since: int, *, left: Left | None, step: int) -> None:
        """Make bars of one more ticker, starting from what `source` holds, which is complete from `since` on. `left` is
        the result of `leave` if this period was wanted before; bars that can no longer be completed stay as published.
        """
        assert self.begins is not None
        self.since[number] = since
        self.begins[number] = _ALWAYS
        if left is not None:
            self.begins[number] = min(left.until, first_open_from(since, self.period_seconds))
        if source.bars is None:
            return
        held = (source.bars.group == number) & (source.bars.open_time >= self.begins[number])
        rows = source.bars.take(held)
        if not len(rows):
            return
        rolled = roll_up(rows, self.period_seconds)
        self.feed(rolled, step)
        if left is None or self.bars is None:
            return
        starts = np.searchsorted(rows.open_time, rolled.open_time)
        born = np.minimum.reduceat(source.born[held], starts)
        changed = np.maximum.reduceat(source.changed[held], starts)
        opens = rolled.open_time.tolist()
        known = np.array([left.revisions.get(time, 0) for time in opens])
        is_known = (born <= left.step) | np.array([time in left.revisions for time in opens])
        is_known &= rolled.open_time + self.period_seconds * SECOND <= left.until
        at = np.flatnonzero(self.bars.group == number)[is_known]
        self.revision[at] = known[is_known]
        self.is_changed[at] = changed[is_known] > left.step

    def leave(self, number: int, settled: int, step: int) -> Left | None:
        """Forget the bars of a ticker; None if none of its published bars ends after `settled`."""
        length = self.period_seconds * SECOND
        revisions = {time: last for (own, time), (last, _) in self.anew.items() if own == number}
        ends = [time + length for time in revisions]
        if self.begins and self.begins.get(number, _ALWAYS) > settled:
            # The ticker returned earlier, without the bars published before.
            ends.append(self.begins[number])
        if self.bars is not None:
            is_own = self.bars.group == number
            rows = np.flatnonzero(is_own & (self.revision >= 0) & (self.bars.open_time + length > settled))
            if len(rows):
                ends.append(int(self.bars.open_time[rows[-1]]) + length)
            revised = rows[self.revision[rows] > 0]
            revisions |= dict(zip(self.bars.open_time[revised].tolist(), self.revision[revised].tolist(), strict=True))
            self._keep(~is_own)
        for numbers in (self.since, self.seeded, self.begins or {}):
            numbers.pop(number, None)
        self.anew = {key: value for key, value in self.anew.items() if key[0] != number}
        return Left(max(ends), step, revisions) if ends else None

    def touch(self, number: int, start: int, end: int, *, step: int) -> None:
        """Have the bars of a ticker that overlap [start, end) published again."""
        if self.bars is not None:
            bar_end = self.bars.open_time + self.period_seconds * SECOND
            touched = (self.bars.group == number) & (self.bars.open_time < end) & (bar_end > start)
            self.is_changed |= touched
            self.changed[touched] = step

    def begin_anew(self, number: int, covered_from: int) -> None:
        """Forget the bar in progress at `covered_from`, and the candles that filled it, if all its trades are older."""
        self.seeded.pop(number, None)
        self.since.pop(number, None)
        if self.bars is not None and len(self.bars):
            end = self.bars.open_time + self.period_seconds * SECOND
            is_stale = (self.bars.group == number) & (end > covered_from) & (self.bars.last_time < covered_from)
            for row in np.flatnonzero(is_stale & (self.revision >= 0)).tolist():
                self.anew[number, int(self.bars.open_time[row])] = int(self.revision[row]), int(self.born[row])
            if is_stale.any():
                self._keep(~is_stale)

    def add_seeded(self, number: int, open_time: int) -> None:
        self.seeded[number] = min(open_time, self.seeded.get(number, open_time))

    def covered(self, number: int, covered_from: int) -> int:
        """The open time from which the bars of a ticker contain all trades."""
        covered = max(covered_from, self.since.get(number, covered_from))
        seeded = self.seeded.get(number)
        if seeded is not None and seeded <= open_containing(covered, self.period_seconds):
            return open_containing(covered, self.period_seconds)
        return covered

    def take_due(self, clocks: NDArray[np.int64], lateness_ns: int) -> tuple[Bars, NDArray[np.int64]] | None:
        """The changed bars whose end plus lateness their ticker's clock has passed, and their next revisions; None if
        there are none.
        """
        if self.bars is None or len(self.bars) == 0:
            return None
        end = self.bars.open_time + self.period_seconds * SECOND
        due = self.is_changed & (end + lateness_ns <= clocks[self.bars.group])
        if not due.any():
            return None
        self.revision[due] += 1
        self.is_changed[due] = False
        return self.bars.take(due), self.revision[due]

    def prune(self, settled: NDArray[np.int64]) -> None:
        """Forget published bars that ended by `settled`, by ticker number."""
        if self.anew:
            length = self.period_seconds * SECOND
            self.anew = {key: last for key, last in self.anew.items() if key[1] + length > settled[key[0]]}
        if self.bars is None or len(self.bars) == 0:
            return
        length = self.period_seconds * SECOND
        if int(self.bars.open_time.min()) + length > int(settled.max()):
            return
        end = self.bars.open_time + length
        keep = self.is_changed | (self.revision < 0) | (end > settled[self.bars.group])
        if not keep.all():
            self._keep(keep)

    def end_of(self, number: int) -> int | None:
        """When the last bar of a ticker ends."""
        if self.bars is None:
            return None
        opens = self.bars.open_time[self.bars.group == number]
        return int(opens.max()) + self.period_seconds * SECOND if len(opens) else None

    def renumber(self, kept: Sequence[int], count: int) -> None:
        """Renumber ticker `kept[i]` of `count` to i; the others are forgotten."""
        new = np.full(count, -1)
        new[np.array(kept, np.intp)] = np.arange(len(kept))
        if self.bars is not None:
            self._keep(new[self.bars.group] >= 0)
            self.bars = replace(self.bars, group=new[self.bars.group])
        self.since = {int(new[number]): time for number, time in self.since.items() if new[number] >= 0}
        self.seeded = {int(new[number]): time for number, time in self.seeded.items() if new[number] >= 0}
        if self.begins is not None:
            self.begins = {int(new[number]): time for number, time in self.begins.items() if new[number] >= 0}
        self.anew = {(int(new[n]), time): last for (n, time), last in self.anew.items() if new[n] >= 0}

    def _origins(self, new: Bars, step: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The last revision and the birth step of bars that this level does not hold."""
        revision, born = np.full(len(new), -1), np.full(len(new), step)
        if self.anew:
            for row, key in enumerate(zip(new.group.tolist(), new.open_time.tolist(), strict=True)):
                if (known := self.anew.pop(key, None)) is not None:
                    revision[row], born[row] = known
        return revision, born

    def _keep(self, rows: NDArray[np.bool_]) -> None:
        if self.bars is not None:
            self.bars, self.revision, self.is_changed = self.bars.take(rows), self.revision[rows], self.is_changed[rows]
            self.born, self.changed = self.born[rows], self.changed[rows]


def _find(sorted_bars: Bars, wanted: Bars) -> NDArray[np.intp]:
    """Row of each wanted (group, open_time) in `sorted_bars`, -1 if it is not there."""
    if len(sorted_bars) == 0 or len(wanted) == 0:
        return np.full(len(wanted), -1)
    # Combines both keys in one number with the same sort order.
    step = sorted_bars.period_seconds * SECOND
    low = min(int(sorted_bars.open_time.min()), int(wanted.open_time.min()))
    width = (max(int(sorted_bars.open_time.max()), int(wanted.open_time.max())) - low) // step + 1
    keys = sorted_bars.group * width + (sorted_bars.open_time - low) // step
    asked = wanted.group * width + (wanted.open_time - low) // step
    at = np.searchsorted(keys, asked)
    at[at == len(keys)] = 0
    return np.where(keys[at] == asked, at, -1)
