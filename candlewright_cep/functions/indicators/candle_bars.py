"""Building blocks of candle patterns: the bar some rows back, its parts, and their usual length.

Long, short and near are relative to the preceding bars: the mean of their bodies, ranges or shadows, times a factor.
The settings are TA-Lib's defaults (https://ta-lib.org).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from candlewright_cep.functions.indicators.indicator import Argument, Indicator
from candlewright_cep.functions.indicators.series import Series, Walk
from candlewright_cep.functions.usage import Extent
from candlewright_cep.vector import Bools

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Measure:
    """`factor` times the mean of a part over the preceding `bars` bars; over the bar itself if `bars` is 0."""

    part: str
    bars: int
    factor: float


LONG = SHORT = Measure("body", 10, 1.0)
DOJI = VERY_SHORT_SHADOW = Measure("range", 10, 0.1)
#: The sum of both shadows, half of which is the mean length of one shadow.
SHORT_SHADOW = Measure("shadows", 10, 0.5)
LONG_SHADOW = Measure("body", 0, 1.0)
VERY_LONG_SHADOW = Measure("body", 0, 2.0)
NEAR = Measure("range", 5, 0.2)
FAR = Measure("range", 5, 0.6)
EQUAL = Measure("range", 5, 0.05)


class Bars:
    """The bars of a walk. Patterns must look back in a fixed order, because a walk identifies its state by the order of
    calls.
    """

    def __init__(self, walk: Walk, open_: Series, high: Series, *, low: Series, close: Series) -> None:
        self._walk = walk
        self._series = (open_, high, low, close)
        self._known: dict[int, Bar] = {}
        self._totals: dict[tuple[str, int], Series] = {}
        self._means: dict[tuple[str, int, int], Floats] = {}
        self.now = self.back(0)

    def back(self, count: int) -> "Bar":
        if count not in self._known:
            series = self._series if not count else [self._walk.back(one, count) for one in self._series]
            open_, high, low, close = (one.values for one in series)
            self._known[count] = Bar(self, count, open_, high=high, low=low, close=close)
        return self._known[count]

    def last(self, count: int) -> "list[Bar]":
        """The last `count` bars, the oldest first."""
        return [self.back(place) for place in range(count - 1, -1, -1)]

    def usual(self, measure: Measure, bar: "Bar") -> Floats:
        """The measure for `bar`, over the bars that precede it."""
        if not measure.bars:
            return measure.factor * bar.part(measure.part)
        of = (measure.part, measure.bars)
        if of not in self._totals:
            self._totals[of] = self._walk.total(Series(self.now.part(measure.part)), measure.bars)
        at = (*of, bar.count)
        if at not in self._means:
            self._means[at] = self._walk.back(self._totals[of], 1 + bar.count).values / measure.bars
        return measure.factor * self._means[at]


class Bar:
    """The bars `count` rows back, one for each row."""

    def __init__(self, bars: Bars, count: int, open_: Floats, *, high: Floats, low: Floats, close: Floats) -> None:
        self._bars = bars
        self.count = count
        self.open, self.high, self.low, self.close = open_, high, low, close
        self.top: Floats = np.maximum(open_, close)
        self.bottom: Floats = np.minimum(open_, close)
        self.body: Floats = np.abs(close - open_)
        self.upper, self.lower, self.range = high - self.top, self.bottom - low, high - low
        self.rises: Bools = close >= open_
        self.falls: Bools = ~self.rises

    def part(self, name: str) -> Floats:
        if name == "shadows":
            return self.range - self.body
        return self.body if name == "body" else self.range

    def usual(self, measure: Measure) -> Floats:
        return self._bars.usual(measure, self)

    @property
    def sign(self) -> Floats:
        """1 where the bar rises, -1 where it falls."""
        return np.where(self.rises, 1.0, -1.0)

    @property
    def is_long(self) -> Bools:
        return self.body > self.usual(LONG)

    @property
    def is_small(self) -> Bools:
        """At most as long as usual."""
        return self.body <= self.usual(SHORT)

    @property
    def is_short(self) -> Bools:
        return self.body < self.usual(SHORT)

    @property
    def is_doji(self) -> Bools:
        return self.body <= self.usual(DOJI)

    @property
    def has_no_upper(self) -> Bools:
        return self.upper < self.usual(VERY_SHORT_SHADOW)

    @property
    def has_no_lower(self) -> Bools:
        return self.lower < self.usual(VERY_SHORT_SHADOW)

    @property
    def has_no_shadows(self) -> Bools:
        short = self.usual(VERY_SHORT_SHADOW)
        return (self.upper < short) & (self.lower < short)

    def is_above(self, other: "Bar") -> Bools:
        """Whether this body is entirely above the other body."""
        return self.bottom > other.top

    def is_below(self, other: "Bar") -> Bools:
        return self.top < other.bottom

    def opens_in(self, other: "Bar") -> Bools:
        """Whether the open is strictly inside the other's body."""
        return (self.open < other.top) & (self.open > other.bottom)


def chosen(condition: Bools, if_so: Bools, if_not: Bools) -> Bools:
    found: Bools = np.where(condition, if_so, if_not)
    return found


def within(value: Floats, centre: Floats, reach: Floats) -> Bools:
    found: Bools = (value <= centre + reach) & (value >= centre - reach)
    return found


@dataclass(frozen=True, slots=True)
class Found:
    """`compute` takes the bars and, of a penetration, the share of the first body that the last bar must take back;
    its results are 0 or one of `values`.
    """

    compute: Callable[..., Floats]
    values: tuple[float, ...] = (-100.0, 100.0)


def is_(condition: Callable[..., Bools], value: float = 100.0) -> Found:
    """`value` where the condition holds, otherwise 0."""
    return Found(lambda bars, *numbers: np.where(condition(bars, *numbers), value, 0.0), (value,))


def signed(condition: Callable[[Bars], Bools], bar: int = 0, sign: float = 1.0) -> Found:
    """100 or -100, by the colour of the bar `count` rows back, where the condition holds."""
    return Found(lambda bars: np.where(condition(bars), 100.0 * sign * bars.back(bar).sign, 0.0))


def candle(name: str, found: Found, start: int, *, text: str, penetration: float | None = None) -> Indicator:
    """Declare a pattern. `start`: the first row with a value. `penetration`: the default of the optional number after
    the columns.
    """

    def compute(walk: Walk, open_: Series, high: Series, low: Series, close: Series, *numbers: float) -> Series:
        given = numbers if penetration is None else (numbers or (penetration,))
        return Series(found.compute(Bars(walk, open_, high, low=low, close=close), *given), start)

    taken = () if penetration is None else (Argument("penetration", 0, 10, False, penetration, is_optional=True),)
    columns = ("open", "high", "low", "close")
    values = Extent(only=(0.0, *found.values))
    return Indicator(f"CDL_{name}", columns, taken, compute, text, values)
