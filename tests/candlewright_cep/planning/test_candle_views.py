"""The built-in views of candle patterns: TA-Lib's results, the same over a stream, and only what a text reads."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pytest
import talib

from candlewright_cep import StreamInput, TriggerRejected, compile_query, compile_stream, evaluate
from candlewright_cep.functions.indicators.candles import CANDLES, candle_called, column_of
from candlewright_cep.planning.candle_views import CANDLE_PATTERNS, CANDLE_VIEWS, candle_view
from candlewright_cep.planning.over import Over
from tests.candlewright_cep.functions.indicators.test_indicators import candles
from tests.candlewright_cep.streams import ordered, streamed
from tests.rounds import seeds

PATTERNS = {column_of(candle): candle for candle in CANDLES}
PRICES = ("open", "high", "low", "close")


def bars_of(prices: dict[str, npt.NDArray[Any]], ticker: str = "A", period: int = 60) -> pa.Table:
    rows = len(prices["close"])
    times = pa.array(np.arange(rows) * period * 10**9).cast(pa.timestamp("ns", "UTC"))
    whose = {"ticker": [ticker] * rows, "period_seconds": pa.array([period] * rows, pa.int32()), "open_time": times}
    return pa.table(whose | {name: prices[name] for name in PRICES})


def some_bars(seed: int, rows: int) -> pa.Table:
    """Bars of two tickers and two periods, in time order."""
    chance = np.random.default_rng(seed)
    parts = []
    for ticker in "AB":
        for period in (60, 300):
            opened, body = chance.integers(0, 40, rows) / 4 + 100, chance.integers(-12, 13, rows) / 4
            upper, lower = chance.integers(0, 9, (2, rows)) / 4
            low, high = np.minimum(opened, opened + body) - lower, np.maximum(opened, opened + body) + upper
            prices = {"open": opened, "high": high, "low": low, "close": opened + body}
            parts.append(bars_of(prices, ticker, period))
    return pa.concat_tables(parts).sort_by([("open_time", "ascending"), ("ticker", "ascending")])


def assert_ta_lib(bars: pa.Table) -> int:
    """Checks every view over bars of one ticker and period; returns how often a pattern was found."""
    prices = [bars[name].to_numpy().astype(np.float64) for name in PRICES]
    whole = evaluate("SELECT * FROM candle_patterns", {"ohlc": bars})
    assert whole.select(bars.column_names).equals(bars)
    count = 0
    for name, candle in PATTERNS.items():
        expected = getattr(talib, candle.name.replace("_", ""))(*prices)
        assert [value or 0 for value in whole[name].to_pylist()] == expected.tolist(), name
        found = evaluate(f"SELECT * FROM {name}", {"ohlc": bars})
        assert found["value"].to_pylist() == expected[expected != 0].tolist(), name
        assert found.select(bars.column_names).equals(bars.filter(expected != 0)), name
        count += found.num_rows
    return count


@pytest.mark.parametrize("seed", seeds(2))
def test_every_view_has_the_bars_that_ta_lib_finds(seed: int) -> None:
    assert assert_ta_lib(bars_of(candles(seed))) > 10_000


def test_every_view_has_the_bars_that_ta_lib_finds_in_recorded_ones(shared_data: Path) -> None:
    recorded = pa.csv.read_csv(shared_data / "ftx" / "btc_perp_1m_20211231_20220201.csv")
    prices = {name: recorded[name].to_numpy().astype(np.float64) for name in PRICES}
    assert assert_ta_lib(bars_of(prices)) > 90_000


def test_tickers_and_periods_are_apart() -> None:
    bars = some_bars(1, 80)
    for ticker in "AB":
        for period in (60, 300):
            own = f"WHERE ticker = '{ticker}' AND period_seconds = {period}"
            alone = evaluate(f"SELECT * FROM ohlc {own}", {"ohlc": bars})
            found = evaluate(f"SELECT * FROM engulfing {own}", {"ohlc": bars})
            assert found.num_rows and found.equals(evaluate("SELECT * FROM engulfing", {"ohlc": alone}))


@pytest.mark.parametrize("keys", [("ticker",), ("period_seconds",), ()])
def test_bars_need_neither_a_ticker_nor_a_period(keys: tuple[str, ...]) -> None:
    bars = bars_of(candles(0))
    found = evaluate("SELECT value FROM hammer", {"ohlc": bars.select([*keys, "open_time", *PRICES])})
    assert found.num_rows and found.equals(evaluate("SELECT value FROM hammer", {"ohlc": bars}))


# -- only what is read ------------------------------------------------------------------------------------------------
#: A text over `candle_patterns`, and the patterns that it reads.
READS = [
    ("SELECT ticker, hammer FROM candle_patterns", {"hammer"}),
    ("SELECT ticker, close FROM candle_patterns", set()),
    ("SELECT COUNT(*) AS n FROM candle_patterns WHERE doji > 0", {"doji"}),
    ("SELECT * FROM candle_patterns WHERE doji > 0", set(PATTERNS)),
    ("SELECT ticker FROM (SELECT * FROM candle_patterns) AS p WHERE p.engulfing <> 0", {"engulfing"}),
    (
        """SELECT * FROM candle_patterns MATCH_RECOGNIZE (PARTITION BY ticker, period_seconds ORDER BY open_time
        MEASURES h.open_time AS at, d.harami AS harami PATTERN (h d)
        DEFINE h AS h.hammer = 0, d AS PREV(d.doji) > 0 AND d.close > h.close)""",
        {"hammer", "doji", "harami"},
    ),
    (
        """SELECT * FROM candle_patterns MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time, period_seconds
        MEASURES COUNT(x.spinning_top) AS n ALL ROWS PER MATCH PATTERN (x y) DEFINE y AS close > PREV(close))""",
        set(PATTERNS),
    ),
    (
        """SELECT ticker, SUM(long_line) AS n FROM TABLE(TUMBLE(TABLE candle_patterns, DESCRIPTOR(open_time),
        INTERVAL '1' HOUR)) GROUP BY ticker, window_start, window_end HAVING MAX(doji) > 0""",
        {"long_line", "doji"},
    ),
    (
        """SELECT ticker, LAG(doji, 2) OVER w AS before, MAX(hammer) OVER w AS unread FROM candle_patterns
        WINDOW w AS (PARTITION BY ticker, period_seconds ORDER BY open_time ROWS 5 PRECEDING) QUALIFY
        SUM(short_line) OVER w > 100""",
        {"doji", "hammer", "short_line"},
    ),
    (
        """SELECT ticker, n FROM (SELECT ticker, high_wave, LAG(doji) OVER w AS n, LAG(hammer) OVER w AS unread FROM
        candle_patterns WINDOW w AS (PARTITION BY ticker, period_seconds ORDER BY open_time)) WHERE high_wave > 0""",
        {"doji", "high_wave"},
    ),
    (
        """SELECT a.close, b.marubozu FROM candle_patterns a JOIN candle_patterns b ON a.open_time = b.open_time AND
        a.ticker = b.ticker AND a.period_seconds = b.period_seconds AND a.spinning_top <> b.harami""",
        {"marubozu", "spinning_top", "harami"},
    ),
    ("SELECT doji FROM candle_patterns UNION ALL SELECT hammer FROM candle_patterns", {"doji", "hammer"}),
    ("SELECT DISTINCT belt_hold FROM candle_patterns ORDER BY belt_hold LIMIT 3", {"belt_hold"}),
    ("SELECT ticker FROM candle_patterns ORDER BY doji DESC, open_time, ticker, period_seconds LIMIT 9", {"doji"}),
    (
        """SELECT ticker, x FROM (SELECT ticker, ARRAY[doji, hammer] AS both FROM candle_patterns) AS p
        CROSS JOIN UNNEST (both) AS u(x) WHERE x > 0""",
        {"doji", "hammer"},
    ),
]


def computed(plan: Any) -> set[str]:
    """The candle functions in a plan."""
    found: set[str] = set()
    pending = [plan]
    while pending:
        node = pending.pop()
        if isinstance(node, Over):
            found |= {each.name for each in node.functions if each.name.startswith("CDL_")}
        below = [getattr(node, name, None) for name in ("inner", "left", "right")]
        pending += [each for each in (*below, *getattr(node, "branches", ())) if each is not None]
    return found


@pytest.mark.parametrize(("sql", "read"), READS)
def test_only_the_patterns_that_a_text_reads_are_computed(sql: str, read: set[str]) -> None:
    bars = some_bars(2, 60)
    query = compile_query(sql, {"ohlc": bars.schema})
    assert computed(query.plan) == {PATTERNS[name].name for name in read}
    written_out = {"ohlc": bars, "whole": candle_view(CANDLE_PATTERNS)}
    found = evaluate(sql, {"ohlc": bars})
    assert found.num_rows and found.equals(evaluate(sql.replace("candle_patterns", "whole"), written_out))


def test_a_view_of_ones_own_is_computed_whole_so_that_texts_share_it() -> None:
    bars = some_bars(2, 60)
    own = {"own": "SELECT ticker, open_time, doji, hammer FROM candle_patterns"}
    for column in ("doji", "hammer"):
        query = compile_query(f"SELECT {column} FROM own", {"ohlc": bars.schema}, views=own)
        assert (computed(query.plan), query.views) == ({"CDL_DOJI", "CDL_HAMMER"}, ("own",))


# -- streams ----------------------------------------------------------------------------------------------------------
ON_STREAMS = [
    "SELECT * FROM candle_patterns",
    *(sql for sql, _ in READS if not any(word in sql for word in ("COUNT(*)", "UNION", "DISTINCT", "LIMIT"))),
    *(f"SELECT * FROM {name}" for name in ("hammer", "doji", "engulfing", "hikkake", "three_outside", "spinning_top")),
    """SELECT * FROM engulfing MATCH_RECOGNIZE (PARTITION BY ticker, period_seconds ORDER BY open_time
    MEASURES a.value AS a, b.value AS b PATTERN (a b) WITHIN INTERVAL '1' HOUR DEFINE b AS b.value <> a.value)""",
]


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("sql", ON_STREAMS)
def test_a_stream_gives_the_rows_of_the_table(sql: str, seed: int) -> None:
    chance, bars = random.Random(seed), some_bars(seed, 60)
    found = streamed(sql, bars, sorted(chance.sample(range(1, 240), 9)), name="ohlc", time="open_time")
    assert found and ordered(found) == ordered(evaluate(sql, {"ohlc": bars}).to_pylist())


# -- names ------------------------------------------------------------------------------------------------------------
def test_every_pattern_of_ta_lib_has_a_view_that_can_be_named_without_quotes() -> None:
    assert CANDLE_VIEWS.keys() == {CANDLE_PATTERNS, *PATTERNS}
    theirs = {name for name in talib.get_functions() if name.startswith("CDL")}
    assert {candle.name.replace("_", "") for candle in PATTERNS.values()} == theirs
    assert all(name.isidentifier() and candle_called(name) is candle for name, candle in PATTERNS.items())


def test_other_tables_and_views_of_the_name_come_first() -> None:
    bars = bars_of(candles(0)).slice(0, 50)
    others = {"hammer": "SELECT 1 AS mine FROM ohlc", "doji": pa.table({"mine": [2]})}
    assert evaluate("SELECT * FROM Hammer", {"ohlc": bars, **others})["mine"].to_pylist() == [1] * 50
    assert evaluate("SELECT * FROM doji", {"ohlc": bars, **others})["mine"].to_pylist() == [2]
    assert evaluate("WITH harami AS (SELECT 3 AS mine FROM ohlc) SELECT * FROM harami", {"ohlc": bars}).num_columns == 1
    assert evaluate("SELECT * FROM hammer", bars).equals(bars)


def test_built_in_views_are_not_registered_ones() -> None:
    assert compile_query("SELECT value FROM hammer", {"ohlc": bars_of(candles(0)).schema}).views == ()


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM hamer", r"1:15: unknown table 'hamer' \(did you mean 'hammer'\?\)"),
        ("SELECT * FROM nothing", r"unknown table 'nothing' \(the tables are ohlc\)"),
        ("SELECT hamer FROM candle_patterns", r"unknown column 'hamer' \(did you mean 'hammer'\?\)"),
        ("SELECT * FROM hammer WHERE hammer > 0", "unknown column 'hammer'"),
        ("SELECT * FROM doji JOIN ticks", "INVALID_SQL"),
    ],
)
def test_misspelt_names_get_a_hint(sql: str, said: str) -> None:
    with pytest.raises(TriggerRejected, match=said):
        evaluate(sql, {"ohlc": bars_of(candles(0))})


def test_without_bars_the_error_names_them() -> None:
    with pytest.raises(TriggerRejected, match=r"1:15: in the view 'hammer' at .*: unknown table 'ohlc'"):
        evaluate("SELECT * FROM hammer", {"ticks": pa.table({"price": [1.0]})})


def test_a_column_of_the_bars_that_has_the_views_name_is_ambiguous_and_not_taken_for_it() -> None:
    bars = bars_of(candles(0)).append_column("value", pa.array([1.0] * len(candles(0)["close"])))
    with pytest.raises(TriggerRejected, match="the column 'value' is ambiguous"):
        evaluate("SELECT ticker FROM hammer", {"ohlc": bars})


def test_a_join_that_looks_ahead_through_a_view_gets_a_warning() -> None:
    times = pa.timestamp("ns", "UTC")
    inputs = {
        "ticks": StreamInput(pa.schema([("ticker", pa.string()), ("ts", times)]), ("ts",)),
        "ohlc": StreamInput(bars_of(candles(0)).schema, ("open_time",), period_column="period_seconds"),
    }
    for view in ("hammer", CANDLE_PATTERNS):
        text = f"SELECT t.ts, h.ticker FROM ticks t ASOF JOIN {view} h ON t.ticker = h.ticker AND t.ts >= h."
        (warning,) = compile_stream(f"{text}open_time", inputs, period_seconds=60).warnings
        assert warning.startswith("the join looks ahead")
        assert compile_stream(f"{text}close_time", inputs, period_seconds=60).warnings == ()
