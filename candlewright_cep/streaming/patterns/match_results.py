"""What a pattern on a stream returns: the rows of matches, and the attributes of each besides its columns."""

from dataclasses import dataclass

import numpy as np

from candlewright_cep.matching.matching import MatchRows
from candlewright_cep.matching.search import Matches
from candlewright_cep.streaming.rows.release import Rows
from candlewright_cep.vector import Bools, Index

__all__ = ["Context", "MatchResult", "Reports", "context_of"]


@dataclass(kw_only=True, frozen=True, slots=True)
class Context:
    """The attributes of an event besides its columns, one entry per result row."""

    match_number: Index
    first_time: Index
    last_time: Index
    first_sequence: Index
    last_sequence: Index
    timed_out: Bools
    partial: Bools

    def take(self, rows: Index) -> "Context":
        return Context(
            match_number=self.match_number[rows],
            first_time=self.first_time[rows],
            last_time=self.last_time[rows],
            first_sequence=self.first_sequence[rows],
            last_sequence=self.last_sequence[rows],
            timed_out=self.timed_out[rows],
            partial=self.partial[rows],
        )


@dataclass(slots=True)
class Reports:
    """Counts of what a running trigger gave up."""

    dropped_starts: int = 0
    degraded_skips: int = 0
    late_rows: int = 0

    def since(self, before: "Reports") -> "Reports":
        """What was given up after `before` was counted."""
        return Reports(
            dropped_starts=self.dropped_starts - before.dropped_starts,
            degraded_skips=self.degraded_skips - before.degraded_skips,
            late_rows=self.late_rows - before.late_rows,
        )

    def plus(self, other: "Reports") -> "Reports":
        return Reports(
            dropped_starts=self.dropped_starts + other.dropped_starts,
            degraded_skips=self.degraded_skips + other.degraded_skips,
            late_rows=self.late_rows + other.late_rows,
        )


@dataclass(frozen=True, slots=True)
class MatchResult:
    rows: Rows
    context: Context


def context_of(found: Matches, result: MatchRows, together: Rows) -> Context:
    matches = result.matches
    starts, sizes, numbers = found.starts, found.lengths, found.numbers
    timed_out, partial = found.timed_out, found.partial
    if len(found.unmatched):
        # After the matches comes one entry for unmatched rows.
        starts, sizes, numbers = (np.append(part, 0) for part in (starts, sizes, numbers))
        timed_out, partial = np.append(timed_out, False), np.append(partial, False)
    first, last = starts[matches], np.maximum(sizes[matches], 1) - 1
    if len(found.unmatched):
        first = np.where(matches < 0, result.rows, first)
    last += first
    return Context(
        match_number=numbers[matches],
        first_time=together.time[first],
        last_time=together.time[last],
        first_sequence=together.sequence[first],
        last_sequence=together.sequence[last],
        timed_out=timed_out[matches],
        partial=partial[matches],
    )
