"""All matches of a large finished input at once, where conditions are local and matching goes on behind each match.

Both passes of the linear search (see `automaton`) are runs of a small deterministic automaton, and such runs can be cut
into blocks: all blocks go on together, row by row, from every state that they might begin in; then the blocks are
joined. That is numpy work on columns as wide as there are blocks, whatever the data and the pattern.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cep.automaton import Automaton, State, Step
from cep.evaluation import Bounds
from cep.search import Found, SearchPlan, WorkLimit
from cep.vector import Array, Index

#: Below this many rows the search row by row is as fast.
FEWEST_ROWS = 20_000
_STATES = 40
_MASKS = 64

Numbers = NDArray[np.signedinteger[Any]]


def find_in_bulk(plan: SearchPlan, masks: Array, bounds: Bounds) -> Found | None:
    """None where the plan or its automaton is none of this kind. Raises WorkLimit."""
    if not plan.is_linear or plan.skip.kind != "PAST LAST" or len(masks) < max(1, FEWEST_ROWS):
        return None
    known, codes = _coded(masks)
    if len(known) > _MASKS:
        return None
    backward = _Backward(plan.automaton, known)
    if backward.states is None:
        return None
    # A separator stands behind each partition: matches end there, and what can follow is known.
    rows = _with_separators(codes, bounds, len(known))
    behind = _traced(backward.table(), rows[::-1], 0)[::-1]
    pairs = behind * (len(known) + 1) + rows
    pairs[rows == len(known)] = len(known)
    used, symbols = _dense(pairs, _STATES * (len(known) + 1))
    steps = [backward.step(*divmod(pair, len(known) + 1)) for pair in used.tolist()]
    tables = _Forward(steps, backward.places)
    if tables.size > _STATES:
        return None
    places = _traced(tables.then, symbols, 0)
    labels, starts = tables.label[places, symbols], np.flatnonzero(tables.starts[places, symbols])
    mapped = labels >= 0
    if int(np.count_nonzero(mapped)) > plan.limits.mapped_rows:
        raise WorkLimit
    return _found(labels, mapped, starts, bounds)


def _coded(masks: Array) -> tuple[list[int], Numbers]:
    if masks.dtype == np.uint8:
        known, codes = _dense(masks, 256)
    else:
        known, codes = np.unique(masks, return_inverse=True)
    return known.tolist(), codes


def _dense(values: Array, limit: int) -> tuple[Array, Numbers]:
    """The distinct values in order, and the place of each value among them. Values lie below `limit`."""
    known = np.flatnonzero(np.bincount(values, minlength=limit))
    numbers = np.zeros(limit, np.int32)
    numbers[known] = np.arange(len(known))
    return known, numbers[values]


def _with_separators(codes: Numbers, bounds: Bounds, separator: int) -> Numbers:
    found = np.full(len(codes) + len(bounds.ends), separator, np.int32)
    sizes = bounds.ends - bounds.starts
    found[np.arange(len(codes)) + np.repeat(np.arange(len(sizes)), sizes)] = codes
    return found


class _Backward:
    """The states that hold behind rows with these masks, from the end of a partition on. State 0 is the end."""

    def __init__(self, automaton: Automaton, masks: Sequence[int]) -> None:
        self._masks = masks
        self._automaton = automaton
        self.places = 0
        numbers: dict[int, int] = {}
        found: list[State] = [automaton.ended()]
        numbers[found[0].bits] = 0
        rows: list[list[int]] = []
        for state in found:
            row = []
            for mask in masks:
                before = state[mask].before
                if before.bits not in numbers:
                    numbers[before.bits] = len(found)
                    found.append(before)
                row.append(numbers[before.bits])
            rows.append(row)
            if len(found) > _STATES:
                break
        self._rows = rows
        self.states = found if len(found) <= _STATES else None
        self.places = automaton.places

    def table(self) -> Numbers:
        return np.array([[*row, 0] for row in self._rows], np.intp)

    def step(self, state: int, mask: int) -> Step | None:
        """None for a separator."""
        assert self.states is not None
        return None if mask == len(self._masks) else self.states[state][self._masks[mask]]


class _Forward:
    """Per place and step: the next place, the label (-1: the row is in no match), whether a match starts here."""

    def __init__(self, steps: Sequence[Step | None], places: int) -> None:
        self.size = places
        shape = (places, len(steps))
        self.then, self.label = np.zeros(shape, np.intp), np.full(shape, -1, np.int64)
        self.starts = np.zeros(shape, np.bool_)
        for number, step in enumerate(steps):
            if step is None:
                continue
            for place in range(places):
                label, then = step.best[place] if place else (-1, 0)
                if label < 0 and step.startable:
                    # No match, or one that ended before this row: another starts, which may be empty.
                    label, then = step.best[0]
                    self.starts[place, number] = True
                if label >= 0:
                    self.label[place, number], self.then[place, number] = label, then


def _traced(table: Numbers, symbols: Numbers, first: int) -> Numbers:
    """The state before each symbol, from `first` before the first one. `table[state, symbol]` is the next state."""
    states, kinds = table.shape
    flat = table.ravel() * kinds
    length = max(64, int(np.sqrt(len(symbols) / 2)))
    blocks = -(-len(symbols) // length)
    padded = np.zeros(blocks * length, np.int32)
    padded[: len(symbols)] = symbols
    columns = np.ascontiguousarray(padded.reshape(blocks, length).T)
    ends = np.broadcast_to(np.arange(states, dtype=np.intp)[:, None] * kinds, (states, blocks))
    for column in columns:
        ends = flat[ends + column]
    begins = np.empty(blocks, np.intp)
    current = first
    for block, after in enumerate((ends // kinds).T.tolist()):
        begins[block] = current
        current = after[current]
    found = np.empty((length, blocks), np.int32)
    state = begins * kinds
    for place, column in enumerate(columns):
        found[place] = state
        state = flat[state + column]
    traced: Numbers = (found // np.int32(kinds)).T.reshape(-1)[: len(symbols)]
    return traced


def _found(labels: Index, mapped: NDArray[np.bool_], starts: Index, bounds: Bounds) -> Found:
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(mapped)])
    ends = np.append(starts[1:], len(labels))[: len(starts)]
    partitions = np.arange(len(bounds.ends))
    # Behind the rows of partition p there are p + 1 separators.
    of_match = np.searchsorted(bounds.ends + partitions, starts)
    firsts = np.searchsorted(of_match, partitions)
    numbers = np.arange(len(starts)) - firsts[of_match] + 1 if len(starts) else starts
    return Found(
        (starts - of_match).tolist(),
        (before[ends] - before[starts]).tolist(),
        numbers.tolist(),
        labels[mapped].tolist(),
    )
