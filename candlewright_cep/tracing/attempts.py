"""The attempts of one row pattern: which rows they took, and where and why they failed.

Matches and the open attempt come from the search that triggers run with. Failed starts are searched again here, because
the search keeps no record of failures.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from candlewright_cep import work
from candlewright_cep.binding.evaluation import Bounds, RowValues
from candlewright_cep.binding.expressions import Column, Expression, walk
from candlewright_cep.matching.automaton import ACCEPT, Automaton
from candlewright_cep.matching.conditions import Registers, Trial
from candlewright_cep.matching.matching import bound_path, mask_array, row_times
from candlewright_cep.matching.measures import Mapping, MeasureValues, Outputs
from candlewright_cep.matching.recognize import RecognizePlan
from candlewright_cep.matching.search import Attempt as OpenAttempt
from candlewright_cep.matching.search import Found, PartitionSearch
from candlewright_cep.planning.relation import Relation
from candlewright_cep.tracing.conditions import Condition, described, distances
from candlewright_cep.tracing.values import Value, plain
from candlewright_cep.vector import Vector, ranges

#: The most steps that searching again may take in total, and from one start.
_STEPS, _STEPS_OF_START = 200_000, 10_000
#: The most failures kept per start, attempts whose failures are compared by their values, and mapped rows of all of
#: these.
_KEPT, _COMPARED, _COMPARED_ROWS = 32, 64, 500_000
#: The most rows shown of one attempt: the first and the last ones.
_SHOWN_ROWS = 40

#: The labels of the rows so far, newest first.
Path = tuple[int, "Path"] | None


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the input: its time, the variable that it was taken or tested as, and the relevant columns."""

    time: int | None
    variable: str
    values: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Tested:
    """A row tested as `variable`. `row` None: the next row, which has not arrived; `condition` None: any row is
    accepted.
    """

    variable: str
    row: Row | None
    condition: Condition | None


@dataclass(kw_only=True, frozen=True, slots=True)
class Attempt:
    """One attempt to match the pattern.

    `outcome`: matched, failed, expired (WITHIN passed) or waiting. `start`: the time of its first row (ns). `rows`:
    those of the `taken` rows that are shown, for a long attempt its first and last ones. `missing`: the least number of
    rows that a match still needs. `nearest`: the tests that it failed, or for an open attempt those that came nearest
    to advancing it; empty if WITHIN passed before a row was tested. `awaits`: what the next row will be tested as;
    `can_end`: it is a match unless the next row continues it. `deadline`: the time (ns) until which rows count.
    """

    outcome: str
    key: dict[str, Value]
    start: int | None
    rows: tuple[Row, ...] = ()
    taken: int = 0
    missing: int = 0
    nearest: tuple[Tested, ...] = ()
    awaits: tuple[Tested, ...] = ()
    can_end: bool = False
    deadline: int | None = None


@dataclass(slots=True)
class _Failure:
    """No row was taken before `row` at `place`, after `path`, as a variable after which `missing` more rows are needed.
    `is_late`: the row came after WITHIN had passed, and was not tested.
    """

    missing: int
    row: int
    place: int
    path: Path
    is_late: bool = False


@dataclass(slots=True)
class _Start:
    """The result of searching again from one row: the failures with the fewest rows missing, and the row that came
    after WITHIN had passed.
    """

    row: int
    partition: int
    missing: int = 1 << 30
    failures: deque[_Failure] = field(default_factory=lambda: deque(maxlen=_KEPT))
    late: int | None = None

    def failed(self, failure: _Failure) -> None:
        if failure.missing < self.missing:
            self.missing = failure.missing
            self.failures.clear()
        if failure.missing == self.missing:
            self.failures.append(failure)


@dataclass(frozen=True, slots=True)
class PatternTrace:
    """The `matches` in the rows, and the `starts` that were searched again, out of `failed` ones."""

    matches: int
    failed: int
    starts: int
    attempts: tuple[Attempt, ...]


def trace(plan: RecognizePlan, rows: Relation, bounds: Bounds, *, names: Sequence[str], most: int) -> PatternTrace:
    """The last match, the open attempt of each of the first partitions, and those failed attempts that came nearest."""
    return _Tracer(plan, rows, bounds, names=names).run(most)


class _Tracer:
    def __init__(self, plan: RecognizePlan, rows: Relation, bounds: Bounds, *, names: Sequence[str]) -> None:
        self._plan, self._rows, self._bounds, self._names = plan, rows, bounds, names
        self._values = RowValues(rows.column, rows.length, bounds)
        self._masks: list[int] = mask_array(plan.conditions, self._values, rows.length).tolist()
        self._trials: Sequence[Trial | None] = bound_path(plan.conditions, self._values, 0)[0]
        time = plan.order[0].expression if plan.order and plan.order[0].expression.type.is_time else None
        self._times: list[int | None] = [None] * rows.length
        if time is not None:
            self._times = self._values.value(time).to_list()
        self._row_times: list[int] = []
        if plan.time_column is not None:
            self._row_times = row_times(rows.column(plan.time_column).expand(), plan.order)
        self._definitions = dict(plan.definitions)
        self._missing = _missing_rows(plan.search.automaton)
        # After the search: per partition, the number of matches found.
        self._numbers: list[int] = []

    def run(self, most: int) -> PatternTrace:
        found = Found()
        opened: list[tuple[int, OpenAttempt]] = []
        gave_up: list[tuple[int, int]] = []
        for partition, (start, end) in enumerate(self._spans()):
            before = len(found.starts)
            search = self._search(start, end, found)
            self._numbers.append(search.match_number)
            if search.attempt is not None:
                opened.append((partition, search.attempt))
            upto = search.attempt.start if search.attempt is not None else min(end, search.next_start)
            gave_up += [(row, partition) for row in self._gave_up(start, upto, found, before)]
        gave_up.sort(reverse=True)
        walked = self._walked(gave_up)
        live = [self._open(partition, attempt) for partition, attempt in opened[: max(1, most)]]
        matched = self._last_match(found)
        return PatternTrace(
            len(found.starts), len(gave_up), len(walked), (*matched, *live, *self._nearest(walked, most))
        )

    # -- the search ---------------------------------------------------------------------------------------------

    def _spans(self) -> list[tuple[int, int]]:
        """For each partition the rows whose conditions can be computed: NEXT needs the rows after them."""
        ahead = self._plan.conditions.lookahead
        pairs = zip(self._bounds.starts.tolist(), self._bounds.ends.tolist(), strict=True)
        return [(start, max(start, end - ahead)) for start, end in pairs]

    def _search(self, start: int, end: int, found: Found) -> PartitionSearch:
        """Search as on a stream: what later rows may still change stays open."""
        search = PartitionSearch(replace(self._plan.search, strict=False), start)
        search.trials = self._trials
        times = self._row_times[start:end]
        search.extend(self._masks[start:end], times)
        if times:
            search.watermark = times[-1]
        search.run(found)
        return search

    def _gave_up(self, start: int, upto: int, found: Found, before: int) -> list[int]:
        """Starts that were tried without success: neither starts of matches nor rows that a match skipped."""
        tried = np.ones(max(0, upto - start), dtype=np.bool_)
        past_last = self._plan.search.skip.kind == "PAST LAST"
        for first, length in zip(found.starts[before:], found.lengths[before:], strict=True):
            tried[first - start : first - start + (max(1, length) if past_last else 1)] = False
        return [start + row for row in np.flatnonzero(tried).tolist()]

    # -- walking again ------------------------------------------------------------------------------------------

    def _walked(self, starts: Sequence[tuple[int, int]]) -> list[_Start]:
        """Search again from the newest start back, as far as the steps allow."""
        walked, left = [], _STEPS
        spans = self._spans()
        for row, partition in starts:
            if left <= 0:
                break
            found, steps = self._walk(row, partition, spans[partition])
            work.current().spend(steps)
            left -= steps + 1
            walked.append(found)
        return walked

    def _walk(self, start: int, partition: int, span: tuple[int, int]) -> tuple[_Start, int]:
        automaton, masks, trials = self._plan.search.automaton, self._masks, self._trials
        found, steps = _Start(start, partition), 0
        last = span[1]
        number = self._numbers[partition] + 1
        pending: list[tuple[int, int, Registers, Path]] = [(0, start, self._plan.search.initial, None)]
        seen: set[tuple[int, int, Registers]] = set()
        while pending and steps < _STEPS_OF_START:
            place, row, registers, path = pending.pop()
            if (place, row, registers) in seen:
                continue
            seen.add((place, row, registers))
            if row >= last:
                continue
            if row > start and self._is_late(start, row):
                found.late = row
                found.failed(_Failure(self._missing[place], row, place, path, is_late=True))
                continue
            taken = []
            for candidate in automaton.layout(place, start=row == span[0], end=False):
                variable = candidate.variable
                if variable < 0:
                    continue
                steps += 1
                after: Registers | None = None
                if masks[row] >> variable & 1:
                    trial = trials[variable] if trials else None
                    after = registers if trial is None else trial(registers, row, start, number)
                if after is None:
                    found.failed(_Failure(self._missing[candidate.then] + 1, row, place, path))
                else:
                    taken.append((candidate.then, row + 1, after, (candidate.label, path)))
            pending += reversed(taken)
        return found, steps

    def _is_late(self, start: int, row: int) -> bool:
        """Whether WITHIN had passed when the row came to an attempt that had taken all rows before it."""
        if self._plan.time_column is None:
            return False
        deadline = self._plan.search.deadline(self._row_times[start], self._row_times[row - 1])
        return deadline is not None and self._row_times[row] >= deadline

    def _deadline(self, start: int, taken: int) -> int | None:
        first, last = self._times[start], self._times[start + max(0, taken - 1)]
        return None if first is None or last is None else self._plan.search.deadline(first, last)

    # -- which came nearest -------------------------------------------------------------------------------------

    def _nearest(self, walked: list[_Start], most: int) -> list[Attempt]:
        walked = sorted((each for each in walked if each.failures), key=lambda each: (each.missing, -each.row))
        compared = walked[: max(_COMPARED, most)]
        best = self._closest(compared)
        order = sorted(range(len(compared)), key=lambda i: (compared[i].missing, best[i][0], -compared[i].row))
        return [self._dead(compared[index], best[index][1]) for index in order[:most]]

    def _closest(self, starts: Sequence[_Start]) -> list[tuple[float, _Failure]]:
        """For each start, the failure whose values came closest, and how close; among equal ones the last."""
        found = [(float("inf"), each.failures[-1]) for each in starts]
        tests: dict[int, list[tuple[int, _Failure]]] = {}
        rows = 0
        for index, start in enumerate(starts):
            for failure in reversed(start.failures):
                rows += failure.row - start.row + 1
                if rows > _COMPARED_ROWS:
                    break
                for variable in self._failing(start, failure):
                    tests.setdefault(variable, []).append((index, failure))
        for variable, of_variable in tests.items():
            definition = self._definitions.get(self._plan.variables[variable])
            if definition is None:
                continue
            mapped = [(starts[index], failure, variable) for index, failure in of_variable]
            for (index, failure), distance in zip(
                of_variable, distances(definition, self._tested(mapped), len(mapped)).tolist(), strict=True
            ):
                if distance < found[index][0]:
                    found[index] = (distance, failure)
        return found

    def _failing(self, start: _Start, failure: _Failure) -> list[int]:
        """The variables that the row was tested as and after which the fewest rows are missing."""
        if failure.is_late:
            return []
        automaton = self._plan.search.automaton
        first = self._bounds.starts[start.partition]
        return [
            each.variable
            for each in automaton.layout(failure.place, start=failure.row == first, end=False)
            if each.variable >= 0 and self._missing[each.then] + 1 == failure.missing
        ]

    def _tested(self, tests: Sequence[tuple[_Start, _Failure, int]]) -> MeasureValues:
        """Values at tested rows, each mapped as if it had been taken."""
        labels = [[*_labels(failure.path), variable] for _, failure, variable in tests]
        sizes = np.array([len(each) for each in labels], np.int64)
        firsts = np.cumsum(sizes) - sizes
        rows = ranges(np.array([start.row for start, _, _ in tests], np.int64), sizes)
        numbers = np.array([self._numbers[start.partition] + 1 for start, _, _ in tests], np.int64)
        mapping = Mapping(rows, np.concatenate(labels).astype(np.int64), firsts, sizes, numbers)
        outputs = Outputs(np.arange(len(tests), dtype=np.int64), firsts + sizes - 1)
        return MeasureValues(mapping, outputs, self._plan.variables, column=self._rows.column, bounds=self._bounds)

    # -- as they are shown --------------------------------------------------------------------------------------

    def _dead(self, start: _Start, failure: _Failure) -> Attempt:
        labels = _labels(failure.path)
        rows = self._taken(start.row, labels)
        outcome = "failed" if start.late is None else "expired"
        return Attempt(
            outcome=outcome,
            key=self._key(start.row),
            start=self._times[start.row],
            rows=rows,
            taken=len(labels),
            missing=failure.missing,
            nearest=self._tests(start, failure),
            deadline=self._deadline(start.row, len(labels) if start.late is None else start.late - start.row),
        )

    def _tests(self, start: _Start, failure: _Failure) -> tuple[Tested, ...]:
        if failure.is_late:
            return ()
        found = []
        first = self._bounds.starts[start.partition]
        candidates = self._plan.search.automaton.layout(failure.place, start=failure.row == first, end=False)
        for variable in dict.fromkeys(each.variable for each in candidates if each.variable >= 0):
            name = self._plan.variables[variable]
            definition = self._definitions.get(name)
            if definition is None:
                continue
            condition = described(
                definition, self._tested([(start, failure, variable)]), 0, names=self._names, variable=name
            )
            if not condition.holds:
                found.append(Tested(name, self._row(failure.row, name), condition))
        return tuple(found)

    def _open(self, partition: int, attempt: OpenAttempt) -> Attempt:
        automaton = self._plan.search.automaton
        labels = [label >> 1 for label in attempt.labels]
        at_start = attempt.row == self._bounds.starts[partition]
        candidates = automaton.layout(attempt.place, start=at_start, end=False)
        names = dict.fromkeys(self._plan.variables[each.variable] for each in candidates if each.variable >= 0)
        awaits = tuple(self._awaited(name, attempt.start, labels, partition) for name in names)
        walked, _ = self._walk(attempt.start, partition, self._spans()[partition])
        nearest: tuple[Tested, ...] = ()
        if walked.failures and walked.missing <= self._missing[attempt.place]:
            nearest = self._tests(walked, self._closest([walked])[0][1])
        return Attempt(
            outcome="waiting",
            key=self._key(attempt.start),
            start=self._times[attempt.start],
            rows=self._taken(attempt.start, labels),
            taken=len(labels),
            missing=self._missing[attempt.place],
            nearest=nearest,
            awaits=awaits,
            can_end=ACCEPT in candidates,
            deadline=self._deadline(attempt.start, len(labels)),
        )

    def _awaited(self, name: str, start: int, labels: Sequence[int], partition: int) -> Tested:
        definition = self._definitions.get(name)
        if definition is None:
            return Tested(name, None, None)
        size = np.array([len(labels)], np.int64)
        zero = np.zeros(1, np.int64)
        mapping = Mapping(
            np.arange(start, start + len(labels), dtype=np.int64),
            np.array(labels, np.int64),
            zero,
            size,
            np.array([self._numbers[partition] + 1], np.int64),
        )
        values = MeasureValues(
            mapping, Outputs(zero, size - 1), self._plan.variables, column=self._rows.column, bounds=self._bounds
        )
        return Tested(name, None, described(definition, values, 0, names=self._names, variable=name, pending=name))

    def _last_match(self, found: Found) -> tuple[Attempt, ...]:
        if not found.starts:
            return ()
        ends = np.cumsum(found.lengths)
        # The partition, out of all of them, that ended last.
        last = max(
            range(len(found.starts)),
            key=lambda i: self._times[found.starts[i] + max(0, found.lengths[i] - 1)] or found.starts[i],
        )
        labels = [label >> 1 for label in found.labels[int(ends[last]) - found.lengths[last] : int(ends[last])]]
        start = found.starts[last]
        rows = self._taken(start, labels)
        return (
            Attempt(outcome="matched", key=self._key(start), start=self._times[start], rows=rows, taken=len(labels)),
        )

    def _taken(self, start: int, labels: Sequence[int]) -> tuple[Row, ...]:
        half = _SHOWN_ROWS // 2
        shown = [*range(half), *range(max(half, len(labels) - half), len(labels))][: len(labels)]
        return tuple(self._row(start + place, self._plan.variables[labels[place]]) for place in shown)

    def _row(self, row: int, variable: str) -> Row:
        return Row(self._times[row], variable, self._cells(self._columns(), row))

    def _key(self, row: int) -> dict[str, Value]:
        return self._cells(self._plan.partition, row)

    def _cells(self, columns: Sequence[int], row: int) -> dict[str, Value]:
        place = np.array([row], np.int64)
        cells: dict[str, Value] = {}
        for index in columns:
            vector: Vector = self._rows.column(index).take(place)
            cells[self._names[index]] = plain(vector.to_list()[0], vector.type)
        return cells

    def _columns(self) -> list[int]:
        """The columns that a condition reads."""
        return sorted({index for _, node in self._plan.definitions for index in columns_of(node)})


def columns_of(node: Expression) -> set[int]:
    return {part.index for part in walk(node) if isinstance(part, Column)}


def _labels(path: Path) -> list[int]:
    found = []
    while path is not None:
        label, path = path
        found.append(label >> 1)
    return found[::-1]


def _missing_rows(automaton: Automaton) -> list[int]:
    """For each place, the least number of rows that a match still needs."""
    before: dict[int, set[int]] = {}
    missing = [1 << 30] * automaton.places
    queue: deque[int] = deque()
    for place in range(automaton.places):
        for candidate in automaton.layout(place, start=True, end=True):
            if candidate is ACCEPT or candidate.variable < 0:
                if missing[place]:
                    missing[place] = 0
                    queue.append(place)
            else:
                before.setdefault(candidate.then, set()).add(place)
    while queue:
        place = queue.popleft()
        for earlier in before.get(place, ()):
            if missing[earlier] > missing[place] + 1:
                missing[earlier] = missing[place] + 1
                queue.append(earlier)
    return missing
