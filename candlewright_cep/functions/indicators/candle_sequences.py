"""Candle patterns of three to five bars, and the Hikkake with the bars that confirm it."""

from collections.abc import Callable

import numpy as np

from candlewright_cep.functions.indicators.candle_bars import (
    DOJI,
    EQUAL,
    FAR,
    LONG_SHADOW,
    NEAR,
    SHORT_SHADOW,
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
from candlewright_cep.vector import Bools

_Bars3 = tuple[Bar, Bar, Bar]


def _three(bars: Bars) -> _Bars3:
    first, second, third = bars.last(3)
    return first, second, third


# -- three bars -------------------------------------------------------------------------------------------------------


def _falls_after_rise(bars: Bars) -> Bools:
    """A long rise, then two falls, the first of which is above a gap."""
    first, second, third = _three(bars)
    return first.rises & first.is_long & second.falls & second.is_above(first) & third.falls


def _two_crows(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    found = _falls_after_rise(bars) & (third.open < second.open) & (third.open > second.close)
    return found & (third.close > first.open) & (third.close < first.close)


def _upside_gap_two_crows(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    found = _falls_after_rise(bars) & second.is_small & (third.open > second.open)
    return found & (third.close < second.close) & (third.close > first.close)


def _three_inside(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    inside = first.is_long & second.is_small & (second.top < first.top) & (second.bottom > first.bottom)
    past = chosen(first.rises, third.close < first.open, third.close > first.open)
    return inside & (first.rises ^ third.rises) & past


def _three_outside(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    up = (second.close > first.open) & (second.open < first.close) & (third.close > second.close)
    down = (second.open > first.close) & (second.close < first.open) & (third.close < second.close)
    return (first.rises ^ second.rises) & chosen(second.rises, up, down)


def _three_stars_in_the_south(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    found = first.falls & second.falls & third.falls & first.is_long & (first.lower > first.usual(LONG_SHADOW))
    found &= (second.body < first.body) & (second.open > first.close) & (second.open <= first.high)
    found &= (second.low < first.close) & (second.low >= first.low)
    found &= second.lower > second.usual(VERY_SHORT_SHADOW)
    return found & third.is_short & third.has_no_shadows & (third.low > second.low) & (third.high < second.high)


def _climbs(first: Bar, second: Bar) -> Bools:
    """Opens in the previous body, or just above it, and closes higher."""
    found = (second.open > first.open) & (second.open <= first.close + first.usual(NEAR))
    return found & (second.close > first.close)


def _three_rises(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    return first.rises & second.rises & third.rises & _climbs(first, second)


def _three_white_soldiers(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    found = _three_rises(bars) & _climbs(second, third)
    found &= first.has_no_upper & second.has_no_upper & third.has_no_upper
    found &= second.body > first.body - first.usual(FAR)
    return found & (third.body > second.body - second.usual(FAR)) & third.is_long


def _advance_block(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    found = _three_rises(bars) & _climbs(second, third) & first.is_long & (first.upper < first.usual(SHORT_SHADOW))
    near, far = second.usual(NEAR), second.usual(FAR)
    shrinks = third.body < second.body
    slows = (second.body < first.body - first.usual(FAR)) & (third.body < second.body + near)
    slows |= third.body < second.body - far
    resisted = (third.upper > third.usual(SHORT_SHADOW)) | (second.upper > second.usual(SHORT_SHADOW))
    slows |= shrinks & (second.body < first.body) & resisted
    return found & (slows | (shrinks & (third.upper > third.usual(LONG_SHADOW))))


def _stalled(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    found = _three_rises(bars) & (third.close > second.close) & first.is_long & second.is_long & second.has_no_upper
    return found & third.is_short & (third.open >= second.close - third.body - second.usual(NEAR))


def _identical_three_crows(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    found = first.falls & second.falls & third.falls & first.has_no_lower & second.has_no_lower & third.has_no_lower
    found &= (first.close > second.close) & (second.close > third.close)
    found &= within(second.open, first.close, first.usual(EQUAL))
    return found & within(third.open, second.close, second.usual(EQUAL))


def _star(*, is_morning: bool, of: Callable[[Bar], Bools]) -> Callable[[Bars, float], Bools]:
    """A long bar, a star past a gap, and a bar that reverses part of the first."""

    def run(bars: Bars, penetration: float) -> Bools:
        first, star, third = _three(bars)
        sizes = first.is_long & of(star) & ~third.is_small
        back = first.body * penetration
        if is_morning:
            return sizes & first.falls & star.is_below(first) & third.rises & (third.close > first.close + back)
        return sizes & first.rises & star.is_above(first) & third.falls & (third.close < first.close - back)

    return run


def _abandoned_baby(bars: Bars, penetration: float) -> Bools:
    first, star, third = _three(bars)
    back = first.body * penetration
    down = (third.close < first.close - back) & (star.low > first.high) & (third.high < star.low)
    up = (third.close > first.close + back) & (star.high < first.low) & (third.low > star.high)
    found = first.is_long & star.is_doji & ~third.is_small & (first.rises ^ third.rises)
    return found & chosen(first.rises, down, up)


def _tri_star(bars: Bars) -> Floats:
    first, second, third = _three(bars)
    size = first.usual(DOJI)
    small = (first.body <= size) & (second.body <= size) & (third.body <= size)
    down = second.is_above(first) & (third.top < second.top)
    up = second.is_below(first) & (third.bottom > second.bottom)
    return np.where(small & up, 100.0, np.where(small & down, -100.0, 0.0))


def _unique_three_river(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    found = first.is_long & first.falls & second.falls & (second.close > first.close) & (second.open <= first.open)
    return found & (second.low < first.low) & third.is_short & third.rises & (third.open > second.low)


def _stick_sandwich(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    found = first.falls & second.rises & third.falls & (second.low > first.close)
    return found & within(third.close, first.close, first.usual(EQUAL))


def _side_by_side(bars: Bars) -> Floats:
    first, second, third = _three(bars)
    found = second.rises & third.rises & within(third.body, second.body, second.usual(NEAR))
    found &= within(third.open, second.open, second.usual(EQUAL))
    up = second.is_above(first) & third.is_above(first)
    down = second.is_below(first) & third.is_below(first)
    return np.where(found & up, 100.0, np.where(found & down, -100.0, 0.0))


def _gaps_onwards(first: Bar, second: Bar) -> Bools:
    """The second is past a gap in its own direction."""
    return chosen(second.rises, second.is_above(first), second.is_below(first))


def _tasuki_gap(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    found = _gaps_onwards(first, second) & (second.rises ^ third.rises) & third.opens_in(second)
    up = (third.close < second.open) & (third.close > first.top)
    down = (third.close > second.open) & (third.close < first.bottom)
    return found & chosen(second.rises, up, down) & (np.abs(second.body - third.body) < second.usual(NEAR))


def _gap_three_methods(bars: Bars) -> Bools:
    first, second, third = _three(bars)
    found = ~(first.rises ^ second.rises) & (second.rises ^ third.rises) & _gaps_onwards(first, second)
    return found & third.opens_in(second) & (third.close < first.top) & (third.close > first.bottom)


# -- four and five bars -----------------------------------------------------------------------------------------------


def _three_black_crows(bars: Bars) -> Bools:
    before, first, second, third = bars.last(4)
    found = before.rises & first.falls & second.falls & third.falls
    found &= first.has_no_lower & second.has_no_lower & third.has_no_lower
    found &= second.opens_in(first) & third.opens_in(second) & (before.high > first.close)
    return found & (first.close > second.close) & (second.close > third.close)


def _line_strike(bars: Bars) -> Bools:
    first, second, third, strike = bars.last(4)
    found = ~(first.rises ^ second.rises) & ~(second.rises ^ third.rises) & (third.rises ^ strike.rises)
    for one, other in ((first, second), (second, third)):
        near = one.usual(NEAR)
        found &= (other.open >= one.bottom - near) & (other.open <= one.top + near)
    up = (third.close > second.close) & (second.close > first.close)
    up &= (strike.open > third.close) & (strike.close < first.open)
    down = (third.close < second.close) & (second.close < first.close)
    down &= (strike.open < third.close) & (strike.close > first.open)
    return found & chosen(third.rises, up, down)


def _concealed_swallow(bars: Bars) -> Bools:
    first, second, third, fourth = bars.last(4)
    found = first.falls & second.falls & third.falls & fourth.falls & first.has_no_shadows & second.has_no_shadows
    found &= third.is_below(second) & (third.upper > third.usual(VERY_SHORT_SHADOW)) & (third.high > second.close)
    return found & (fourth.high > third.high) & (fourth.low < third.low)


def _breakaway(bars: Bars) -> Bools:
    first, second, third, fourth, last = bars.last(5)
    found = first.is_long & ~(first.rises ^ second.rises) & ~(second.rises ^ fourth.rises)
    found &= (fourth.rises ^ last.rises) & _gaps_onwards(first, second)
    up = (third.high > second.high) & (third.low > second.low) & (fourth.high > third.high) & (fourth.low > third.low)
    down = (third.high < second.high) & (third.low < second.low)
    down &= (fourth.high < third.high) & (fourth.low < third.low)
    into = (last.close < np.maximum(first.close, second.open)) & (last.close > np.minimum(first.close, second.open))
    return found & chosen(first.rises, up, down) & into


def _ladder_bottom(bars: Bars) -> Bools:
    first, second, third, fourth, last = bars.last(5)
    found = first.falls & second.falls & third.falls & fourth.falls & last.rises
    found &= (first.open > second.open) & (second.open > third.open)
    found &= (first.close > second.close) & (second.close > third.close)
    found &= fourth.upper > fourth.usual(VERY_SHORT_SHADOW)
    return found & (last.open > fourth.open) & (last.close > fourth.high)


def _mat_hold(bars: Bars, penetration: float) -> Bools:
    first, second, third, fourth, last = bars.last(5)
    floor = first.close - first.body * penetration
    found = first.is_long & second.is_short & third.is_short & fourth.is_short
    found &= first.rises & second.falls & last.rises & second.is_above(first)
    for bar in (third, fourth):
        found &= (bar.bottom < first.close) & (bar.bottom > floor)
    found &= (third.top < second.open) & (fourth.top < third.top) & (last.open > fourth.close)
    return found & (last.close > np.maximum(np.maximum(second.high, third.high), fourth.high))


def _three_methods(bars: Bars) -> Bools:
    first, second, third, fourth, last = bars.last(5)
    sign = first.sign
    found = first.is_long & last.is_long & ~(first.rises ^ last.rises)
    for bar in (second, third, fourth):
        found &= bar.is_short & (bar.rises ^ first.rises) & (bar.bottom < first.high) & (bar.top > first.low)
    found &= (third.close * sign < second.close * sign) & (fourth.close * sign < third.close * sign)
    return found & (last.open * sign > fourth.close * sign) & (last.close * sign > first.close * sign)


# -- Hikkake ----------------------------------------------------------------------------------------------------------

_CONFIRMED_WITHIN = 3


def _breaks_out(bars: Bars, count: int) -> tuple[Floats, Floats, Floats]:
    """At the bar `count` rows back: 1 if it breaks downwards out of the bar before, -1 if upwards; and that bar's high
    and low.
    """
    inside, bar = bars.back(count + 1), bars.back(count)
    down = (bar.high < inside.high) & (bar.low < inside.low)
    up = (bar.high > inside.high) & (bar.low > inside.low)
    return np.where(down, 1.0, np.where(up, -1.0, 0.0)), inside.high, inside.low


def _is_inside(bars: Bars, count: int) -> Bools:
    bar, before = bars.back(count), bars.back(count + 1)
    return (bar.high < before.high) & (bar.low > before.low)


def _trap(bars: Bars, count: int) -> tuple[Floats, Floats, Floats]:
    """A false break out of an inside bar."""
    sign, high, low = _breaks_out(bars, count)
    return np.where(_is_inside(bars, count + 1), sign, 0.0), high, low


def _modified_trap(bars: Bars, count: int) -> tuple[Floats, Floats, Floats]:
    """A false break out of the second of two inside bars, the first of which closes near its end in the direction of
    the break.
    """
    sign, high, low = _breaks_out(bars, count)
    first = bars.back(count + 2)
    near = first.usual(NEAR)
    closes = chosen(sign > 0, first.close <= first.low + near, first.close >= first.high - near)
    found = _is_inside(bars, count + 1) & _is_inside(bars, count + 2) & closes
    return np.where(found, sign, 0.0), high, low


def _hikkake(trap: Callable[[Bars, int], tuple[Floats, Floats, Floats]]) -> Found:
    """100 or -100 for a false break; 200 or -200 once, where a close within three bars confirms the last one."""

    def run(bars: Bars) -> Floats:
        traps = [trap(bars, count) for count in range(_CONFIRMED_WITHIN + 1)]
        found = 100.0 * traps[0][0]
        open_: Bools = traps[0][0] == 0
        for count in range(1, _CONFIRMED_WITHIN + 1):
            sign, high, low = traps[count]
            before = np.zeros(len(sign), np.bool_)
            for place in range(count - 1, -1, -1):
                close = bars.back(place).close
                holds = chosen(sign > 0, close > high, (sign < 0) & (close < low))
                if place:
                    before |= holds
                else:
                    found = np.where(open_ & holds & ~before, 200.0 * sign, found)
            open_ = open_ & (sign == 0)
        return found

    return Found(run, (-200.0, -100.0, 100.0, 200.0))


SEQUENCES = (
    candle("2CROWS", is_(_two_crows, -100.0), 12, text="a fall above a long rise, then one from it into the rise"),
    candle(
        "UPSIDE_GAP_2CROWS",
        is_(_upside_gap_two_crows, -100.0),
        12,
        text="two falls above a long rise, the second covers",
    ),
    candle("3INSIDE", signed(_three_inside, 2, -1.0), 12, text="a harami, then a close past the first bar's open"),
    candle("3OUTSIDE", signed(_three_outside, 1), 3, text="an engulfing, then a close further in its direction"),
    candle("3STARS_IN_SOUTH", is_(_three_stars_in_the_south), 12, text="three falls, each smaller and inside the last"),
    candle(
        "3WHITE_SOLDIERS",
        is_(_three_white_soldiers),
        12,
        text="three rises, each from the body before to a higher close",
    ),
    candle(
        "3BLACK_CROWS", is_(_three_black_crows, -100.0), 13, text="after a rise three falls, each from the body before"
    ),
    candle("IDENTICAL_3CROWS", is_(_identical_three_crows, -100.0), 12, text="three falls, each from the close before"),
    candle("ADVANCE_BLOCK", is_(_advance_block, -100.0), 12, text="three rises that weaken"),
    candle("STALLED_PATTERN", is_(_stalled, -100.0), 12, text="two long rises, then a short one at their end"),
    candle(
        "MORNING_STAR",
        is_(_star(is_morning=True, of=lambda bar: bar.is_small)),
        12,
        text="a fall, a small body below it, and a rise into it",
        penetration=0.3,
    ),
    candle(
        "EVENING_STAR",
        is_(_star(is_morning=False, of=lambda bar: bar.is_small), -100.0),
        12,
        text="a rise, a small body above it, a fall into it",
        penetration=0.3,
    ),
    candle(
        "MORNING_DOJI_STAR",
        is_(_star(is_morning=True, of=lambda bar: bar.is_doji)),
        12,
        text="a morning star whose star is a doji",
        penetration=0.3,
    ),
    candle(
        "EVENING_DOJI_STAR",
        is_(_star(is_morning=False, of=lambda bar: bar.is_doji), -100.0),
        12,
        text="an evening star whose star is a doji",
        penetration=0.3,
    ),
    candle(
        "ABANDONED_BABY",
        Found(lambda bars, penetration: np.where(_abandoned_baby(bars, penetration), 100.0 * bars.now.sign, 0.0)),
        12,
        text="a doji star with gaps between the shadows on both sides",
        penetration=0.3,
    ),
    candle("TRISTAR", Found(_tri_star), 12, text="three doji, the second past a gap"),
    candle(
        "UNIQUE_3RIVER", is_(_unique_three_river), 12, text="a long fall, a fall inside with a lower low, a short rise"
    ),
    candle("STICK_SANDWICH", is_(_stick_sandwich), 7, text="a rise between two falls with nearly equal closes"),
    candle("GAP_SIDE_SIDE_WHITE", Found(_side_by_side), 7, text="two similar rises side by side past a gap"),
    candle("TASUKI_GAP", signed(_tasuki_gap, 1), 7, text="a gap, then a similar bar back into it"),
    candle("XSIDE_GAP_3METHODS", signed(_gap_three_methods, 2), 2, text="a gap, then a bar that closes it"),
    candle(
        "3LINE_STRIKE",
        signed(_line_strike, 1),
        8,
        text="three bars in one direction, and one that reverses all of them",
    ),
    candle("CONCEAL_BABY_SWALL", is_(_concealed_swallow), 13, text="four falls, the last covers the third"),
    candle("BREAKAWAY", signed(_breakaway), 14, text="a gap, two bars further on, and one back into the gap"),
    candle(
        "LADDER_BOTTOM", is_(_ladder_bottom), 14, text="four falls, the last with an upper shadow, and a rise above it"
    ),
    candle(
        "MAT_HOLD",
        is_(_mat_hold),
        14,
        text="a long rise, three small bars that hold, and a rise past them",
        penetration=0.5,
    ),
    candle(
        "RISE_FALL_3METHODS",
        signed(_three_methods, 4),
        14,
        text="a long bar, three small ones back, and a long one that continues it",
    ),
    candle("HIKKAKE", _hikkake(_trap), 5, text="a false break of an inside bar; ±200 for the bar that confirms it"),
    candle(
        "HIKKAKE_MOD",
        _hikkake(_modified_trap),
        10,
        text="a false break after two inside bars; ±200 for its confirmation",
    ),
)
