"""Candle patterns of one and two bars, with TA-Lib's results: 100 for a bullish pattern, -100 for a bearish one, 0 for
none. 80 instead of 100 means that two bodies share an end.
"""

import numpy as np

from candlewright_cep.functions.indicators.candle_bars import (
    EQUAL,
    LONG_SHADOW,
    NEAR,
    SHORT_SHADOW,
    VERY_LONG_SHADOW,
    VERY_SHORT_SHADOW,
    Bar,
    Bars,
    Floats,
    Found,
    candle,
    chosen,
    is_,
    signed,
    within,
)
from candlewright_cep.functions.indicators.candle_sequences import SEQUENCES
from candlewright_cep.functions.indicators.indicator import Indicator
from candlewright_cep.vector import Bools

# -- one bar ----------------------------------------------------------------------------------------------------------


def _dragonfly(bars: Bars) -> Bools:
    bar, short = bars.now, bars.now.usual(VERY_SHORT_SHADOW)
    return bar.is_doji & (bar.upper < short) & (bar.lower > short)


def _gravestone(bars: Bars) -> Bools:
    bar, short = bars.now, bars.now.usual(VERY_SHORT_SHADOW)
    return bar.is_doji & (bar.lower < short) & (bar.upper > short)


def _long_legged_doji(bars: Bars) -> Bools:
    bar, long = bars.now, bars.now.usual(LONG_SHADOW)
    return bar.is_doji & ((bar.lower > long) | (bar.upper > long))


def _rickshaw_man(bars: Bars) -> Bools:
    bar, long, near = bars.now, bars.now.usual(LONG_SHADOW), bars.now.usual(NEAR)
    middle = bar.low + bar.range / 2
    return (
        bar.is_doji
        & (bar.lower > long)
        & (bar.upper > long)
        & (bar.bottom <= middle + near)
        & (bar.top >= middle - near)
    )


def _takuri(bars: Bars) -> Bools:
    bar = bars.now
    return bar.is_doji & bar.has_no_upper & (bar.lower > bar.usual(VERY_LONG_SHADOW))


def _marubozu(bars: Bars) -> Bools:
    return bars.now.is_long & bars.now.has_no_shadows


def _closing_marubozu(bars: Bars) -> Bools:
    bar = bars.now
    return bar.is_long & chosen(bar.rises, bar.has_no_upper, bar.has_no_lower)


def _belt_hold(bars: Bars) -> Bools:
    bar = bars.now
    return bar.is_long & chosen(bar.rises, bar.has_no_lower, bar.has_no_upper)


def _spinning_top(bars: Bars) -> Bools:
    bar = bars.now
    return bar.is_short & (bar.upper > bar.body) & (bar.lower > bar.body)


def _high_wave(bars: Bars) -> Bools:
    bar, long = bars.now, bars.now.usual(VERY_LONG_SHADOW)
    return bar.is_short & (bar.upper > long) & (bar.lower > long)


def _has_short_shadows(bar: Bar) -> Bools:
    short = bar.usual(SHORT_SHADOW)
    return (bar.upper < short) & (bar.lower < short)


def _long_line(bars: Bars) -> Bools:
    return bars.now.is_long & _has_short_shadows(bars.now)


def _short_line(bars: Bars) -> Bools:
    return bars.now.is_short & _has_short_shadows(bars.now)


# -- two bars ---------------------------------------------------------------------------------------------------------


def _long_lower(bar: Bar) -> Bools:
    """A small body above a longer shadow, with almost no upper shadow."""
    return bar.is_short & (bar.lower > bar.usual(LONG_SHADOW)) & bar.has_no_upper


def _long_upper(bar: Bar) -> Bools:
    return bar.is_short & (bar.upper > bar.usual(LONG_SHADOW)) & bar.has_no_lower


def _hammer(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    return _long_lower(bar) & (bar.bottom <= before.low + before.usual(NEAR))


def _hanging_man(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    return _long_lower(bar) & (bar.bottom >= before.high - before.usual(NEAR))


def _inverted_hammer(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    return _long_upper(bar) & bar.is_below(before)


def _shooting_star(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    return _long_upper(bar) & bar.is_above(before)


def _engulfing(bars: Bars) -> Floats:
    before, bar = bars.last(2)
    covers = (bar.top >= before.top) & (bar.bottom <= before.bottom)
    shares = (bar.top == before.top) | (bar.bottom == before.bottom)
    is_both = (bar.top == before.top) & (bar.bottom == before.bottom)
    found = covers & ~is_both & (bar.rises ^ before.rises)
    return np.where(found, np.where(shares, 80.0, 100.0) * bar.sign, 0.0)


def _inside(before: Bar, bar: Bar) -> Floats:
    inside = (bar.top < before.top) & (bar.bottom > before.bottom)
    touches = (bar.top <= before.top) & (bar.bottom >= before.bottom)
    return -before.sign * np.where(inside, 100.0, np.where(touches, 80.0, 0.0))


def _harami(bars: Bars) -> Floats:
    before, bar = bars.last(2)
    return np.where(before.is_long & bar.is_small, _inside(before, bar), 0.0)


def _harami_cross(bars: Bars) -> Floats:
    before, bar = bars.last(2)
    return np.where(before.is_long & bar.is_doji, _inside(before, bar), 0.0)


def _homing_pigeon(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    falls = before.is_long & before.falls & bar.is_small & bar.falls
    return falls & (bar.open < before.open) & (bar.close > before.close)


def _doji_star(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    return before.is_long & bar.is_doji & chosen(before.rises, bar.is_above(before), bar.is_below(before))


def _counterattack(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    sizes = before.is_long & bar.is_long
    return sizes & (before.rises ^ bar.rises) & within(bar.close, before.close, before.usual(EQUAL))


def _separating_lines(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    found = (before.rises ^ bar.rises) & within(bar.open, before.open, before.usual(EQUAL))
    return found & _belt_hold(bars)


def _kicking(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    found = _marubozu(bars) & before.is_long & before.has_no_shadows & (before.rises ^ bar.rises)
    return found & chosen(bar.rises, bar.low > before.high, bar.high < before.low)


def _kicking_by_length(bars: Bars) -> Floats:
    before, bar = bars.last(2)
    longer = np.where(bar.body > before.body, bar.sign, before.sign)
    return np.where(_kicking(bars), 100.0 * longer, 0.0)


def _dark_cloud(bars: Bars, penetration: float) -> Bools:
    before, bar = bars.last(2)
    found = before.rises & before.is_long & bar.falls & (bar.open > before.high)
    return found & (bar.close > before.open) & (bar.close < before.close - before.body * penetration)


def _rises_from_below(bars: Bars) -> Bools:
    """A rise that opens below the low of a long fall."""
    before, bar = bars.last(2)
    return before.falls & before.is_long & bar.rises & (bar.open < before.low)


def _piercing(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    found = _rises_from_below(bars) & bar.is_long
    return found & (bar.close < before.open) & (bar.close > before.close + before.body * 0.5)


def _in_neck(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    reach = before.usual(EQUAL)
    return _rises_from_below(bars) & (bar.close <= before.close + reach) & (bar.close >= before.close)


def _on_neck(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    return _rises_from_below(bars) & within(bar.close, before.low, before.usual(EQUAL))


def _thrusting(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    found = _rises_from_below(bars) & (bar.close > before.close + before.usual(EQUAL))
    return found & (bar.close <= before.close + before.body * 0.5)


def _matching_low(bars: Bars) -> Bools:
    before, bar = bars.last(2)
    return before.falls & bar.falls & within(bar.close, before.close, before.usual(EQUAL))


#: 80: the bodies share an end.
_SHARED = (-100.0, -80.0, 80.0, 100.0)
_ONE = (
    candle("DOJI", is_(lambda bars: bars.now.is_doji), 10, text="a body of almost no length"),
    candle("DRAGONFLY_DOJI", is_(_dragonfly), 10, text="a doji with only a lower shadow"),
    candle("GRAVESTONE_DOJI", is_(_gravestone), 10, text="a doji with only an upper shadow"),
    candle("LONG_LEGGED_DOJI", is_(_long_legged_doji), 10, text="a doji with a shadow longer than its body"),
    candle("RICKSHAW_MAN", is_(_rickshaw_man), 10, text="a doji in the middle of two longer shadows"),
    candle("TAKURI", is_(_takuri), 10, text="a dragonfly doji with a very long lower shadow"),
    candle("MARUBOZU", signed(_marubozu), 10, text="a long body with nearly no shadows"),
    candle("CLOSING_MARUBOZU", signed(_closing_marubozu), 10, text="a long body with nearly no shadow past its close"),
    candle("BELT_HOLD", signed(_belt_hold), 10, text="a long body with nearly no shadow before its open"),
    candle("SPINNING_TOP", signed(_spinning_top), 10, text="a small body between longer shadows"),
    candle("HIGH_WAVE", signed(_high_wave), 10, text="a small body between shadows of more than twice its length"),
    candle("LONG_LINE", signed(_long_line), 10, text="a long body between short shadows"),
    candle("SHORT_LINE", signed(_short_line), 10, text="a short body between short shadows"),
)
_TWO = (
    candle("HAMMER", is_(_hammer), 11, text="a small body over a long lower shadow, near or below the low before"),
    candle("HANGING_MAN", is_(_hanging_man, -100.0), 11, text="a hammer near or above the high before"),
    candle(
        "INVERTED_HAMMER", is_(_inverted_hammer), 11, text="a small body under a long upper shadow, past a gap down"
    ),
    candle(
        "SHOOTING_STAR", is_(_shooting_star, -100.0), 11, text="a small body under a long upper shadow, past a gap up"
    ),
    candle(
        "ENGULFING", Found(_engulfing, _SHARED), 2, text="a body that covers the previous one, of the opposite colour"
    ),
    candle("HARAMI", Found(_harami, _SHARED), 11, text="a small body inside the long one before"),
    candle("HARAMI_CROSS", Found(_harami_cross, _SHARED), 11, text="a doji inside the long body before"),
    candle("HOMING_PIGEON", is_(_homing_pigeon), 11, text="a small fall inside the long fall before"),
    candle("DOJI_STAR", signed(_doji_star, 1, -1.0), 11, text="a doji past a gap after a long body"),
    candle(
        "COUNTERATTACK", signed(_counterattack), 11, text="two long bodies of opposite colours with nearly equal closes"
    ),
    candle(
        "SEPARATING_LINES",
        signed(_separating_lines),
        11,
        text="a belt hold that opens where the opposite colour opened",
    ),
    candle("KICKING", signed(_kicking), 11, text="two marubozu of opposite colours with a gap between them"),
    candle("KICKING_BY_LENGTH", Found(_kicking_by_length), 11, text="kicking; the longer body gives the direction"),
    candle(
        "DARK_CLOUD_COVER",
        is_(_dark_cloud, -100.0),
        11,
        text="a fall from above a long rise into its body",
        penetration=0.5,
    ),
    candle("PIERCING", is_(_piercing), 11, text="a long rise from below a long fall past the middle of its body"),
    candle("IN_NECK", is_(_in_neck, -100.0), 11, text="a rise from below a long fall to just above its close"),
    candle("ON_NECK", is_(_on_neck, -100.0), 11, text="a rise from below a long fall to nearly its low"),
    candle(
        "THRUSTING", is_(_thrusting, -100.0), 11, text="a rise from below a long fall into the lower half of its body"
    ),
    candle("MATCHING_LOW", is_(_matching_low), 6, text="two falls with nearly equal closes"),
)
CANDLES = (*_ONE, *_TWO, *SEQUENCES)


def column_of(candle: Indicator) -> str:
    """CDL_HAMMER as a column: `hammer`; CDL_3WHITE_SOLDIERS: `three_white_soldiers`, as no name begins with a digit."""
    return candle.name.removeprefix("CDL_").lower().replace("2", "two_").replace("3", "three_")


_BY_NAME = {
    name.removeprefix("CDL_").replace("_", ""): candle
    for candle in CANDLES
    for name in (candle.name, column_of(candle).upper())
}


def candle_called(name: str) -> Indicator | None:
    """The candle pattern meant by a name: `hammer`, `MorningStar`, `CDL_DOJI`, `three_white_soldiers`."""
    return _BY_NAME.get(name.upper().removeprefix("CDL").replace("_", ""))
