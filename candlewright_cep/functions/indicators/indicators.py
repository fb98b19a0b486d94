"""Technical indicators, each declared once: arguments, computation and reference text.

Where TA-Lib (https://ta-lib.org) has the function, the values and the first row with a value are TA-Lib's. A row whose
inputs are NULL, NaN or infinite gets NULL, and is ignored by the following rows.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from candlewright_cep.functions.indicators.candles import CANDLES
from candlewright_cep.functions.indicators.indicator import Argument, Indicator
from candlewright_cep.functions.indicators.series import Series, Walk
from candlewright_cep.functions.usage import NOT_NEGATIVE, PERCENT, Extent
from candlewright_cep.vector import Array

# -- moving averages ------------------------------------------------------------------------------------------------


def _sma(walk: Walk, x: Series, n: int) -> Series:
    return walk.mean(x, n)


def _ema(walk: Walk, x: Series, n: int) -> Series:
    return walk.ema(x, n)


def _wma(walk: Walk, x: Series, n: int) -> Series:
    products = walk.weighted(x, n)[1]
    return Series(products.values / (n * (n + 1) / 2), products.start)


def _dema(walk: Walk, x: Series, n: int) -> Series:
    once = walk.ema(x, n)
    return once.scaled(2.0) - walk.ema(once, n)


def _tema(walk: Walk, x: Series, n: int) -> Series:
    once = walk.ema(x, n)
    twice = walk.ema(once, n)
    return once.scaled(3.0) - twice.scaled(3.0) + walk.ema(twice, n)


def _kama(walk: Walk, x: Series, n: int) -> Series:
    """Kaufman's adaptive moving average; the smoothing factor goes from 2 / 31 to 2 / 3 with the efficiency ratio."""
    step, whole = x - walk.back(x, 1), x - walk.back(x, n)
    way = walk.total(Series(np.abs(step.values), 1), n)
    is_straight = (way.values <= whole.values) | (way.values == 0.0)
    share = np.where(is_straight, 1.0, np.abs(whole.values / np.where(is_straight, 1.0, way.values)))
    weight = (share * (2 / 3 - 2 / 31) + 2 / 31) ** 2
    found = walk.recurrence(
        Series(x.values, n - 1), 1, lambda y: y, step=lambda y, x, weight: (x - y) * weight + y, further=weight
    )
    return Series(found, n)


def _by_half_life(walk: Walk, x: Series, half_life: float) -> tuple[Series, Series]:
    """Mean and variance with exponential weights; a value `half_life` rows back has half the weight."""
    weight = 1 - 0.5 ** (1 / half_life)
    mean = walk.smoothed(x, 1, weight)
    apart = np.where(walk.numbers == 0, 0.0, x.values - walk.back(mean, 1).values)
    squares = Series(weight * (1 - weight) * (apart * apart))
    variance = walk.recurrence(squares, 1, lambda y: y, step=lambda y, x: y * (1 - weight) + x)
    return mean, Series(variance)


def _ewm(part: int) -> Callable[..., Series]:
    return lambda walk, x, half_life: _by_half_life(walk, x, half_life)[part]


def _macd(part: int) -> Callable[..., Series]:
    """The MACD line, its signal or their difference. All three begin where the signal does."""

    def run(walk: Walk, x: Series, fast: int, slow: int, signal: int) -> Series:
        fast, slow = min(fast, slow), max(fast, slow)
        line = walk.ema(x, fast, start=slow - fast) - walk.ema(x, slow)
        smooth = walk.ema(line, signal)
        return (line.after(smooth.start), smooth, line - smooth)[part]

    return run


def _bollinger(sign: int) -> Callable[..., Series]:
    def run(walk: Walk, x: Series, n: int, k: float = 0.0) -> Series:
        mean, squares = walk.spread(x, n)
        if not sign:
            return mean
        return Series(mean.values + sign * k * np.sqrt(np.maximum(squares.values, 0.0) / n), mean.start)

    return run


# -- momentum -------------------------------------------------------------------------------------------------------


def _over(part: Array, of: Array, factor: float = 1.0) -> Array:
    """`factor` times the quotient; 0 if the divisor is 0."""
    nothing = of == 0.0
    return np.where(nothing, 0.0, factor * (part / np.where(nothing, 1.0, of)))


def _mom(walk: Walk, x: Series, n: int) -> Series:
    return x - walk.back(x, n)


def _roc(walk: Walk, x: Series, n: int) -> Series:
    before = walk.back(x, n)
    is_zero = before.values == 0
    change = (x.values / np.where(is_zero, 1.0, before.values) - 1.0) * 100.0
    return Series(np.where(is_zero, 0.0, change), before.start)


def _rsi(walk: Walk, x: Series, n: int) -> Series:
    change = x - walk.back(x, 1)
    gain = walk.wilder(Series(np.maximum(change.values, 0.0), change.start), n)
    loss = walk.wilder(Series(np.maximum(-change.values, 0.0), change.start), n)
    return Series(_over(gain.values, gain.values + loss.values, 100.0), gain.start)


def _stochastic(walk: Walk, high: Series, low: Series, close: Series, k: int) -> Series:
    top, bottom = walk.extreme(high, k, largest=True), walk.extreme(low, k, largest=False)
    span = (top.values - bottom.values) / 100.0
    is_flat = span == 0
    return Series(np.where(is_flat, 0.0, (close.values - bottom.values) / np.where(is_flat, 1.0, span)), top.start)


def _stoch_k(walk: Walk, high: Series, low: Series, close: Series, k: int, slow: int, d: int) -> Series:
    fast = _stochastic(walk, high, low, close, k)
    smooth = walk.mean(fast, slow)
    return smooth.after(smooth.start + d - 1)


def _stoch_d(walk: Walk, high: Series, low: Series, close: Series, k: int, slow: int, d: int) -> Series:
    return walk.mean(walk.mean(_stochastic(walk, high, low, close, k), slow), d)


def _stochrsi(part: int) -> Callable[..., Series]:
    def run(walk: Walk, x: Series, n: int, k: int, d: int) -> Series:
        index = _rsi(walk, x, n)
        fast = _stochastic(walk, index, index, index, k)
        smooth = walk.mean(fast, d)
        return (fast.after(smooth.start), smooth)[part]

    return run


def _willr(walk: Walk, high: Series, low: Series, close: Series, n: int) -> Series:
    top, bottom = walk.extreme(high, n, largest=True), walk.extreme(low, n, largest=False)
    span = (top.values - bottom.values) / -100.0
    is_flat = span == 0
    return Series(np.where(is_flat, 0.0, (top.values - close.values) / np.where(is_flat, 1.0, span)), top.start)


def _cci(walk: Walk, high: Series, low: Series, close: Series, n: int) -> Series:
    typical = Series((high.values + low.values + close.values) / 3.0)
    mean = walk.mean(typical, n)
    apart = typical.values - mean.values
    spread = walk.distances(typical, n, mean)
    return Series(_over(apart, 0.015 * (spread.values / n)), mean.start)


def _aroon(*, largest: bool) -> Callable[..., Series]:
    def run(walk: Walk, high: Series, low: Series, n: int) -> Series:
        ago = walk.ago(high if largest else low, n + 1, largest=largest)
        return Series((100.0 / n) * (n - ago.values), ago.start)

    return run


# -- ranges and direction -------------------------------------------------------------------------------------------


def _true_range(walk: Walk, high: Series, low: Series, close: Series) -> Series:
    before = walk.back(close, 1)
    reach = np.maximum(np.abs(high.values - before.values), np.abs(low.values - before.values))
    return Series(np.maximum(high.values - low.values, reach), before.start)


def _atr(walk: Walk, high: Series, low: Series, close: Series, n: int) -> Series:
    return walk.wilder(_true_range(walk, high, low, close), n)


def _natr(walk: Walk, high: Series, low: Series, close: Series, n: int) -> Series:
    average = _atr(walk, high, low, close, n)
    return Series(_over(average.values, close.values, 100.0), average.start)


def _moves(walk: Walk, high: Series, low: Series) -> tuple[Series, Series]:
    """Directional movement up and down."""
    up, down = high - walk.back(high, 1), walk.back(low, 1) - low
    plus = np.where((up.values > 0) & (up.values > down.values), up.values, 0.0)
    minus = np.where((down.values > 0) & (down.values > up.values), down.values, 0.0)
    return Series(plus, 1), Series(minus, 1)


def _directions(walk: Walk, high: Series, low: Series, close: Series, n: int) -> tuple[Series, Series]:
    """PLUS_DI and MINUS_DI, NaN where nothing moved."""
    plus, minus = _moves(walk, high, low)
    moved = _true_range(walk, high, low, close)
    if n > 1:
        plus, minus, moved = (walk.wilder_total(part, n) for part in (plus, minus, moved))
    reach = np.where(moved.values == 0.0, np.nan, moved.values)
    factor = 100.0 if n > 1 else 1.0
    return Series(factor * (plus.values / reach), moved.start), Series(factor * (minus.values / reach), moved.start)


def _di(part: int) -> Callable[..., Series]:
    def run(walk: Walk, high: Series, low: Series, close: Series, n: int) -> Series:
        found = _directions(walk, high, low, close, n)[part]
        return Series(np.nan_to_num(found.values), found.start)

    return run


def _adx(walk: Walk, high: Series, low: Series, close: Series, n: int) -> Series:
    plus, minus = _directions(walk, high, low, close, n)
    total = plus.values + minus.values
    index = 100.0 * (np.abs(minus.values - plus.values) / np.where(total == 0.0, np.nan, total))
    return walk.wilder(Series(index, plus.start), n, holds=True)


def _donchian(*, largest: bool) -> Callable[..., Series]:
    return lambda walk, x, n: walk.extreme(x, n, largest=largest)


def _keltner(sign: int) -> Callable[..., Series]:
    def run(walk: Walk, high: Series, low: Series, close: Series, n: int, k: float) -> Series:
        return walk.ema(close, n) + _atr(walk, high, low, close, n).scaled(sign * k)

    return run


def _ratcheted(walk: Walk, band: Series, before: Array, *, falls: bool) -> Array:
    """The band, which only falls (or only rises) until a close is past it. `before`: the previous closes."""

    def lower(y: Array, x: Array, close: Array) -> Array:
        if isinstance(y, float):
            return x if x < y or close > y else y
        return np.where((x < y) | (close > y), x, y)

    sign = 1.0 if falls else -1.0
    found = walk.recurrence(band.scaled(sign), 1, lambda y: y, step=lower, further=sign * before)
    return sign * found


def _supertrend(part: int) -> Callable[..., Series]:
    """The line, or its direction: 1 below a rising price, -1 above a falling one."""

    def turned(y: Array, x: Array, is_above: Array) -> Array:
        if isinstance(y, float):
            return (-1.0 if x else 1.0) if y > 0 else (1.0 if is_above else -1.0)
        return np.where(y > 0, np.where(x > 0, -1.0, 1.0), np.where(is_above > 0, 1.0, -1.0))

    def run(walk: Walk, high: Series, low: Series, close: Series, n: int, m: float) -> Series:
        reach, middle = _atr(walk, high, low, close, n).scaled(m), Series((high.values + low.values) / 2.0)
        before = walk.back(close, 1).values
        upper = _ratcheted(walk, middle + reach, before, falls=True)
        lower = _ratcheted(walk, middle - reach, before, falls=False)
        is_below, is_above = (close.values < lower) * 1.0, (close.values > upper) * 1.0
        direction = walk.recurrence(
            Series(is_below, reach.start), 1, lambda y: y * 0.0 - 1.0, step=turned, further=is_above
        )
        return Series((np.where(direction > 0, lower, upper), direction)[part], reach.start)

    return run


# -- volume ---------------------------------------------------------------------------------------------------------


def _obv(walk: Walk, close: Series, volume: Series) -> Series:
    before = walk.back(close, 1).values
    is_first = walk.numbers == 0
    signs = np.where(is_first | (close.values > before), 1.0, np.where(close.values < before, -1.0, 0.0))
    return walk.running_total(Series(signs * volume.values))


def _mfi(walk: Walk, high: Series, low: Series, close: Series, volume: Series, n: int) -> Series:
    typical = Series((high.values + low.values + close.values) / 3.0)
    change = typical - walk.back(typical, 1)
    flow = typical.values * volume.values
    gains = walk.total(Series(np.where(change.values > 0, flow, 0.0), change.start), n)
    losses = walk.total(Series(np.where(change.values < 0, flow, 0.0), change.start), n)
    return Series(_over(gains.values, gains.values + losses.values, 100.0), gains.start)


# -- statistics -----------------------------------------------------------------------------------------------------


def _line(walk: Walk, x: Series, n: int) -> tuple[Series, Series]:
    """Mean and slope of the least-squares line through the last n values."""
    total, products = walk.weighted(x, n)
    slope = (products.values - total.values * ((n + 1) / 2)) / (n * (n * n - 1) / 12)
    return Series(total.values / n, total.start), Series(slope, total.start)


def _linear(walk: Walk, x: Series, n: int) -> Series:
    mean, slope = _line(walk, x, n)
    return mean + slope.scaled((n - 1) / 2)


def _slope(walk: Walk, x: Series, n: int) -> Series:
    return _line(walk, x, n)[1]


def _z_score(walk: Walk, x: Series, n: int) -> Series:
    mean, squares = walk.spread(x, n)
    return Series(_over(x.values - mean.values, np.sqrt(squares.values / (n - 1))), mean.start)


def _realized(walk: Walk, x: Series, n: int) -> Series:
    before = walk.back(x, 1)
    change = Series(np.log(x.values / before.values), 1)
    total = walk.total(Series(change.values * change.values, 1), n)
    return Series(np.sqrt(total.values), total.start)


_N = Argument("n")
_ANY_N = Argument("n", least=1)
_K = Argument("k", least=0, most=1e6, is_whole=False, usual=2)
_OPTIONAL_K = replace(_K, is_optional=True)
_X = ("x",)
_HLC = ("high", "low", "close")
_STOCHASTIC = (Argument("k", least=1), Argument("slow", least=1, usual=3), Argument("d", least=1, usual=3))
_STOCHRSI = (Argument("n"), Argument("k", least=1), Argument("d", least=1, usual=3))
_HALF_LIFE = Argument("half_life", least=0.01, most=1e6, is_whole=False, usual=10)
_MACD = (Argument("fast", usual=12), Argument("slow", usual=26), Argument("signal", least=1, usual=9))
_SUPERTREND = (Argument("n", least=1, usual=10), replace(_K, name="m", usual=3))
_ALL = (
    Indicator("SMA", _X, (_N,), _sma, "mean of the last n values"),
    Indicator("EMA", _X, (_N,), _ema, "exponential moving average, weight 2 / (n + 1), from the mean of the first n"),
    Indicator("WMA", _X, (_N,), _wma, "mean of the last n values, weighted 1 (oldest) to n"),
    Indicator("DEMA", _X, (_N,), _dema, "2 EMA minus the EMA of the EMA"),
    Indicator("TEMA", _X, (_N,), _tema, "3 EMA minus 3 EMA of EMA, plus the third EMA"),
    Indicator("RSI", _X, (_N,), _rsi, "relative strength by Wilder, 0 to 100", PERCENT),
    Indicator("ROC", _X, (_ANY_N,), _roc, "change over n rows in percent"),
    Indicator("MOM", _X, (_ANY_N,), _mom, "change over n rows"),
    Indicator("TRUE_RANGE", _HLC, (), _true_range, "range of the bar including the previous close", NOT_NEGATIVE),
    Indicator("ATR", _HLC, (_ANY_N,), _atr, "Wilder's mean of the true range", NOT_NEGATIVE),
    Indicator("NATR", _HLC, (_N,), _natr, "ATR in percent of the close", NOT_NEGATIVE),
    Indicator("ADX", _HLC, (_N,), _adx, "average directional index", PERCENT),
    Indicator("PLUS_DI", _HLC, (_ANY_N,), _di(0), "directional indicator up", PERCENT),
    Indicator("MINUS_DI", _HLC, (_ANY_N,), _di(1), "directional indicator down", PERCENT),
    Indicator("CCI", _HLC, (_N,), _cci, "distance of the typical price from its mean, by 0.015 mean distances"),
    Indicator("MACD", _X, _MACD, _macd(0), "EMA of fast rows minus EMA of slow rows"),
    Indicator("MACD_SIGNAL", _X, _MACD, _macd(1), "EMA of MACD"),
    Indicator("MACD_HISTOGRAM", _X, _MACD, _macd(2), "MACD less MACD_SIGNAL"),
    Indicator("BOLLINGER_UPPER", _X, (_N, _K), _bollinger(1), "mean plus k population deviations"),
    Indicator("BOLLINGER_MIDDLE", _X, (_N, _OPTIONAL_K), _bollinger(0), "mean of the last n values"),
    Indicator("BOLLINGER_LOWER", _X, (_N, _K), _bollinger(-1), "mean minus k population deviations"),
    Indicator(
        "STOCH_K",
        _HLC,
        _STOCHASTIC,
        _stoch_k,
        "position of the close in the range of k rows, mean of slow rows",
        PERCENT,
    ),
    Indicator("STOCH_D", _HLC, _STOCHASTIC, _stoch_d, "mean of d rows of STOCH_K", PERCENT),
    Indicator("OBV", ("close", "volume"), (), _obv, "volume added if the close rose, subtracted if it fell"),
    Indicator("WILLR", _HLC, (_N,), _willr, "Williams %R, -100 to 0", Extent(-100, 0)),
    Indicator("KAMA", _X, (_N,), _kama, "Kaufman's adaptive moving average"),
    Indicator(
        "STOCHRSI_K", _X, _STOCHRSI, _stochrsi(0), "position of the RSI of n rows in its range of k rows", PERCENT
    ),
    Indicator("STOCHRSI_D", _X, _STOCHRSI, _stochrsi(1), "mean of d rows of STOCHRSI_K", PERCENT),
    Indicator("EWM_MEAN", _X, (_HALF_LIFE,), _ewm(0), "mean in which a value half_life rows back weighs half"),
    Indicator(
        "EWM_VARIANCE",
        _X,
        (_HALF_LIFE,),
        _ewm(1),
        "variance in which a value half_life rows back weighs half",
        NOT_NEGATIVE,
    ),
    Indicator("MFI", (*_HLC, "volume"), (_N,), _mfi, "money flow index, 0 to 100", PERCENT),
    Indicator(
        "AROON_UP",
        ("high", "low"),
        (_N,),
        _aroon(largest=True),
        "how new the highest high of n + 1 rows is",
        PERCENT,
    ),
    Indicator(
        "AROON_DOWN",
        ("high", "low"),
        (_N,),
        _aroon(largest=False),
        "how new the lowest low of n + 1 rows is",
        PERCENT,
    ),
    Indicator("LINEARREG", _X, (_N,), _linear, "end of the least squares line through n values"),
    Indicator("LINEARREG_SLOPE", _X, (_N,), _slope, "slope of the least squares line through n values, by row"),
    Indicator("Z_SCORE", _X, (_N,), _z_score, "distance from the mean of n values in sample deviations"),
    Indicator("DONCHIAN_HIGH", _X, (_ANY_N,), _donchian(largest=True), "greatest of the last n values"),
    Indicator("DONCHIAN_LOW", _X, (_ANY_N,), _donchian(largest=False), "least of the last n values"),
    Indicator("KELTNER_UPPER", _HLC, (_N, _K), _keltner(1), "EMA of the close plus k ATR, both of n rows"),
    Indicator("KELTNER_LOWER", _HLC, (_N, _K), _keltner(-1), "EMA of the close minus k ATR, both of n rows"),
    Indicator(
        "SUPERTREND", _HLC, _SUPERTREND, _supertrend(0), "line that follows the trend, m ATR off the middle price"
    ),
    Indicator(
        "SUPERTREND_DIRECTION",
        _HLC,
        _SUPERTREND,
        _supertrend(1),
        "1 while SUPERTREND is below the price, -1 while it is above",
        Extent(only=(-1.0, 1.0)),
    ),
    Indicator(
        "REALIZED_VOLATILITY",
        _X,
        (_ANY_N,),
        _realized,
        "root of the sum of n squared logarithmic returns",
        NOT_NEGATIVE,
    ),
)
INDICATORS = {indicator.name: indicator for indicator in (*_ALL, *CANDLES)}
