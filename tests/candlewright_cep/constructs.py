# ruff: noqa: E501  (texts of SQL)
"""Every construct of the trigger language: a text that uses it, whether a stream can run it, and what its results are
compared with.  `python -m tests.candlewright_cep.constructs > docs/reference/constructs.md` writes the page, and
`test_constructs.py` runs it.
"""

import datetime as dt
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from candlewright_cep.language import Entry, forms, functions
from tests.candlewright_cep.test_conformance import FEATURES
from triggers.texts.check import INPUTS

START = dt.datetime(2024, 1, 31, 14, 28, tzinfo=dt.UTC)
TICKERS = ("BTC/USDT.BINANCE", "ETH/USDT.BINANCE")
MINUTE = "INTERVAL '1' MINUTE"
#: Events come in the order of time, one by one, and without an end.
ORDERED = "is not possible on a stream"


@dataclass(kw_only=True, frozen=True)
class Construct:
    """`refused`: why a stream refuses it, if it does. `oracle`: the text for DuckDB; without one, `known_by` names the
    source of the expected results.
    """

    name: str
    text: str
    refused: str = ""
    oracle: str = ""
    known_by: str = ""

    @property
    def reason(self) -> str:
        """Why a stream refuses it, for a reader."""
        return {ORDERED: "a stream has no end, and events come in the order of time"}.get(self.refused, self.refused)


@cache
def ticks() -> pa.Table:
    """Trades of two tickers: some at equal times, pauses, NULLs in every column that may have them."""
    chance = random.Random(7)
    rows = []
    time = START
    for number in range(180):
        time += dt.timedelta(
            milliseconds=chance.choice([0, 400, 900, 1500, 2500, 42_000 if number % 60 == 59 else 700])
        )
        late = dt.timedelta(seconds=chance.choice([1, 9]))
        rows.append(
            {
                "ticker": chance.choice(TICKERS),
                "trade_id": str(number),
                "ts": time,
                "ts_ns": int(time.timestamp() * 1000) * 1_000_000,
                "price": None if number % 41 == 5 else round(102 + chance.gauss(0, 1.5), 2),
                "size": float(chance.randint(1, 12)),
                "side": chance.choice(["buy", "sell", None]),
                "received_at": None if number % 7 == 3 else time + late,
            }
        )
    return pa.Table.from_pylist(rows, schema=INPUTS["ticks"].schema)


@cache
def bars() -> pa.Table:
    """Bars of one minute, before the trades and beside them."""
    chance = random.Random(9)
    rows = []
    for number in range(8):
        for ticker in TICKERS:
            open_, close = (round(102 + chance.gauss(0, 2), 2) for _ in range(2))
            rows.append(
                {
                    "ticker": ticker, "period_seconds": 60, "open_time": START + dt.timedelta(minutes=number - 2), "open": open_,
                    "high": max(open_, close) + 1, "low": min(open_, close) - 1, "close": close, "volume": 5.0,
                    "source": "ticks", "complete": True,
                }
            )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=INPUTS["ohlc"].schema)


# -- forms of the grammar -------------------------------------------------------------------------------------------

_PATTERNED = "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES FIRST(ts) AS f, COUNT(*) AS n {}) AS m"
_STARTS = "(SELECT DISTINCT time_bucket(INTERVAL '10' SECOND, ts) - INTERVAL (10 * k) SECOND AS s FROM ticks, range(6) AS r(k))"
_STEPS = "(SELECT DISTINCT date_trunc('day', ts) AS s, k FROM ticks, range(1, 25) AS r(k))"
_QUIET = (
    "(SELECT *, SUM(CASE WHEN gap IS NULL OR gap >= INTERVAL '30' SECOND THEN 1 ELSE 0 END) OVER (PARTITION BY ticker ORDER BY ts "
    "ROWS UNBOUNDED PRECEDING) AS session FROM (SELECT *, ts - LAG(ts) OVER (PARTITION BY ticker ORDER BY ts) AS gap FROM ticks))"
)
_BARS = (
    "SELECT {by} FROM (SELECT *, {so_far} OVER (PARTITION BY ticker ORDER BY ts, ts_ns, CAST(trade_id AS BIGINT) "
    "ROWS UNBOUNDED PRECEDING) AS total FROM ticks WHERE price IS NOT NULL)"
)
#: Texts that replace examples which find nothing in these trades, or show less than the form.
_TEXTS = {
    "BARS BY TRADES count": "SELECT * FROM ticks BARS BY TRADES 10",
    "BARS BY VALUE size": "SELECT * FROM ticks BARS BY VALUE 5000",
    "VALUES (row), (row)": "SELECT t.ts FROM ticks t JOIN (VALUES ('BTC/USDT.BINANCE', 102)) AS v(ticker, most) ON v.ticker = t.ticker WHERE t.price > v.most",
    "OFFSET n ROWS FETCH FIRST m ROWS ONLY": "SELECT * FROM ticks ORDER BY ts, ts_ns, trade_id OFFSET 5 ROWS FETCH FIRST 10 ROWS ONLY",
    "LIMIT n": "SELECT * FROM ticks ORDER BY ts, ts_ns, trade_id LIMIT 10",
}
#: Further forms of the grammar.
_FURTHER = {
    "FOLLOWING": "SELECT ts, SUM(size) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS s FROM ticks",
    "EXCLUDE GROUP": "SELECT ts, SUM(size) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW EXCLUDE GROUP) AS s FROM ticks",
    "EXCLUDE TIES": "SELECT ts, SUM(size) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW EXCLUDE TIES) AS s FROM ticks",
    "APPROX_PERCENTILE(x, p) of all rows so far": "SELECT ts, APPROX_PERCENTILE(price, 0.9) OVER (PARTITION BY ticker ORDER BY ts) AS high FROM ticks",
    "LEAD": "SELECT ts, LEAD(price, 2) OVER (PARTITION BY ticker ORDER BY ts) AS later FROM ticks",
    "x IGNORE NULLS": "SELECT ts, LAST_VALUE(price IGNORE NULLS) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS p FROM ticks",
    "UNION query": "SELECT side FROM ticks UNION SELECT ticker FROM ticks",
    "a sub-query": "SELECT * FROM (SELECT ticker, ts, price * size AS value FROM ticks) WHERE value > 500",
    "CAST(x AS DECIMAL(p, s))": "SELECT ts, CAST(price AS DECIMAL(20, 8)) * 2 AS twice FROM ticks WHERE CAST(price AS DECIMAL(20, 8)) > 101.25",
    "COUNT(DISTINCT x)": f"SELECT ticker, window_start, COUNT(DISTINCT side) AS n FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), {MINUTE})) GROUP BY ticker, window_start, window_end",
    "array[i]": "SELECT ts, ARRAY[price, size][2] AS s FROM ticks",
    "array = array": "SELECT ts FROM ticks WHERE ARRAY[side, 'buy'] = ARRAY['buy', side]",
    "ROW(x AS name).name": "SELECT ts, ROW(price AS p, size AS s).s AS s FROM ticks",
    "+ INTERVAL 'n' MONTH": "SELECT ts, ts + INTERVAL '1' MONTH AS later FROM ticks",
    "DATE_TRUNC in a condition": "SELECT ts FROM ticks WHERE DATE_TRUNC('minute', ts) = ts OR size > 9",
    "IS DISTINCT FROM": "SELECT ts FROM ticks QUALIFY side IS DISTINCT FROM LAG(side) OVER (PARTITION BY ticker ORDER BY ts)",
    "|| and operators": "SELECT ts, ticker || '-' || side AS t, (price - 100) % 2 / 3 AS x FROM ticks",
}
_REFUSED = {
    "ORDER BY x ASC NULLS LAST": ORDERED, "ORDER BY x DESC NULLS FIRST": ORDERED, "LIMIT n": ORDERED, "OFFSET n ROWS FETCH FIRST m ROWS ONLY": ORDERED,
    "DISTINCT columns": ORDERED, "UNION query": "UNION on a stream would keep every row",
}  # fmt: skip
#: DuckDB's text if it differs from the construct's, and the rules of `in_duckdb` do not derive it.
_ORACLES = {
    "EMIT CHANGES": "SELECT ticker, top FROM (SELECT *, LAG(top) OVER (PARTITION BY ticker ORDER BY n) AS was FROM (SELECT ticker, MAX(price) OVER w AS top, ROW_NUMBER() OVER w AS n FROM ticks WINDOW w AS (PARTITION BY ticker ORDER BY ts, ts_ns, CAST(trade_id AS BIGINT) ROWS UNBOUNDED PRECEDING))) WHERE top IS DISTINCT FROM was OR n = 1",
    "APPROX_PERCENTILE(x, p) of all rows so far": "SELECT ts, quantile_disc(price, 0.9) OVER (PARTITION BY ticker ORDER BY ts) AS high FROM ticks",
    "CROSS JOIN UNNEST (array) AS u(x)": "SELECT ts, price AS x FROM ticks UNION ALL SELECT ts, size FROM ticks",
    "TUMBLE(time, size)": "SELECT ticker, time_bucket(INTERVAL '1' MINUTE, ts) AS minute, COUNT(*) AS n FROM ticks GROUP BY ALL",
    "HOP(time, slide, size)": f"SELECT ticker, s + {MINUTE} AS until, COUNT(*) AS n FROM ticks JOIN {_STARTS} ON ts >= s AND ts < s + {MINUTE} GROUP BY ticker, s",
    "CUMULATE(time, step, size)": f"SELECT ticker, s + INTERVAL (k) HOUR AS window_end, COUNT(*) AS n FROM ticks JOIN {_STEPS} ON ts >= s AND ts < s + INTERVAL (k) HOUR GROUP BY ALL",
    "SESSION(time, gap)": f"SELECT ticker, MAX(ts) + INTERVAL '30' SECOND AS until, COUNT(*) AS n FROM {_QUIET} GROUP BY ticker, session",
    "CAST(x AS type)": "SELECT CAST(ROUND(price) AS BIGINT) AS whole FROM ticks",
    "IGNORE NULLS": "SELECT ts, LAG(price IGNORE NULLS) OVER (PARTITION BY ticker ORDER BY ts) AS before FROM ticks",
    "AT TIME ZONE 'Area/City'": "SELECT * FROM ticks WHERE EXTRACT(HOUR FROM ts - INTERVAL '5' HOUR) = 9",
    "TIMESTAMPDIFF(unit, from, to)": "SELECT * FROM ticks WHERE date_sub('second', ts, received_at) > 5",
    "TIMESTAMPADD(unit, count, time)": "SELECT * FROM ticks WHERE ts + INTERVAL '5' SECOND < received_at",
    "DATE 'day'": "SELECT * FROM ticks WHERE CAST(ts AS DATE) = DATE '2024-01-31'",
    "BARS BY TRADES count": "SELECT ticker, MIN(ts) AS open_time, MAX(ts) AS close_time, arg_min(price, n) AS open, MAX(price) AS high, MIN(price) AS low, arg_max(price, n) AS close, SUM(size) AS volume, SUM(price * size) AS quote_volume, COUNT(*) AS trade_count FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY ticker ORDER BY ts, ts_ns, CAST(trade_id AS BIGINT)) - 1 AS n FROM ticks WHERE price IS NOT NULL) GROUP BY ticker, n // 10 HAVING COUNT(*) = 10",
}
_BY_TEST = {
    "BARS BY VOLUME size": "planning/test_bars.py",
    "BARS BY VALUE size": "planning/test_bars.py",
    "WITH TIMEOUT ROWS": "streaming/test_stream.py",
    "WITHIN interval": "random_matches.py",
    "WITHIN interval FROM PREVIOUS ROW": "random_matches.py",
}
#: The item of SQL:2016 for each form of patterns; the standard determines its answer.
_ITEMS = {
    "MATCH_RECOGNIZE (…)": "PARTITION BY", "MEASURES x AS name": "MEASURES", "ONE ROW PER MATCH": "ONE ROW PER MATCH",
    "ALL ROWS PER MATCH": "ALL ROWS PER MATCH", "SHOW EMPTY MATCHES": "SHOW EMPTY MATCHES", "WITH UNMATCHED ROWS": "WITH UNMATCHED ROWS",
    "AFTER MATCH SKIP PAST LAST ROW": "AFTER MATCH SKIP PAST LAST ROW", "AFTER MATCH SKIP TO NEXT ROW": "AFTER MATCH SKIP TO NEXT ROW",
    "AFTER MATCH SKIP TO LAST variable": "AFTER MATCH SKIP TO LAST", "AFTER MATCH SKIP TO FIRST variable": "AFTER MATCH SKIP TO FIRST",
    "PATTERN (A B+ C)": "concatenation and alternation", "PERMUTE(A, B)": "PERMUTE", "SUBSET name = (A, B)": "SUBSET",
    "DEFINE variable AS condition": "DEFINE, a variable without condition", "RUNNING expression": "RUNNING and FINAL",
    "FINAL expression": "RUNNING and FINAL",
}  # fmt: skip
_TUMBLED = re.compile(r"TABLE\(TUMBLE\(TABLE ticks, DESCRIPTOR\(ts\), INTERVAL '1' MINUTE\)\)")
_CLOSING = "(SELECT *, open_time + INTERVAL '1' MINUTE AS close_time FROM ohlc)"


def in_duckdb(text: str) -> str:
    """The text in DuckDB's dialect."""
    if not re.match(r"(SELECT|WITH|CREATE)\b", text):
        text = f"SELECT * FROM ticks WHERE {text}"
    window = f"time_bucket({MINUTE}, ts)"
    text = _TUMBLED.sub(f"(SELECT *, {window} AS window_start, {window} + {MINUTE} AS window_end FROM ticks)", text)
    return text.replace("JOIN ohlc o", f"JOIN {_CLOSING} o").replace(
        "ROW(price AS p, size AS s)", "{'p': price, 's': size}"
    )


def of_the_grammar() -> Iterator[Construct]:
    examples = {form.form: form.example for form in forms()} | _FURTHER
    for name, example in examples.items():
        text = _TEXTS.get(name, example)
        known_by = f"SQL:2016, {_ITEMS[name]}" if name in _ITEMS else _BY_TEST.get(name, "")
        oracle = "" if known_by else _ORACLES.get(name, in_duckdb(text))
        yield Construct(name=name, text=text, refused=_REFUSED.get(name, ""), oracle=oracle, known_by=known_by)


# -- row patterns ---------------------------------------------------------------------------------------------------


#: The standard's items that a stream refuses, and why.
_REFUSED_ITEMS = dict.fromkeys(
    ["ORDER BY several keys, DESC", "ORDER BY with NULLS FIRST"], "needs ORDER BY the event time, ascending"
)


def of_patterns() -> Iterator[Construct]:
    for code, cases in FEATURES.items():
        for item, case in cases.items():
            if case.rows is not None:
                yield Construct(
                    name=f"{code} {item}", text=case.text, refused=_REFUSED_ITEMS.get(item, ""), known_by="SQL:2016"
                )


# -- functions ------------------------------------------------------------------------------------------------------

#: DuckDB's words for an example.
_IN_DUCKDB = {
    "APPROX_DISTINCT": "COUNT(DISTINCT side)", "APPROX_PERCENTILE": "quantile_disc(price, 0.9)", "EVERY": "BOOL_AND(price > 0)", "SOME": "BOOL_OR(size > 10)",
    "FIRST_VALUE": "arg_min(price, ts_ns + CAST(trade_id AS BIGINT))", "LAST_VALUE": "arg_max(price, ts_ns + CAST(trade_id AS BIGINT))",
    "VWAP": "SUM(price * size) / SUM(size) FILTER (WHERE price IS NOT NULL)",
    "REGEXP_REPLACE": "REGEXP_REPLACE('a1b2', '[0-9]', '', 'g') = 'ab'", "REGEXP_LIKE": "REGEXP_MATCHES('BTC/USDT', '^BTC')", "CBRT": "ROUND(CBRT(27), 9) = 3",
    "ARRAY_JOIN": "ARRAY_TO_STRING([1, 2], '-') = '1-2'", "CARDINALITY": "LEN([1, 2]) = 2", "ELEMENT_AT": "[1, 2][-1] = 2", "IS_FINITE": "ISFINITE(1.5)",
    "IS_INFINITE": "ISINF('inf'::DOUBLE)", "IS_NAN": "ISNAN('nan'::DOUBLE)", "TRUNCATE": "TRUNC(-2.79 * 10) / 10 = -2.7", "FROM_UNIXTIME": "make_timestamp(60000000) = TIMESTAMP '1970-01-01 00:01:00'",
    "TO_UNIXTIME": "EPOCH(TIMESTAMP '1970-01-01 00:01:00') = 60", "TO_SECONDS": "EPOCH(INTERVAL '2' MINUTE) = 120", "DATE_ADD": "DATE '2024-02-28' + INTERVAL 1 DAY = DATE '2024-02-29'",
    "DATE_FORMAT": "STRFTIME(TIMESTAMP '2024-01-31 09:30:00', '%H:%M') = '09:30'", "JSON_VALUE": "JSON_EXTRACT('{\"a\": [5]}', '$.a[0]')::BIGINT = 5", "ROW": "{'low': 2, 'high': 3}.high = 3",
}  # fmt: skip
#: Functions that DuckDB lacks, or whose result it does not determine.
_BY_EXAMPLE = frozenset(
    ["DATE_CEIL", "INITCAP", "NANOSECOND", "WIDTH_BUCKET", "DAY_OF_MONTH", "DAY_OF_WEEK", "DAY_OF_YEAR", "DOW", "DOY", "YEAR_OF_WEEK", "YOW"]
)  # fmt: skip
_FUNCTIONS_BY_TEST = {
    **dict.fromkeys(
        ["IS_OPEN", "MINUTE_OF_SESSION", "SESSION_CLOSE", "SESSION_OF", "SESSION_OPEN"], "functions/test_calendars.py"
    ),
    "ARBITRARY": "ANY_VALUE",
}


def functions_of(*kinds: str) -> list[Entry]:
    return [entry for entry in functions() if entry.kind in kinds]


def of_functions() -> Iterator[Construct]:
    """The functions over several rows, except indicators."""
    frame = "ROWS BETWEEN 9 PRECEDING AND CURRENT ROW"
    grouped = f"FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), {MINUTE})) GROUP BY ticker, window_start, window_end"
    for entry in functions_of("aggregate", "window", "pattern"):
        known_by = _FUNCTIONS_BY_TEST.get(entry.name, "")
        if entry.kind == "pattern":
            known_by = "SQL:2016"
            text = _PATTERNED.format(f", {entry.example} AS x PATTERN (A B+) DEFINE B AS price > PREV(price)")
        elif entry.kind == "aggregate":
            text = f"SELECT ticker, window_start, {entry.example} AS x {grouped}"
        elif "time window" in entry.stream:
            text = f"SELECT ticker, {entry.example} OVER (PARTITION BY window_start ORDER BY COUNT(*), ticker) AS x {grouped}"
        else:
            over = f"PARTITION BY ticker ORDER BY ts, ts_ns, trade_id{' ' + frame if 'frame' in entry.stream else ''}"
            text = f"SELECT ts, {entry.example} OVER ({over}) AS x FROM ticks"
        oracle = in_duckdb(text.replace(entry.example, _IN_DUCKDB.get(entry.name, entry.example)))
        yield Construct(name=entry.name, text=text, oracle="" if known_by else oracle, known_by=known_by)


def of_one_row() -> Iterator[Construct]:
    """The scalar functions; their examples are conditions that hold."""
    for entry in functions_of("scalar"):
        known_by = _FUNCTIONS_BY_TEST.get(entry.name, "its example" if entry.name in _BY_EXAMPLE else "")
        oracle = "" if known_by else f"SELECT {_IN_DUCKDB.get(entry.name, entry.example)}"
        yield Construct(name=entry.name, text=entry.example, oracle=oracle, known_by=known_by)


# -- the page -------------------------------------------------------------------------------------------------------

_HEAD = """# What runs where

Every construct of the trigger language. The last column says what the results over stored rows are compared with; `candlewright sql` gives
the same rows on Spark (`tests/flink_replacement_spark/sql/test_language.py`). So does a stream, however it is split into steps and wherever
it is restarted, or it refuses the text for the reason shown. `tests/candlewright_cep/test_constructs.py` runs each line; the random tests
named in the last column go further.
[Functions](functions.md) has an example of each function, and `candlewright trigger language NAME` shows one of each construct.
"""


def page() -> str:
    parts = [_HEAD]
    sections = {
        "Grammar": of_the_grammar(), "Row patterns": of_patterns(), "Functions over several rows": of_functions(),
        "Functions of one row": of_one_row(),
    }  # fmt: skip
    for title, constructs in sections.items():
        parts += [
            f"\n## {title}\n\n",
            "| construct | stored rows | stream, with restarts | compared with |\n|---|---|---|---|\n",
        ]
        for each in sorted(constructs, key=lambda each: bool(each.refused)):
            stream = f"refused: {each.reason}" if each.refused else "yes"
            parts.append(
                f"| `{each.name.replace('|', chr(92) + '|')}` | yes | {stream} | {each.known_by or 'DuckDB'} |\n"
            )
    parts.append(
        "\n## Indicators and candle patterns\n\nAll of them run over stored rows and on a stream, with restarts, and are compared with TA-Lib, "
        "or with the definition\nif TA-Lib lacks it (`functions/test_indicators.py`).\n"
    )
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
