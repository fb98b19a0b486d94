"""Values of expressions: operators, functions, NULL, types."""

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import TriggerRejected, evaluate

TS = datetime(2024, 2, 29, 13, 45, 59, 123456, tzinfo=UTC)
TABLE = pa.table(
    {
        "i": pa.array([7], pa.int64()),
        "n": pa.array([-7], pa.int32()),
        "d": pa.array([2.5], pa.float64()),
        "s": pa.array(["Hello"], pa.string()),
        "b": pa.array([True], pa.bool_()),
        "ts": pa.array([TS], pa.timestamp("us", "UTC")),
        "day": pa.array([date(2024, 2, 29)], pa.date32()),
        "z": pa.array([None], pa.int64()),
        "zs": pa.array([None], pa.string()),
        "zb": pa.array([None], pa.bool_()),
    }
)


def value(expression: str) -> Any:
    return evaluate(f"SELECT {expression} AS x FROM ticks", TABLE).column("x")[0].as_py()


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("i + 1", 8),
        ("i / 2", 3),
        ("n / 2", -3),
        ("i % 4", 3),
        ("n % 4", -3),
        ("MOD(i, 4)", 3),
        ("i / 0", None),
        ("d / 0", math.inf),
        ("i * d", 17.5),
        ("i / 2.0", 3.5),
        ("-i - -1", -6),
        ("9223372036854775807 + i", None),
        ("9223372036854775807 * i", None),
        ("1 + 2 * 3 - 4 / 2", 5),
        ("(1 + 2) * 3", 9),
        ("i + z", None),
        ("ABS(n)", 7),
        ("ROUND(d)", 3.0),
        ("ROUND(-2.5)", -3.0),
        ("ROUND(2.345, 1)", 2.3),
        ("ROUND(1250, -2)", 1300),
        ("FLOOR(d)", 2.0),
        ("CEIL(d)", 3.0),
        ("CEILING(-d)", -2.0),
        ("TRUNCATE(-d)", -2.0),
        ("SIGN(n)", -1),
        ("SQRT(6.25)", 2.5),
        ("LN(EXP(1))", 1.0),
        ("LOG(10, 1000)", pytest.approx(3.0)),
        ("LOG10(1000)", pytest.approx(3.0)),
        ("LOG2(8)", 3.0),
        ("POWER(2, 10)", 1024.0),
        ("SQRT(z)", None),
        ("GREATEST(1, i, 3)", 7),
        ("GREATEST(1, z)", None),
        ("LEAST(d, 3)", 2.5),
        ("GREATEST('a', s)", "a"),
        ("COALESCE(z, NULL, 5)", 5),
        ("COALESCE(zs, s)", "Hello"),
        ("NULLIF(i, 7)", None),
        ("NULLIF(i, 8)", 7),
        ("IF(i > 5, 'big', 'small')", "big"),
        ("IF(z > 5, 'big')", None),
        ("CASE WHEN z > 1 THEN 1 WHEN i > 1 THEN 2 ELSE 3 END", 2),
        ("CASE i WHEN 6 THEN 'six' WHEN 7 THEN 'seven' END", "seven"),
        ("CASE i WHEN 6 THEN 'six' END", None),
        ("CAST(d / 3 AS DECIMAL(10, 2))", Decimal("0.83")),
        ("CAST(-d AS NUMERIC(5))", Decimal(-3)),
        ("CAST('2.345' AS DECIMAL(6, 1))", Decimal("2.3")),
        ("CAST(s AS CHAR(2))", "He"),
        ("CAST(i AS CHAR(3))", "7  "),
        ("WIDTH_BUCKET(5.0, 0, 10, 5)", 3),
        # conditions
        ("i > 5 AND d < 3", True),
        ("i > 5 AND zb", None),
        ("i < 5 AND zb", False),
        ("i > 5 OR zb", True),
        ("i < 5 OR zb", None),
        ("NOT zb", None),
        ("z IS NULL", True),
        ("i IS NOT NULL", True),
        ("zb IS TRUE", False),
        ("zb IS NOT TRUE", True),
        ("b IS FALSE", False),
        ("z IS DISTINCT FROM i", True),
        ("z IS NOT DISTINCT FROM NULL", True),
        ("i IN (1, 7)", True),
        ("i IN (1, z)", None),
        ("i NOT IN (1, 2)", True),
        ("i BETWEEN 7 AND 8", True),
        ("i NOT BETWEEN 7 AND z", None),
        ("i BETWEEN SYMMETRIC 8 AND 6", True),
        ("i NOT BETWEEN SYMMETRIC 9 AND z", None),
        ("i BETWEEN ASYMMETRIC 8 AND 6", False),
        ("i NOT BETWEEN 8 AND z", True),
        ("i = 7.0", True),
        ("z = z", None),
        ("s = 'Hello'", True),
        ("s < 'a'", True),
        ("s <> zs", None),
        # text
        ("UPPER(s) || '-' || LOWER(s)", "HELLO-hello"),
        ("CONCAT(s, ' ', i)", "Hello 7"),
        ("s || zs", None),
        ("LENGTH(s)", 5),
        ("SUBSTRING(s, 2, 3)", "ell"),
        ("SUBSTRING(s FROM 2 FOR 3)", "ell"),
        ("SUBSTR(s, -3)", "llo"),
        ("LEFT(s, 2)", "He"),
        ("RIGHT(s, 2)", "lo"),
        ("TRIM('  a ')", "a"),
        ("TRIM(LEADING 'x' FROM 'xxax')", "ax"),
        ("REPLACE(s, 'l', 'L')", "HeLLo"),
        ("REPLACE(s, '', '.')", ".H.e.l.l.o."),
        ("STRPOS(s, 'l')", 3),
        ("POSITION('lo' IN s)", 4),
        ("REVERSE(s)", "olleH"),
        ("SPLIT_PART('BTC/USDT', '/', 2)", "USDT"),
        ("LPAD('7', 3, '0')", "007"),
        ("RPAD(s, 3)", "Hel"),
        ("LENGTH(REPEAT(s, 2000))", 10_000),
        ("REPEAT(s, 2001)", None),
        ("LENGTH(LPAD(s, 10000))", 10_000),
        ("RPAD(s, 10001)", None),
        ("STARTS_WITH(s, 'He')", True),
        ("s LIKE 'H%o'", True),
        ("s LIKE 'h%'", False),
        ("s LIKE '_ello'", True),
        ("'5%' LIKE '5!%' ESCAPE '!'", True),
        ("s NOT LIKE '%x%'", True),
        ("zs LIKE '%'", None),
        ("REGEXP_LIKE(s, '^H.l+')", True),
        # conversions
        ("CAST(d AS BIGINT)", 3),
        ("CAST('12' AS BIGINT)", 12),
        ("CAST('twelve' AS BIGINT)", None),
        ("CAST(i AS VARCHAR)", "7"),
        ("CAST(d AS VARCHAR)", "2.5"),
        ("CAST(12345678.0 AS VARCHAR)", "1.2345678E7"),
        ("CAST(b AS INT)", 1),
        ("CAST('2024-01-01 10:00:00' AS TIMESTAMP)", datetime(2024, 1, 1, 10)),
        ("CAST(ts AS DATE)", date(2024, 2, 29)),
        ("CAST(ts AS VARCHAR)", "2024-02-29 13:45:59.123456"),
        ("i::DOUBLE", 7.0),
        # times
        ("YEAR(ts)", 2024),
        ("QUARTER(ts)", 1),
        ("MONTH(ts)", 2),
        ("WEEK(ts)", 9),
        ("DAY(ts)", 29),
        ("DAY_OF_WEEK(ts)", 4),
        ("DAY_OF_YEAR(ts)", 60),
        ("HOUR(ts)", 13),
        ("MINUTE(ts)", 45),
        ("SECOND(ts)", 59),
        ("MILLISECOND(ts)", 123),
        ("EXTRACT(HOUR FROM ts)", 13),
        ("EXTRACT(DOW FROM day)", 4),
        ("DATE_TRUNC('hour', ts)", datetime(2024, 2, 29, 13, tzinfo=UTC)),
        ("DATE_TRUNC('week', ts)", datetime(2024, 2, 26, tzinfo=UTC)),
        ("DATE_TRUNC('month', ts)", datetime(2024, 2, 1, tzinfo=UTC)),
        ("FLOOR(ts TO MINUTE)", datetime(2024, 2, 29, 13, 45, tzinfo=UTC)),
        ("CEIL(ts TO MINUTE)", datetime(2024, 2, 29, 13, 46, tzinfo=UTC)),
        ("DATE_DIFF('minute', TIMESTAMP '2024-02-29 13:00:00', ts)", 45),
        ("DATE_DIFF('month', TIMESTAMP '2023-12-31 00:00:00', ts)", 2),
        ("DATE_DIFF('month', TIMESTAMP '2023-12-31 14:00:00', ts)", 1),
        ("TIMESTAMPDIFF(MONTH, day, DATE '2025-02-28')", 12),
        ("TIMESTAMPDIFF(YEAR, DATE '2025-02-28', day)", -1),
        ("TIMESTAMPDIFF(MONTH, DATE '2024-02-28', DATE '2024-01-29')", 0),
        ("TIMESTAMPDIFF(QUARTER, DATE '1969-08-31', DATE '1970-02-28')", 2),
        ("TIMESTAMPADD(MONTH, 12, day)", date(2025, 2, 28)),
        ("TIMESTAMPADD(QUARTER, -1, ts)", datetime(2023, 11, 29, 13, 45, 59, 123456, tzinfo=UTC)),
        ("DATE_ADD('month', 1000000000000, ts)", None),
        ("DATE_ADD('day', 100000, ts)", None),
        ("CEIL(ts TO MONTH)", datetime(2024, 3, 1, tzinfo=UTC)),
        ("CEIL(ts TO YEAR)", datetime(2025, 1, 1, tzinfo=UTC)),
        ("CEIL(TIMESTAMP '2024-04-01 00:00:00' TO QUARTER)", datetime(2024, 4, 1)),
        ("EXTRACT(ISOYEAR FROM DATE '2021-01-03')", 2020),
        ("TIMESTAMPDIFF(DAY, ts, TIMESTAMP '2024-03-02 00:00:00')", 1),
        ("DATE_ADD('week', 2, day)", date(2024, 3, 14)),
        ("DATE_ADD('hour', 2, day)", datetime(2024, 2, 29, 2)),
        ("DATE_ADD('day', 1, ts)", datetime(2024, 3, 1, 13, 45, 59, 123456, tzinfo=UTC)),
        ("ts + INTERVAL '1' HOUR", datetime(2024, 2, 29, 14, 45, 59, 123456, tzinfo=UTC)),
        ("ts - INTERVAL '1:30' MINUTE TO SECOND", datetime(2024, 2, 29, 13, 44, 29, 123456, tzinfo=UTC)),
        ("INTERVAL '1500' SECOND(4, 3) = INTERVAL '0 00:25:00' DAY(2) TO SECOND(3)", True),
        ("ts + INTERVAL '-1:30' MINUTE TO SECOND = ts - INTERVAL '90' SECOND", True),
        ("ts > '2024-02-29T13:45:59Z'", True),
        ("ts BETWEEN TIMESTAMP '2024-01-01 00:00:00' AND '2025-01-01'", True),
        ("day = DATE '2024-02-29'", True),
        ("TO_UNIXTIME(TIMESTAMP '1970-01-01 00:00:01.500')", 1.5),
        ("ts - ts < INTERVAL '1' SECOND", True),
        ("INTERVAL '90' SECOND > INTERVAL '1' MINUTE", True),
    ],
)
def test_expression_has_its_value(expression: str, wanted: Any) -> None:
    found = value(expression)
    assert found == wanted
    assert type(found) is type(wanted) or not isinstance(wanted, int | float | str)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_keep_the_precision_of_the_input(unit: str) -> None:
    table = pa.table({"ts": pa.array([1_700_000_000], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit))})
    sql = "SELECT ts, MAX(ts) AS m FROM ticks GROUP BY ts"
    assert evaluate(sql, table).schema.types == [pa.timestamp(unit), pa.timestamp(unit)]


def test_columns_of_other_types_are_passed_on() -> None:
    table = pa.table({"id": [1, 2], "tags": [["a"], None]})
    assert evaluate("id > 1", table).to_pylist() == [{"id": 2, "tags": None}]
    with pytest.raises(TriggerRejected, match="cannot be applied"):
        evaluate("tags < tags", table)


def test_an_empty_table_gives_an_empty_table_of_the_same_columns() -> None:
    for sql in (
        "i > 1",
        "SELECT * FROM ticks WHERE s LIKE 'a%' ORDER BY d",
        "SELECT s, COUNT(*) AS n FROM ticks GROUP BY s",
    ):
        found = evaluate(sql, TABLE.slice(0, 0))
        assert found.num_rows == 0
    sql = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY s ORDER BY ts MEASURES SUM(i) AS t, CLASSIFIER() AS c "
        "ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A+) DEFINE A AS SUM(i) < 3 AND s <> PREV(s)) AS m"
    )
    found = evaluate(sql, TABLE.slice(0, 0))
    assert (found.num_rows, found.num_columns) == (0, 12)


def test_integers_that_leave_their_type_are_null_and_large_ones_keep_their_digits() -> None:
    small = pa.array([2**31 - 1, -(2**31), -15], pa.int32())
    large = pa.array([2**63 - 1, -(2**63), 9_007_199_254_740_995], pa.int64())
    parts = "ROUND(n, -1) AS a, ABS(n) AS b, -n AS c, ROUND(i, -2) AS d, ABS(i) AS e, TRUNCATE(i, -1) AS f"
    found = evaluate(f"SELECT {parts} FROM ticks", pa.table({"n": small, "i": large}))
    assert [list(row.values()) for row in found.to_pylist()] == [
        [None, 2**31 - 1, -(2**31) + 1, 9_223_372_036_854_775_800, 2**63 - 1, 9_223_372_036_854_775_800],
        [None, None, None, -9_223_372_036_854_775_800, None, -9_223_372_036_854_775_800],
        [-20, 15, 15, 9_007_199_254_741_000, 9_007_199_254_740_995, 9_007_199_254_740_990],
    ]


def test_dictionary_encoded_text_is_text() -> None:
    table = pa.table({"side": pa.array(["buy", "sell", "buy"]).dictionary_encode(), "p": [1.0, 2.0, 3.0]})
    assert evaluate("side = 'buy'", table).column("p").to_pylist() == [1.0, 3.0]


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm:ss.SSS')", "2024-02-29 13:45:59.123"),
        ("DATE_FORMAT(ts, 'EEEE d MMM yy, h:mm a, ''day'' D')", "Thursday 29 Feb 24, 1:45 PM, day 60"),
        ("FORMAT_DATETIME(day, 'yyyyMMdd''T''HH')", "20240229T00"),
        ("DATE_FORMAT(ts, '%Y/%m/%e %H:%i:%s.%f %p %W %b %j %%')", "2024/02/29 13:45:59.123456 PM Thursday Feb 060 %"),
        ("TO_TIMESTAMP('2024-02-29 13:45:59') < ts", True),
        ("TO_TIMESTAMP_LTZ(1709214359123, 3) = DATE_TRUNC('millisecond', ts)", True),
        ("TO_TIMESTAMP_LTZ(1709214359, 0) = DATE_TRUNC('second', ts)", True),
        ("day + INTERVAL '1' DAY", date(2024, 3, 1)),
        ("day - INTERVAL '24' HOUR", date(2024, 2, 28)),
        ("CAST(day + INTERVAL '90' MINUTE AS VARCHAR)", "2024-02-29 01:30:00.000"),
        ("CAST('\u0661' AS INT)", None),
        ("UNIX_TIMESTAMP(ts)", 1_709_214_359),
        ("UNIX_TIMESTAMP('2024-02-29 13:45:59')", 1_709_214_359),
        ("DATE(ts)", date(2024, 2, 29)),
        ("TO_DATE('2024-02-29') = day", True),
        ("DAYOFWEEK(ts)", 5),
        ("DAY_OF_WEEK(ts)", 4),
        ("LOCATE('l', s)", 3),
        ("STRPOS(s, 'l')", 3),
        ("CONCAT_WS('-', s, zs, i)", "Hello-7"),
        ("CONCAT_WS(zs, s, 'x')", None),
        ("REGEXP_EXTRACT(s, '[aeiou].')", "el"),
        ("REGEXP_EXTRACT(s, '(.)(l+)[(](.)', 2)", None),
        ("REGEXP_EXTRACT(s, '(.)(l+)(.)', 2)", "ll"),
        ("REGEXP_EXTRACT(zs, 'a')", None),
        ("REGEXP_REPLACE(s, '(l+)(.)', '<$2$1\\$>')", "He<oll$>"),
        ("REGEXP_REPLACE(s, '[aeiou]')", "Hll"),
        ("REGEXP_REPLACE(zs, 'a', 'b')", None),
        ("TRANSLATE(s, 'loH', 'r')", "err"),
        ("SPLIT_INDEX('BTC/USDT', '/', 0) || SPLIT_INDEX('BTC/USDT', '/', 1)", "BTCUSDT"),
        ("SPLIT_INDEX(s, '/', 1)", None),
        ("STARTSWITH(s, 'He') AND ENDSWITH(s, 'lo') AND REGEXP(s, 'l{2}')", True),
        ("INITCAP('two wORDS')", "Two Words"),
        ("ASCII(s)", 72),
        ("CHR(72)", "H"),
        ("ROUND(DEGREES(PI()), 6)", 180.0),
        ("ROUND(LN(E()), 6)", 1.0),
        ("RADIANS(180.0) = PI()", True),
        ("ATAN2(0, 1) + ASIN(0) + SINH(0) + ACOS(1)", 0.0),
        ("TRUNCATE(-2.789, 2)", -2.78),
        ("TRUNCATE(i * 1000, -3)", 7000),
        ("INFINITY() > d", True),
    ],
)
def test_functions_of_alerts(expression: str, wanted: Any) -> None:
    assert value(expression) == wanted


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("DATE_FORMAT(ts, 'Q')", "1:24: the pattern of DATE_FORMAT cannot be read"),
        ("DATE_FORMAT(ts, '%Q')", "1:24: the pattern of DATE_FORMAT cannot be read"),
        ("DATE_FORMAT(ts, s)", "1:8: the pattern of DATE_FORMAT must be a text written in the trigger"),
        ("DATE_FORMAT(s, 'yyyy')", "1:8: DATE_FORMAT has no form for"),
        ("REGEXP_EXTRACT(s, '(l)', 2)", "1:26: the pattern of REGEXP_EXTRACT cannot be read"),
        ("REGEXP_EXTRACT(s, '(?P<x>l)', 1)", "1:26: the pattern of REGEXP_EXTRACT cannot be read"),
        ("REGEXP_REPLACE(s, '(l', '')", "1:26: the pattern of REGEXP_REPLACE cannot be read"),
        ("REGEXP_REPLACE(s, 'l', '$1')", "1:26: the pattern of REGEXP_REPLACE cannot be read"),
        ("REGEXP_REPLACE(s, s, '')", "1:8: the pattern of REGEXP_REPLACE must be a text written"),
        ("TO_TIMESTAMP_LTZ(i, 6)", "1:28: the precision of TO_TIMESTAMP_LTZ is 0"),
        ("DATE(i)", "1:8: bigint cannot be converted to date"),
    ],
)
def test_patterns_of_functions_are_read_when_the_text_is_checked(expression: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=re.escape(message)):
        value(expression)
