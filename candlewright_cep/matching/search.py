"""The search for matches in one partition. The same object serves a closed batch and a growing stream.

The search tries candidates in order of preference, depth first. If it is after the last row that has arrived and a
candidate still waits for a row, it stops and keeps its position: every attempt before that was more preferred and has
failed, so a match is reported exactly when no better one can appear. Path registers are immutable tuples, so a position
in the search is a small value that can be stored, compared and remembered as failed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from candlewright_cep import work
from candlewright_cep.limits import Limits
from candlewright_cep.matching.automaton import ACCEPT, Automaton, Candidate, Step
from candlewright_cep.matching.conditions import Registers, Trial
from candlewright_cep.matching.foresight import Loop, Prospects
from candlewright_cep.vector import Array, Bools, Index, ranges

_REMEMBER_AFTER = 200
_REMEMBER_AT_MOST = 500_000
#: Steps that one match may take for each row within its reach, on top of the limit.
_STEPS_PER_ROW = 16
#: How many steps pass between two checks of the allowance.
_STRETCH = 20_000
#: After this many iterations of a loop the search looks ahead; doubled up to the maximum while that skips too few rows.
_ROUNDS, _MOST_ROUNDS, _WORTHWHILE = 32, 4_096, 64
#: One look ahead counts as this many steps.
_LOOK_STEPS = 64
#: Once an attempt has failed after more steps than this, starts are judged before they are tried.
_DEAR_STEPS = 64
#: How many starts are judged together.
_JUDGED = 8_192


class SkipFailed(Exception):
    """AFTER MATCH SKIP TO names a row that the match does not have, or its first row."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"AFTER MATCH SKIP failed: {reason}")
        self.reason = reason


class StepLimit(Exception):
    """One match attempt took more steps than allowed."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"one match took more than {steps} steps")


class MappedLimit(work.WorkLimit):
    """All matches of one batch together have more rows than allowed."""

    def __init__(self, rows: int) -> None:
        super().__init__(f"the matches have more than {rows} mapped rows in all")


@dataclass(frozen=True, slots=True)
class SkipRule:
    """`kind` PAST LAST, NEXT, FIRST or LAST; `variables` are the numbers of the variables after FIRST or LAST."""

    kind: str
    variables: frozenset[int] = frozenset()


@dataclass(kw_only=True, frozen=True)
class SearchPlan:
    """The compiled search of one MATCH_RECOGNIZE: the automaton, the path conditions and the rules around them.

    `within_ns` and `gap_ns`: a row of a match is less than this after the match's first row, and after the row before.
    """

    automaton: Automaton
    skip: SkipRule
    initial: Registers = ()
    within_ns: int | None = None
    gap_ns: int | None = None
    timeouts: bool = False
    want_unmatched: bool = False
    strict: bool = True
    limits: Limits = field(default_factory=Limits)

    @cached_property
    def has_deadline(self) -> bool:
        return self.within_ns is not None or self.gap_ns is not None

    def deadline(self, first: int, last: int) -> int | None:
        """The time from which on a match takes no further row, given the times of its first and its last row so far."""
        bounds = ((first, self.within_ns), (last, self.gap_ns))
        return min((time + bound for time, bound in bounds if bound is not None), default=None)

    @cached_property
    def is_linear(self) -> bool:
        """Whether only path conditions can make the search backtrack."""
        plain = not self.has_deadline and not self.want_unmatched and not self.timeouts
        return plain and not self.automaton.has_start_anchor


@dataclass(kw_only=True, frozen=True, slots=True)
class Matches:
    """Matches, one entry each: rows `starts[i]` to `starts[i] + lengths[i]`; their labels are in `labels`, one match
    after another. `timed_out`: the deadline decided it; `partial`: not a match but the mapping at the deadline.
    `unmatched`: rows in no match.
    """

    starts: Index
    lengths: Index
    numbers: Index
    labels: Array
    timed_out: Bools
    partial: Bools
    unmatched: Index

    @staticmethod
    def decided(starts: Index, lengths: Index, numbers: Index, *, labels: Array) -> "Matches":
        """Matches that rows alone decided, without a deadline."""
        never = np.zeros(len(starts), np.bool_)
        return Matches(
            starts=starts,
            lengths=lengths,
            numbers=numbers,
            labels=labels,
            timed_out=never,
            partial=never,
            unmatched=starts[:0],
        )

    def merged(self, other: "Matches") -> "Matches":
        """These and others, in the order of their first rows."""
        if not len(other.starts) and not len(other.unmatched):
            return self
        starts = np.concatenate([self.starts, other.starts])
        lengths = np.concatenate([self.lengths, other.lengths])
        order = np.argsort(starts, kind="stable")
        sizes = lengths[order]
        places = ranges((np.cumsum(lengths) - lengths)[order], sizes)
        return Matches(
            starts=starts[order],
            lengths=sizes,
            numbers=np.concatenate([self.numbers, other.numbers])[order],
            labels=np.concatenate([self.labels, other.labels])[places],
            timed_out=np.concatenate([self.timed_out, other.timed_out])[order],
            partial=np.concatenate([self.partial, other.partial])[order],
            unmatched=np.concatenate([self.unmatched, other.unmatched]),
        )


@dataclass(kw_only=True, slots=True)
class Found:
    """The matches of a search in the order they were found; see `Matches`."""

    starts: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    labels: bytearray = field(default_factory=bytearray)
    timed_out: set[int] = field(default_factory=set)
    partial: set[int] = field(default_factory=set)
    unmatched: list[int] = field(default_factory=list)
    degraded: int = 0
    dropped: int = 0

    def add(self, start: int, labels: Sequence[int], number: int) -> None:
        self.starts.append(start)
        self.lengths.append(len(labels))
        self.numbers.append(number)
        self.labels.extend(labels)

    def matches(self) -> Matches:
        marked = np.zeros((2, len(self.starts)), np.bool_)
        marked[0, sorted(self.timed_out)] = True
        marked[1, sorted(self.partial)] = True
        columns = [np.array(part, np.int64) for part in (self.starts, self.lengths, self.numbers)]
        labels, unmatched = np.frombuffer(self.labels, np.uint8).astype(np.int16), np.array(self.unmatched, np.int64)
        return Matches(
            starts=columns[0],
            lengths=columns[1],
            numbers=columns[2],
            labels=labels,
            timed_out=marked[0],
            partial=marked[1],
            unmatched=unmatched,
        )


@dataclass(kw_only=True, slots=True)
class Attempt:
    """A match attempt from `start`, which is before row `row` at program place `place`.

    `stack` holds the untried alternatives: (candidates, next, registers, row, place). It and `labels` change only at
    their ends. `saved`: what the stream last wrote of them; `kept`: how much of the stack has not changed since.
    """

    start: int
    row: int
    place: int
    registers: Registers
    labels: bytearray
    stack: list[tuple[tuple[Candidate, ...], int, Registers, int, int]]
    steps: int = 0
    partial: list[int] | None = None
    #: How many steps have been charged to the allowance.
    spent: int = 0
    kept: int = 0
    saved: object = None


class PartitionSearch:
    """Rows are numbered from the start of the partition (or of the batch); `base` is the number of `steps[0]`."""

    def __init__(self, plan: SearchPlan, first_row: int = 0) -> None:
        self.plan = plan
        self.base = first_row
        self.steps: list[Step] = []
        self.times: list[int] = []
        # The rows that are too long after the row before them, in order.
        self._gaps: list[int] = []
        self.trials: Sequence[Trial | None] = ()
        self.prospects: Prospects | None = None
        self.next_start = first_row
        self.match_number = 0
        self.covered = first_row
        self.attempt: Attempt | None = None
        self.closed = False
        self.watermark: int | None = None
        self.first_row = first_row
        self._failed: set[tuple[int, int, Registers]] = set()
        self._rounds = _ROUNDS
        # Whether starts are judged before they are tried. Those before `_judged` have been; those in `_hopeful` may
        # match, given the first row of each that a variable may take.
        self._judges = False
        self._judged = first_row
        self._hopeful: list[int] = []
        self._firsts: Mapping[int, Sequence[int]] = {}

    # -- rows -----------------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """One past the number of the last row that has arrived."""
        return self.base + len(self.steps)

    def extend(self, masks: list[int], times: Sequence[int] = (), *, closed: bool = False) -> None:
        """Append further rows. `closed`: no row will ever follow them."""
        automaton = self.plan.automaton
        first = self.end
        if self.plan.timeouts:
            # A partial mapping counts although it cannot become a match, so nothing may be pruned.
            behind = automaton.everything
            plain = [behind[mask] for mask in masks]
            if masks and first == self.first_row and automaton.has_start_anchor:
                plain[0] = automaton.step(behind.bits, masks[0], start=True)
            new = plain
        else:
            end = automaton.ended() if closed else automaton.everything
            new = automaton.read(masks, end, at_start=first == self.first_row)
        gap = self.plan.gap_ns
        if gap is not None:
            known = [*self.times[-1:], *times]
            self._gaps += [
                row
                for row, (before, time) in enumerate(pairwise(known), self.end + len(times) + 1 - len(known))
                if time - before >= gap
            ]
        self.steps += new
        self.times += times
        self.closed = self.closed or closed

    def forget(self, row: int) -> None:
        """Drop the rows before `row`."""
        count = row - self.base
        if count > 0:
            del self.steps[:count]
            del self.times[:count]
            del self._gaps[: bisect_right(self._gaps, row)]
            self.base = row

    def restart(self, row: int, masks: list[int], matches: int) -> None:
        """Continue from `row` without an attempt, as if `matches` more had been found before it; `masks` are those from
        there on.
        """
        self.base = self.next_start = row
        self.match_number += matches
        self.closed = False
        self.steps = []
        self.extend(masks)

    def skip_to(self, row: int) -> None:
        """Continue from `row`, and abandon the open attempt."""
        self.attempt = None
        self._failed = set()
        self.times, self._gaps = [], []
        self.restart(row, [], 0)

    def deadline(self, attempt: Attempt) -> int | None:
        """The time from which on an attempt that has taken the last row takes no further one."""
        if not self.plan.has_deadline:
            return None
        return self.plan.deadline(self.times[attempt.start - self.base], self.times[-1])

    @property
    def oldest_needed(self) -> int:
        return self.attempt.start if self.attempt is not None else self.next_start

    # -- the loop over starts -------------------------------------------------------------------------------------

    def run(self, found: Found, *, once: bool = False) -> None:
        """Search as far as the rows allow; `once`: no farther than the open attempt.

        Raises SkipFailed (strict plans), StepLimit and work.WorkLimit.
        """
        ahead = not self.trials and self.plan.is_linear
        # The usual case if conditions read other rows of the match: there is nothing left to do.
        may_just_fail = not self.plan.want_unmatched and not self.plan.timeouts
        may_judge = self.prospects is not None and bool(self.prospects.foresight.starts) and not self.plan.timeouts
        allowance, most_labels = work.current(), self.plan.limits.mapped_rows
        while self.attempt is not None or not once:
            if ahead and self.attempt is None:
                self.run_linear(found, exact=False)
            attempt = self.attempt or self._begin(found)
            if attempt is None:
                return
            outcome = self._try(attempt, allowance)
            allowance.spend(attempt.steps - attempt.spent)
            attempt.spent = attempt.steps
            if len(found.labels) > most_labels:
                raise MappedLimit(most_labels)
            if outcome is None:
                return
            self.attempt = None
            if not outcome and attempt.steps > _DEAR_STEPS and not self._judges:
                self._judges = may_judge
            if self._failed:
                self._failed = set()
            if not outcome and may_just_fail:
                self.next_start = attempt.start + 1
            else:
                self._conclude(attempt, matched=outcome, found=found)

    def _begin(self, found: Found) -> Attempt | None:
        """An attempt at the next row that a match can start at, or None."""
        start = self.next_start if self.plan.timeouts else self._next_startable()
        if self.plan.want_unmatched:
            found.unmatched.extend(range(max(self.next_start, self.covered), start))
        if start > self.next_start:
            self.next_start = start
        if start >= self.end:
            return None
        self.attempt = attempt = Attempt(
            start=start, row=start, place=0, registers=self.plan.initial, labels=bytearray(), stack=[]
        )
        return attempt

    def _next_startable(self) -> int:
        """The next row that a match can start at, or the end of the rows."""
        steps, base, end = self.steps, self.base, self.end
        row = self.next_start
        if not self._judges:
            while row < end and not steps[row - base].startable:
                row += 1
            return row
        while row < end:
            if row >= self._judged:
                self._judge(row, end)
            if row < self._judged:
                place = bisect_left(self._hopeful, row)
                if place == len(self._hopeful):
                    row = self._judged
                    continue
                row = self._hopeful[place]
            if steps[row - base].startable:
                return row
            row += 1
        return row

    def _judge(self, row: int, end: int) -> None:
        """Find which of the starts from `row` on can match, as far as all rows within their reach have arrived."""
        prospects = self.prospects
        if prospects is None:
            return
        stop = end if self.closed else self._settled(end)
        if self.plan.has_deadline:
            stop = min(stop, row + max(_JUDGED, self._reach(row, end) - row))
        if stop > row and (ends := self._reaches(row, stop, end, prospects)) is not None:
            self._hopeful, self._firsts = prospects.hopeful(row, ends, overlap=self.plan.skip.kind != "PAST LAST")
            self._judged = stop

    def _settled(self, end: int) -> int:
        """The row before which no start can be continued by rows that have not arrived."""
        within, gap = self.plan.within_ns, self.plan.gap_ns
        settled = max(self._gaps[-1:], default=self.base)
        if self.watermark is not None and within is not None:
            settled = max(settled, self.base + bisect_right(self.times, self.watermark - within))
        if self.watermark is not None and gap is not None and self.times[-1] + gap <= self.watermark:
            settled = end
        return settled

    def _reaches(self, row: int, stop: int, end: int, prospects: Prospects) -> Index | None:
        """The reach of each start from `row` to `stop`; None if a row has no time."""
        ends = np.full(stop - row, end)
        within, times = self.plan.within_ns, prospects.rows.times
        if within is not None:
            if times is None:
                return None
            first = prospects.rows.first
            times = times[row - first : end - first]
            # Times past the last one that fits are after every row.
            bounds = np.minimum(times[: stop - row], np.iinfo(np.int64).max - within) + within
            ends = row + np.searchsorted(times, bounds)
        gaps = self._gaps[bisect_right(self._gaps, row) : bisect_left(self._gaps, stop) + 1]
        if gaps:
            following = np.array([*gaps, end])
            ends = np.minimum(ends, following[np.searchsorted(following[:-1], np.arange(row, stop), "right")])
        return ends

    def _conclude(self, attempt: Attempt, *, matched: bool, found: Found) -> None:
        start = attempt.start
        if not matched and attempt.partial is None:
            if self.plan.want_unmatched and start >= self.covered:
                found.unmatched.append(start)
            self.next_start = start + 1
            return
        labels = attempt.labels if matched else attempt.partial or []
        self.match_number += 1
        if attempt.partial is not None:
            found.timed_out.add(len(found.starts))
            if not matched:
                found.partial.add(len(found.starts))
        found.add(start, labels, self.match_number)
        self.covered = max(self.covered, start + max(1, len(labels)))
        self.next_start = self._resume(start, labels, found, strict=self.plan.strict and matched)

    def _resume(self, start: int, labels: Sequence[int], found: Found, *, strict: bool) -> int:
        skip = self.plan.skip
        if not labels or skip.kind == "NEXT":
            return start + 1
        if skip.kind == "PAST LAST":
            return start + len(labels)
        rows = range(len(labels)) if skip.kind == "FIRST" else range(len(labels) - 1, -1, -1)
        target = next((row for row in rows if labels[row] >> 1 in skip.variables), None)
        if target is None:
            if strict:
                raise SkipFailed("pattern variable is not present in match")
            found.degraded += 1
            return start + len(labels)
        if target == 0:
            if strict:
                raise SkipFailed("cannot skip to first row of match")
            found.degraded += 1
            return start + 1
        return start + target

    def run_first(self, found: Found, *, anywhere: bool) -> int:
        """The match at the first row of a closed partition (`anywhere`: the first match at or after it), and the row to
        continue from. For row patterns in a window.
        """
        first = self.next_start
        before = len(found.starts)
        allowance = work.current()
        while len(found.starts) == before and (attempt := self._begin(found)) is not None:
            self.attempt = None
            if attempt.start != first and not anywhere:
                return self.end
            self._failed = set()
            self._conclude(attempt, matched=bool(self._try(attempt, allowance)), found=found)
            allowance.spend(attempt.steps)
        return self.next_start

    def run_linear(self, found: Found, *, exact: bool = True) -> None:
        """The same without path conditions, WITHIN and START: the search never backtracks.

        `exact`: all rows were given at once and the partition is closed. Otherwise an attempt that reaches the last
        row, or a dead end that was not yet known when an earlier batch was pruned, is left to the general search. An
        attempt accepted before that has the same result there, since nothing that was pruned could have succeeded.
        """
        steps, first, end = self.steps, self.base, len(self.steps)
        labels, starts, lengths, numbers = found.labels, found.starts, found.lengths, found.numbers
        put = labels.append
        past_last = self.plan.skip.kind == "PAST LAST"
        allowance, most = work.current(), self.plan.limits.mapped_rows
        number = self.match_number
        row = self.next_start - first
        while row < end:
            for row in range(row, end):  # noqa: B020
                if steps[row].startable:
                    break
            else:
                row = end
                break
            start, place, before, label = row, 0, len(labels), 0
            while row < end:
                label, place = steps[row].best[place]
                if label < 0:
                    break
                put(label)
                row += 1
            if not exact and (row == end or label == -2):
                del labels[before:]
                row = start
                break
            if len(labels) > most:
                raise MappedLimit(most)
            allowance.spend(row - start)
            number += 1
            starts.append(first + start)
            lengths.append(row - start)
            numbers.append(number)
            if row == start:
                row += 1
            elif not past_last:
                row = self._resume(first + start, labels[before:], found, strict=self.plan.strict) - first
        self.match_number = number
        self.next_start = first + row

    # -- one start ------------------------------------------------------------------------------------------------

    def _try(self, attempt: Attempt, allowance: work.Work) -> bool | None:
        """True: matched, the labels are in the attempt. False: no match at this start. None: rows are missing."""
        steps, base, trials = self.steps, self.base, self.trials
        stack, labels = attempt.stack, attempt.labels
        start, row, place, registers = attempt.start, attempt.row, attempt.place, attempt.registers
        number = self.match_number + 1
        end = base + len(steps)
        last_row = self._reach(start, end)
        count = attempt.steps
        limit = self.plan.limits.steps_per_match + _STEPS_PER_ROW * (end - start)
        pause = min(limit, count + _STRETCH)
        prospects, rounds, enough = self.prospects, 0, self._rounds
        loops = prospects.foresight.loops if prospects is not None else ()
        remember, failed = count > _REMEMBER_AFTER, self._failed
        index = 0
        while True:
            # The candidates for `row` at `place`.
            if row < last_row:
                candidates = steps[row - base].candidates[place]
            else:
                waiting = self._at_edge(attempt, place, row, end)
                if waiting is None:
                    attempt.row, attempt.place, attempt.registers, attempt.steps = row, place, registers, count
                    return None
                candidates = waiting
            index = 0
            if failed and (place, row, registers) in failed:
                candidates = ()
            while True:
                if index == len(candidates):
                    if remember and candidates and len(failed) < _REMEMBER_AT_MOST:
                        failed.add((place, row, registers))
                    if not stack:
                        attempt.steps = count
                        return False
                    candidates, index, registers, row, place = stack.pop()
                    del labels[row - start :]
                    if len(stack) < attempt.kept:
                        attempt.kept = len(stack)
                    continue
                candidate = candidates[index]
                index += 1
                variable = candidate.variable
                if variable == -1:
                    attempt.steps = count
                    return True
                count += 1
                if count > _REMEMBER_AFTER and not remember:
                    remember = True
                if count > pause:
                    if count > limit:
                        raise StepLimit(limit)
                    allowance.spend(count - attempt.spent)
                    attempt.spent = count
                    pause = min(limit, count + _STRETCH)
                trial = trials[variable] if trials else None
                if trial is not None:
                    taken = trial(registers, row, start, number)
                    if taken is None:
                        continue
                else:
                    taken = registers
                # A place without further candidates is kept to be noted as failed, if another one can lead to it.
                if index < len(candidates) or (remember and stack):
                    if stack and candidates[-1].variable == -1:
                        # This place can end the match: no less preferred candidate will be tried.
                        stack.clear()
                        attempt.kept = 0
                    stack.append((candidates, index, registers, row, place))
                registers = taken
                labels.append(candidate.label)
                row += 1
                if candidate.then != place:
                    place, rounds = candidate.then, 0
                    break
                rounds += 1
                if rounds == 1 and place in loops and loops[place].is_free:
                    then = min(last_row, self._first_exit(loops[place], start))
                    if then > row:
                        labels.extend(bytes((candidate.label,)) * (then - row))
                        row = then
                if index == len(candidates) == 2 and trials and not (remember and stack):
                    # Iterations of a loop, up to a row that can end it or has other candidates.
                    exits, began = trials[candidates[0].variable], row
                    stop = min(last_row, row + enough - rounds) if place in loops else last_row
                    while exits is not None and row < stop and steps[row - base].candidates[place] is candidates:
                        if exits(registers, row, start, number) is not None:
                            break
                        if trial is not None:
                            taken = trial(registers, row, start, number)
                            if taken is None:
                                break
                            registers = taken
                        row += 1
                    labels.extend(bytes((candidate.label,)) * (row - began))
                    count += 2 * (row - began)
                    rounds += row - began
                if rounds >= enough and place in loops and row < last_row and prospects is not None:
                    then = prospects.skip(place, row, last_row, registers=registers, start=start, number=number)
                    enough = _ROUNDS if then - row >= _WORTHWHILE else min(_MOST_ROUNDS, 2 * enough)
                    self._rounds, rounds = enough, 0
                    count += _LOOK_STEPS
                    labels.extend(bytes((candidate.label,)) * (then - row))
                    row = then
                break

    def _first_exit(self, loop: Loop, start: int) -> int:
        """The first row that may end this loop, as far as judging the start has found; the start if it has not."""
        place = bisect_left(self._hopeful, start) if start < self._judged else len(self._hopeful)
        if place == len(self._hopeful) or self._hopeful[place] != start:
            return start
        first = self.end
        for exit in loop.exits:
            if exit not in self._firsts:
                return start
            first = min(first, self._firsts[exit][place])
        return first

    def _needs_end(self, place: int, *, at_start: bool) -> bool:
        """Whether a match can end here (or, with TIMEOUT ROWS, continue) only at the end of the partition."""
        without = self.plan.automaton.layout(place, start=at_start, end=False)
        if ACCEPT in without:
            return False
        at_end = self.plan.automaton.layout(place, start=at_start, end=True)
        return ACCEPT in at_end or (self.plan.timeouts and at_end != without)

    def _reach(self, start: int, end: int) -> int:
        """The first row that cannot be mapped: not arrived yet, or too late for WITHIN."""
        within = self.plan.within_ns
        if within is not None:
            place = start - self.base
            end = self.base + bisect_left(self.times, self.times[place] + within, lo=place)
        if self._gaps and (place := bisect_right(self._gaps, start)) < len(self._gaps):
            end = min(end, self._gaps[place])
        return end

    def _at_edge(self, attempt: Attempt, place: int, row: int, end: int) -> tuple[Candidate, ...] | None:
        """The candidates at the end of the rows, where no further row can be taken; None to wait for rows."""
        automaton = self.plan.automaton
        at_start = row == self.first_row
        expired = row < end
        if not expired and (deadline := self.deadline(attempt)) is not None:
            expired = self.closed or (self.watermark is not None and self.watermark >= deadline)
        if not expired and not self.closed:
            waiting = automaton.layout(place, start=at_start, end=False, open_end=True)
            return (ACCEPT,) if waiting and waiting[0] is ACCEPT else None if waiting else ()
        may_be_last = row == end and not self.closed
        # Past the deadline no row can be taken, but the last row may still turn out to have been the partition's last.
        if may_be_last and self._needs_end(place, at_start=at_start):
            return None
        layout = automaton.layout(place, start=at_start, end=self.closed and row == end)
        if self.plan.timeouts and attempt.partial is None and row > attempt.start:
            ahead = layout[: layout.index(ACCEPT)] if ACCEPT in layout else layout
            if ahead:
                attempt.partial = list(attempt.labels)
        return (ACCEPT,) if ACCEPT in layout else ()
