"""Slips of authors who know other dialects and libraries: what to write instead, and the corrected text."""

import pyarrow as pa
import pytest

from candlewright_cep import Diagnosis, TriggerRejected, compile_query, diagnose
from candlewright_cep.syntax import slips

TICKS = pa.schema(
    [("ticker", pa.string()), ("ts", pa.timestamp("ns")), ("price", pa.float64()), ("size", pa.float64()),
     ("side", pa.string())]
)  # fmt: skip
BARS = pa.schema(
    [("ticker", pa.string()), ("open_time", pa.timestamp("ns")), ("period_seconds", pa.int32()),
     ("high", pa.float64()), ("low", pa.float64()), ("close", pa.float64())]
)  # fmt: skip
PREVIOUS = "INTERVAL '5' SECOND FROM PREVIOUS ROW"
OVER_TICKS = "OVER (PARTITION BY ticker ORDER BY ts)"
OVER_BARS = "OVER (PARTITION BY ticker ORDER BY open_time)"


def found(sql: str, table: str = "ticks") -> Diagnosis:
    schemas = {"ticks": TICKS, "ohlc": BARS}
    return diagnose(sql, lambda text: compile_query(text, schemas, {"least": "3"}, default_table=table).warnings)


def pattern(rest: str) -> str:
    return f"SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts {rest}) AS m"


@pytest.mark.parametrize(
    ("sql", "hint", "mended"),
    [
        ("price ≥ 3", "write >=", "price >= 3"),
        ("price –\u00a03 > 1", "write -", "price - 3 > 1"),
        ("side = ‘buy’", "write texts in plain single quotes", "side = 'buy'"),
        ("price > 1_070_000", "write numbers without separators, as 70000.5", "price > 1070000"),
        ("price > 1,070,000.5 AND size > 1", "write numbers without separators, as 70000.5",
         "price > 1070000.5 AND size > 1"),
        ("price BETWEEN 70,000 AND 71,000", "write numbers without separators, as 70000.5",
         "price BETWEEN 70000 AND 71000"),
        ("price BETWEEN 100,200", "write BETWEEN low AND high", "price BETWEEN 100 AND 200"),
        ("price BETWEEN 10,20", "write BETWEEN low AND high", "price BETWEEN 10 AND 20"),
        ("SELECT * FROM ohlc WHERE period_seconds = '1m'", "write 60 without quotes",
         "SELECT * FROM ohlc WHERE period_seconds = 60"),
        ("SELECT * FROM ohlc WHERE timeframe = '4 hours' AND close > 3", "did you mean 'period_seconds'?",
         "SELECT * FROM ohlc WHERE period_seconds = 14400 AND close > 3"),
        ("SELECT * FROM ohlc WHERE period IN ('1m', '5m')", "did you mean 'period_seconds'?",
         "SELECT * FROM ohlc WHERE period_seconds IN (60, 300)"),
        ("size > 1.5k", "write 1.5e3", "size > 1.5e3"),
        (
            pattern("PATTERN (A B) WITHIN INTERVAL '5 minutes'\nDEFINE B AS price > 1"),
            "write INTERVAL '5' MINUTE",
            pattern("PATTERN (A B) WITHIN INTERVAL '5' MINUTE\nDEFINE B AS price > 1"),
        ),
        ("ts > TIMESTAMP '2024-01-01' + interval '5 minutes'", "write INTERVAL '5' MINUTE",
         "ts > TIMESTAMP '2024-01-01' + INTERVAL '5' MINUTE"),
        ("SELECT COUNT(*) AS n FROM ticks GROUP BY TUMBLE(ts, 1 minute)", "write INTERVAL '1' MINUTE",
         "SELECT COUNT(*) AS n FROM ticks GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"),
        (
            pattern("PATTERN (A B) WITHIN 5 minutes DEFINE B AS price > 1"),
            "write WITHIN INTERVAL '5' MINUTE",
            pattern("PATTERN (A B) WITHIN INTERVAL '5' MINUTE DEFINE B AS price > 1"),
        ),
        *(
            (pattern(f"PATTERN (A B) WITHIN {text}"), hint, pattern(f"PATTERN (A B) WITHIN {mended}"))
            for text, hint, mended in (
                ("INTERVAL '5' SECOND FROM PREV ROW", f"write WITHIN {PREVIOUS}", PREVIOUS),
                ("INTERVAL '5' SECOND FROM THE LAST EVENT", f"write WITHIN {PREVIOUS}", PREVIOUS),
                ("INTERVAL '5' SECOND OF PREVIOUS ROW", f"write WITHIN {PREVIOUS}", PREVIOUS),
                ("INTERVAL '5' SECOND FROM PREVIOUS", f"write WITHIN {PREVIOUS}", PREVIOUS),
                ("INTERVAL '5' SECOND FROM PREVIUS ROW", "did you mean PREVIOUS instead of PREVIUS?", PREVIOUS),
                ("5 seconds FROM PREVIOUS ROW", "write WITHIN INTERVAL '5' SECOND", PREVIOUS),
                (f"INTERVAL '9' HOUR AND {PREVIOUS}", "write WITHIN INTERVAL '9' HOUR,",
                 f"INTERVAL '9' HOUR, {PREVIOUS}"),
            )
        ),
        ("ts > TIMESTAMP '2024-01-01' + 1 hour", "write INTERVAL '1' HOUR",
         "ts > TIMESTAMP '2024-01-01' + INTERVAL '1' HOUR"),
        ("price BETWEEN 10 TO 20", "write BETWEEN low AND high", "price BETWEEN 10 AND 20"),
        (pattern("PATTERN (A B+ DEFINE B AS price > A.price"), "write PATTERN (A B+) DEFINE B",
         pattern("PATTERN (A B+) DEFINE B AS price > A.price")),
        (pattern("PATTERN A B+ DEFINE B AS price > 1"), "write PATTERN (A B+)",
         pattern("PATTERN (A B+) DEFINE B AS price > 1")),
        (pattern("AFTER MATCH SKIP PAST LAST PATTERN (A)"), "write SKIP PAST LAST ROW",
         pattern("AFTER MATCH SKIP PAST LAST ROW PATTERN (A)")),
        (pattern("AFTER MATCH SKIP TO NEXT PATTERN (A)"), "write SKIP TO NEXT ROW",
         pattern("AFTER MATCH SKIP TO NEXT ROW PATTERN (A)")),
        (pattern("ALL ROWS PATTERN (A)"), "write ALL ROWS PER MATCH", pattern("ALL ROWS PER MATCH PATTERN (A)")),
        ("price > price.shift(1)", f"write LAG(price) {OVER_TICKS}", f"price > LAG(price) {OVER_TICKS}"),
        ("SELECT close.pct_change() AS c FROM ohlc", f"write (close / LAG(close) {OVER_BARS} - 1)",
         f"SELECT (close / LAG(close) {OVER_BARS} - 1) AS c FROM ohlc"),
        ("side.upper() = 'BUY'", "write upper(side)", "upper(side) = 'BUY'"),
        ("price > $least", "write :least", "price > :least"),
        ("price > {least}", "write :least", "price > :least"),
        ("FROM ticks WHERE price > 3", "write SELECT * FROM", "SELECT * FROM ticks WHERE price > 3"),
        ("SELECT side FROM ticks GROUP side", "write GROUP BY", "SELECT side FROM ticks GROUP BY side"),
        ("SELECT price, FROM ticks", "leave out the comma before it", "SELECT price FROM ticks"),
        ("price BETWEEN 1, 2", "write BETWEEN low AND high", "price BETWEEN 1 AND 2"),
        ("side IN 'buy'", "write IN ('a', 'b')", "side IN ('buy')"),
        ("side IN ('buy' 'sell')", "separate the values with commas", "side IN ('buy', 'sell')"),
        ("EXTRACT(hour, ts) = 9", "write EXTRACT(HOUR FROM ts)", "EXTRACT(HOUR FROM ts) = 9"),
        ("price =< 3", "write <=", "price <= 3"),
        ("price > 3 | size > 3", "write OR", "price > 3 OR size > 3"),
        ("!(price > 3)", "write NOT or <>", "NOT (price > 3)"),
        ("price > price.prev", f"write LAG(price) {OVER_TICKS}", f"price > LAG(price) {OVER_TICKS}"),
        ("price IS NOT 3", "write <>", "price <> 3"),
        ("price ISNULL", "write IS NULL", "price IS NULL"),
        ("price NOT NULL", "write IS NOT NULL", "price IS NOT NULL"),
        ("CAST(price, INT) > 3", "write CAST(price AS INT)", "CAST(price AS INT) > 3"),
        ("AVG(price) OVER (ORDER BY ts ROWS 20) > 3", "write ROWS 20 PRECEDING",
         "AVG(price) OVER (ORDER BY ts ROWS 20 PRECEDING) > 3"),
        ("AVG(price) OVER (ORDER BY ts ROWS BETWEEN 20 PRECEDING) > 3",
         "write ROWS BETWEEN 20 PRECEDING AND CURRENT ROW",
         "AVG(price) OVER (ORDER BY ts ROWS BETWEEN 20 PRECEDING AND CURRENT ROW) > 3"),
        ("SELECT COUNT(*) FILTER (price > 3) AS n FROM ticks", "write FILTER (WHERE ...)",
         "SELECT COUNT(*) FILTER (WHERE price > 3) AS n FROM ticks"),
        ("SELECT a.price FROM ticks a LEFT ASOF JOIN ohlc b ON a.ts >= b.open_time", "write ASOF LEFT",
         "SELECT a.price FROM ticks a ASOF LEFT JOIN ohlc b ON a.ts >= b.open_time"),
        (pattern("PATTERN (A B) SUBSET U = A, B DEFINE B AS price > 1"), "write SUBSET U = (A, B)",
         pattern("PATTERN (A B) SUBSET U = (A, B) DEFINE B AS price > 1")),
        (pattern("PATTERN (A)").replace("MATCH_R", "MATCH R"), "write MATCH_RECOGNIZE", pattern("PATTERN (A)")),
        ("ticker = BTC/USDT.BINANCE", "write 'BTC/USDT.BINANCE' in single quotes", "ticker = 'BTC/USDT.BINANCE'"),
        ("SELECT * FROM BTC/USDT.BINANCE", "write FROM ticks WHERE ticker = 'BTC/USDT.BINANCE'",
         "SELECT * FROM ticks WHERE ticker = 'BTC/USDT.BINANCE'"),
        ("SELECT * FROM ticks WHERE price > 3 MATCH_RECOGNIZE (ORDER BY ts PATTERN (A) DEFINE A AS price > 4)",
         "filter in a sub-query: FROM (SELECT * FROM ticks WHERE ...) MATCH_RECOGNIZE (...)",
         "SELECT * FROM (SELECT * FROM ticks WHERE price > 3) MATCH_RECOGNIZE "
         "(ORDER BY ts PATTERN (A) DEFINE A AS price > 4)"),
        ("price > $70000", "write the number alone", "price > 70000"),
        ("price > 3 WHERE size > 1", "write price > 3 AND", "price > 3 AND size > 1"),
        ("SELECT * FROM ticks price > 3", "write FROM ticks WHERE price", "SELECT * FROM ticks WHERE price > 3"),
        (pattern("PATTERN (A B) DEFINE A AS price > 3 B AS price > 4"),
         "separate the definitions with commas, as in A AS ..., B AS ...",
         pattern("PATTERN (A B) DEFINE A AS price > 3, B AS price > 4")),
        ("ts AT TIME ZONE 'America/NewYork' > ts", "did you mean 'America/New_York'?",
         "ts AT TIME ZONE 'America/New_York' > ts"),
    ],
)  # fmt: skip
def test_a_slip_is_named_and_corrected(sql: str, hint: str, mended: str) -> None:
    told = found(sql)
    assert told.problems[0].hint == hint
    assert told.mended == mended
    assert found(mended).problems == ()


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("price crosses above 70000", "compare with an earlier value"),
        (
            "SELECT * FROM ohlc WHERE close crosses 3",
            "compare with an earlier value, as in close > 5 AND LAG(close) OVER",
        ),
        ("SELECT * FROM ohlc WHERE close > AVG(close)", "HAVING filters groups; QUALIFY close > AVG(close) OVER"),
        (
            "SELECT * FROM ohlc WHERE close > LAG(close) OVER (PARTITION BY ticker ORDER BY open_time)",
            "make it a column of a sub-query, as in SELECT * FROM (SELECT *, LAG(close) OVER (PARTITION BY ticker",
        ),
        ("price > 3 FOR 5 MINUTES", "write MIN(price) OVER (PARTITION BY ticker ORDER BY ts RANGE BETWEEN INTERVAL"),
        ("SELECT LAG(EMA(price, 9)) OVER (ORDER BY ts) AS e FROM ticks", "make it a column of a sub-query"),
        ("SELECT * EXCLUDE (side) FROM ticks", "name the columns"),
        ("SELECT MEDIAN(price) OVER 20 FROM ticks", "write OVER (PARTITION BY ticker ORDER BY ts ROWS 19 PRECEDING)"),
        ("SELECT MEDIAN(price) OVER PARTITION BY side FROM ticks", "write the window in parentheses"),
        (
            "SELECT COUNT(*) FROM ticks GROUP BY TUMBLE(INTERVAL '5' MINUTE, ts)",
            "write TUMBLE(ts, INTERVAL '5' MINUTE)",
        ),
        ("SELECT * FROM TUMBLE(ticks, ts, INTERVAL '1' MINUTE)", "write TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), "),
        ("price > 3 AND < 5", "write both sides"),
        ("price > 3 AND OR size > 3", "leave one of them out"),
        ("side ~ 'b.*'", "write REGEXP_LIKE(side, 'b.*')"),
        ("SELECT [price, size] FROM ticks", "write ARRAY[price, size]"),
        ("SELECT CASE side 'buy' THEN 1 END FROM ticks", "write CASE side WHEN 'buy' THEN 1 ELSE 0 END"),
        ("PATTERN (A B) DEFINE A AS price > 3", "write SELECT * FROM ticks MATCH_RECOGNIZE ("),
        ("IF price > 3 THEN alert", "write the condition alone"),
        ("price > price * 1.02%", "write a percentage as a number"),
        ("price > ?", "name the parameter, as in :limit"),
        ("price ** 2 > 3", "write POWER(price, 2)"),
        ("price // 2 > 3", "write FLOOR(price / 2)"),
        ("SELECT close.rolling(20).mean() FROM ohlc", "write AVG(close) OVER (PARTITION BY ticker ORDER BY open_time"),
        ("FROM ticks SELECT price", "write SELECT ... FROM ..."),
        ("WITH a AS SELECT price FROM ticks SELECT * FROM a", "write the query in parentheses"),
        ("SELECT DISTINCT ON (ticker) price FROM ticks", "write QUALIFY ROW_NUMBER() OVER"),
        (pattern("PATTERN (A -> B)"), "write variables with blanks between them"),
        (pattern("PATTERN (A !B C)"), "define a variable by the opposite"),
        (pattern("AFTER MATCH RESUME PATTERN (A)"), "write AFTER MATCH SKIP PAST LAST ROW"),
        ("SELECT * FROM ticks MATCH_RECOGNIZE PARTITION BY ticker PATTERN (A)", "write the clauses in parentheses"),
    ],
)
def test_a_slip_without_an_obvious_correction_gets_advice(sql: str, hint: str) -> None:
    told = found(sql)
    assert told.problems[0].hint.startswith(hint)
    assert told.mended is None


@pytest.mark.parametrize(
    ("sql", "warning", "mended"),
    [
        ("price IN (70,000, 80)", "70,000 (line 1, column 11) is a list of numbers: write 70000",
         "price IN (70000, 80)"),
        ("GREATEST(price, 70,050.5) > 3\nOR price IN (1,000)",
         "70,050.5 (line 1, column 17) is a list of numbers: write 70050.5",
         "GREATEST(price, 70050.5) > 3\nOR price IN (1000)"),
        ("price IN (70,000,100,000)",
         "70,000,100,000 (line 1, column 11) is a list of numbers: write numbers without separators, as 70000.5", None),
    ],
)  # fmt: skip
def test_a_number_that_a_list_splits_gets_a_warning(sql: str, warning: str, mended: str | None) -> None:
    told = found(sql)
    assert told.problems == ()
    assert told.warnings[0] == warning
    assert told.mended == mended


@pytest.mark.parametrize(
    "sql",
    ["price IN (70,100)", "price IN (70, 000)", "side IN ('70,000')", "side = 'x' -- 70,000", "price IN (7.5,0.1)"],
)
def test_other_lists_of_numbers_get_no_warning(sql: str) -> None:
    assert found(sql).warnings == ()


@pytest.mark.parametrize(
    ("sql", "warning"),
    [
        ("SELECT 1 / 2 * price AS half FROM ticks", "1 / 2 (line 1, column 8) is 0, a whole number: write 1.0 / 2"),
        ("price > 100 *\n(7 / 4)", "7 / 4 (line 2, column 2) is 1, a whole number: write 7.0 / 4"),
        ("SELECT a.ts, b.ts, a.price FROM ticks a JOIN ticks b ON a.ticker = b.ticker AND a.ts = b.ts",
         "several columns are named ts: as JSON, a row has only one of them; name them apart with AS"),
    ],
)  # fmt: skip
def test_a_valid_text_that_loses_something_gets_a_warning(sql: str, warning: str) -> None:
    told = found(sql)
    assert (told.problems, told.warnings) == ((), (warning,))


@pytest.mark.parametrize("sql", ["price > 1.0 / 2", "price * 3 / 4 > 9", "price > 100 / 4", "side = '1 / 2'"])
def test_other_quotients_get_no_warning(sql: str) -> None:
    assert found(sql).warnings == ()


@pytest.mark.parametrize(
    ("rest", "hint", "mended"),
    [
        (f"RANK() {OVER_TICKS} AS r FROM ticks WHERE r < 3", "did you mean QUALIFY instead of WHERE?",
         f"RANK() {OVER_TICKS} AS r FROM ticks QUALIFY r < 3"),
        (f"RANK() {OVER_TICKS} AS r FROM ticks WHERE r < 3 AND size > 1", "filter by QUALIFY, or filter an outer",
         None),
        (f"LAG(price) {OVER_TICKS} AS r FROM ticks QUALIFY LAG(r) {OVER_TICKS} > 1", "make it a column of a sub-query",
         None),
        ("price * 2 AS r FROM ticks WHERE r > 3", "write its expression again, or filter an outer SELECT", None),
        ("SUM(size) AS r FROM ticks WHERE r > 3 GROUP BY ticker", "HAVING filters groups", None),
    ],
)  # fmt: skip
def test_a_result_where_only_columns_are_known_gets_the_clause_that_knows_it(
    rest: str, hint: str, mended: str | None
) -> None:
    told = found(f"SELECT ticker, {rest}")
    assert told.problems[0].message == "'r' is a result of this SELECT, not a column of its input"
    assert told.problems[0].hint.startswith(hint)
    assert told.mended == (mended and f"SELECT ticker, {mended}")


def test_a_slip_in_a_view_is_named_where_the_view_is_read() -> None:
    with pytest.raises(TriggerRejected, match=r"1:15: in the view 'v' at 1:34: .*\(write <=\)"):
        compile_query("SELECT * FROM v", {"ticks": TICKS}, views={"v": "SELECT * FROM ticks WHERE price =< 3"})


def test_a_quantifier_is_not_a_parameter() -> None:
    (problem,) = found(pattern("PATTERN (A{9999})")).problems
    assert (problem.message, problem.hint) == ("a quantifier allows at most 1000 repetitions", "")


def test_a_hint_of_the_parser_is_kept() -> None:
    error = TriggerRejected("x", 1, 7, hint="its own")
    assert slips.hinted(error, "price ≥ 3") is error


def test_an_error_elsewhere_gets_no_hint_from_a_slip() -> None:
    assert slips.hinted(TriggerRejected("x", 1, 1), "price ≥ 3").hint == ""
    assert slips.hinted(TriggerRejected("x", 9, 1), "price ≥ 3").hint == ""


def test_a_slip_is_searched_for_only_near_the_error() -> None:
    text = "price > 3 AND " * 4000 + "price ≥ 3"
    assert slips.hinted(TriggerRejected("x", 1, text.index("≥") + 1), text).hint == "write >="


def test_a_ticker_without_quotes_is_one_error() -> None:
    assert [problem.message for problem in found("ticker = BTC/USDT.BINANCE").problems] == ["unknown column 'BTC'"]


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("SELECT ticker price FROM ticks", 1),
        ("SELECT ticker AS price FROM ticks", 0),
        ("SELECT ticker, price FROM ticks", 0),
        ("SELECT price last FROM ticks", 0),
        ("SELECT t.price price FROM ticks t", 0),
    ],
)
def test_a_column_that_renames_another_gets_a_warning(sql: str, count: int) -> None:
    warnings = [warning for warning in found(sql).warnings if "is renamed to" in warning]
    assert len(warnings) == count
