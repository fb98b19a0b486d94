"""Aggregates of two numbers, one row at a time: covariance, correlation and the regression line.

The state is (count, mean of y, mean of x, and the sums of squared and mixed deviations from the means), updated by
Welford's recurrence, which is numerically stable. Rows where either number is NULL are ignored.
"""

from collections.abc import Callable
from typing import Any

State = tuple[Any, ...]

EMPTY: State = (0, 0.0, 0.0, 0.0, 0.0, 0.0)


def step(state: State, y: Any, x: Any) -> State:
    if y is None or x is None:
        return state
    count, mean_y, mean_x, squares_y, squares_x, mixed = state
    count += 1
    apart_y, apart_x = y - mean_y, x - mean_x
    mean_y += apart_y / count
    mean_x += apart_x / count
    return (
        count,
        mean_y,
        mean_x,
        squares_y + apart_y * (y - mean_y),
        squares_x + apart_x * (x - mean_x),
        mixed + apart_y * (x - mean_x),
    )


def _covariance(less: int) -> Callable[[State], float | None]:
    return lambda state: state[5] / (state[0] - less) if state[0] > less else None


def _correlation(state: State) -> float | None:
    spread = (state[3] * state[4]) ** 0.5
    return state[5] / spread if spread > 0 else None


def _slope(state: State) -> float | None:
    return state[5] / state[4] if state[4] > 0 else None


def _intercept(state: State) -> float | None:
    slope = _slope(state)
    return None if slope is None else state[1] - slope * state[2]


RESULTS: dict[str, tuple[Callable[[State], float | None], str]] = {
    "COVAR_POP": (_covariance(0), "population covariance"),
    "COVAR_SAMP": (_covariance(1), "sample covariance"),
    "CORR": (_correlation, "correlation, -1 to 1"),
    "REGR_SLOPE": (_slope, "slope of the least squares line of y by x"),
    "REGR_INTERCEPT": (_intercept, "where that line has x = 0"),
}
