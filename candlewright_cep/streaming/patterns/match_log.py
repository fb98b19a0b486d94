"""The rows that a pattern keeps, as they are saved: in a log, each with what the search found out when it tested it.

A row enters the log once it has been tested, and is written again only when chunks merge. The few rows that still wait
for rows that NEXT reads are written with each state. While few rows are kept in total, all are written with each state.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from candlewright_cep.streaming.patterns.match_partition import Partition
from candlewright_cep.streaming.rows.release import FOREVER, Rows, compact, joined
from candlewright_cep.streaming.rows.retained import RetainedRows
from candlewright_cep.streaming.rows.row_log import NEWEST_ROWS, RowLog
from candlewright_cep.types import BIGINT
from candlewright_cep.vector import Index, Vector, ranges

#: The columns that follow the row's own: its partition's number, its number there, its mask and its time.
_FURTHER = 4
#: Rows that are not needed are dropped from the log once it has this many more than twice the needed ones.
_SPARE_ROWS = 4096


class MatchLog:
    """`partitions`: by their numbers. `has_times`: the search knows the time of each row."""

    def __init__(self, columns: Collection[int], partitions: Mapping[int, Partition], *, has_times: bool) -> None:
        self._columns = columns
        self._partitions = partitions
        self._has_times = has_times
        self._log = RowLog(self._needed, is_joint=True)

    def whole(self) -> Rows | None:
        """All rows of all partitions."""
        return self._marked((part, part.first_row, part.end) for part in self._partitions.values())

    def parts(self) -> tuple[dict[str, Any], Rows | None, dict[int, bytes]]:
        """The arguments of `restore`: see `RowLog.parts`."""
        parts = self._partitions.values()
        needed = sum(part.count for part in parts)
        if needed <= NEWEST_ROWS:
            return self._without_log()
        new = self._marked(
            (part, max(part.logged, part.first_row), part.tested) for part in parts if part.logged < part.tested
        )
        if new is not None:
            width = new.relation.width
            self._log.append(compact(new, {*self._columns, *range(width - _FURTHER, width)}))
            for part in parts:
                part.logged = part.tested
        if self._log.length > 2 * needed + _SPARE_ROWS:
            self._log.repack()
        state, newest, chunks = self._log.parts()
        untested = self._marked((part, part.tested, part.end) for part in parts if part.tested < part.end)
        last = [rows for rows in (newest, untested) if rows is not None]
        return state, joined(last) if last else None, chunks

    def _without_log(self) -> tuple[dict[str, Any], Rows | None, dict[int, bytes]]:
        self._log.clear()
        for part in self._partitions.values():
            part.logged = 0
        return self._log.parts()[0], self.whole(), {}

    def restore(self, state: Mapping[str, Any], last: Rows | None, chunks: Mapping[int, bytes]) -> Rows | None:
        """Give the partitions what they knew of their rows. Returns the rows of all partitions that have any, in the
        order of their numbers. Raises ValueError if rows are missing.
        """
        tested = last
        untested: Rows | None = None
        if last is not None:
            ends = self._of_partitions(last, lambda part: part.tested)
            is_tested = _column(last, 1) < ends
            tested, untested = last.take(np.flatnonzero(is_tested)), last.take(np.flatnonzero(~is_tested))
        self._log.restore(state, tested, chunks)
        found = [rows for rows in (self._log.whole(), untested) if rows is not None and rows.length]
        counts = {number: part.count for number, part in sorted(self._partitions.items()) if part.count}
        together = joined(found) if found else None
        owners = np.zeros(0, np.int64) if together is None else _column(together, 0)
        numbers, sizes = np.unique(owners, return_counts=True)
        if counts != dict(zip(numbers.tolist(), sizes.tolist(), strict=True)):
            raise ValueError("rows of a state are missing")
        if together is None:
            return None
        together = together.take(np.argsort(owners, kind="stable").astype(np.int64))
        self._resume(together, counts)
        width = together.relation.width - _FURTHER
        return together.replaced(together.relation.select(range(width)))

    def _resume(self, rows: Rows, counts: Mapping[int, int]) -> None:
        masks, times = _column(rows, 2), _column(rows, 3)
        at = 0
        for number, count in counts.items():
            part = self._partitions[number]
            low = at + part.search.base - part.first_row
            high = at + part.tested - part.first_row
            part.resume(masks[low:high].tolist(), times[low:high].tolist() if self._has_times else ())
            part.logged = part.tested
            at += count

    def _of_partitions(self, rows: Rows, value_of: Callable[[Partition], int]) -> Index:
        """A value for each row's partition; for partitions that are gone, a number beyond all rows."""
        numbers, codes = np.unique(_column(rows, 0), return_inverse=True)
        parts = [self._partitions.get(number) for number in numbers.tolist()]
        values = np.array([FOREVER if part is None else value_of(part) for part in parts], np.int64)
        found: Index = values[codes]
        return found

    def _needed(self, rows: Rows) -> Rows:
        firsts = self._of_partitions(rows, lambda part: part.first_row)
        return compact(rows.take(np.flatnonzero(_column(rows, 1) >= firsts)))

    def _marked(self, spans: Iterable[tuple[Partition, int, int]]) -> Rows | None:
        """Each partition's rows from a first number to an end, with the log's additional columns."""
        found = [span for span in spans if span[1] < span[2]]
        if not found:
            return None
        pieces = [(part.between(first, end), 0, 0) for part, first, end in found]
        rows = RetainedRows.gathered(pieces).rows
        sizes = np.array([end - first for _, first, end in found], np.int64)
        owners = np.repeat(np.array([part.number for part, _, _ in found], np.int64), sizes)
        numbers = ranges(np.array([first for _, first, _ in found], np.int64), sizes)
        masks = _known((part, part.masks, first, end) for part, first, end in found)
        times = np.zeros(len(numbers), np.int64)
        if self._has_times:
            times = _known((part, part.search.times, first, end) for part, first, end in found)
        further = [owners, numbers, masks, times]
        return rows.replaced(rows.relation.with_columns([Vector(BIGINT, values, None) for values in further]))


def _known(spans: Iterable[tuple[Partition, list[int], int, int]]) -> Index:
    """What the search knows of each row; 0 if it no longer needs the row, or has not tested it."""
    found: list[int] = []
    for part, known, first, end in spans:
        base = part.search.base
        low, high = min(max(first - base, 0), len(known)), min(max(end - base, 0), len(known))
        before = min(max(base - first, 0), end - first)
        found += [0] * before
        found += known[low:high]
        found += [0] * (end - first - before - (high - low))
    return np.array(found, np.int64)


def _column(rows: Rows, place: int) -> Index:
    values: Index = rows.relation.column(rows.relation.width - _FURTHER + place).values
    return values
