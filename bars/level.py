"""The bars of one period that can still change."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bars.aggregate import Bars, interleave, merge
from venues.grid import SECOND, open_containing

__all__ = ["Level"]


@dataclass(slots=True)
class Level:
    """Rows of `bars` with their `revision` (-1 = not yet published) and whether they changed since.

    `since`: by ticker number, when this period was added to a running maker; `seeded`: by ticker number, the open
    time from which the exchange's own candles fill the bar in progress up to where the ticker is covered. `anew`: the
    last revisions of published bars that began anew, by ticker number and open time.
    """

    period_seconds: int
    bars: Bars | None = None
    revision: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    is_changed: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    since: dict[int, int] = field(default_factory=dict)
    seeded: dict[int, int] = field(default_factory=dict)
    anew: dict[tuple[int, int], int] = field(default_factory=dict)

    def feed(self, fed: Bars) -> None:
        """Merge `fed` in: trades that no bar here holds yet."""
        if self.bars is None or len(self.bars) == 0:
            self.bars = fed
            self.revision = self._revisions(fed)
            self.is_changed = np.ones(len(fed), np.bool_)
            return
        held = self.bars
        at = _find(held, fed)
        is_known = at >= 0
        touched = np.zeros(len(held), np.bool_)
        touched[at[is_known]] = True
        # Of the same keys as the bars that it changes, and in their order.
        changed = merge([held.take(touched), fed.take(is_known)])
        new = fed.take(~is_known)
        self.bars, order = interleave([held.take(~touched), changed, new])
        revision = np.concatenate((self.revision[~touched], self.revision[touched], self._revisions(new)))
        is_changed = np.concatenate((self.is_changed[~touched], np.ones(len(changed) + len(new), np.bool_)))
        self.revision, self.is_changed = revision[order], is_changed[order]

    def touch(self, number: int, start: int, end: int) -> None:
        """The bars of a ticker that overlap [start, end) are to be published again."""
        if self.bars is not None:
            bar_end = self.bars.open_time + self.period_seconds * SECOND
            self.is_changed |= (self.bars.group == number) & (self.bars.open_time < end) & (bar_end > start)

    def begin_anew(self, number: int, covered_from: int) -> None:
        """Forget the bar in progress at `covered_from` where all its trades are older, and what filled it."""
        self.seeded.pop(number, None)
        self.since.pop(number, None)
        if self.bars is not None and len(self.bars):
            end = self.bars.open_time + self.period_seconds * SECOND
            is_stale = (self.bars.group == number) & (end > covered_from) & (self.bars.last_time < covered_from)
            for row in np.flatnonzero(is_stale & (self.revision >= 0)).tolist():
                self.anew[number, int(self.bars.open_time[row])] = int(self.revision[row])
            if is_stale.any():
                self._keep(~is_stale)

    def add_seeded(self, number: int, open_time: int) -> None:
        self.seeded[number] = min(open_time, self.seeded.get(number, open_time))

    def covered(self, number: int, covered_from: int) -> int:
        """From which open time on the bars of a ticker hold all trades."""
        covered = max(covered_from, self.since.get(number, covered_from))
        seeded = self.seeded.get(number)
        if seeded is not None and seeded <= open_containing(covered, self.period_seconds):
            return open_containing(covered, self.period_seconds)
        return covered

    def take_due(self, clocks: NDArray[np.int64], lateness_ns: int) -> tuple[Bars, NDArray[np.int64]] | None:
        """The changed bars whose end and lateness a clock has passed, with their next revision."""
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
        """Let go of published bars that ended by `settled`, by ticker number."""
        if self.anew:
            length = self.period_seconds * SECOND
            self.anew = {key: last for key, last in self.anew.items() if key[1] + length > settled[key[0]]}
        if self.bars is None or len(self.bars) == 0:
            return
        end = self.bars.open_time + self.period_seconds * SECOND
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
        """Ticker `kept[i]` of `count` is number i from now on; nothing of the others stays."""
        new = np.full(count, -1)
        new[np.array(kept, np.intp)] = np.arange(len(kept))
        if self.bars is not None:
            self._keep(new[self.bars.group] >= 0)
            self.bars = replace(self.bars, group=new[self.bars.group])
        self.since = {int(new[number]): time for number, time in self.since.items() if new[number] >= 0}
        self.seeded = {int(new[number]): time for number, time in self.seeded.items() if new[number] >= 0}

        self.anew = {(int(new[n]), time): last for (n, time), last in self.anew.items() if new[n] >= 0}

    def _revisions(self, new: Bars) -> NDArray[np.int64]:
        """Of bars that are not held."""
        found = np.full(len(new), -1)
        if self.anew:
            keys = zip(new.group.tolist(), new.open_time.tolist(), strict=True)
            found[:] = [self.anew.pop(key, -1) for key in keys]
        return found

    def _keep(self, rows: NDArray[np.bool_]) -> None:
        if self.bars is not None:
            self.bars, self.revision, self.is_changed = self.bars.take(rows), self.revision[rows], self.is_changed[rows]


def _find(sorted_bars: Bars, wanted: Bars) -> NDArray[np.intp]:
    """Row of each wanted (group, open_time) in `sorted_bars`, -1 where it is not."""
    if len(sorted_bars) == 0 or len(wanted) == 0:
        return np.full(len(wanted), -1)
    # Both keys in one number that sorts alike.
    step = sorted_bars.period_seconds * SECOND
    low = min(int(sorted_bars.open_time.min()), int(wanted.open_time.min()))
    width = (max(int(sorted_bars.open_time.max()), int(wanted.open_time.max())) - low) // step + 1
    keys = sorted_bars.group * width + (sorted_bars.open_time - low) // step
    asked = wanted.group * width + (wanted.open_time - low) // step
    at = np.searchsorted(keys, asked)
    at[at == len(keys)] = 0
    return np.where(keys[at] == asked, at, -1)
