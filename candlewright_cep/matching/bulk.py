"""Finds all matches of many rows at once, if conditions are local and matching continues after each match.

Both passes of the linear search (see `automaton`) are runs of a small deterministic automaton, and such runs can be cut
into blocks: all blocks advance together, row by row, each from the state that the preceding rows lead to. This is numpy
work on columns with one entry per block, whatever the data and the pattern.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from candlewright_cep.binding.evaluation import Bounds
from candlewright_cep.matching.automaton import State
from candlewright_cep.matching.search import MappedLimit, Matches, SearchPlan
from candlewright_cep.vector import Array, Bools, Index, ranges

#: With fewer rows than this, the row-by-row search is as fast.
FEWEST_ROWS = 4_000
_STATES = 40
_MASKS = 64
#: After this many rows, an automaton has usually forgotten the state that it began in.
_FORGOTTEN = 32

Numbers = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Together:
    """The result: matches in the order of their rows, numbered from 1 in each partition; the partition of each match;
    and for each partition the start of the attempt that further rows decide, or -1, and the place that it has come to.
    """

    matches: Matches
    partitions: Index
    undecided: Index
    places: Index


class BulkSearch:
    """The search of one plan over the rows of many partitions, none of which has an open attempt.

    `is_whole`: no further rows follow. Otherwise an attempt that reaches the last row is undecided.
    """

    def __init__(self, plan: SearchPlan, *, is_whole: bool) -> None:
        self._plan = plan
        self._is_whole = is_whole
        self._tables: _Tables | None = None
        self.is_possible = plan.is_linear and plan.skip.kind == "PAST LAST"

    def suits(self, rows: int) -> bool:
        """Whether this search, if it is possible, is faster for this many rows than the row-by-row one."""
        return self.is_possible and rows >= max(1, FEWEST_ROWS)

    def find(self, masks: Array, bounds: Bounds) -> Together | None:
        """None if the plan is of another kind, or the automaton is too large. Raises MappedLimit."""
        tables = self._tables_for(masks) if self.is_possible else None
        if tables is None:
            return None
        # A separator follows each partition: it ends matches, and its successor state is known.
        separators = bounds.ends + np.arange(len(bounds.ends))
        inside = np.ones(len(masks) + len(separators), np.bool_)
        inside[separators] = False
        symbols = np.full(len(inside), tables.separator, np.uint8)
        symbols[inside] = tables.coded(masks)
        steps = _traced(tables.before, symbols[::-1], 0)[::-1]
        tables.fill(np.flatnonzero(np.bincount(steps, minlength=tables.before.size)))
        cells = _traced(tables.then, steps, 0)
        labels = tables.labels.take(cells)
        starts = np.flatnonzero(tables.starts.take(cells))
        attempts = np.full(len(separators), -1, np.int64)
        if not self._is_whole:
            # A partition that ends at a place other than the start ends inside an attempt.
            inside_one = cells[separators] >= tables.before.size
            attempts[inside_one] = np.searchsorted(starts, separators[inside_one]) - 1
        places = cells[separators].astype(np.int64) // tables.before.size
        return self._together(labels, starts, bounds, attempts, places=places)

    def _tables_for(self, masks: Array) -> "_Tables | None":
        found = _distinct(masks)
        known = self._tables.masks if self._tables is not None else found[:0]
        if self._tables is None or not bool(np.isin(found, known).all()):
            together = np.union1d(known, found)
            if len(together) > _MASKS:
                self.is_possible = False
                return None
            automaton = self._plan.automaton
            end = automaton.ended() if self._is_whole else automaton.everything
            self._tables = _Tables(together, end, automaton.places)
        self.is_possible = self._tables.is_small
        return self._tables if self.is_possible else None

    def _together(self, labels: Array, starts: Index, bounds: Bounds, attempts: Index, *, places: Index) -> Together:
        mapped = labels >= 0
        lengths = np.add.reduceat(mapped, starts, dtype=np.int64) if len(starts) else starts
        # The rows of partition p are followed by p + 1 separators.
        partitions = np.searchsorted(bounds.ends + np.arange(len(bounds.ends)), starts)
        rows = starts - partitions
        undecided = np.full(len(attempts), -1, np.int64)
        dropped = attempts[attempts >= 0]
        if len(dropped):
            undecided[attempts >= 0] = rows[dropped]
            mapped[ranges(starts[dropped], lengths[dropped])] = False
            kept = np.ones(len(starts), np.bool_)
            kept[dropped] = False
            rows, lengths, partitions = rows[kept], lengths[kept], partitions[kept]
        if int(lengths.sum()) > self._plan.limits.mapped_rows:
            raise MappedLimit(self._plan.limits.mapped_rows)
        firsts = np.searchsorted(partitions, np.arange(len(attempts)))
        numbers = np.arange(1, len(rows) + 1) - firsts[partitions]
        return Together(Matches.decided(rows, lengths, numbers, labels=labels[mapped]), partitions, undecided, places)


def _distinct(masks: Array) -> Array:
    return np.flatnonzero(np.bincount(masks, minlength=256)) if masks.dtype == np.uint8 else np.unique(masks)


class _Tables:
    """Two automata, as tables, over rows whose masks are in `masks`.

    `before[state, symbol]` is the state before a row, given the state after it; a symbol is the index of the row's
    mask, or `separator`. State 0 is the end of a partition. A state and a symbol are a step, whose number is their cell
    in `before`. `then[place, step]` is the next place in the pattern; place 0 is before a match. `labels` (-1: the row
    is in no match) and `starts` (whether a match starts here) have one entry per cell of `then`.
    """

    def __init__(self, masks: Array, end: State, places: int) -> None:
        self.masks = masks
        self.separator = len(masks)
        self._states, rows = _reached(end, masks.tolist())
        self.is_small = len(self._states) <= _STATES and places <= _STATES
        if not self.is_small:
            return
        self.before = np.array([[*row, 0] for row in rows], np.intp)
        shape = places, self.before.size
        self.then = np.zeros(shape, np.intp)
        self.labels = np.full(shape, -1, np.int16)
        self.starts = np.zeros(shape, np.bool_)
        self._filled = np.zeros(self.before.size, np.bool_)
        self._filled[self.separator :: self.separator + 1] = True

    def coded(self, masks: Array) -> Array:
        """The symbol of each mask."""
        if masks.dtype != np.uint8:
            return np.searchsorted(self.masks, masks)
        symbols = np.zeros(256, np.uint8)
        symbols[self.masks] = np.arange(self.separator)
        return symbols.take(masks)

    def fill(self, steps: Index) -> None:
        """Fill in the successors of these steps; steps that never occur are left out."""
        for number in steps[~self._filled[steps]].tolist():
            self._filled[number] = True
            state, symbol = divmod(number, self.separator + 1)
            step = self._states[state][int(self.masks[symbol])]
            for place in range(len(self.then)):
                label, then = step.best[place] if place else (-1, 0)
                if label < 0 and step.startable:
                    # No match, or one that ended before this row: another starts, which may be empty.
                    label, then = step.best[0]
                    self.starts[place, number] = True
                if label >= 0:
                    self.labels[place, number], self.then[place, number] = label, then


def _reached(end: State, masks: Sequence[int]) -> tuple[list[State], list[list[int]]]:
    """The states before rows with these masks, going back from the end of a partition; and for each state, which state
    a row with each mask leads to.
    """
    numbers = {end.bits: 0}
    found, rows = [end], []
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
    return found, rows


def _traced(table: Index, symbols: Numbers, first: int) -> Numbers:
    """For each symbol, the cell (state before it, symbol) of `table`, which holds the state after it."""
    states, kinds = table.shape
    flat = table.ravel() * kinds
    length = max(64, int(np.sqrt(len(symbols) / 2)))
    blocks = -(-len(symbols) // length)
    padded = np.zeros(blocks * length, symbols.dtype)
    padded[: len(symbols)] = symbols
    columns = np.ascontiguousarray(padded.reshape(blocks, length).T)
    state = _begins(flat, columns, states, first * kinds)
    cell = np.empty(blocks, np.intp)
    found = np.empty((length, blocks), np.min_scalar_type(table.size))
    for place, column in enumerate(columns):
        np.add(state, column, out=cell)
        found[place] = cell
        flat.take(cell, out=state, mode="clip")
    traced: Numbers = found.T.reshape(-1)[: len(symbols)]
    return traced


def _begins(flat: Index, columns: Numbers, states: int, first: int) -> Index:
    """The state in which each block begins, which is the one that the preceding block ends in."""
    ends = _ends(flat, columns[-_FORGOTTEN:], states)
    forgetful: Bools = (ends == ends[0]).all(axis=0)
    begins: Index = np.concatenate([np.array([first], np.intp), ends[0, :-1]])
    if forgetful[:-1].all():
        return begins
    # Blocks whose end depends on their beginning advance from every state.
    others = np.flatnonzero(~forgetful[:-1])
    kinds = len(flat) // states
    after = _ends(flat, columns[:, others], states)
    for place, block in enumerate(others.tolist()):
        begins[block + 1] = after[begins[block] // kinds, place]
    return begins


def _ends(flat: Index, columns: Numbers, states: int) -> Index:
    """The state in which each block ends, from each of the given states."""
    kinds = len(flat) // states
    ends: Index = np.broadcast_to(np.arange(states, dtype=np.intp)[:, None] * kinds, (states, columns.shape[1]))
    for column in columns:
        ends = flat[ends + column]
    return ends
