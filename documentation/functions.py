# ruff: noqa: E501  (tables of prose)
"""Functions of the trigger language, with an example each, whose result the engine computes when the page is made."""

from datetime import datetime
from typing import Any

import pyarrow as pa

from candlewright_cep import evaluate
from candlewright_cep.functions.aggregates.aggregates import AGGREGATE_ALIASES, AGGREGATES, written
from candlewright_cep.functions.indicators.indicator import Indicator
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.functions.scalars.scalar import FUNCTIONS
from candlewright_cep.planning.over import RANKING, VALUES
from documentation.markdown import cell, code, page, table

#: Five trades, over which every example on the page runs.
TRADES = pa.table(
    {
        "ticker": ["BTC/USDT.BINANCE"] * 5,
        "ts": pa.array([f"2024-01-01T12:34:5{second}.250Z" for second in range(5)]).cast(pa.timestamp("ns", "UTC")),
        "price": [100.0, 99.0, 97.5, 99.0, 101.5],
        "size": [1.0, 2.0, 0.5, 4.0, 1.5],
        "side": ["buy", "sell", "sell", "buy", "buy"],
    }
)
#: The same with a column that has fields.
DETAILED = TRADES.append_column("detail", pa.array([{"fee": 0.1, "maker": True}] * 5))
OPERATORS = {
    "ARRAY": "ARRAY[1, 2]", "FIELD OF": "detail['fee']",
    "+": "1 + 2", "-": "5 - 2", "*": "2 * 3", "/": "7 / 2.0", "%": "7 % 3", "NEGATE": "-price", "||": "'a' || 'b'",
    "=": "1 = 1.0", "<>": "1 <> 2", "<": "1 < 2", "<=": "2 <= 2", ">": "1 > 2", ">=": "2 >= 2",
    "IS DISTINCT": "1 IS DISTINCT FROM NULL", "AND": "TRUE AND FALSE", "OR": "TRUE OR NULL", "NOT": "NOT TRUE",
    "IS NULL": "NULL IS NULL", "IS TRUE": "(1 > 2) IS TRUE", "IN": "side IN ('buy', 'sell')", "BETWEEN": "price BETWEEN 90 AND 110",
    "AT TIME ZONE": "ts AT TIME ZONE 'America/New_York'", "CASE": "CASE WHEN price >= 100 THEN 'high' ELSE 'low' END", "LIKE": "ticker LIKE 'BTC/%'",
}  # fmt: skip
SCALARS = {
    "ABS": "ABS(-2.5)", "ACOS": "ACOS(1.0)", "ARRAY_CONTAINS": "ARRAY_CONTAINS(prices, 99)", "ARRAY_JOIN": "ARRAY_JOIN(prices, ', ')",
    "ASCII": "ASCII('A')", "ASIN": "ASIN(0.0)", "ATAN": "ATAN(1.0)",
    "ATAN2": "ATAN2(1.0, 1.0)", "CARDINALITY": "CARDINALITY(prices)", "CBRT": "CBRT(27.0)", "CEIL": "CEIL(1.2)", "CEILING": "CEILING(1.2)",
    "CHAR_LENGTH": "CHAR_LENGTH(side)", "CHR": "CHR(65)", "COALESCE": "COALESCE(NULL, 1)", "CONCAT": "CONCAT('a', 'b')",
    "CONCAT_WS": "CONCAT_WS('-', 'a', 'b')", "CONTAINS": "CONTAINS(ticker, 'USDT')", "COS": "COS(0.0)", "COSH": "COSH(0.0)",
    "DATE_ADD": "DATE_ADD('minute', 5, ts)", "DATE_CEIL": "DATE_CEIL('minute', ts)",
    "DATE_DIFF": "DATE_DIFF('minute', TIMESTAMP '2024-01-01 12:00:00', TIMESTAMP '2024-01-01 12:34:56')",
    "DATE_FORMAT": "DATE_FORMAT(ts, 'yyyy-MM-dd')", "DATE_TRUNC": "DATE_TRUNC('hour', ts)", "DAY": "DAY(ts)",
    "DAY_OF_MONTH": "DAY_OF_MONTH(ts)", "DAY_OF_WEEK": "DAY_OF_WEEK(ts)", "DAY_OF_YEAR": "DAY_OF_YEAR(ts)",
    "DEGREES": "DEGREES(3.141592653589793)", "DOW": "DOW(ts)", "DOY": "DOY(ts)", "ELEMENT_AT": "ELEMENT_AT(prices, -1)",
    "ENDS_WITH": "ENDS_WITH(ticker, 'BINANCE')",
    "EXP": "EXP(0.0)", "EXTRACT": "EXTRACT(HOUR FROM ts)", "FLOOR": "FLOOR(1.8)", "FROM_UNIXTIME": "FROM_UNIXTIME(1704067200)",
    "GREATEST": "GREATEST(1, 3, 2)", "HOUR": "HOUR(ts)", "IF": "IF(price > 90, 'high', 'low')", "IFNULL": "IFNULL(NULL, 0)",
    "INITCAP": "INITCAP('stop hunt')", "ISODOW": "ISODOW(ts)", "ISOYEAR": "ISOYEAR(ts)", "IS_FINITE": "IS_FINITE(price)",
    "IS_INFINITE": "IS_INFINITE(price)", "IS_NAN": "IS_NAN(price)", "IS_OPEN": "IS_OPEN(TIMESTAMP '2024-01-02 15:00:00', 'XNYS')",
    "JSON_VALUE": "JSON_VALUE('{\"fee\": 0.1}', '$.fee' RETURNING DOUBLE)", "LEAST": "LEAST(1, 3, 2)", "LEFT": "LEFT(ticker, 3)",
    "LENGTH": "LENGTH(side)", "LN": "LN(1.0)", "LOG": "LOG(2.0, 8.0)", "LOG10": "LOG10(1000.0)", "LOG2": "LOG2(8.0)",
    "LOWER": "LOWER('BUY')", "LPAD": "LPAD('7', 3, '0')", "LTRIM": "LTRIM('  a')", "MICROSECOND": "MICROSECOND(ts)",
    "MILLISECOND": "MILLISECOND(ts)", "MINUTE": "MINUTE(ts)",
    "MINUTE_OF_SESSION": "MINUTE_OF_SESSION(TIMESTAMP '2024-01-02 15:00:00', 'XNYS')", "MOD": "MOD(7, 3)", "MONTH": "MONTH(ts)",
    "NANOSECOND": "NANOSECOND(ts)", "NULLIF": "NULLIF(side, 'buy')", "POW": "POW(2.0, 10)", "POWER": "POWER(2.0, 0.5)",
    "QUARTER": "QUARTER(ts)", "RADIANS": "RADIANS(180.0)", "REGEXP_EXTRACT": "REGEXP_EXTRACT(ticker, '([A-Z]+)/', 1)",
    "REGEXP_LIKE": "REGEXP_LIKE(ticker, '^BTC')", "REGEXP_REPLACE": "REGEXP_REPLACE(ticker, '[.].*', '')",
    "REPEAT": "REPEAT('ab', 2)", "REPLACE": "REPLACE(ticker, '/', '-')", "REVERSE": "REVERSE('abc')", "RIGHT": "RIGHT(ticker, 7)",
    "ROUND": "ROUND(3.14159, 2)", "ROW": "ROW(2 AS low, 3 AS high)['high']", "RPAD": "RPAD('7', 3, '.')", "RTRIM": "RTRIM('a  ')", "SECOND": "SECOND(ts)",
    "SESSION_CLOSE": "SESSION_CLOSE(TIMESTAMP '2024-01-02 15:00:00', 'XNYS')", "SESSION_OF": "SESSION_OF(TIMESTAMP '2024-01-02 15:00:00', 'XNYS')",
    "SESSION_OPEN": "SESSION_OPEN(TIMESTAMP '2024-01-02 15:00:00', 'XNYS')", "SIGN": "SIGN(-2.5)",
    "SIN": "SIN(0.0)", "SINH": "SINH(0.0)", "SPLIT_PART": "SPLIT_PART(ticker, '.', 2)", "SQRT": "SQRT(2.25)",
    "STARTS_WITH": "STARTS_WITH(ticker, 'BTC')", "STRPOS": "STRPOS(ticker, '/')", "SUBSTR": "SUBSTR(ticker, 1, 3)",
    "SUBSTRING": "SUBSTRING(ticker FROM 5 FOR 4)", "TAN": "TAN(0.0)", "TANH": "TANH(0.0)",
    "TO_SECONDS": "TO_SECONDS(INTERVAL '2' MINUTE)", "TO_UNIXTIME": "TO_UNIXTIME(ts)", "TRANSLATE": "TRANSLATE('1,5', ',', '.')",
    "TRIM": "TRIM('  a ')", "TRUNCATE": "TRUNCATE(3.99)", "UPPER": "UPPER(side)", "WEEK": "WEEK(ts)",
    "WIDTH_BUCKET": "WIDTH_BUCKET(price, 90.0, 110.0, 4)", "YEAR": "YEAR(ts)", "YEAR_OF_WEEK": "YEAR_OF_WEEK(ts)", "YOW": "YOW(ts)",
}  # fmt: skip
AGGREGATE_EXAMPLES = {
    "APPROX_PERCENTILE": "APPROX_PERCENTILE(price, 0.9)", "ANY_VALUE": "ANY_VALUE(ticker)", "ARRAY_AGG": "ARRAY_AGG(price)", "AVG": "AVG(price)", "AVG_DISTINCT": "AVG(DISTINCT price)",
    "BOOL_AND": "BOOL_AND(price > 90)", "BOOL_OR": "BOOL_OR(price > 101)", "CORR": "CORR(price, size)", "COUNT": "COUNT(*)",
    "COUNT_DISTINCT": "COUNT(DISTINCT price)", "COUNT_IF": "COUNT_IF(side = 'buy')", "COVAR_POP": "COVAR_POP(price, size)",
    "COVAR_SAMP": "COVAR_SAMP(price, size)", "FIRST_VALUE": "FIRST_VALUE(price)", "GEOMETRIC_MEAN": "GEOMETRIC_MEAN(price)",
    "LAST_VALUE": "LAST_VALUE(price)", "MAX": "MAX(price)", "MAX_BY": "MAX_BY(ts, price)", "MIN": "MIN(price)",
    "MIN_BY": "MIN_BY(size, price)", "REGR_INTERCEPT": "REGR_INTERCEPT(price, size)", "REGR_SLOPE": "REGR_SLOPE(price, size)",
    "STDDEV_POP": "STDDEV_POP(price)", "STDDEV_SAMP": "STDDEV_SAMP(price)", "STRING_AGG": "STRING_AGG(side, ',')",
    "ARRAY_AGG ORDERED": "ARRAY_AGG(price ORDER BY size DESC)", "STRING_AGG ORDERED": "STRING_AGG(side, ',' ORDER BY price)", "SUM": "SUM(size)",
    "SUM_DISTINCT": "SUM(DISTINCT price)", "MEDIAN": "MEDIAN(price)", "MODE": "MODE(price)",
    "PERCENTILE_CONT": "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY price)",
    "PERCENTILE_DISC": "PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY price)", "VAR_POP": "VAR_POP(price)", "VAR_SAMP": "VAR_SAMP(price)", "VWAP": "VWAP(price, size)",
}  # fmt: skip
_BY_TIME = "OVER (PARTITION BY ticker ORDER BY ts)"
_BY_PRICE = "OVER (PARTITION BY ticker ORDER BY price)"
OVER_EXAMPLES = {
    "LAG": f"LAG(price) {_BY_TIME}", "LEAD": f"LEAD(price) {_BY_TIME}", "FIRST_VALUE": f"FIRST_VALUE(price) {_BY_TIME}",
    "LAST_VALUE": f"LAST_VALUE(price) {_BY_TIME}", "NTH_VALUE": f"NTH_VALUE(price, 2) {_BY_TIME}",
    "ROW_NUMBER": f"ROW_NUMBER() {_BY_TIME}", "RANK": f"RANK() {_BY_PRICE}", "DENSE_RANK": f"DENSE_RANK() {_BY_PRICE}",
    "PERCENT_RANK": f"PERCENT_RANK() {_BY_PRICE}", "CUME_DIST": f"CUME_DIST() {_BY_PRICE}", "NTILE": f"NTILE(2) {_BY_TIME}",
}  # fmt: skip
PATTERN_EXAMPLES = {
    "FIRST": "FIRST(D.price)", "LAST": "LAST(D.price)", "PREV": "PREV(LAST(D.price))", "NEXT": "NEXT(LAST(D.price))",
    "CLASSIFIER": "CLASSIFIER()", "MATCH_NUMBER": "MATCH_NUMBER()", "aggregates": "SUM(D.size)",
}  # fmt: skip
WINDOW_EXAMPLES = {
    "TUMBLE": "TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '2' SECOND)",
    "TUMBLE of days": "TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' DAY, 'America/New_York')",
    "HOP": "HOP(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '3' SECOND)",
    "CUMULATE": "CUMULATE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '3' SECOND)",
    "SESSION": "SESSION(TABLE ticks PARTITION BY ticker, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
}
#: The input of the indicators' examples: the trades as bars of one trade each.
INDICATOR_INPUTS = {
    "x": "price",
    "open": "price - 0.5",
    "high": "price + 1",
    "low": "price - 1",
    "close": "price",
    "volume": "size",
}
INTRODUCTION = """
Each example is run when this page is made; the results are the engine's own. They read these trades, and a
column `detail` with the fields `fee` and `maker`:
"""


def scalar(expression: str) -> Any:
    if "prices" in expression:
        return aggregate(expression.replace("prices", "ARRAY_AGG(price)"))
    return evaluate(f"SELECT {expression} AS result FROM ticks", DETAILED).column("result")[0].as_py()


def aggregate(expression: str) -> Any:
    return evaluate(f"SELECT {expression} AS result FROM ticks GROUP BY ticker", TRADES).column("result")[0].as_py()


def over(expression: str) -> list[Any]:
    return evaluate(f"SELECT ts, {expression} AS result FROM ticks ORDER BY ts", TRADES).column("result").to_pylist()


def indicator(declared: Indicator) -> str:
    """A call with the shortest periods."""
    numbers = [
        f"{number.least + (number.name == 'slow' and number.least > 1) if number.is_whole else 2:g}"
        for number in declared.numbers
    ]
    inputs = [INDICATOR_INPUTS[name] for name in declared.inputs]
    return f"{declared.name}({', '.join([*inputs, *numbers])}) {_BY_TIME}"


def measure(expression: str) -> Any:
    text = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts "
        f"MEASURES {expression} AS result PATTERN (S D+ U+) DEFINE D AS price < PREV(price), U AS price > PREV(price)) AS m"
    )
    return evaluate(text, TRADES).column("result")[0].as_py()


def window(call: str) -> list[Any]:
    text = f"SELECT window_start, COUNT(*) AS result FROM TABLE({call}) GROUP BY ticker, window_start, window_end"
    return evaluate(text, TRADES).column("result").to_pylist()


def shown(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, datetime):
        return value.isoformat(" ").removesuffix("+00:00")
    return repr(value) if isinstance(value, str) else str(value)


def missing() -> list[str]:
    """Functions of the engine without an example here."""
    known = [
        (FUNCTIONS, OPERATORS | SCALARS),
        (AGGREGATES, AGGREGATE_EXAMPLES),
        ((*RANKING, *VALUES), OVER_EXAMPLES),
    ]
    return [name for names, examples in known for name in names if name not in examples]


def markdown() -> str:
    trades = [[shown(value) for value in row.values()] for row in TRADES.to_pylist()]
    aliases = ", ".join(f"`{alias}` is `{name}`" for alias, name in sorted(AGGREGATE_ALIASES.items()))
    head = ("function", "example", "result")

    def rows(examples: dict[str, str], run: Any) -> list[tuple[str, str, str]]:
        return [
            (code(written(name)), code(text), code(cell(shown(run(text))))) for name, text in sorted(examples.items())
        ]

    return page(
        "Functions of the trigger language",
        INTRODUCTION,
        table(TRADES.column_names, trades),
        "[Triggers](../triggers.md) describes the language and what runs on a stream. Names are not case-sensitive.",
        "## Operators",
        "Results are those of the first trade.",
        table(("operator", "example", "result"), rows(OPERATORS, scalar)),
        "## Functions of one row",
        "Results are those of the first trade; `prices` stands for `ARRAY_AGG(price)` over all five. `CAST(x AS type)` and `TRY_CAST` convert; a value without a counterpart gives NULL.",
        table(head, rows(SCALARS, scalar)),
        "## Aggregates",
        f"With GROUP BY, in OVER, and in MEASURES and DEFINE. {aliases}.",
        table(head, rows(AGGREGATE_EXAMPLES, aggregate)),
        "## Window functions",
        "One result for each trade, in time order.",
        table(head, rows(OVER_EXAMPLES, over)),
        "## Indicators",
        "Of all rows of the partition so far, in O(n) state for each. The window takes no frame. Inside MATCH_RECOGNIZE they are written without OVER. "
        "Values and the first row that has one are TA-Lib's where TA-Lib has the function. A row with NULL, NaN or an infinite input gets NULL and is skipped.",
        table(
            ("indicator", "value", "example", "result"),
            [
                (code(one.signature), one.text, code(indicator(one)), code(cell(shown(over(indicator(one))))))
                for one in sorted(INDICATORS.values(), key=lambda one: one.name)
            ],
        ),
        "## Windows in time",
        "The number of trades in each window, as `SELECT window_start, COUNT(*) FROM TABLE(…) GROUP BY ticker, window_start, window_end`.",
        table(("window", "example", "result"), rows(WINDOW_EXAMPLES, window)),
        "## In row patterns",
        "In MEASURES of `PATTERN (S D+ U+) DEFINE D AS price < PREV(price), U AS price > PREV(price)`, whose one match has all five trades.",
        table(head, rows(PATTERN_EXAMPLES, measure)),
    )
