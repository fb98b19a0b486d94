"""Indicators: TA-Lib's values and first rows, separate definitions in numpy, and streams that equal finished tables."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pytest
import talib
import talib.abstract

from candlewright_cep import ReleaseBuffer, StreamInput, TriggerRejected, TriggerStream, compile_stream, evaluate
from candlewright_cep.functions.indicators import series
from candlewright_cep.functions.indicators.indicator import Indicator
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.streaming.stages import indicator_states
from tests.candlewright_cep.streams import streamed
from tests.rounds import rounds, seeds

Array = npt.NDArray[Any]
Bars = dict[str, Array]

#: TA-Lib's name, and the index of the result.
TALIB: dict[str, tuple[str, int | None]] = {
    "SMA": ("SMA", None), "EMA": ("EMA", None), "WMA": ("WMA", None), "DEMA": ("DEMA", None), "TEMA": ("TEMA", None),
    "RSI": ("RSI", None), "ROC": ("ROC", None), "MOM": ("MOM", None), "TRUE_RANGE": ("TRANGE", None),
    "ATR": ("ATR", None), "NATR": ("NATR", None), "ADX": ("ADX", None), "PLUS_DI": ("PLUS_DI", None),
    "MINUS_DI": ("MINUS_DI", None), "CCI": ("CCI", None),
    "MACD": ("MACD", 0), "MACD_SIGNAL": ("MACD", 1), "MACD_HISTOGRAM": ("MACD", 2),
    "BOLLINGER_UPPER": ("BBANDS", 0), "BOLLINGER_MIDDLE": ("BBANDS", 1), "BOLLINGER_LOWER": ("BBANDS", 2),
    "STOCH_K": ("STOCH", 0), "STOCH_D": ("STOCH", 1), "OBV": ("OBV", None), "WILLR": ("WILLR", None),
    "MFI": ("MFI", None), "AROON_UP": ("AROON", 1), "AROON_DOWN": ("AROON", 0), "LINEARREG": ("LINEARREG", None),
    "LINEARREG_SLOPE": ("LINEARREG_SLOPE", None),
    "KAMA": ("KAMA", None), "STOCHRSI_K": ("STOCHRSI", 0), "STOCHRSI_D": ("STOCHRSI", 1),
    "DONCHIAN_HIGH": ("MAX", None), "DONCHIAN_LOW": ("MIN", None),
}  # fmt: skip


def _bars(seed: int, rows: int, *, flat: bool = False) -> Bars:
    chance = np.random.default_rng(seed)
    close = 100 * np.exp(np.cumsum(chance.normal(0, 0.01, rows)))
    if flat:  # many bars that are equal to the previous one
        close = np.round(close / 2) * 2
    wide = np.round(np.abs(chance.normal(0, 0 if flat else 0.5, (2, rows))), 1)
    volume = np.round(chance.exponential(10, rows), 2)
    opened = close + np.round(chance.normal(0, 0.5, rows), 1)
    high, low = np.maximum(opened, close) + wide[0], np.minimum(opened, close) - wide[1]
    return {"x": close, "open": opened, "high": high, "low": low, "close": close, "volume": volume}


def _numbers(indicator: Indicator, chance: random.Random, longest: int = 40) -> list[float]:
    found: list[float] = []
    for number in indicator.numbers:
        is_short = chance.random() < 0.2
        least = int(max(number.least, 2 if indicator.name.startswith("DONCHIAN") else 1))
        found.append(
            least if is_short and number.is_whole else chance.randint(least, longest) if number.is_whole else 2.5
        )
    return found


def _call(indicator: Indicator, numbers: list[float]) -> str:
    return f"{indicator.name}({', '.join([*indicator.inputs, *map(str, numbers)])})"


def _table(bars: Bars, missing: set[int], ticker: str = "A") -> pa.Table:
    rows = len(bars["close"])
    columns: dict[str, Any] = {
        name: pa.array([None if row in missing else value for row, value in enumerate(values.tolist())], pa.float64())
        for name, values in bars.items()
    }
    times = pa.array(np.arange(rows) * 60 * 10**9).cast(pa.timestamp("ns", "UTC"))
    return pa.table({"ticker": [ticker] * rows, "open_time": times, **columns})


def _values(table: pa.Table, call: str) -> list[float | None]:
    sql = f"SELECT {call} OVER (PARTITION BY ticker ORDER BY open_time) AS v FROM ohlc"
    found: list[float | None] = evaluate(sql, table).column("v").to_pylist()
    return found


def _assert_equal(found: list[float | None], expected: Array) -> None:
    shown = np.array([np.nan if value is None else value for value in found])
    np.testing.assert_allclose(shown, expected, rtol=1e-9, atol=1e-9)


def _of_ta_lib(name: str, bars: Bars, numbers: list[float]) -> Array:
    function, part = TALIB[name]
    inputs = [bars[column] for column in INDICATORS[name].inputs]
    given = [*numbers[:2], 0, numbers[2], 0] if function == "STOCH" else numbers
    given = [*numbers, 0] if function == "STOCHRSI" else given
    given = [*numbers, numbers[1]] if function == "BBANDS" else given
    found = getattr(talib, function)(*inputs, *given)
    expected: Array = found if part is None else found[part]
    return expected


@pytest.mark.parametrize("name", TALIB)
@pytest.mark.parametrize("seed", seeds(12))
def test_values_and_first_row_are_those_of_ta_lib(name: str, seed: int) -> None:
    indicator, chance = INDICATORS[name], random.Random(f"{name}{seed}")
    function, _ = TALIB[name]
    # Over flat bars the RSI is constant up to rounding, which is then all that its own range shows.
    bars = _bars(seed, chance.choice([30, 300]), flat=seed == 3 and function != "STOCHRSI")
    numbers = _numbers(indicator, chance)
    _assert_equal(_values(_table(bars, set()), _call(indicator, numbers)), _of_ta_lib(name, bars, numbers))


@pytest.mark.parametrize("name", TALIB)
def test_the_least_prices_and_long_pauses_have_ta_libs_values_too(name: str) -> None:
    indicator, chance = INDICATORS[name], random.Random(name)
    bars = {column: np.concatenate([each, np.full(90, each[-1])]) for column, each in _bars(5, 40).items()}
    numbers = _numbers(indicator, chance, 6)
    for size in (1.0, 1e-15):
        sized = {column: each if column == "volume" else each * size for column, each in bars.items()}
        expected = _of_ta_lib(name, sized, numbers)
        found = _values(_table(sized, set()), _call(indicator, numbers))
        by = max(np.nanmax(np.abs(expected)), 1e-300)
        _assert_equal([None if value is None else value / by for value in found], expected / by)


def _windows(values: Array, n: int) -> Array:
    return np.lib.stride_tricks.sliding_window_view(values, n)


def _from(first: int, values: Array) -> Array:
    return np.concatenate([np.full(first, np.nan), values])


def _z(bars: Bars, n: int) -> Array:
    last = _windows(bars["x"], n)
    return _from(n - 1, (last[:, -1] - last.mean(axis=1)) / last.std(axis=1, ddof=1))


def _volatility(bars: Bars, n: int) -> Array:
    returns = np.diff(np.log(bars["x"]))
    return _from(n, np.sqrt((_windows(returns, n) ** 2).sum(axis=1)))


def _keltner(sign: int) -> Callable[..., Array]:
    def run(bars: Bars, n: int, k: float) -> Array:
        reach: Array = talib.ATR(bars["high"], bars["low"], bars["close"], n)
        found: Array = talib.EMA(bars["close"], n) + sign * k * reach
        return found

    return run


def _supertrend(part: int) -> Callable[..., Array]:
    """Row by row, as TradingView defines it, from TA-Lib's ATR."""

    def run(bars: Bars, n: int, m: float) -> Array:
        reach = talib.ATR(bars["high"], bars["low"], bars["close"], n)
        found, upper, lower, is_up = np.full((2, len(reach)), np.nan), np.nan, np.nan, False
        for row in range(n, len(reach)):
            close, before = bars["close"][row], bars["close"][row - 1]
            middle = (bars["high"][row] + bars["low"][row]) / 2
            top, bottom = middle + m * reach[row], middle - m * reach[row]
            if row == n:
                upper, lower = top, bottom
            else:
                upper = top if top < upper or before > upper else upper
                lower = bottom if bottom > lower or before < lower else lower
                is_up = close >= lower if is_up else close > upper
            found[:, row] = lower if is_up else upper, 1 if is_up else -1
        shown: Array = found[part]
        return shown

    return run


def _by_half_life(bars: Bars, half_life: float) -> Any:
    return pd.Series(bars["x"]).ewm(halflife=half_life, adjust=False)


OWN: dict[str, Callable[..., Array]] = {
    "EWM_MEAN": lambda bars, half_life: _by_half_life(bars, half_life).mean().to_numpy(),
    "EWM_VARIANCE": lambda bars, half_life: _by_half_life(bars, half_life).var(bias=True).to_numpy(),
    "Z_SCORE": _z,
    "REALIZED_VOLATILITY": _volatility,
    "KELTNER_UPPER": _keltner(1),
    "KELTNER_LOWER": _keltner(-1),
    "SUPERTREND": _supertrend(0),
    "SUPERTREND_DIRECTION": _supertrend(1),
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("seed", [7, 8])
def test_values_are_those_of_the_definition(name: str, seed: int) -> None:
    indicator, bars = INDICATORS[name], _bars(seed, 200)
    numbers: list[float] = [14, 1.5][: len(indicator.numbers)]
    numbers = [7.5] if name.startswith("EWM") else numbers
    _assert_equal(_values(_table(bars, set()), _call(indicator, numbers)), OWN[name](bars, *numbers))


#: Names of TA-Lib that differ from ours by more than underscores.
CANDLES = [name for name in INDICATORS if name.startswith("CDL_")]


#: Rare patterns in eighths: each bar as the gap from the previous close, body, upper and lower shadow, after bars of
#: body 4.
PLANTED = {
    "CDL_MAT_HOLD": [(0, 24, 1, 1), (6, -3, 1, 1), (-1, -5, 1, 1), (4, -4, 1, 1), (2, 12, 1, 1)],
    "CDL_BREAKAWAY": [(0, 24, 1, 1), (4, 4, 1, 1), (1, 3, 1, 1), (1, 3, 1, 1), (0, -14, 1, 1)],
    "CDL_RISE_FALL_3METHODS": [(0, 24, 1, 1), (-2, -4, 1, 1), (0, -4, 1, 1), (0, -4, 1, 1), (1, 24, 1, 1)],
    "CDL_CONCEAL_BABY_SWALL": [(0, -12, 0, 0), (0, -12, 0, 0), (-3, -6, 8, 0), (16, -18, 0, 0)],
    "CDL_COUNTERATTACK": [(0, -16, 1, 1), (-16, 16, 1, 1)],
    "CDL_UPSIDE_GAP_2CROWS": [(0, 24, 1, 1), (8, -3, 1, 1), (5, -6, 1, 1)],
    "CDL_2CROWS": [(0, 24, 1, 1), (8, -4, 1, 1), (2, -12, 1, 1)],
    "CDL_3STARS_IN_SOUTH": [(0, -12, 1, 20), (4, -8, 1, 6), (2, -2, 0, 0)],
    "CDL_3BLACK_CROWS": [(0, 8, 1, 1), (0, -12, 1, 0), (2, -12, 1, 0), (2, -12, 1, 0)],
    "CDL_KICKING": [(0, -16, 0, 0), (20, 16, 0, 0)],
}


def candles(seed: int) -> Bars:
    """Sizes are eighths, so that sums are exact, and equal sizes are equal in TA-Lib too."""
    chance = np.random.default_rng(seed)
    rows = 6_000
    gaps = chance.choice([0, 0, 0, 1, -1, 2, -2, 6, -6, 12, -12], rows)
    trend = np.repeat(chance.choice([1, -1], rows // 5), 5) * chance.choice([1, 1, 1, 1, -1], rows)
    bodies = trend * chance.choice([0, 1, 2, 3, 8, 16, 24], rows)
    shadows = chance.choice([0, 0, 0, 0, 1, 3, 8, 30], (2, rows))
    parts = [np.stack([gaps, bodies, *shadows], axis=1)]
    calm = [(0, 4, 1, 1), (0, -4, 1, 1)] * 6
    for planted in PLANTED.values():
        for turn in range(40):
            part = np.array([*calm, *planted])
            part[:, 1:] += chance.choice([0, 0, turn % 2], (len(part), 3))
            parts.append(part)
    gap, body, upper, lower = np.concatenate(parts).T
    opened = np.cumsum(gap + np.concatenate([[0], body[:-1]]))
    ends = np.stack([opened, opened + body])
    found = {"open": opened, "high": ends.max(axis=0) + upper, "low": ends.min(axis=0) - lower, "close": ends[1]}
    return {name: values / 8 + 100_000 for name, values in found.items()}


@pytest.mark.parametrize("seed", seeds(2))
def test_candle_patterns_are_found_where_ta_lib_finds_them(seed: int) -> None:
    bars = candles(seed)
    taken = {name: [0.4, 0.7][seed] for name in CANDLES if INDICATORS[name].numbers}
    calls = ", ".join(
        f"{_call(INDICATORS[name], [taken[name]] if name in taken else [])} OVER w AS {name}" for name in CANDLES
    )
    sql = f"SELECT {calls} FROM ohlc WINDOW w AS (PARTITION BY ticker ORDER BY open_time)"
    found = evaluate(sql, _table(bars, set()))
    for name in CANDLES:
        function = name.replace("_", "")
        given = {"penetration": taken[name]} if name in taken else {}
        expected = getattr(talib, function)(*bars.values(), **given)
        values = found.column(name).to_pylist()
        first = next(row for row, value in enumerate(values) if value is not None)
        assert first == talib.abstract.Function(function).lookback
        assert [value or 0 for value in values] == expected.tolist()
        assert np.count_nonzero(expected) >= (20 if name in PLANTED else 2)


def test_the_candle_patterns_are_all_of_ta_lib() -> None:
    theirs = {name for name in talib.get_functions() if name.startswith("CDL")}
    assert {name.replace("_", "") for name in CANDLES} == theirs


@pytest.mark.parametrize("name", [name for name in CANDLES if INDICATORS[name].numbers])
def test_a_penetration_that_is_left_out_is_that_of_ta_lib(name: str) -> None:
    bars = candles(3)
    found = _values(_table(bars, set()), _call(INDICATORS[name], []))
    assert [value or 0 for value in found] == getattr(talib, name.replace("_", ""))(*bars.values()).tolist()


def test_a_candle_of_bodies_that_share_an_end_counts_less() -> None:
    bars = {
        "open": [5.0, 3.0, 2.0, 5.0],
        "close": [4.0, 2.0, 3.0, 1.0],
        "high": [5.0, 3.0, 3.0, 5.0],
        "low": [4.0, 2.0, 2.0, 1.0],
    }
    arrays = {name: np.array(values) for name, values in bars.items()}
    found = _values(_table(arrays, set()), "CDL_ENGULFING(open, high, low, close)")
    assert found == [None, None, 0.0, -100.0]
    arrays["open"][3], arrays["high"][3] = 3.0, 3.0
    assert _values(_table(arrays, set()), "CDL_ENGULFING(open, high, low, close)")[3] == -80.0


def test_every_indicator_has_an_oracle() -> None:
    assert set(INDICATORS) == {*TALIB, *OWN, *CANDLES}


@pytest.mark.parametrize("name", INDICATORS)
def test_rows_without_a_value_get_none_and_do_not_count(name: str) -> None:
    indicator, bars = INDICATORS[name], _bars(5, 90)
    missing = set(random.Random(name).sample(range(90), 20))
    call = _call(indicator, _numbers(indicator, random.Random(1), 6))
    kept = [row for row in range(90) if row not in missing]
    expected = iter(_values(_table({name: values[kept] for name, values in bars.items()}, set()), call))
    assert _values(_table(bars, missing), call) == [None if row in missing else next(expected) for row in range(90)]
    strange = _table(bars, set())
    place = strange.column_names.index(indicator.inputs[0])
    odd = [
        random.Random(row).choice([float("nan"), float("inf")]) if row in missing else value
        for row, value in enumerate(bars[indicator.inputs[0]].tolist())
    ]
    strange = strange.set_column(place, indicator.inputs[0], pa.array(odd))
    assert _values(strange, call) == _values(_table(bars, missing), call)


# -- streams --------------------------------------------------------------------------------------------------------

TICKERS = [f"T{number}" for number in range(5)]


def _market(seed: int, rows: int) -> pa.Table:
    """Bars of several tickers, in time order, with NULLs."""
    chance = random.Random(seed)
    table = _table(_bars(seed, rows), set(chance.sample(range(rows), rows // 15)))
    tickers = [chance.choice(TICKERS[:1] if row < rows // 3 else TICKERS) for row in range(rows)]
    return table.set_column(0, "ticker", pa.array(tickers))


def _streamed(sql: str, table: pa.Table, cuts: list[int], *, order: list[int] | None = None) -> list[dict[str, Any]]:
    return streamed(sql, table, cuts, order=order, name="ohlc", time="open_time")


def _every_indicator(chance: random.Random, longest: int, part: int) -> str:
    """Includes every fifth candle pattern."""
    chosen = [INDICATORS[name] for name in (*TALIB, *OWN, *CANDLES[part::5])]
    calls = [f"{_call(one, _numbers(one, chance, longest))} OVER w AS v{number}" for number, one in enumerate(chosen)]
    return (
        f"SELECT ticker, open_time, {', '.join(calls)}, LAG(close) OVER w AS l, VWAP(close, volume) OVER w AS vwap "
        "FROM ohlc WINDOW w AS (PARTITION BY ticker ORDER BY open_time)"
    )


@pytest.mark.parametrize("seed", seeds(4))
def test_a_stream_gives_the_rows_of_a_finished_table(seed: int) -> None:
    chance, table = random.Random(seed), _market(seed, 400)
    sql = _every_indicator(chance, 30, seed)
    expected = sorted(evaluate(sql, table).to_pylist(), key=repr)
    cuts = sorted(chance.sample(range(400), chance.choice([3, rounds(100)])))
    assert sorted(_streamed(sql, table, cuts), key=repr) == expected
    order = sorted(range(400), key=lambda row: row + chance.uniform(0, 15))
    assert sorted(_streamed(sql, table, cuts[::3], order=order), key=repr) == expected


def test_a_bar_of_every_ticker_at_a_time_gives_the_same_values() -> None:
    """Every row of a batch is the only one of its ticker."""
    bars = _bars(9, 300)
    table = _table(bars, set()).set_column(0, "ticker", pa.array(TICKERS * 60))
    times = pa.array(np.arange(300) // 5 * 60 * 10**9).cast(pa.timestamp("ns", "UTC"))
    table = table.set_column(1, "open_time", times)
    sql = _every_indicator(random.Random(9), 12, 4)
    assert sorted(_streamed(sql, table, list(range(5, 300, 5))), key=repr) == sorted(
        evaluate(sql, table).to_pylist(), key=repr
    )


PATTERN = """
    SELECT * FROM ohlc MATCH_RECOGNIZE (
      PARTITION BY ticker ORDER BY open_time
      MEASURES FIRST(A.open_time) AS t, EMA(A.close, 3) AS mean, LAST(RSI(close, 4)) AS r, MAX(EMA(B.close, 3)) AS top
      PATTERN (A B+ C)
      DEFINE A AS close < EMA(close, 3), B AS EMA(close, 3) > PREV(EMA(close, 3)), C AS RSI(C.close, 4) < :high
    ) AS m"""


@pytest.mark.parametrize("seed", seeds(3))
def test_a_pattern_reads_indicators_as_columns(seed: int) -> None:
    table = _market(seed, 300)
    pattern = PATTERN.replace(":high", "70")
    columns = pattern
    for call, name in (("EMA(A.close, 3)", "A.e"), ("EMA(B.close, 3)", "B.e"), ("EMA(close, 3)", "e")):
        columns = columns.replace(call, name)
    columns = columns.replace("RSI(close, 4)", "r4").replace("RSI(C.close, 4)", "C.r4")
    inner = (
        "(SELECT ticker, open_time, close, EMA(close, 3) OVER w AS e, RSI(close, 4) OVER w AS r4 FROM ohlc "
        "WINDOW w AS (PARTITION BY ticker ORDER BY open_time))"
    )
    expected = evaluate(columns.replace("FROM ohlc", f"FROM {inner}", 1), table).to_pylist()
    assert evaluate(pattern, table).to_pylist() == expected
    assert len(expected) > 3
    cuts = sorted(random.Random(seed).sample(range(300), rounds(160)))
    assert sorted(_streamed(pattern, table, cuts), key=repr) == sorted(expected, key=repr)


def test_all_rows_of_a_match_show_no_further_column() -> None:
    table = _market(1, 60)
    sql = "SELECT * FROM ohlc MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time MEASURES EMA(close, 2) AS e ALL ROWS PER MATCH PATTERN (A) DEFINE A AS close > EMA(close, 2)) AS m"  # noqa: E501
    found = evaluate(sql, table)
    assert sorted(found.column_names) == sorted([*table.column_names, "e"])
    assert all(row["close"] > row["e"] for row in found.to_pylist())


def test_a_bare_condition_takes_indicators() -> None:
    table = _market(2, 200)
    over = "OVER (PARTITION BY ticker ORDER BY open_time)"
    condition = f"RSI(close, 5) {over} < 30 AND close < EMA(close, 9) {over}"
    text = f"SELECT * FROM (SELECT *, RSI(close, 5) {over} AS r, EMA(close, 9) {over} AS e FROM ohlc) WHERE r < 30 AND close < e"  # noqa: E501
    found = evaluate(condition, table)
    assert found.column_names == table.column_names
    assert found.to_pylist() == evaluate(text, table).select(table.column_names).to_pylist()
    assert 0 < found.num_rows < 100
    assert sorted(_streamed(condition, table, [20, 90]), key=repr) == sorted(found.to_pylist(), key=repr)


def test_partitions_of_past_days_are_dropped() -> None:
    days = 3_000
    times = pa.array([row * 43_200 * 10**9 for row in range(2 * days)]).cast(pa.timestamp("ns", "UTC"))
    table = pa.table({"ticker": ["A"] * 2 * days, "open_time": times, "close": [1.0, 3.0] * days})
    sql = (
        "SELECT SMA(close, 2) OVER (PARTITION BY ticker, day ORDER BY open_time) AS m "
        "FROM (SELECT ticker, open_time, close, CAST(open_time AS DATE) AS day FROM ohlc)"
    )
    stream = TriggerStream(query=compile_stream(sql, {"ohlc": StreamInput(table.schema, ("open_time",))}))
    buffer = ReleaseBuffer("open_time", "ticker")
    found: list[float | None] = []
    for start in range(0, table.num_rows, 301):
        found += stream.feed(buffer.push(table.slice(start, 301)).rows, buffer.clock).table.column("m").to_pylist()
    assert found == ([None, 2.0] * days)[: len(found)]
    assert stream.partitions < 2_500


def test_state_of_tickers_that_are_removed_is_forgotten() -> None:
    table = _market(3, 200)
    sql = "SELECT ticker, open_time, EMA(close, 3) OVER (PARTITION BY ticker ORDER BY open_time) AS e FROM ohlc"
    stream = TriggerStream(query=compile_stream(sql, {"ohlc": StreamInput(table.schema, ("open_time",))}))
    buffer = ReleaseBuffer("open_time", "ticker")
    stream.feed(buffer.push(table.slice(0, 150)).rows, buffer.clock)
    stream.remove("T0", "T3")
    assert stream.partitions == 3
    rest = table.slice(150).filter(pa.compute.equal(table.slice(150).column("ticker"), "T1"))
    found = stream.feed(buffer.push(rest).rows, buffer.clock).table.to_pylist()
    whole = {(row["ticker"], row["open_time"]): row["e"] for row in evaluate(sql, table).to_pylist()}
    assert found and all(row["e"] == whole["T1", row["open_time"]] for row in found)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("RSI(close) OVER w", r"1:8: RSI has a wrong number of arguments \(write RSI\(x, n\)\)"),
        ("RSI(close, 1) OVER w", r"1:19: n of RSI\(x, n\) must be a whole number from 2 to 10000"),
        ("RSI(close, volume) OVER w", r"1:19: n of RSI\(x, n\) must be a whole number"),
        ("EMA(close, 2.5) OVER w", "must be a whole number"),
        ("EMA(close, 10001) OVER w", "from 2 to 10000"),
        ("EMA(ticker, 3) OVER w", "1:12: EMA takes numbers, not string"),
        ("EMA(close, 3) OVER (w ROWS 3 PRECEDING)", "all rows of its partition in order .* without a frame"),
        ("EMA(close, 3) OVER (PARTITION BY ticker)", "all rows of its partition in order"),
        ("EMA(close, 3)", r"EMA needs OVER \(write EMA\(...\) OVER"),
        ("EMA(DISTINCT close, 3) OVER w", "DISTINCT is not possible with EMA"),
        ("EMA(close, 3) FILTER (WHERE TRUE) OVER w", "FILTER is not possible with EMA"),
        ("EMAA(close, 3) OVER w", r"did you mean 'EMA'\?"),
        ("CDL_MAT_HOLD(open, high, low, close, 11) OVER w", "penetration of .* must be a number from 0 to 10"),
        ("EMA(EMA(close, 3) OVER w, 3) OVER w", "a window function is not possible inside another"),
    ],
)
def test_invalid_arguments_of_an_indicator_are_refused(call: str, message: str) -> None:
    sql = f"SELECT {call} FROM ohlc WINDOW w AS (PARTITION BY ticker ORDER BY open_time)"
    with pytest.raises(TriggerRejected, match=message):
        evaluate(sql, _market(1, 5))


def test_state_of_all_indicators_of_a_stream_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indicator_states, "MOST_KEPT", 300)
    columns = ", ".join(f"SMA(close, {n}) OVER w AS v{n}" for n in range(20, 40))
    sql = f"SELECT {columns} FROM ohlc WINDOW w AS (PARTITION BY ticker ORDER BY open_time)"
    with pytest.raises(TriggerRejected, match="the indicators of a window keep more than 300 numbers"):
        _streamed(sql, _market(1, 50), [25])


def test_state_past_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_STATE", 100)
    with pytest.raises(TriggerRejected, match="keeps more than 100 numbers"):
        _values(_market(1, 50), "SMA(close, 40)")
