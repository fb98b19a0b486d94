"""Triggers that differ only in numbers, run as one stream, give the same results as separately."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candlewright_cep import ReleaseBuffer, StreamInput, StreamQuery, TriggerStream, compile_stream, evaluate
from tests.rounds import rounds

pytestmark = pytest.mark.timeout(60)

_SCHEMA = pa.schema([("ticker", pa.string()), ("ts", pa.timestamp("ns")), ("price", pa.float64()), ("n", pa.int64())])
_INPUTS = {"ticks": StreamInput(_SCHEMA, ("ts",))}
_TICKERS = ("A", "B", "C")


def _pattern(define: str, pattern: str, measures: str = "COUNT(*) AS c, LAST(price) AS p", within: str = "") -> str:
    return (
        f"SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES {measures} "
        f"PATTERN ({pattern}) {within} DEFINE {define}) AS m"
    )


_EXACT = "CAST(price AS DECIMAL(9, 3))"
#: Texts with placeholders for numbers.
TEXTS = [
    "price > {0} AND n >= {1} - 1",
    "price BETWEEN {0} AND {1} OR n = {0} * -2",
    "SELECT ticker, ts, price * {0} - {1} AS x FROM ticks WHERE NOT n <> {1}",
    _pattern("D AS price < PREV(price) + {0}, U AS price > PREV(price * 2) - {1}", "S D+ U+"),
    _pattern("A AS SUM(A.n) < {0}, B AS price >= AVG(A.price) * {1}", "A+ B"),
    _pattern("X AS price <> FIRST(price) + {1}, B AS LAST(X.n, 1) > {0}", "A X*? B"),
    "SELECT ticker, window_start, COUNT(*) AS c FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '3' SECOND)) "
    "WHERE price > {0} GROUP BY ticker, window_start, window_end HAVING SUM(n) > {1}",
    f"{_EXACT} > {{0}}.5 OR {_EXACT} = {{1}}",
    f"SELECT ticker, ts, ({_EXACT} + {{0}}.25) * 1.{{1}} - 1.125 AS x FROM ticks "
    f"WHERE {_EXACT} NOT BETWEEN {{0}} AND 3.5",
    _pattern(f"D AS {_EXACT} < PREV({_EXACT}) + {{0}}.5, U AS PREV({_EXACT} * 2) / 1.{{1}} > 1.{{0}}5", "S D+ U+"),
    _pattern("A AS SUM(CAST(A.price AS DECIMAL(9, 3))) < {0}.75, B AS B.price > {1}", "A+ B", "SUM(A.n) AS s"),
    _pattern(
        "X AS CAST(X.price AS DECIMAL(9, 3)) <> FIRST(CAST(price AS DECIMAL(9, 3))) + {1}.0, B AS n > {0}", "A X*? B"
    ),
    f"SELECT ticker, window_start, SUM({_EXACT}) AS s "
    "FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '3' SECOND)) "
    f"GROUP BY ticker, window_start, window_end HAVING SUM({_EXACT}) > {{0}}.5 OR AVG({_EXACT}) < {{1}}",
    "SELECT ticker, price FROM (SELECT *, AVG(price) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 2 PRECEDING "
    "AND CURRENT ROW) AS mean FROM ticks) AS t WHERE price > mean * {0} - {1}",
]


def _query(sql: str) -> StreamQuery:
    return compile_stream(sql, _INPUTS)


def _table(rows: list[tuple[int, int, int]]) -> pa.Table:
    tickers = [_TICKERS[ticker] for ticker, _, _ in rows]
    times = np.arange(len(rows)) * 1_000_000_000
    columns = [pa.array(tickers), pa.array(times).cast(pa.timestamp("ns"))]
    columns += [pa.array([float(p) for _, p, _ in rows], pa.float64()), pa.array([n for _, _, n in rows], pa.int64())]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


@settings(max_examples=rounds(150), deadline=None)
@given(
    st.sampled_from(TEXTS),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 4)), max_size=25),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=3),
    st.integers(1, 25),
)
def test_a_shared_stream_agrees_with_each_text_alone(
    text: str, rows: list[tuple[int, int, int]], numbers: list[tuple[int, int]], size: int
) -> None:
    sqls = [text.format(*own) for own in numbers]
    lifted = [_query(sql).lifted() for sql in sqls]
    assert all(one is not None for one in lifted)
    found = [one for one in lifted if one is not None]
    assert len({one.key for one in found}) == 1
    values = {ticker: one.values for ticker, one in zip(_TICKERS, found, strict=True)}
    first = dict.fromkeys(_TICKERS, 0)
    stream = TriggerStream(query=_query(sqls[0]).with_slots(found[0]), tickers=first, numbers=values)
    table = _table(rows)
    buffer = ReleaseBuffer("ts", "ticker")
    parts = []
    for start in range(0, table.num_rows, size):
        parts.append(stream.feed(buffer.push(table.slice(start, size)).rows, buffer.clock).table)
        again = TriggerStream(query=_query(sqls[0]).with_slots(found[0]), tickers=first, numbers=values)
        again.restore(stream.snapshot())
        stream = again
    parts.append(stream.feed(buffer.close(set(_TICKERS)), buffer.clock).table)
    together = sorted(repr(row) for part in parts for row in part.to_pylist())
    alone = []
    for ticker, sql in zip(_TICKERS, sqls, strict=True):
        own = table.filter(pa.array([name == ticker for name in table.column("ticker").to_pylist()], pa.bool_()))
        alone += [repr(row) for row in evaluate(sql, own).to_pylist()]
    assert together == sorted(alone)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("price > 1", "price >= 1"),
        ("price > 1", "n > 1"),
        ("ROUND(price, 1) > 2", "ROUND(price, 2) > 2"),
        ("ticker = 'A' AND n > 1", "ticker = 'B' AND n > 1"),
        ("SELECT 1 AS a, price FROM ticks WHERE n > 1", "SELECT 2 AS a, price FROM ticks WHERE n > 1"),
        (_pattern("A AS n > 1", "A{2}"), _pattern("A AS n > 1", "A{3}")),
        (_pattern("A AS n > 1", "A+"), _pattern("A AS n > 1", "A+?")),
        (_pattern("A AS n > PREV(n, 1)", "A"), _pattern("A AS n > PREV(n, 2)", "A")),
        (_pattern("A AS n > 1", "A", "A.n + 1 AS x"), _pattern("A AS n > 1", "A", "A.n + 2 AS x")),
        (_pattern("A AS n > 1", "A", within="WITHIN INTERVAL '1' SECOND"), _pattern("A AS n > 1", "A")),
        (
            _pattern("A AS n > 1", "A", within="WITHIN INTERVAL '1' SECOND"),
            _pattern("A AS n > 1", "A", within="WITHIN INTERVAL '1' SECOND FROM PREVIOUS ROW"),
        ),
    ],
)
def test_triggers_that_differ_outside_compared_numbers_run_apart(one: str, other: str) -> None:
    keys = [lifted.key for sql in (one, other) if (lifted := _query(sql).lifted()) is not None]
    assert len(keys) == 2
    assert keys[0] != keys[1]


def test_decimals_of_any_precision_share_a_stream() -> None:
    texts = [f"{_EXACT} > {number}" for number in ("9.5", "10.25", "70000", "0.125", "-3.0", "123456789012345678.5")]
    keys = {lifted.key for text in texts if (lifted := _query(text).lifted())}
    assert len(keys) == 1
    assert _query(f"{_EXACT} > 1.0625").lifted() != _query(texts[0]).lifted()


def test_places_and_names_in_the_text_do_not_matter() -> None:
    keys = {
        lifted.key for sql in ("price > 1", "price  >  1e3", "\n price > 70000") if (lifted := _query(sql).lifted())
    }
    assert len(keys) == 1


def test_a_plan_over_several_tickers_together_is_not_shared() -> None:
    assert _query("SELECT a.price FROM ticks a JOIN ticks b ON a.ts = b.ts WHERE a.n > 1").lifted() is None
