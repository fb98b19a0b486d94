"""Candle patterns of one to three bars, with TA-Lib's answers: 100 for one that turns up, -100 down, 0 for none.

What is long, short or near is measured by the bars before: the mean of their bodies, ranges or shadows, times a factor.
The settings are TA-Lib's defaults. 80 instead of 100 says that two bodies share an end.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from candlewright_cep.functions.indicator import Indicator
from candlewright_cep.functions.series import Series, Walk
from candlewright_cep.vector import Array, Bools


@dataclass(frozen=True, slots=True)
class _Measure:
    """What a size is compared with: `factor` times the mean of a part of so many bars before."""

    part: str
    bars: int
    factor: float


_BODY_LONG = _BODY_SHORT = _Measure("body", 10, 1.0)
_BODY_DOJI = _SHADOW_VERY_SHORT = _Measure("range", 10, 0.1)
_NEAR = _Measure("range", 5, 0.2)


@dataclass(slots=True)
class _Bar:
    """The bar some rows back."""

    open: Array
    high: Array
    low: Array
    close: Array

    @property
    def body(self) -> Array:
        found: Array = np.abs(self.close - self.open)
        return found

    @property
    def top(self) -> Array:
        return np.maximum(self.open, self.close)

    @property
    def bottom(self) -> Array:
        return np.minimum(self.open, self.close)

    @property
    def upper(self) -> Array:
        return self.high - self.top

    @property
    def lower(self) -> Array:
        return self.bottom - self.low

    @property
    def range(self) -> Array:
        return self.high - self.low

    @property
    def rises(self) -> Bools:
        found: Bools = self.close >= self.open
        return found


class _Bars:
    """The bars of a walk, and what was usual before each of them."""

    def __init__(self, walk: Walk, open_: Series, high: Series, low: Series, close: Series) -> None:
        self._walk = walk
        self._series = (open_, high, low, close)
        self.now = _Bar(*(series.values for series in self._series))

    def back(self, count: int) -> _Bar:
        return _Bar(*(self._walk.back(series, count).values for series in self._series))

    def usual(self, measure: _Measure, count: int = 0) -> Array:
        """At the bar `count` rows back, of the bars before that one."""
        values = self.now.body if measure.part == "body" else self.now.range
        total = self._walk.total(Series(values), measure.bars)
        return measure.factor * (self._walk.back(total, 1 + count).values / measure.bars)


Found = Callable[[_Bars], Array]


def _doji(bars: _Bars) -> Bools:
    found: Bools = bars.now.body <= bars.usual(_BODY_DOJI)
    return found


def _is(condition: Callable[[_Bars], Bools], value: float = 100.0) -> Found:
    return lambda bars: np.where(condition(bars), value, 0.0)


def _dragonfly(bars: _Bars) -> Bools:
    short = bars.usual(_SHADOW_VERY_SHORT)
    return _doji(bars) & (bars.now.upper < short) & (bars.now.lower > short)


def _gravestone(bars: _Bars) -> Bools:
    short = bars.usual(_SHADOW_VERY_SHORT)
    return _doji(bars) & (bars.now.lower < short) & (bars.now.upper > short)


def _colour(bar: _Bar) -> Array:
    return np.where(bar.rises, 100.0, -100.0)


def _marubozu(bars: _Bars) -> Array:
    short, bar = bars.usual(_SHADOW_VERY_SHORT), bars.now
    found = (bar.body > bars.usual(_BODY_LONG)) & (bar.upper < short) & (bar.lower < short)
    return np.where(found, _colour(bar), 0.0)


def _spinning_top(bars: _Bars) -> Array:
    bar = bars.now
    found = (bar.body < bars.usual(_BODY_SHORT)) & (bar.upper > bar.body) & (bar.lower > bar.body)
    return np.where(found, _colour(bar), 0.0)


def _long_shadow(bars: _Bars, *, is_lower: bool) -> Bools:
    """A small body with one shadow longer than it and nearly none on the other side."""
    bar, short = bars.now, bars.usual(_SHADOW_VERY_SHORT)
    long, other = (bar.lower, bar.upper) if is_lower else (bar.upper, bar.lower)
    found: Bools = (bar.body < bars.usual(_BODY_SHORT)) & (long > bar.body) & (other < short)
    return found


def _hammer(bars: _Bars) -> Bools:
    near = bars.usual(_NEAR, 1)
    found: Bools = _long_shadow(bars, is_lower=True) & (bars.now.bottom <= bars.back(1).low + near)
    return found


def _hanging_man(bars: _Bars) -> Bools:
    near = bars.usual(_NEAR, 1)
    found: Bools = _long_shadow(bars, is_lower=True) & (bars.now.bottom >= bars.back(1).high - near)
    return found


def _inverted_hammer(bars: _Bars) -> Bools:
    found: Bools = _long_shadow(bars, is_lower=False) & (bars.now.top < bars.back(1).bottom)
    return found


def _shooting_star(bars: _Bars) -> Bools:
    found: Bools = _long_shadow(bars, is_lower=False) & (bars.now.bottom > bars.back(1).top)
    return found


def _engulfing(bars: _Bars) -> Array:
    bar, before = bars.now, bars.back(1)
    covers = (bar.top >= before.top) & (bar.bottom <= before.bottom)
    shares = (bar.top == before.top) | (bar.bottom == before.bottom)
    is_both = (bar.top == before.top) & (bar.bottom == before.bottom)
    found = covers & ~is_both & (bar.rises != before.rises)
    return np.where(found, np.where(shares, 0.8, 1.0) * _colour(bar), 0.0)


def _harami(bars: _Bars) -> Array:
    bar, before = bars.now, bars.back(1)
    sizes = (before.body > bars.usual(_BODY_LONG, 1)) & (bar.body <= bars.usual(_BODY_SHORT))
    inside = (bar.top < before.top) & (bar.bottom > before.bottom)
    touches = (bar.top <= before.top) & (bar.bottom >= before.bottom)
    strength = np.where(inside, 1.0, np.where(touches, 0.8, 0.0))
    return np.where(sizes, -_colour(before) * strength, 0.0)


def _star(*, is_morning: bool) -> Callable[[_Bars], Bools]:
    """A long bar, a small one past a gap, and one that takes back three tenths of the first."""

    def run(bars: _Bars) -> Bools:
        first, star, bar = bars.back(2), bars.back(1), bars.now
        sizes = first.body > bars.usual(_BODY_LONG, 2)
        sizes &= star.body <= bars.usual(_BODY_SHORT, 1)
        sizes &= bar.body > bars.usual(_BODY_SHORT)
        back = first.body * 0.3
        if is_morning:
            found: Bools = ~first.rises & (star.top < first.bottom) & bar.rises & (bar.close > first.close + back)
        else:
            found = first.rises & (star.bottom > first.top) & ~bar.rises & (bar.close < first.close - back)
        return sizes & found

    return run


def _candle(name: str, found: Found, start: int, text: str) -> Indicator:
    def compute(walk: Walk, open_: Series, high: Series, low: Series, close: Series) -> Series:
        return Series(found(_Bars(walk, open_, high, low, close)), start)

    return Indicator(f"CDL_{name}", ("open", "high", "low", "close"), (), compute, text)


CANDLES = (
    _candle("DOJI", _is(_doji), 10, "a body of nearly nothing"),
    _candle("DRAGONFLY_DOJI", _is(_dragonfly), 10, "a doji with a lower shadow alone"),
    _candle("GRAVESTONE_DOJI", _is(_gravestone), 10, "a doji with an upper shadow alone"),
    _candle("MARUBOZU", _marubozu, 10, "a long body with nearly no shadows"),
    _candle("SPINNING_TOP", _spinning_top, 10, "a small body between longer shadows"),
    _candle("HAMMER", _is(_hammer), 11, "a small body over a long lower shadow, near or below the low before"),
    _candle(
        "HANGING_MAN",
        _is(_hanging_man, -100.0),
        11,
        "a hammer near or above the high before",
    ),
    _candle("INVERTED_HAMMER", _is(_inverted_hammer), 11, "a small body under a long upper shadow, past a gap down"),
    _candle("SHOOTING_STAR", _is(_shooting_star, -100.0), 11, "a small body under a long upper shadow, past a gap up"),
    _candle("ENGULFING", _engulfing, 2, "a body that covers the one before, of the other colour"),
    _candle("HARAMI", _harami, 11, "a small body inside the long one before"),
    _candle("MORNING_STAR", _is(_star(is_morning=True)), 12, "a fall, a small body below it, and a rise into it"),
    _candle("EVENING_STAR", _is(_star(is_morning=False), -100.0), 12, "a rise, a small body above it, a fall into it"),
)
