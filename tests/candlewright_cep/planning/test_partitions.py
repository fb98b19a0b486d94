# ruff: noqa: E501  (texts of SQL)
"""A text that is evaluated in parts, over the rows of each key and without rows that its conditions exclude."""

import random
import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pytest

from candlewright_cep import compile_query
from candlewright_cep.engine import CompiledQuery
from candlewright_cep.planning.partitions import Division, divided, is_row_by_row
from candlewright_cep.planning.plans import Filter, Scan
from candlewright_cep.planning.pushdown import Bound, bounds_on_inputs
from candlewright_cep.planning.reads import columns_of_inputs
from candlewright_cep.spark.query_tasks import BELOW, above, below
from tests.candlewright_cep.constructs import bars, of_functions, of_patterns, of_the_grammar, ticks
from tests.candlewright_cep.planning.random_texts import Texts, tables
from tests.candlewright_cep.test_conformance import ROWS

TABLES = {"ticks": ticks(), "ohlc": bars(), "r": ROWS}
SCHEMAS = {name: table.schema for name, table in TABLES.items()}
_CLOSED = "t.ticker = o.ticker AND o.period_seconds = 60 AND t.ts >= o.close_time"
_NEAR = "a.ticker = b.ticker AND b.ts BETWEEN a.ts - INTERVAL '5' SECOND AND a.ts"
_EMA = "EMA(price, 5) OVER (PARTITION BY ticker ORDER BY ts) AS e"
_SINCE = "TIMESTAMP '2024-01-31 14:28:40'"
#: Texts with conditions, each with the columns by which their inputs are divided, if they are.
TEXTS = {
    f"SELECT ts, {_EMA} FROM ticks WHERE side = 'buy' AND ts >= {_SINCE}": "ticker",
    f"SELECT * FROM (SELECT *, {_EMA} FROM ticks) WHERE ticker = 'BTC/USDT.BINANCE' AND ts > {_SINCE} AND e > 101": "ticker",
    f"SELECT * FROM (SELECT *, {_EMA} FROM ticks) WHERE ticker IN ('x', 'ETH/USDT.BINANCE') OR e > 102": "ticker",
    f"SELECT ticker, MAX(e) AS top FROM (SELECT *, {_EMA} FROM ticks) GROUP BY ticker HAVING COUNT(*) > 5": "ticker",
    f"SELECT DATE_TRUNC('minute', ts) AS m, MAX(e) AS top FROM (SELECT *, {_EMA} FROM ticks) GROUP BY 1 ORDER BY m": "ticker",
    f"SELECT side, LAST_VALUE(e) AS e, ARRAY_AGG(size) AS sizes FROM (SELECT *, {_EMA} FROM ticks) GROUP BY side": "",
    f"SELECT side, MAX(e) AS top, COUNT(*) AS n FROM (SELECT *, {_EMA} FROM ticks) GROUP BY side EMIT CHANGES": "",
    f"SELECT ts, e FROM (SELECT *, {_EMA} FROM ticks) WHERE ts < {_SINCE} ORDER BY e DESC, ts LIMIT 7": "ticker",
    f"SELECT COUNT(*) AS n, MIN(e) AS low FROM (SELECT *, {_EMA} FROM ticks) WHERE ticker = 'none'": "ticker",
    "SELECT ts, EMA(price, 5) OVER (ORDER BY ts, trade_id) AS e FROM ticks WHERE ticker = 'BTC/USDT.BINANCE'": "",
    f"SELECT t.ts, o.high FROM ticks t ASOF JOIN ohlc o ON {_CLOSED} WHERE t.ticker = 'BTC/USDT.BINANCE'": "ticker",
    f"SELECT t.ts, o.high FROM ticks t ASOF LEFT JOIN ohlc o ON {_CLOSED} WHERE o.high > 103 OR t.side = 'buy'": "ticker",
    f"SELECT t.ts, o.open_time FROM ticks t ASOF JOIN ohlc o ON {_CLOSED} WHERE o.open_time < {_SINCE}": "ticker",
    f"SELECT a.ts, b.price FROM ticks a JOIN ticks b ON {_NEAR} WHERE b.side = 'buy' AND a.side = 'sell'": "ticker",
    f"SELECT a.ts, b.price FROM ticks a LEFT JOIN ticks b ON {_NEAR} AND b.side = 'buy' WHERE a.ts > {_SINCE}": "ticker",
    f"SELECT a.ts, b.ts AS later FROM ticks a FULL JOIN ohlc o ON a.ticker = o.ticker AND a.ts = o.open_time JOIN ticks b ON {_NEAR}": "",
    "SELECT a.ts FROM ticks a JOIN ohlc o ON a.ts = o.open_time WHERE o.close > 1": "",
    "SELECT t.ts, v.most FROM ticks t JOIN (VALUES ('BTC/USDT.BINANCE', 102)) AS v(ticker, most) ON v.ticker = t.ticker": "rows",
    "SELECT v.ticker, t.ts FROM (VALUES ('BTC/USDT.BINANCE'), ('x')) AS v(ticker) LEFT JOIN ticks t ON v.ticker = t.ticker": "",
    "SELECT ts FROM ticks WHERE side = 'buy' UNION ALL SELECT open_time FROM ohlc WHERE period_seconds = 60": "rows",
    "SELECT ticker FROM ticks WHERE side = 'buy' UNION SELECT ticker FROM ohlc": "ticker",
    "SELECT side FROM ticks UNION SELECT ticker FROM ohlc": "side ticker",
    "SELECT * FROM ticks BARS BY TRADES 10 WHERE ticker = 'BTC/USDT.BINANCE'": "ticker",
    "SELECT b.close, t.ts FROM ticks BARS BY TRADES 10 AS b JOIN ticks t ON t.ticker = b.ticker AND t.ts = b.close_time": "ticker",
    "SELECT * FROM hammer WHERE ticker = 'BTC/USDT.BINANCE'": "ticker",
    "SELECT ticker, open_time, doji FROM candle_patterns WHERE doji <> 0 AND period_seconds = 60": "ticker",
    "SELECT ticker, window_start, COUNT(*) AS n FROM TABLE(SESSION(TABLE ticks PARTITION BY ticker, DESCRIPTOR(ts), INTERVAL '30' SECOND)) WHERE side = 'buy' GROUP BY ticker, window_start, window_end": "ticker",
    f"SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) WHERE ts > {_SINCE} GROUP BY window_start, window_end": "",
    "SELECT ticker, side, COUNT(*) AS n FROM ticks GROUP BY CUBE (ticker, side)": "",
    "SELECT ticker, side, COUNT(*) AS n FROM ticks GROUP BY GROUPING SETS ((ticker, side), (ticker))": "ticker",
    "SELECT ticker, MAX(price) AS top FROM ticks WHERE side = 'buy' GROUP BY ticker EMIT CHANGES": "ticker",
    f"WITH fast AS (SELECT *, {_EMA} FROM ticks) SELECT a.ts, b.e FROM fast a JOIN fast b ON {_NEAR} WHERE a.ticker = 'BTC/USDT.BINANCE'": "ticker",
    "SELECT ts FROM ticks WHERE ts_ns BETWEEN 1706711300000000000 AND 1706711320000000000 AND EXTRACT(DOW FROM ts) = 3": "rows",
}  # fmt: skip
CONSTRUCTS = {
    each.name: each.text if re.match(r"(SELECT|WITH)\b", each.text) else f"SELECT * FROM ticks WHERE {each.text}"
    for each in (*of_the_grammar(), *of_patterns(), *of_functions())
    if not each.text.startswith("CREATE")
}


def _compiled(text: str) -> CompiledQuery:
    return compile_query(text, SCHEMAS, is_stored=True)


def _parts(tables: Mapping[str, pa.Table], divisions: list[Division]) -> Iterator[dict[str, pa.Table]]:
    """The tables once for each value of the keys."""
    division = divisions[0]
    keys = {name: tables[name].column(place).to_pylist() for name, place in division.inputs.items()}
    for value in {value for column in keys.values() for value in column} or {None}:
        yield {
            name: tables[name].filter(pa.array([each == value for each in keys.get(name, [])], pa.bool_()))
            for name in division.inputs
        }


def _in_parts(compiled: CompiledQuery, tables: Mapping[str, pa.Table]) -> pa.Table:
    plan, divisions = divided(compiled.plan)
    lower = below(compiled)
    if is_row_by_row(plan):
        names = columns_of_inputs(plan)
        parts = iter([{n: tables[n].slice(0, 50) for n in names}, {n: tables[n].slice(50) for n in names}])
    elif divisions:
        parts = _parts(tables, divisions)
    else:
        parts = iter([dict(tables)])
    found = pa.concat_tables([lower.run(part) for part in parts])
    return above(compiled).run({BELOW: found})


def _meets(bound: Bound, column: pa.ChunkedArray) -> list[bool]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
    values = column.to_pylist()
    if bound.among:
        return [value in bound.among for value in values]
    least, most = bound.least, bound.most
    return [v is not None and (least is None or v >= least) and (most is None or v <= most) for v in values]


def _needed(compiled: CompiledQuery, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Only the rows that the bounds select."""
    found = dict(tables)
    for name, lists in bounds_on_inputs(compiled.plan).items():
        kept = np.zeros(len(tables[name]), bool)
        for bounds in lists:
            each = [np.array(_meets(bound, tables[name].column(bound.column)), bool) for bound in bounds]
            kept |= np.all(each, axis=0) if each else True
        found[name] = tables[name].filter(pa.array(kept))
    return found


def _shown(table: pa.Table) -> list[str]:
    rows = table.rename_columns([f"c{i}" for i in range(table.num_columns)]).to_pylist()
    return sorted(repr(row).replace("-0.0", "0.0") for row in rows)


@pytest.mark.parametrize("text", [*TEXTS, *CONSTRUCTS.values()])
def test_parts_have_the_rows_of_the_whole(text: str) -> None:
    compiled = _compiled(text)
    wanted = _shown(compiled.run(TABLES))
    assert _shown(_in_parts(compiled, TABLES)) == wanted
    needed = _needed(compiled, TABLES)
    assert _shown(compiled.run(needed)) == wanted
    assert _shown(_in_parts(compiled, needed)) == wanted


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [100, pytest.param(3000, marks=pytest.mark.long)])
def test_parts_of_random_texts_have_the_rows_of_the_whole(count: int) -> None:
    divided_ones = narrowed = 0
    for seed in range(count):
        given = tables(random.Random(seed))
        text = Texts(random.Random(seed)).text()
        compiled = compile_query(text, {name: table.schema for name, table in given.items()}, is_stored=True)
        wanted = _shown(compiled.run(given))
        needed = _needed(compiled, given)
        assert _shown(_in_parts(compiled, given)) == wanted, (seed, text)
        assert _shown(compiled.run(needed)) == wanted, (seed, text)
        assert _shown(_in_parts(compiled, needed)) == wanted, (seed, text)
        divided_ones += bool(wanted and divided(compiled.plan)[1])
        narrowed += bool(wanted and any(needed[name].num_rows < given[name].num_rows for name in given))
    assert min(divided_ones, narrowed) >= count / 50


@pytest.mark.parametrize(("text", "column"), TEXTS.items())
def test_inputs_are_divided_by_a_key_of_all_steps(text: str, column: str) -> None:
    plan, divisions = divided(_compiled(text).plan)
    found = {SCHEMAS[name].names[place] for division in divisions[:1] for name, place in division.inputs.items()}
    assert ("rows" if is_row_by_row(plan) else " ".join(sorted(found))) == column


def test_conditions_reach_the_inputs_through_keys_and_partitions() -> None:
    asked = {
        f"SELECT * FROM (SELECT *, {_EMA} FROM ticks) WHERE ticker = 'a' AND ts > {_SINCE}": {"ticks": {"ticker"}},
        f"SELECT ts, {_EMA} FROM ticks WHERE ticker = 'a' AND ts > {_SINCE}": {"ticks": {"ticker", "ts"}},
        f"SELECT t.ts FROM ticks t ASOF JOIN ohlc o ON {_CLOSED} WHERE t.ticker = 'a'": {
            "ticks": {"ticker"},
            "ohlc": {"ticker", "period_seconds"},
        },
        "SELECT * FROM ticks BARS BY TRADES 10 WHERE ticker = 'a' AND close > 1": {"ticks": {"ticker"}},
        "SELECT * FROM hammer WHERE ticker = 'a' AND period_seconds = 60": {"ohlc": {"ticker", "period_seconds"}},
        f"SELECT * FROM (SELECT ts, {_EMA} FROM ticks LIMIT 5) WHERE ts > {_SINCE}": {"ticks": set()},
    }
    for text, wanted in asked.items():
        found = {
            name: {SCHEMAS[name].names[bound.column] for bound in bounds}
            for name, [bounds] in bounds_on_inputs(_compiled(text).plan).items()
        }
        assert found == wanted, text


def test_only_columns_that_change_the_result_are_read() -> None:
    chance = random.Random(3)
    for text in [*TEXTS, *CONSTRUCTS.values()]:
        compiled = _compiled(text)
        wanted = compiled.run(TABLES)
        read = columns_of_inputs(compiled.plan)
        others = {
            name: pa.table(
                [
                    column if place in read[name] else column.take(chance.sample(range(len(column)), len(column)))
                    for place, column in enumerate(TABLES[name].columns)
                ],
                SCHEMAS[name],
            )
            for name in read
        }
        assert compiled.run(others).equals(wanted), text


def test_a_scan_of_everything_reads_all_columns() -> None:
    plan = Filter(Scan("ticks", _compiled("SELECT * FROM ticks").plan.fields), _compiled("price > 1").plan.condition)  # type: ignore[attr-defined]
    assert columns_of_inputs(plan) == {"ticks": frozenset(range(len(SCHEMAS["ticks"])))}
