"""OVER from UNBOUNDED PRECEDING on a stream: one running state per partition and function instead of its rows."""

import json
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any

import numpy as np

from candlewright_cep import work
from candlewright_cep.binding.expressions import WindowFunction
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.functions.aggregates.aggregates import AGGREGATES
from candlewright_cep.functions.aggregates.folds import FOLDS, Fold, State
from candlewright_cep.limits import Limits
from candlewright_cep.planning.over import Over, Window, peers, takes_frame
from candlewright_cep.planning.relation import arranged
from candlewright_cep.streaming.rows.packing import as_json, unpacked
from candlewright_cep.streaming.rows.release import Rows
from candlewright_cep.streaming.stages.running_percentiles import APPROXIMATE, RunningPercentiles, check_approximate
from candlewright_cep.times import UNITS
from candlewright_cep.vector import Index, Vector, from_list

_FEW = 1_000
_PAST_NS = 2 * UNITS["DAY"]
_MAX_DELAY = 10_000
_MAX_LAG = 10_000
#: Functions without a frame.
_OF_THE_ROW = ("ROW_NUMBER", "LAG")
_BOUNDED = "write ROWS BETWEEN n PRECEDING AND CURRENT ROW"
#: What to write instead of functions that keep every value.
_INSTEAD = {
    "MEDIAN": f"write {APPROXIMATE}(x, 0.5)",
    **dict.fromkeys(["PERCENTILE_CONT", "PERCENTILE_DISC"], f"write {APPROXIMATE}(x, p)"),
}


def _folded(function: WindowFunction) -> Fold:
    if function.name == "ROW_NUMBER" or not function.arguments:
        return FOLDS["COUNT ROWS"]
    if function.name == "LAG":
        return _known_before(function.offset)
    if function.ignores_nulls:
        return FOLDS[function.name]
    # Unlike the aggregates of the same names, the window functions do not ignore NULL.
    if function.name == "FIRST_VALUE":
        return Fold((False, None), lambda state, value: state if state[0] else (True, value), lambda state: state[1])
    if function.name == "LAST_VALUE":
        return Fold((None,), lambda _state, value: (value,), lambda state: state[0])
    return FOLDS[function.name]


def _known_before(offset: int) -> Fold:
    """LAG that skips NULL: the state holds the result and the last non-NULL values."""

    def step(state: State, value: Any, default: Any = None) -> State:
        known = state[1]
        result = known[-offset] if len(known) >= offset else default
        return result, known if value is None else [*known, value][-offset:]

    return Fold((None, []), step, lambda state: state[0])


def too_many_partitions(most: int) -> TriggerRejected:
    return TriggerRejected(
        f"OVER keeps more than {most} partitions at a time", hint="name columns with few values in PARTITION BY"
    )


def running_functions(node: Over) -> tuple[int, ...]:
    """The indexes of the functions that need a running state; empty if the frame has a start.

    Raises TriggerRejected for functions whose state would grow without limit.
    """
    frame = node.window.frame
    is_unbounded = frame.lower.kind == "UNBOUNDED PRECEDING"
    found: list[int] = []
    for place, function in enumerate(node.functions):
        if function.name == "ROW_NUMBER":
            found.append(place)
        elif function.name == "LAG" and function.ignores_nulls and function.offset:
            if function.offset > _MAX_LAG:
                raise node.at.reject(f"LAG with IGNORE NULLS on a stream goes back at most {_MAX_LAG} values")
            found.append(place)
        elif is_unbounded and takes_frame(function):
            if frame.exclude:
                raise node.at.reject(
                    "a frame from UNBOUNDED PRECEDING with EXCLUDE would keep every row of a stream",
                    _BOUNDED,
                )
            if function.name == APPROXIMATE:
                check_approximate(node, function)
            elif function.name == "NTH_VALUE" or (function.name in AGGREGATES and AGGREGATES[function.name].grows):
                raise node.at.reject(
                    f"{function.name} without a bound would keep every value of a stream",
                    _INSTEAD.get(function.name, _BOUNDED),
                )
            delayed = frame.upper.kind == "PRECEDING"
            if delayed and (frame.unit != "ROWS" or frame.upper.amount > _MAX_DELAY):
                raise node.at.reject(
                    f"a frame from UNBOUNDED PRECEDING ends at CURRENT ROW or at most {_MAX_DELAY} ROWS before it"
                )
            found.append(place)
    return tuple(found)


class RunningTotals:
    """The values of `functions` over all rows of their partition so far.

    `feed` takes rows in the order of the window's first key; rows that are equal in it come together. A partition's
    state is the ticker of its last row and, per function, the fold's state and the arguments that it has yet to take if
    the frame ends some rows before the current one; with APPROX_PERCENTILE, then its sketches. Partitions by a time
    (each day's mean) are dropped two days after it.
    """

    def __init__(self, window: Window, functions: Sequence[WindowFunction], limits: Limits) -> None:
        self._window = window
        self._functions = functions
        self._folds = [_folded(function) for function in functions]
        upper = window.frame.upper
        delay = int(upper.amount) if upper.kind == "PRECEDING" else 0
        self._delays = [0 if function.name in _OF_THE_ROW else delay for function in functions]
        self._percentiles = RunningPercentiles(functions)
        self._most = min(limits.partitions, self._percentiles.most_partitions)
        self._states: dict[str, list[Any]] = {}
        self._let_go_at = _FEW

    def feed(self, rows: Rows) -> list[Vector]:
        """One column per function, in the order of `rows`. Raises TriggerRejected for too many partitions."""
        arrangement, bounds, order = arranged(rows.relation, self._window.partition, self._window.order)
        values = arrangement.values(bounds)
        numbers = np.arange(arrangement.length, dtype=np.int64)
        # RANGE ends after the rows that are equal to the current one.
        ends = numbers
        if self._window.frame.unit != "ROWS" and self._window.order and arrangement.length:
            ends = peers(self._window.order, values, bounds, rows=numbers)[1] - 1
        if len(self._states) > self._let_go_at:
            self._let_go(rows)
        states = self._states_of(rows, order[bounds.starts])
        parts = list(zip(states, bounds.starts.tolist(), bounds.ends.tolist(), strict=True))
        results: list[list[Any]] = [[None] * arrangement.length for _ in self._functions]
        for index, function in enumerate(self._functions):
            work.spend(arrangement.length, work.FOLDED_A_STEP)
            if function.name == APPROXIMATE:
                continue
            arguments = [values.value(argument).to_list() for argument in function.arguments]
            given = list(zip(*arguments, strict=True)) if arguments else [(None,)] * arrangement.length
            for state, start, end in parts:
                self._advance(index, state, given, results[index], start, end)
        for place, (column, _) in enumerate(self._percentiles.columns):
            given = values.value(column).to_list()
            for state, start, end in parts:
                self._add(place, state, given, results, start, end)
        columns: list[Vector] = []
        for function, found in zip(self._functions, results, strict=True):
            at = numbers if function.name in _OF_THE_ROW else ends
            back: Index = np.empty_like(order)
            back[order] = at
            columns.append(from_list(function.type, found).take(back))
        return columns

    def _let_go(self, rows: Rows) -> None:
        """Drop partitions whose time is long past for their ticker; checked whenever their number has doubled."""
        columns = enumerate(self._window.partition)
        times = [place for place, index in columns if rows.relation.column(index).type.is_time]
        if times:
            of_key = {key: [unpacked(key)[place] or 0 for place in times] for key in self._states}
            newest: dict[str, list[int]] = {}
            for key, values in of_key.items():
                ticker = self._states[key][0]
                newest[ticker] = [max(pair) for pair in zip(newest.get(ticker, values), values, strict=True)]
            self._states = {
                key: state
                for key, state in self._states.items()
                if all(n - v <= _PAST_NS for n, v in zip(newest[state[0]], of_key[key], strict=True))
            }
        self._let_go_at = max(_FEW, 2 * len(self._states))

    def _states_of(self, rows: Rows, firsts: Index) -> list[list[Any]]:
        """The states of partitions, new ones for new partitions."""
        parts = [rows.relation.column(index).take(firsts).to_list() for index in self._window.partition]
        tickers = [rows.ticker[row].as_py() for row in firsts.tolist()]
        keys = [json.dumps([part[place] for part in parts], default=as_json) for place in range(len(tickers))]
        if self._has_too_many(keys):
            self._let_go(rows)
            if self._has_too_many(keys):
                raise too_many_partitions(self._most)
        found: list[list[Any]] = []
        for key, ticker in zip(keys, tickers, strict=True):
            state = self._states.get(key)
            if state is None:
                state = self._states[key] = ["", [fold.initial for fold in self._folds], [[] for _ in self._folds]]
                if self._percentiles.columns:
                    state.append(self._percentiles.new())
            state[0] = ticker or ""
            found.append(state)
        return found

    def _has_too_many(self, reached: Sequence[str]) -> bool:
        return len(self._states) + sum(key not in self._states for key in reached) > self._most

    def _advance(
        self, index: int, state: list[Any], given: Sequence[Any], found: list[Any], start: int, end: int
    ) -> None:
        fold, delay, waiting = self._folds[index], self._delays[index], state[2][index]
        current = state[1][index]
        for row in range(start, end):
            arguments = given[row]
            if delay:
                waiting.append(arguments)
                arguments = waiting.pop(0) if len(waiting) > delay else None
            if arguments is not None:
                current = fold.step(current, *arguments)
            found[row] = fold.result(current)
        state[1][index] = current

    def _add(
        self, place: int, state: list[Any], given: Sequence[Any], results: Sequence[list[Any]], start: int, end: int
    ) -> None:
        """As `_advance`, for all functions over one column of percentiles."""
        wanted = self._percentiles.columns[place][1]
        first = wanted[0][0]
        percentiles, delay, waiting = state[3][place].percentiles, self._delays[first], state[2][first]
        for row in range(start, end):
            value = given[row]
            if delay:
                waiting.append((value,))
                value = waiting.pop(0)[0] if len(waiting) > delay else None
            percentiles.add(value)
            for index, part in wanted:
                results[index][row] = percentiles.at(part)

    @property
    def partitions(self) -> int:
        return len(self._states)

    def drop(self, tickers: Set[str]) -> None:
        self._states = {key: state for key, state in self._states.items() if state[0] not in tickers}

    def snapshot(self, chunks: dict[int, bytes] | None = None) -> dict[str, list[Any]]:
        """`chunks`: see `RunningPercentiles.written`."""
        if not self._percentiles.columns:
            return self._states
        return {
            key: [*state, self._percentiles.written(sketches, chunks)]
            for key, (*state, sketches) in self._states.items()
        }

    def restore(self, states: dict[str, list[Any]], chunks: Mapping[int, bytes] = MappingProxyType({})) -> None:
        """Raises ValueError if a chunk of the state is missing."""
        self._states = {
            key: [
                ticker,
                [tuple(part) for part in folds],
                [[tuple(row) for row in queue] for queue in waiting],
                *(self._percentiles.read(written, chunks) for written in sketches),
            ]
            for key, (ticker, folds, waiting, *sketches) in states.items()
        }
