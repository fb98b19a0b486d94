"""All errors of a text at once, the corrected text, and warnings about conditions that are probably not intended."""

import pyarrow as pa
import pytest

from candlewright_cep import Diagnosis, TriggerRejected, compile_query, diagnose
from candlewright_cep.streaming.inputs import StreamInput
from candlewright_cep.streaming.stream import compile_stream

SCHEMA = pa.schema(
    [("ticker", pa.string()), ("ts", pa.timestamp("ns")), ("price", pa.float64()), ("size", pa.float64()),
     pa.field("side", pa.string(), metadata={"values": "buy,sell"}), ("n", pa.int64())]
)  # fmt: skip


BARS = pa.schema(
    [("ticker", pa.string()), ("open_time", pa.timestamp("ns")), ("open", pa.float64()), ("high", pa.float64()),
     ("low", pa.float64()), ("close", pa.float64())]
)  # fmt: skip
OF_BARS = "OVER (PARTITION BY ticker ORDER BY open_time)"
CANDLE = "(open, high, low, close)"


def found(sql: str) -> Diagnosis:
    schemas = {"ticks": SCHEMA, "ohlc": BARS}
    return diagnose(sql, lambda text: compile_query(text, schemas, {"limit": "3"}).warnings)


def pattern(rest: str, before: str = "LAST(close) AS x") -> str:
    return f"SELECT * FROM ohlc MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time MEASURES {before} {rest}) AS m"


def places(sql: str) -> list[tuple[int, int]]:
    return [(problem.line, problem.column) for problem in found(sql).problems]


@pytest.mark.parametrize(
    ("sql", "wanted", "mended"),
    [
        ("SELECT prise, sizee + 1 FROM tics", [(1, 8), (1, 15), (1, 30)], "SELECT price, size + 1 FROM ticks"),
        ("SELECT price FORM ticks\nWHERE prize > 3", [(1, 19), (2, 7)], "SELECT price FROM ticks\nWHERE price > 3"),
        ("price > :limmit && sise > 2", [(1, 9), (1, 17), (1, 20)], "price > :limit AND size > 2"),
        ("price == 1", [(1, 7)], "price = 1"),
        ('price => 1 AND side = "buy"', [(1, 7), (1, 23)], "price >= 1 AND side = 'buy'"),
        (
            "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITON BY ticker ORDER BY ts MEASURES LAST(B.prise) AS x\n"
            "PATERN (A B+) DEFINE B AS prize > PREV(price))",
            [(1, 38), (1, 85), (2, 1), (2, 27)],
            "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(B.price) AS x\n"
            "PATTERN (A B+) DEFINE B AS price > PREV(price))",
        ),
        ("SELECT price || 1 - 2, price + side FROM ticks WHERE price", [(1, 19), (1, 30), (1, 54)], None),
        ("SELECT side * 2 + 1 FROM ticks", [(1, 13)], None),
        ("SELECT SUM(nothing_like_it) FROM ticks GROUP BY side", [(1, 12)], None),
        ("price > 1", [], None),
    ],
)
def test_every_error_is_found_with_its_place(sql: str, wanted: list[tuple[int, int]], mended: str | None) -> None:
    assert places(sql) == wanted
    assert found(sql).mended == mended
    if mended is not None:
        assert places(mended) == []


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT TO_CHAR(ts, 'HH:MI') AS t FROM ticks", "write DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm')"),
        ("SELECT TIME_BUCKET(INTERVAL '1' MINUTE, ts) AS t FROM ticks", "GROUP BY TUMBLE(ts, INTERVAL '5' MINUTE)"),
        ("SELECT ISNULL(price, 0) AS p FROM ticks", "write COALESCE(price, 0), or price IS NULL"),
        ("SELECT PERCENTILE(price, 0.5) AS p FROM ticks", "WITHIN GROUP (ORDER BY price)"),
        ("ts > GETDATE()", "triggers see only the data, compare its times"),
        ("side ILIKE 'BUY'", "write LOWER(side) LIKE 'b%'"),
        ("price ^ 2 > 5", "write POWER(price, 2)"),
        ("WHERE price > 3", "write the condition alone, or a SELECT"),
        ("side = buyer_initiated", "write texts in single quotes"),
        ("SELECT * FROM ticks HAVING price > 3", "name the columns; WHERE filters rows"),
        ("(price + 1) = TRUE", "compare the number first, as in x > 0"),
    ],
)
def test_a_beginners_error_suggests_a_correction(sql: str, hint: str) -> None:
    told = found(sql)
    assert hint in told.problems[0].hint
    assert told.mended is None


@pytest.mark.parametrize(
    ("sql", "place", "hint"),
    [
        ("SELECT CASE WHEN price > 1 THEN 1 ELSE 0 FROM ticks", (1, 42), "write END after the last branch, as in CASE"),
        ("SELECT side,\n CASE WHEN n > 1 THEN 1 AS x FROM ticks", (2, 25), "write END after the last branch"),
        (pattern("PATTERN (A,B)"), (1, 112), "separate the variables of a pattern with blanks, as in (A B)"),
        (pattern("PATTERN ((A | B), C)"), (1, 118), "separate the variables of a pattern with blanks, as in (A B)"),
        (pattern("PATTERN (A)", "LAST(close)"), (1, 97), "write LAST(close) AS last_close"),
        (pattern("PATTERN (A)", "COUNT(*), A.low low"), (1, 93), "write COUNT(*) AS count"),
        (pattern("PATTERN (A)", "COUNT(*) AS n, A.low least"), (1, 106), "write A.low AS least"),
        ("SELECT TOP 10 price FROM ticks", (1, 8), "write SELECT ... ORDER BY price DESC LIMIT 10"),
        ("SELECT DISTINCT TOP (5) side FROM ticks", (1, 17), "write SELECT ... ORDER BY price DESC LIMIT 5"),
        ("TOP 10", (1, 1), "write SELECT ... ORDER BY price DESC LIMIT 10"),
        ("SELECT * FROM ticks LIMIT 5, 10", (1, 28), "write LIMIT 10 OFFSET 5"),
        ("SELECT IF(price > 1) FROM ticks", (1, 8), "write IF(condition, then, else)"),
        ("IF(price > 1)", (1, 1), "write IF(condition, then, else)"),
        ("SELECT VWAP(price) FROM ticks", (1, 8), "write VWAP(price, size)"),
        ("SELECT DATE_TRUNC(ts, 'minute') FROM ticks", (1, 19), "write DATE_TRUNC('minute', ts)"),
        ("SELECT DATE_DIFF(ts, ts, 'minute') FROM ticks", (1, 18), "write DATE_DIFF('minute', from, to)"),
        ("SELECT EXTRACT(ts FROM hour) FROM ticks", (1, 16), "write EXTRACT(HOUR FROM TS)"),
        ("SELECT FLOOR(MINUTE TO ts) FROM ticks", (1, 14), "write FLOOR(ts TO MINUTE)"),
        ("SELECT FLOOR('minute', ts) FROM ticks", (1, 22), "write FLOOR(price), or FLOOR(ts TO MINUTE)"),
        ("SELECT CEIL(price, 2) FROM ticks", (1, 18), "write CEIL(price), or CEIL(ts TO MINUTE); TRUNCATE(price, 2)"),
        ("SELECT EMA(price, 9) OVER () FROM ticks", (1, 8), "write OVER (PARTITION BY ... ORDER BY ...)"),
        (
            "SELECT abs(price - prev_price) FROM tics",
            (1, 20),
            "write LAG(price) OVER (PARTITION BY ticker ORDER BY ts)",
        ),
        (pattern("PATTERN (A) DEFINE A AS low < LAG(low) OVER w"), (1, 132), "write PREV(price) instead of LAG(price)"),
    ],
)
def test_a_common_mistake_gets_its_correction(sql: str, place: tuple[int, int], hint: str) -> None:
    told = found(sql).problems[0]
    assert (told.line, told.column) == place
    assert hint in told.hint


OF_TICKS = "OVER (PARTITION BY ticker ORDER BY ts)"


@pytest.mark.parametrize(
    ("sql", "hint", "mended"),
    [
        ("price > EMA(price, 20)", f"write EMA(...) {OF_TICKS}", f"price > EMA(price, 20) {OF_TICKS}"),
        (
            "EMA(price,\n 9) > SMA(ABS(price),\n 21)",
            f"write EMA(...) {OF_TICKS}",
            f"EMA(price,\n 9) {OF_TICKS} > SMA(ABS(price),\n 21) {OF_TICKS}",
        ),
        ("price > SMA20", f"write SMA(price, 20) {OF_TICKS}", f"price > SMA(price, 20) {OF_TICKS}"),
        ("BB_UPPER(price, 20, 2) OVER (ORDER BY ts) > 1", "did you mean 'BOLLINGER_UPPER'?",
         "BOLLINGER_UPPER(price, 20, 2) OVER (ORDER BY ts) > 1"),
        ("SELECT symbol, volume FROM trades", "did you mean 'ticker'?", "SELECT ticker, size FROM ticks"),
        ("price > '70000'", "write 70000 without quotes", "price > 70000"),
        ("side = buy", "write 'buy' in single quotes", "side = 'buy'"),
        ("(price > 1", "write ) to close the parenthesis of line 1, column 1", "(price > 1)"),
        ("price > 1)", "no parenthesis is open here", "price > 1"),
        (pattern("PATTERN (A)", "MATCH_NUMBER AS n"), "write MATCH_NUMBER()",
         pattern("PATTERN (A)", "MATCH_NUMBER() AS n")),
        (pattern("PATTERN (A)", "FIRST(close) AS end"), 'END is a key word: write "end", or another name',
         pattern("PATTERN (A)", 'FIRST(close) AS "end"')),
        (pattern("PATTERN (A) DEFINE A = close > 1"), "write AS", pattern("PATTERN (A) DEFINE A AS close > 1")),
        (pattern("PATTERN (A) DEFINE A close > 1"), "write A AS close ...",
         pattern("PATTERN (A) DEFINE A AS close > 1")),
    ],
)  # fmt: skip
def test_an_obvious_mistake_is_corrected(sql: str, hint: str, mended: str) -> None:
    told = found(sql)
    assert told.problems[0].hint == hint
    assert told.mended == mended
    assert found(mended).problems == ()


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("price > MAX(price, 20)", "write MAX(price) OVER (PARTITION BY ticker ORDER BY ts ROWS 19 PRECEDING)"),
        ("SELECT STDDEV(price, 20) OVER (ORDER BY ts) FROM ticks", "write STDDEV(price) OVER (PARTITION BY ticker"),
        ("SELECT * FROM ticks WHERE price > AVG(price)", "HAVING filters groups; QUALIFY price > AVG(price) OVER"),
        ("price > price[1]", f"an earlier row's value is LAG(price) {OF_TICKS}"),
        ("RSI(price, 14) OVER w < 30", f"write {OF_TICKS}, or WINDOW w AS (...) after the SELECT"),
        ("ts > ts + 5", "write + INTERVAL '5' SECOND"),
        ("ts > 5", "compare a time with a text, as in ts > '2024-01-31 09:30:00'"),
        ("ts BETWEEN '09:30' AND '16:00'", "write DATE_FORMAT(ts AT TIME ZONE 'America/New_York', 'HH:mm')"),
        ("ts > 'yesterday'", "write '2024-01-31 09:30:00'"),
        ("CAST(ts AS TIME) > '09:30'", "write DATE_FORMAT(ts, 'HH:mm') for the time of day, as a text"),
        ("ts.hour = 9", "write EXTRACT(HOUR FROM ts)"),
        ("SELECT FIRST(price) FROM ticks", "elsewhere, FIRST_VALUE(price) OVER (...), or MIN_BY(price, ts)"),
        ("price > PCT_CHANGE(price)", "write close / LAG(close) OVER"),
        ("price > HIGHEST(price, 20)", "write MAX(high) OVER"),
        ("COUNT > 3", "COUNT is a function: write COUNT(*)"),
        ("price > :most", "add most to the parameters"),
        ("price > 3 AND", "write one after 'AND'"),
        (pattern("PATTERN (A)", "COUNT(A) AS n"), "write A.open; COUNT(A.*) counts its rows"),
        (pattern("PATTERN (A{3,2})"), "write {2,3}"),
        (pattern("PATTERN (A) DEFINE A AS close > PREV(close, -1)"), "NEXT(x, 1) looks ahead"),
        (pattern("PATTERN (A) MEASURES"), "the order of clauses is PARTITION BY, ORDER BY, MEASURES, ROWS PER MATCH"),
        (pattern("ONE ROW PER MATCH MEASURES"), "the order of clauses is PARTITION BY, ORDER BY, MEASURES, ROWS PER"),
        (f"{pattern('PATTERN (A)')} WHERE open > 1", "a column of the pattern's input: write MEASURES LAST(open) AS"),
        (f"SELECT A.low FROM ({pattern('PATTERN (A)')[14:]}".replace("(ohlc", "ohlc"),
         "variables are known in MATCH_RECOGNIZE: write MEASURES A.low AS low"),
    ],
)  # fmt: skip
def test_an_error_suggests_a_correction(sql: str, hint: str) -> None:
    assert found(sql).problems[0].hint.startswith(hint)


def test_a_like_without_wildcards_gets_a_warning() -> None:
    (warning,) = found("side LIKE 'b*'").warnings
    assert warning == "LIKE compares side with a text that has no % or _: write % for any characters"
    assert found("side LIKE 'b*%'").warnings == ()


def test_an_abbreviation_is_not_corrected_to_a_column() -> None:
    told = found("SELECT * FROM ohlc WHERE close > hh")
    assert (told.mended, "did you mean" in told.problems[0].hint) == (None, False)


def test_functions_of_charting_tools_get_what_to_write_instead() -> None:
    crossed = found("SELECT * FROM ohlc WHERE CROSSES_ABOVE(open, close)").problems[0]
    assert crossed.hint.startswith("compare with LAG(...)")
    assert found("SELECT STD(price) AS s FROM ticks").problems[0].hint == "write STDDEV(price)"


def test_a_function_is_not_corrected_to_one_that_is_barely_alike() -> None:
    assert found("price > PCT_GAP(price)").problems[0].hint == ""


@pytest.mark.parametrize(
    ("sql", "mended"),
    [
        ("abs(price - prev_price) > 5", "abs(price - LAG(price) OVER (PARTITION BY ticker ORDER BY ts)) > 5"),
        (
            pattern("PATTERN (A,B, C) DEFINE B AS prev_close < LAG(close, 2)"),
            pattern("PATTERN (A B C) DEFINE B AS PREV(close) < PREV(close, 2)"),
        ),
    ],
)
def test_a_name_for_the_previous_row_is_corrected(sql: str, mended: str) -> None:
    assert found(sql).mended == mended
    assert found(mended).problems == ()


def test_offset_alone_is_refused_on_a_stream_by_its_name() -> None:
    with pytest.raises(TriggerRejected, match="1:28: OFFSET is not possible on a stream"):
        compile_stream("SELECT * FROM ticks OFFSET 5", {"ticks": StreamInput(SCHEMA, ("ts",))})


def test_an_indicator_over_several_tickers_gets_a_warning() -> None:
    (warning,) = found("SELECT price,\n EMA(price, 9) OVER (ORDER BY ts) AS e FROM ticks").warnings
    assert warning == "EMA takes the rows of all tickers as one series (line 2, column 21): write PARTITION BY ticker"
    assert found("SELECT EMA(price, 9) OVER (ORDER BY ts) AS e FROM ticks WHERE ticker = 'X'").warnings == ()


@pytest.mark.parametrize(
    ("sql", "warns"),
    [
        ("SELECT ticker, MAX(price) AS m FROM t GROUP BY ticker, trade_id EMIT CHANGES", True),
        ("SELECT LAG(d) OVER (PARTITION BY trade_id ORDER BY ts) AS m FROM (SELECT *, price AS d FROM t) AS x", True),
        ("SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY trade_id ORDER BY ts PATTERN (A B)) AS m", True),
        ("SELECT side, MAX(price) AS m FROM t GROUP BY side EMIT CHANGES", False),
        ("SELECT trade_id, COUNT(*) AS n FROM t GROUP BY trade_id, TUMBLE(ts, INTERVAL '1' MINUTE)", False),
        ("SELECT ROW_NUMBER() OVER (PARTITION BY window_start, trade_id ORDER BY side) AS n FROM t "
         "GROUP BY trade_id, side, TUMBLE(ts, INTERVAL '1' MINUTE)", False),
        ("SELECT LAG(price) OVER (PARTITION BY a ORDER BY ts) AS m FROM (SELECT *, LEFT(trade_id, 1) AS a FROM t) AS x",
         False),
    ],
)  # fmt: skip
def test_a_group_for_each_row_gets_a_warning(sql: str, warns: bool) -> None:
    schema = SCHEMA.append(pa.field("trade_id", pa.string()))
    warnings = compile_query(sql, {"t": schema}).warnings
    assert [said.startswith("trade_id differs in every row") for said in warnings] == [True] * warns


_ONE_SERIES = "takes the rows of all tickers as one series"
_FALL = "B AS price < PREV(price)"


@pytest.mark.parametrize(
    ("source", "partition", "define", "said"),
    [
        ("ticks", "", _FALL, "write PARTITION BY ticker"),
        ("ticks", "PARTITION BY side", _FALL, "write PARTITION BY ticker, side"),
        ("ticks", "PARTITION BY side", "B AS EMA(price, 3) > 5", "write PARTITION BY ticker, side"),
        ("ticks", "", "B AS price > A.price", "write PARTITION BY ticker"),
        ("ticks", "", "B AS price > MAX(A.price)", "write PARTITION BY ticker"),
        ("(SELECT * FROM ticks WHERE ticker IN ('BTC/USDT.X', 'ETH/USDT.X'))", "", _FALL, "write PARTITION BY ticker"),
        ("ticks", "PARTITION BY ticker", _FALL, ""),
        # Of one market, perhaps on several venues.
        ("(SELECT ticker, ts, price FROM ticks WHERE ticker = 'BTC/USDT.X')", "", _FALL, ""),
        ("(SELECT * FROM ticks WHERE ticker IN ('BTC/USDT.X', 'BTC/USDT.Y'))", "", _FALL, ""),
        ("(SELECT *, SPLIT_PART(ticker, '/', 1) AS coin FROM ticks)", "PARTITION BY coin", _FALL, ""),
        (
            "(SELECT a.ticker, a.ts, a.price / b.price AS price FROM ticks a JOIN ticks b ON a.ts = b.ts "
            "WHERE a.ticker = 'BTC/USDT.X' AND b.ticker = 'ETH/USDT.X')", "", _FALL, "",
        ),
        # The pattern looks at the tickers, or compares no prices.
        ("ticks", "", "B AS price < A.price AND B.ticker <> A.ticker", ""),
        ("ticks", "", "A AS size > 5, B AS size > 5 AND SUM(size) > 20", ""),
        ("ticks", "", "A AS side = 'buy', B AS side = 'sell'", ""),
    ],
)  # fmt: skip
def test_a_pattern_over_the_prices_of_several_tickers_gets_a_warning(
    source: str, partition: str, define: str, said: str
) -> None:
    sql = f"SELECT * FROM {source} MATCH_RECOGNIZE ({partition} ORDER BY ts PATTERN (A B) DEFINE {define}) AS m"
    told = [warning for warning in found(sql).warnings if _ONE_SERIES in warning]
    assert len(told) == bool(said)
    assert all(warning.endswith(said) for warning in told)


def test_measures_of_several_tickers_show_that_a_pattern_combines_them() -> None:
    sql = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES A.ticker AS a{} "
        "PATTERN (A B) DEFINE B AS price < A.price) AS m"
    )
    assert _ONE_SERIES in "".join(found(sql.format("")).warnings)
    assert _ONE_SERIES not in "".join(found(sql.format(", B.ticker AS b")).warnings)


@pytest.mark.parametrize("function", ["LAG(price)", "AVG(price)"])
def test_a_window_of_the_prices_of_several_tickers_gets_a_warning(function: str) -> None:
    sql = f"SELECT {function} OVER ({{}}ORDER BY ts ROWS 3 PRECEDING) AS x FROM ticks"
    sql = sql.replace(" ROWS 3 PRECEDING", "") if function.startswith("LAG") else sql
    assert _ONE_SERIES in "".join(found(sql.format("")).warnings)
    assert found(sql.format("PARTITION BY ticker ")).warnings == ()


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        ("ROWS BETWEEN 5 FOLLOWING AND 1 FOLLOWING", "it starts after its end"),
        ("ROWS BETWEEN 1 PRECEDING AND 5 PRECEDING", "it starts after its end"),
        ("ROWS BETWEEN CURRENT ROW AND 1 PRECEDING", "it starts after its end"),
        ("RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND INTERVAL '2' SECOND PRECEDING", "it starts after its end"),
        ("ROWS BETWEEN CURRENT ROW AND CURRENT ROW EXCLUDE CURRENT ROW", "its only row is excluded"),
        ("GROUPS BETWEEN CURRENT ROW AND CURRENT ROW EXCLUDE GROUP", "its only row is excluded"),
        ("ROWS BETWEEN 5 PRECEDING AND 5 PRECEDING", ""),
        ("ROWS BETWEEN CURRENT ROW AND CURRENT ROW EXCLUDE TIES", ""),
        ("RANGE BETWEEN CURRENT ROW AND CURRENT ROW EXCLUDE CURRENT ROW", ""),
        ("ROWS BETWEEN UNBOUNDED PRECEDING AND 5 PRECEDING", ""),
    ],
)
def test_an_always_empty_frame_gets_a_warning(frame: str, why: str) -> None:
    warnings = found(
        f"SELECT SUM(price) OVER (ORDER BY ts {frame}) AS s, ROW_NUMBER() OVER (ORDER BY ts) FROM ticks"
    ).warnings
    assert warnings == ((f"the frame of SUM (line 1, column 24) is always empty: {why}",) if why else ())


def test_an_error_is_reported_once_without_its_consequences() -> None:
    assert places("ABS(ROUND(pryce) + 1) > 2 AND LENGTH(UPPER(syde)) > 1") == [(1, 11), (1, 44)]


def test_many_errors_are_bounded() -> None:
    assert len(found("SELECT " + ", ".join(f"nope{number}" for number in range(200)) + " FROM ticks").problems) == 20


@pytest.mark.parametrize(
    ("sql", "warning"),
    [
        ("price > 5 AND price < 3", "the condition is never true: its bounds on price exclude each other"),
        ("price > 5 AND n > 2 AND price <= 5", "the condition is never true: its bounds on price exclude each other"),
        ("price BETWEEN 5 AND 3", "the condition is never true: its bounds on price exclude each other"),
        ("NULL", "the condition is never true: it is NULL"),
        ("1 = 2 AND price > 3", "the condition is never true: a part of it is FALSE"),
        ("price >= price", "the condition compares price with itself, which is always true"),
        ("side = 'buy' AND 'sell' = side", "the condition is never true: side cannot be all of these values"),
        ("side IN ('buy', 'sell') AND n > 1 AND side = 'other'", "the condition is never true: side cannot be all"),
        (
            "n > 1 AND (price > 5 OR side = 'buy' OR price <= 5)",
            "the condition has a part that is always true: every price",
        ),
        ("price < 10 OR 5 < price", "the condition has a part that is always true: every price"),
        (
            "SELECT price, LAG(price) OVER (PARTITION BY ticker, ts ORDER BY ts) AS p FROM ticks",
            "PARTITION BY has ts, which ORDER BY has as well",
        ),
        ("price = NULL", "a comparison with NULL is never true: write price IS NULL, or IS NOT NULL"),
        ("side NOT IN ('buy', NULL)", "a list with NULL: side NOT IN such a list is never true"),
        ("SELECT n / 2 AS half FROM ticks", "n divides whole numbers"),
        (
            "SELECT * FROM (SELECT price, LAG(price) OVER (PARTITION BY ticker ORDER BY ts) AS p FROM ticks) "
            "WHERE price <> p",
            "LAG of the first row is NULL, for which price and p <> is not true: write IS DISTINCT FROM",
        ),
        (
            "SELECT price FROM ticks QUALIFY price <> LEAD(price) OVER (PARTITION BY ticker ORDER BY ts)",
            "LEAD of the last row is NULL",
        ),
        (
            "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS p "
            "PATTERN (A) DEFINE A AS A.side <> PREV(A.side))",
            "PREV of the first row is NULL, for which side <> is not true",
        ),
        (
            "CAST(price AS DECIMAL(9, 2)) > 5 AND CAST(price AS DECIMAL(9, 2)) < 3",
            "the condition is never true: its bounds on price exclude",
        ),
        (
            "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(price) AS p "
            "PATTERN (A B) DEFINE B AS price > 5 AND 4 > price)",
            "DEFINE B is never true: its bounds on price exclude each other",
        ),
    ],
)
def test_likely_mistakes_get_a_warning(sql: str, warning: str) -> None:
    assert any(told.startswith(warning) for told in found(sql).warnings), found(sql).warnings


@pytest.mark.parametrize(
    ("sql", "warning"),
    [
        (
            pattern(f"PATTERN (A) DEFINE A AS CDL_HAMMER{CANDLE} > 200"),
            "DEFINE A is never true: CDL_HAMMER is 0 or 100",
        ),
        (
            pattern(f"PATTERN (A B) DEFINE A AS close > 1, B AS LAST(A.close) > 0 AND 0 > CDL_3WHITE_SOLDIERS{CANDLE}"),
            "DEFINE B is never true: CDL_3WHITE_SOLDIERS is 0 or 100",
        ),
        (
            pattern(f"PATTERN (A) DEFINE A AS CDL_ENGULFING{CANDLE} > 0 AND CDL_ENGULFING{CANDLE} < 80"),
            "DEFINE A is never true: CDL_ENGULFING is -100, -80, 0, 80 or 100",
        ),
        (
            pattern("PATTERN (A) DEFINE A AS RSI(close, 14) > 70 AND RSI(close, 14) < 30"),
            "DEFINE A is never true: its bounds on RSI exclude each other",
        ),
        (
            pattern(f"PATTERN (A) DEFINE A AS CDL_DOJI{CANDLE} >= 0"),
            "DEFINE A has a part that is always true: CDL_DOJI is 0 or 100",
        ),
        (
            f"SELECT close FROM ohlc QUALIFY CDL_HAMMER{CANDLE} {OF_BARS} + CDL_DOJI{CANDLE} {OF_BARS} = 150",
            "the condition is never true: CDL_HAMMER is 0 or 100 and CDL_DOJI is 0 or 100",
        ),
        (
            f"SELECT * FROM (SELECT close, RSI(close, 14) {OF_BARS} AS strength FROM ohlc) WHERE strength > 100",
            "the condition is never true: strength is from 0 to 100",
        ),
        ("EXTRACT(HOUR FROM ts) = 24", "the condition is never true: HOUR is from 0 to 23"),
        ("price > 1 OR ABS(price) < -1", "the condition has a part that is never true: ABS is at least 0"),
        ("UPPER(side) = 'buy'", "the condition is never true: the result of UPPER is 'BUY'"),
        (
            "SELECT side FROM ticks GROUP BY side HAVING COUNT(*) < 0",
            "the condition is never true: COUNT is at least 0",
        ),
        (
            f"SELECT * FROM ({pattern('PATTERN (up)', 'CLASSIFIER() AS k')}) WHERE k = 'up'",
            "the condition is never true: k is 'UP'",
        ),
    ],
)
def test_comparisons_with_values_that_a_function_never_returns_get_a_warning(sql: str, warning: str) -> None:
    assert warning in found(sql).warnings


def test_comparisons_with_impossible_texts_of_a_column_get_a_warning() -> None:
    side = pa.field("side", pa.string(), metadata={"values": "buy,sell,unknown"})
    (warning,) = compile_query("side = 'BUY'", {"ticks": pa.schema([side])}).warnings
    assert warning == "the condition is never true: side is 'buy', 'sell' or 'unknown'"
    assert compile_query("side IN ('BUY', 'sell')", {"ticks": pa.schema([side])}).warnings == ()


@pytest.mark.parametrize(
    ("rest", "mended"),
    [
        (
            "PATTERN (hammer doji) WITHIN INTERVAL '5' MINUTE",
            f"PATTERN (hammer doji) WITHIN INTERVAL '5' MINUTE DEFINE HAMMER AS CDL_HAMMER{CANDLE} <> 0, "
            f"DOJI AS CDL_DOJI{CANDLE} <> 0",
        ),
        (
            "PATTERN (S MorningStar{1,2} up) DEFINE up AS close > PREV(close)",
            f"PATTERN (S MorningStar{{1,2}} up) DEFINE MORNINGSTAR AS CDL_MORNING_STAR{CANDLE} <> 0, "
            "up AS close > PREV(close)",
        ),
    ],
)
def test_undefined_variables_named_after_candles_get_a_warning(rest: str, mended: str) -> None:
    told = found(pattern(rest))
    assert told.problems == ()
    for warning in told.warnings:
        assert "is not in DEFINE, so any row matches it (the view candle_patterns has a column " in warning
        assert ": did you mean DEFINE " in warning
    assert told.mended == pattern(mended)
    assert found(told.mended).warnings == ()


def test_over_candle_patterns_the_column_is_proposed() -> None:
    text = pattern("PATTERN (hammer TwoCrows) WITHIN INTERVAL '1' HOUR").replace("ohlc", "candle_patterns")
    told = found(text)
    assert told.mended is not None
    assert told.mended.endswith("DEFINE HAMMER AS HAMMER.hammer <> 0, TWOCROWS AS TWOCROWS.two_crows <> 0) AS m")
    assert found(told.mended).warnings == ()


def test_a_definition_that_the_input_has_no_columns_for_is_not_proposed_as_a_text() -> None:
    told = found("SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES LAST(price) AS x PATTERN (doji)) AS m")
    assert len(told.warnings) == 1 and told.mended is None


@pytest.mark.parametrize(
    "sql",
    [
        pattern(f"PATTERN (HAMMER) DEFINE HAMMER AS CDL_HAMMER{CANDLE} > 0 AND RSI(close, 14) < 30"),
        pattern(f"PATTERN (A B) DEFINE A AS CDL_HIKKAKE{CANDLE} = -200, B AS CLASSIFIER() = 'B'"),
        f"SELECT close FROM ohlc QUALIFY CDL_ENGULFING{CANDLE} {OF_BARS} > 80 OR CDL_DOJI{CANDLE} {OF_BARS} = 100",
        "EXTRACT(SECOND FROM ts) BETWEEN 0 AND 30 AND LENGTH(side) > 3",
        "SELECT side, COUNT(*) AS n FROM ticks GROUP BY side HAVING COUNT(*) > 0 AND MAX(price) < 0",
        "price > 3 AND price < 5",
        "price >= 5 AND price <= 5",
        "price > 5 OR price < 3",
        "price > 5 OR price < 5",
        "side = 'buy' OR side = 'sell'",
        "side IN ('buy', 'sell') AND side IN ('sell', 'other')",
        "(price > 5 AND size < 3) OR (price < 10 AND size > 4)",
        "NOT (price > 5 AND size < 3)",
        "SELECT n / 2.0 AS half, price / 2 AS p FROM ticks WHERE side IS NULL",
        "SELECT price FROM ticks QUALIFY price <> LAG(price, 1, 0.0) OVER (PARTITION BY ticker ORDER BY ts)",
        "SELECT price FROM ticks QUALIFY price IS DISTINCT FROM LAG(price) OVER (PARTITION BY ticker ORDER BY ts)",
        "TRUE",
        "FALSE",
    ],
)
def test_intended_conditions_get_no_warning(sql: str) -> None:
    assert found(sql).warnings == ()


def test_a_list_of_thousands_of_numbers_is_checked() -> None:
    told = found(f"price IN ({', '.join(map(str, range(5_000)))})")
    assert (told.problems, told.warnings) == ((), ())
