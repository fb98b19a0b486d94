"""MATCH_RECOGNIZE over a finished input."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from candlewright_cep import work
from candlewright_cep.binding.evaluation import Bounds, RowValues
from candlewright_cep.functions.scalars.arrays import cells
from candlewright_cep.matching.bulk import BulkSearch
from candlewright_cep.matching.conditions import Bound, Conditions
from candlewright_cep.matching.foresight import Foresight, Prospects, WholeRows
from candlewright_cep.matching.measures import Mapping, MeasureValues, Outputs
from candlewright_cep.matching.recognize import RecognizePlan, SortKey
from candlewright_cep.matching.search import Found, Matches, PartitionSearch, StepLimit
from candlewright_cep.vector import Array, Bools, Index, Vector, ranges
from candlewright_cep.work import WorkLimit

Columns = Callable[[int], Vector]
LESS_WORK = "add WITHIN, bound the quantifiers, give loops a condition or skip past the last row"


@dataclass(frozen=True, slots=True)
class MatchRows:
    """The result: for each row the input row of its plain columns, and the values of the measures.

    `matches` numbers the matches of this result from 0 (-1: an unmatched row).
    """

    rows: Index
    matches: Index
    measures: list[Vector]


def masks(conditions: Conditions, values: RowValues, length: int) -> list[int]:
    """For each row, the bits of the variables whose local condition is true."""
    found = mask_array(conditions, values, length)
    return list(found.tobytes()) if found.dtype == np.uint8 else found.tolist()


def mask_array(conditions: Conditions, values: RowValues, length: int) -> Array:
    """The same as an array of 8 or 64 bits per row."""
    count = len(conditions.local)
    kind: Any = np.uint8 if count <= 8 else np.int64
    found = np.zeros(length, dtype=kind)
    for number, node in enumerate(conditions.local):
        found |= kind(1 << number) if node is None else values.value(node).true().astype(kind) << kind(number)
    return found


def bound_path(conditions: Conditions, values: RowValues, base: int) -> Bound:
    """The path conditions over these values; `base` is the number of the first row."""
    if conditions.path is None:
        return [], []
    lists = [cells(values.value(node)) for node in conditions.path.hoisted]
    return conditions.path.make(lists, base)


def row_times(times: Vector, order: Sequence[SortKey]) -> list[int]:
    """The times of rows sorted by `order`, for WITHIN. A NULL is farther from any other time than any interval."""
    found: list[int] = times.values.tolist()
    if times.valid is not None:
        shift = -len(found) if order[0].nulls_first else 1
        for row in np.flatnonzero(~times.valid).tolist():
            found[row] = (row + shift) << 64
    return found


def find(plan: RecognizePlan, column: Columns, length: int, *, bounds: Bounds) -> Matches:
    """All matches of a sorted input. Raises SkipFailed, and TriggerRejected if the work exceeds a limit."""
    values = RowValues(column, length, bounds)
    mask_values = mask_array(plan.conditions, values, length)
    tests, known = bound_path(plan.conditions, values, 0)
    times = None if plan.time_column is None else column(plan.time_column).expand()
    time_list = [] if times is None else row_times(times, plan.order)
    prospects: Prospects | None = None
    is_linear = not tests and plan.search.is_linear
    foresight = None if is_linear else Foresight.of(plan.conditions, plan.variables, plan.search.automaton)
    if foresight is not None:
        ascending = None if times is None or times.valid is not None else times.values
        prospects = Prospects(foresight, WholeRows(values.value, mask_values, ascending))
        prospects.known = known
    found = Found()
    try:
        if not tests and (together := _found_in_bulk(plan, mask_values, times, bounds)) is not None:
            return together
        row_masks: list[int] = mask_values.tolist()
        for start, end in zip(bounds.starts.tolist(), bounds.ends.tolist(), strict=True):
            search = PartitionSearch(plan.search, start)
            search.trials, search.prospects = tests, prospects
            search.extend(row_masks[start:end], time_list[start:end], closed=True)
            if is_linear:
                search.run_linear(found)
            else:
                search.run(found)
    except (WorkLimit, StepLimit) as error:
        raise plan.at.reject(str(error), LESS_WORK) from None
    return found.matches()


def _found_in_bulk(plan: RecognizePlan, masks: Array, times: Vector | None, bounds: Bounds) -> Matches | None:
    """None if this search is not possible, or not faster."""
    gap = None if plan.has_end_anchor else plan.search.gap_ns
    bulk = BulkSearch(plan.search if gap is None else replace(plan.search, gap_ns=None), is_whole=True)
    if not bulk.suits(len(masks)):
        return None
    if gap is None or times is None:
        together = bulk.find(masks, bounds)
        return None if together is None else together.matches
    # Except for the numbers of matches, a pause ends a partition and begins another.
    together = bulk.find(masks, _between_pauses(times, gap, bounds))
    if together is None:
        return None
    starts = together.matches.starts
    partitions = np.searchsorted(bounds.ends, starts, side="right")
    numbers = np.arange(1, len(starts) + 1) - np.searchsorted(partitions, partitions)
    return replace(together.matches, numbers=numbers)


def _between_pauses(times: Vector, gap: int, bounds: Bounds) -> Bounds:
    """The partitions, each cut where a row is at least `gap` after the one before it."""
    # Times ascend, so their differences fit into 64 bits without a sign.
    is_apart: Bools = np.diff(times.values).view(np.uint64) >= np.uint64(gap)
    if times.valid is not None:
        is_apart |= ~(times.valid[1:] & times.valid[:-1])
    starts = np.union1d(bounds.starts, np.flatnonzero(is_apart) + 1)
    return Bounds(starts, np.append(starts[1:], len(times)))


def evaluate_matches(
    plan: RecognizePlan, found: Matches, column: Columns, *, bounds: Bounds, reach: tuple[Index, Index] | None = None
) -> MatchRows:
    """The result rows of matches that were found. `reach`: see `Mapping`."""
    starts, sizes = found.starts, found.lengths
    firsts = sizes.cumsum() - sizes
    mapping = Mapping(ranges(starts, sizes), found.labels >> 1, firsts, sizes, found.numbers, reach)
    outputs, shown = _outputs(plan, mapping, starts, found.labels & 1)
    values = MeasureValues(mapping, outputs, plan.variables, column=column, bounds=bounds)
    measures = []
    for measure in plan.measures:
        work.spend(len(mapping.rows))
        measures.append(values.value(measure.expression))
    if not len(found.unmatched):
        return MatchRows(shown, outputs.matches, measures)
    return _with_unmatched(shown, starts, outputs.matches, measures, found.unmatched)


def _outputs(plan: RecognizePlan, mapping: Mapping, starts: Index, excluded: Array) -> tuple[Outputs, Index]:
    """The result rows in the order of matches, and the input row of each."""
    matches = np.arange(len(starts), dtype=np.int64)
    if not plan.is_all_rows:
        last = np.where(mapping.sizes > 0, mapping.firsts + mapping.sizes - 1, -1)
        return Outputs(matches, last), starts
    of_match = np.repeat(matches, mapping.sizes)
    kept = np.flatnonzero(excluded == 0)
    empty = np.flatnonzero(mapping.sizes == 0) if plan.rows != "ALL OMIT" else matches[:0]
    all_matches = np.concatenate([of_match[kept], empty])
    all_positions = np.concatenate([kept, np.full(len(empty), -1, dtype=np.int64)])
    shown = np.concatenate([mapping.rows[kept], starts[empty]])
    order = np.argsort(all_matches, kind="stable")
    return Outputs(all_matches[order], all_positions[order]), shown[order]


def _with_unmatched(shown: Index, starts: Index, matches: Index, measures: list[Vector], unmatched: Index) -> MatchRows:
    """Unmatched rows come where a match that starts at them would come."""
    keys = np.concatenate([starts[matches], unmatched])
    order = np.argsort(keys, kind="stable")
    rows = np.concatenate([shown, unmatched])[order]
    count = len(shown)
    numbers = np.concatenate([matches, np.full(len(unmatched), -1, dtype=np.int64)])[order]
    picks = np.where(order < count, order, -1)
    return MatchRows(rows, numbers, [measure.expand().take(picks) for measure in measures])
