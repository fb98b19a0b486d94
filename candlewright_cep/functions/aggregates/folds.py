"""Aggregates computed one row at a time, for conditions. State is immutable, and each step takes O(1) time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from candlewright_cep import work
from candlewright_cep.functions import decimals
from candlewright_cep.functions.aggregates import moments, quantiles
from candlewright_cep.functions.aggregates.lists import KEPT_IF
from candlewright_cep.limits import MADE_TEXT

State = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """`step(state, *arguments)` returns the next state, `result(state)` the value (None = NULL)."""

    initial: State
    step: Callable[..., State]
    result: Callable[[State], Any]


_INT64 = 2**63


def _count_rows(state: State, _nothing: Any) -> State:
    return (state[0] + 1,)


def _count(state: State, value: Any) -> State:
    return state if value is None else (state[0] + 1,)


def _kept(values: frozenset[Any], value: Any) -> frozenset[Any]:
    """A copy with one more value, because earlier states must not change. All NaN count as one value."""
    value = "NaN" if value != value else value
    if value in values:
        return values
    work.spend(len(values), work.FOLDED_A_STEP)
    return values | {value}


def _distinct(state: State, value: Any) -> State:
    return state if value is None else (_kept(state[0], value),)


def _gathered(state: State, value: Any) -> State:
    values = state[0] or ()
    work.spend(len(values))
    return ((*values, value),)


def _count_if(state: State, value: Any) -> State:
    return (state[0] + 1,) if value is True else state


def _sum(state: State, value: Any) -> State:
    if value is None:
        return state
    if isinstance(value, Decimal):
        return (decimals.added(state[0] or 0, value),)
    return (value if state[0] is None else state[0] + value,)


def _sum_result(state: State) -> Any:
    total = state[0]
    if isinstance(total, Decimal):
        return decimals.sum_result(total)
    return None if isinstance(total, int) and not -_INT64 <= total < _INT64 else total


def _average(state: State, value: Any) -> State:
    if isinstance(value, Decimal):
        return state[0] + 1, decimals.added(state[1] if state[0] else 0, value)
    return state if value is None else (state[0] + 1, state[1] + float(value))


def _average_result(state: State) -> Any:
    if isinstance(state[1], Decimal):
        return decimals.mean_result(state[1], state[0])
    return state[1] / state[0] if state[0] else None


def _minimum(state: State, value: Any) -> State:
    """The result is NaN only if every value is NaN."""
    least = state[0]
    return state if value is None or not (least is None or least != least or value < least) else (value,)


def _maximum(state: State, value: Any) -> State:
    most = state[0]
    return state if value is None or not (most is None or most != most or value > most) else (value,)


def _moments(state: State, value: Any) -> State:
    if value is None:
        return state
    count, mean, spread = state
    apart = value - mean
    mean += apart / (count + 1)
    return count + 1, mean, spread + apart * (value - mean)


def _spread(*, sample: bool, root: bool) -> Callable[[State], Any]:
    def result(state: State) -> Any:
        size = state[0] - 1 if sample else state[0]
        if size <= 0:
            return None
        variance = state[2] / size
        return max(variance, 0.0) ** 0.5 if root else variance

    return result


def _extreme_by(*, largest: bool) -> Callable[..., State]:
    def step(state: State, value: Any, key: Any) -> State:
        if key is None:
            return state
        if state[1] is None or (key > state[1] if largest else key < state[1]):
            return value, key
        return state

    return step


def _any_value(state: State, value: Any) -> State:
    return state if state[0] is not None else (value,)


def _last_value(state: State, value: Any) -> State:
    return state if value is None else (value,)


def _of_distinct(step: Callable[..., State]) -> Callable[..., State]:
    """The last element of the state holds the values seen so far."""

    def run(state: State, value: Any) -> State:
        if value is None or (values := _kept(state[-1], value)) is state[-1]:
            return state
        return (*step(state[:-1], value), values)

    return run


def _joined(state: State, value: Any, separator: Any) -> State:
    if value is None:
        return state
    return ((value if state[0] is None else state[0] + (separator or "") + value)[:MADE_TEXT],)


def _row_kept(state: State, *row: Any) -> State:
    work.spend(len(state[0]))
    return ((*state[0], row),)


def _ordered(rows: Sequence[State], count: int) -> Sequence[State]:
    """Rows of `count` values and pairs of a key and its direction (1 for descending, plus 2 for NULLs first;
    KEPT_IF for a condition).
    """
    work.spend(len(rows), work.FOLDED_A_STEP)
    for place in range(len(rows[0]) - 2, count - 1, -2) if rows else ():
        if rows and rows[0][place + 1] == KEPT_IF:
            rows = [row for row in rows if row[place] is True]
        if not rows or rows[0][place + 1] == KEPT_IF:
            continue
        direction = rows[0][place + 1]
        known = [row for row in rows if row[place] is not None]
        known.sort(key=lambda row: _sortable(row[place]), reverse=bool(direction & 1))
        missing = [row for row in rows if row[place] is None]
        rows = [*missing, *known] if direction & 2 else [*known, *missing]
    return rows


def _sortable(value: Any) -> tuple[int, Any]:
    """NaN is greater than every number."""
    return (0, value) if value == value else (1, 0)


def _ordered_array(state: State) -> Any:
    return tuple(row[0] for row in _ordered(state[0], 1)) or None


def _ordered_text(state: State) -> Any:
    text: State = (None,)
    for value, separator, *_ in _ordered(state[0], 2):
        text = _joined(text, value, separator)
    return text[0]


def _logarithms(state: State, value: Any) -> State:
    if value is None:
        return state
    with np.errstate(all="ignore"):
        return state[0] + 1, state[1] + float(np.log(value))


def _geometric(state: State) -> Any:
    with np.errstate(all="ignore"):
        return float(np.exp(state[1] / state[0])) if state[0] else None


def _weighted(state: State, price: Any, size: Any) -> State:
    return state if price is None or size is None else (state[0] + price * size, state[1] + size)


def _first(state: State) -> Any:
    return state[0]


_CONTINUOUS, _DISCRETE = quantiles.Quantile(is_continuous=True), quantiles.Quantile(is_continuous=False)
FOLDS: dict[str, Fold] = {
    "MEDIAN": Fold(((), 0.5), _CONTINUOUS.step, _CONTINUOUS.result),
    "PERCENTILE_CONT": Fold(((), 0.5), _CONTINUOUS.step, _CONTINUOUS.result),
    **dict.fromkeys(["PERCENTILE_DISC", "APPROX_PERCENTILE"], Fold(((), 0.5), _DISCRETE.step, _DISCRETE.result)),
    "MODE": Fold(((),), quantiles.count_value, quantiles.most_counted),
    "ARRAY_AGG": Fold((None,), _gathered, _first),
    "COUNT_DISTINCT": Fold((frozenset(),), _distinct, lambda state: len(state[0])),
    "COUNT ROWS": Fold((0,), _count_rows, _first),
    "COUNT": Fold((0,), _count, _first),
    "COUNT_IF": Fold((0,), _count_if, _first),
    "SUM": Fold((None,), _sum, _sum_result),
    "AVG": Fold((0, 0.0), _average, _average_result),
    "MIN": Fold((None,), _minimum, _first),
    "MAX": Fold((None,), _maximum, _first),
    "BOOL_AND": Fold((None,), _minimum, _first),
    "BOOL_OR": Fold((None,), _maximum, _first),
    "ANY_VALUE": Fold((None,), _any_value, _first),
    "FIRST_VALUE": Fold((None,), _any_value, _first),
    "LAST_VALUE": Fold((None,), _last_value, _first),
    "SUM_DISTINCT": Fold((None, frozenset()), _of_distinct(_sum), _sum_result),
    "AVG_DISTINCT": Fold((0, 0.0, frozenset()), _of_distinct(_average), _average_result),
    "MAX_BY": Fold((None, None), _extreme_by(largest=True), _first),
    "MIN_BY": Fold((None, None), _extreme_by(largest=False), _first),
    "VWAP": Fold((0.0, 0.0), _weighted, lambda state: state[0] / state[1] if state[1] else None),
    "GEOMETRIC_MEAN": Fold((0, 0.0), _logarithms, _geometric),
    "VAR_POP": Fold((0, 0.0, 0.0), _moments, _spread(sample=False, root=False)),
    "VAR_SAMP": Fold((0, 0.0, 0.0), _moments, _spread(sample=True, root=False)),
    "STDDEV_POP": Fold((0, 0.0, 0.0), _moments, _spread(sample=False, root=True)),
    "STDDEV_SAMP": Fold((0, 0.0, 0.0), _moments, _spread(sample=True, root=True)),
    **{name: Fold(moments.EMPTY, moments.step, result) for name, (result, _) in moments.RESULTS.items()},
    "ARRAY_AGG ORDERED": Fold(((),), _row_kept, _ordered_array),
    "STRING_AGG ORDERED": Fold(((),), _row_kept, _ordered_text),
    "STRING_AGG": Fold((None,), _joined, _first),
}
