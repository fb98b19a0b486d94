# ruff: noqa: E501  (texts of SQL)
"""DECIMAL: compared with DuckDB where it is exact too, with Python elsewhere, and the same on a stream."""

import math
import random
import struct
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import TriggerRejected, evaluate
from tests.candlewright_cep.streams import assert_streams, duckdb_rows, ordered
from tests.rounds import seeds

pytestmark = pytest.mark.timeout(60)

WIDE = Context(prec=120, rounding=ROUND_HALF_UP)


def _number(chance: random.Random, digits: int, scale: int) -> Decimal | None:
    if chance.random() < 0.1:
        return None
    size = chance.choice([1, digits // 2, digits])
    return Decimal(chance.randrange(-(10**size) + 1, 10**size)).scaleb(-scale, WIDE)


def _trades(seed: int, rows: int = 120) -> pa.Table:
    """`a` and `b` have up to 12 digits, `c` and `d` up to 34."""
    chance = random.Random(seed)
    times = sorted(chance.sample(range(1, 600_000), rows))

    def column(digits: int, scale: int) -> pa.Array:
        # DuckDB's products of fewer than 19 digits have at most 18.
        kind = pa.decimal128(max(digits, 20), scale)
        return pa.array([_number(chance, digits, scale) for _ in times], kind)

    return pa.table(
        {
            "ticker": [chance.choice("AB") for _ in times],
            "ts": pa.array([time * 10**6 for time in times]).cast(pa.timestamp("ns", "UTC")),
            "price": [chance.choice([None, 0.0, chance.randrange(1, 10**9) / 10**5]) for _ in times],
            "a": column(12, 4),
            "b": column(10, 7),
            "c": column(34, 8),
            "d": column(30, 0),
            "n": pa.array([chance.choice([None, chance.randrange(-(10**6), 10**6)]) for _ in times], pa.int64()),
        }
    )


def _operand(chance: random.Random) -> str:
    return chance.choice(
        ["a", "b", "n", "-3", "(a + 1.25)", "CAST(price AS DECIMAL(20, 5))", "CAST('7.125' AS DECIMAL(20, 3))"]
    )


def _exact(chance: random.Random, depth: int) -> str:
    """An expression whose value needs at most 38 digits."""
    if not depth:
        return _operand(chance)
    one = _exact(chance, depth - 1)
    form = chance.choice(["+", "-", "*", "-x", "ABS", "CASE", "COALESCE", "GREATEST"])
    other = _operand(chance)
    match form:
        case "-x":
            return f"(- {one})"
        case "ABS":
            return f"ABS({one})"
        case "CASE":
            return f"(CASE WHEN {one} > {other} THEN {one} ELSE {other} END)"
        case "COALESCE":
            return f"COALESCE({one}, {other})"
        case "GREATEST":
            return f"(CASE WHEN {one} IS NULL OR {other} IS NULL THEN NULL ELSE GREATEST({one}, {other}) END)"
    return f"({one} {form} {other})"


@pytest.mark.parametrize("seed", seeds(36))
def test_random_expressions_have_the_values_of_duckdb(seed: int) -> None:
    chance = random.Random(seed)
    parts = [f"CAST({_exact(chance, 2)} AS DECIMAL(38, {chance.randrange(0, 12)})) AS x{n}" for n in range(4)]
    parts += [
        f"{_exact(chance, 1)} {chance.choice(['<', '<=', '=', '<>', '>', '>='])} {_exact(chance, 1)} AS t{n}"
        for n in range(2)
    ]
    parts += [f"{_operand(chance)} IN (a, 0, {_operand(chance)}) AS i", f"a BETWEEN {_operand(chance)} AND b AS w"]
    parts += [
        f"CAST({_operand(chance)} AS BIGINT) AS whole",
        "CAST(a AS VARCHAR) AS text",
        "CAST(c AS DOUBLE) AS double",
    ]
    sql = f"SELECT ts, {', '.join(parts)} FROM ticks"
    table = _trades(seed)
    found = evaluate(sql, table).to_pylist()
    assert ordered(found) == ordered(duckdb_rows(sql, table))


AGGREGATES = [
    "SELECT ticker, SUM(a) AS s, MIN(c) AS low, MAX(c) AS high, COUNT(DISTINCT a) AS n, SUM(DISTINCT b) AS u, SUM(d) AS t FROM ticks GROUP BY ticker",
    "SELECT ts, SUM(a * b) OVER (PARTITION BY ticker ORDER BY ts ROWS 7 PRECEDING) AS s, MIN(c) OVER (PARTITION BY ticker ORDER BY ts ROWS 3 PRECEDING) AS m FROM ticks",
    "SELECT ts, SUM(c) OVER (PARTITION BY ticker ORDER BY ts) AS s, LAG(c) OVER (PARTITION BY ticker ORDER BY ts) AS before FROM ticks",
    "SELECT ticker, a FROM ticks WHERE a > 0 ORDER BY a DESC, ts LIMIT 7",
]  # fmt: skip


@pytest.mark.parametrize("sql", AGGREGATES)
@pytest.mark.parametrize("seed", seeds(9))
def test_aggregates_are_exact_as_those_of_duckdb(sql: str, seed: int) -> None:
    table = _trades(seed)
    assert ordered(evaluate(sql, table).to_pylist()) == ordered(duckdb_rows(sql, table))


def _rounded(value: Decimal, scale: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-scale), context=WIDE)


@pytest.mark.parametrize("seed", seeds(9))
def test_quotients_remainders_and_rounding_are_those_of_python(seed: int) -> None:
    table = _trades(seed)
    sql = (
        "SELECT a, b, c, d, a / b AS q, c / d AS wide, a % b AS r, c % d AS big, ROUND(c, 3) AS e, TRUNCATE(c, 3) AS f, "
        "FLOOR(c) AS g, CEIL(c) AS h, ROUND(c, -2) AS i, c * d AS p, -c AS m FROM ticks"
    )
    found = evaluate(sql, table)
    types = dict(zip(found.column_names, found.schema.types, strict=True))
    # As in Spark SQL: 38 digits, of which those before the point take precedence.
    assert (types["q"], types["wide"]) == (pa.decimal128(38, 15), pa.decimal128(38, 12))
    assert (types["p"], types["m"]) == (pa.decimal128(38, 8), pa.decimal128(34, 8))
    for row in found.to_pylist():
        a, b, c, d = (row[name] for name in "abcd")
        for name, one, other in (("q", a, b), ("wide", c, d)):
            scale = types[name].scale
            wanted = None if one is None or not other else _rounded(WIDE.divide(one, other), scale)
            if wanted is not None and len(wanted.as_tuple().digits) > types[name].precision:
                wanted = None
            assert row[name] == wanted, (name, one, other)
        for name, one, other in (("r", a, b), ("big", c, d)):
            assert row[name] == (None if one is None or not other else WIDE.remainder(one, other))
        product = None if c is None or d is None else WIDE.multiply(c, d)
        assert row["p"] == (product if product is None or abs(product) < 10**30 else None)
        if c is not None:
            assert row["e"] == _rounded(c, 3)
            assert row["f"] == c.quantize(Decimal("0.001"), rounding="ROUND_DOWN", context=WIDE)
            assert row["g"] == c.quantize(Decimal(1), rounding="ROUND_FLOOR", context=WIDE)
            assert row["h"] == c.quantize(Decimal(1), rounding="ROUND_CEILING", context=WIDE)
            assert row["i"] == WIDE.multiply(_rounded(c.scaleb(-2, WIDE), 0), Decimal(100))


@pytest.mark.parametrize("seed", seeds(9))
def test_means_are_rounded_once(seed: int) -> None:
    table = _trades(seed)
    found = evaluate("SELECT AVG(c) AS m, AVG(d) AS n FROM ticks", table)
    assert found.schema.types == [pa.decimal128(38, 12), pa.decimal128(34, 4)]
    for name, column in (("m", "c"), ("n", "d")):
        values = [value for value in table.column(column).to_pylist() if value is not None]
        total = Decimal(0)
        for value in values:
            total = WIDE.add(total, value)
        assert found.column(name)[0].as_py() == _rounded(
            WIDE.divide(total, Decimal(len(values))), 12 if name == "m" else 4
        )


@pytest.mark.parametrize("digits", [(38, 0), (38, 38), (38, 19), (20, 8), (18, 17), (10, 2)])
def test_doubles_are_the_numbers_as_which_they_are_written(digits: tuple[int, int]) -> None:
    chance = random.Random(1)
    doubles = [struct.unpack("<d", struct.pack("<Q", chance.getrandbits(64)))[0] for _ in range(1_000)]
    doubles += [chance.randrange(10 ** chance.randrange(1, 18)) / 10 ** chance.randrange(12) for _ in range(1_000)]
    precision, scale = digits
    table = pa.table({"x": pa.array(doubles, pa.float64())})
    found = evaluate(f"SELECT CAST(x AS DECIMAL({precision}, {scale})) AS y FROM ticks", table)["y"].to_pylist()
    for double, value in zip(doubles, found, strict=True):
        # Numbers far beyond 38 digits on either side are NULL or 0.
        fits = math.isfinite(double) and abs(double) < 1e39
        wanted = (
            _rounded(Decimal(repr(double)), scale) if fits and abs(double) > 1e-60 else Decimal(0) if fits else None
        )
        if wanted is not None and WIDE.abs(wanted.scaleb(scale, WIDE)) >= 10**precision:
            wanted = None
        assert value == wanted, double


@pytest.mark.parametrize("seed", seeds(9))
def test_numbers_with_more_digits_together_than_a_decimal_has_are_compared_exactly(seed: int) -> None:
    edge = Decimal("99999999999999999999999999.99999999")
    table = _trades(seed)
    wide = pa.array([edge, edge.copy_negate(), Decimal("1.00000001"), None], pa.decimal128(34, 8))
    whole = pa.array([Decimal(10**26), Decimal(1 - 10**26), Decimal(1), Decimal(0)])
    near = pa.table({"c": wide, "d": whole.cast(pa.decimal128(38, 0))})
    sql = (
        "SELECT c, d, c < d AS lt, c <= d AS le, c = d AS eq, c <> d AS ne, c > d AS gt, c >= d AS ge, "
        "c IS DISTINCT FROM d AS apart, c IN (d, 0) AS among, d BETWEEN c AND c AS ranged FROM ticks"
    )
    for row in (*evaluate(sql, table).to_pylist(), *evaluate(sql, near).to_pylist()):
        one, other, *found = row.values()
        if one is None or other is None:
            assert found[:6] == [None] * 6 and found[6] == (one is not other)
            continue
        assert found == [
            one < other, one <= other, one == other, one != other, one > other, one >= other, one != other,
            one in (other, 0), one == other,
        ]  # fmt: skip


def test_results_have_the_documented_types() -> None:
    sql = (
        "SELECT a + b AS s, a - b AS d, a % b AS r, a * b AS p, a + n AS w, SUM(b) AS t, AVG(b) AS m, MIN(b) AS l, "
        "ABS(b) AS e, TRUNCATE(b) AS c, ROUND(b) AS o, FLOOR(b) AS f, CEIL(b) AS g, ROUND(d) AS h, CAST(b AS DECIMAL) AS k "
        "FROM ticks GROUP BY a, b, d, n"
    )
    kinds = {"a": (12, 4), "b": (10, 7), "d": (38, 2), "n": (9, 0)}
    table = pa.table({name: pa.array([Decimal(1)], pa.decimal128(*kind)) for name, kind in kinds.items()})
    found = evaluate(sql, table).schema
    assert {field.name: (field.type.precision, field.type.scale) for field in found} == {
        "s": (16, 7), "d": (16, 7), "r": (10, 7), "p": (22, 11), "w": (14, 4), "t": (38, 7), "m": (14, 11), "l": (10, 7),
        "e": (10, 7), "c": (10, 7), "o": (11, 7), "f": (11, 7), "g": (11, 7), "h": (38, 2), "k": (38, 0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("ROUND(x)", "100"),
        ("ROUND(-x)", "-100"),
        ("ROUND(x, 1)", "99.9"),
        ("ROUND(x, -1)", "100"),
        ("CEIL(x)", "100"),
        ("FLOOR(-x)", "-100"),
        ("FLOOR(x)", "99"),
        ("TRUNCATE(x)", "99"),
        ("ROUND(CAST(x * 10 AS DECIMAL(3, 0)), -1)", "1000"),
        ("ROUND(CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0)), -1)", None),
    ],
)
def test_rounding_up_may_take_one_digit_more(expression: str, wanted: str | None) -> None:
    one = pa.array([Decimal("99.9")], pa.decimal128(3, 1))
    assert _of_one(expression, x=one) == (None if wanted is None else Decimal(wanted))


GREATEST = Decimal(10**38 - 1)


def _of_great_numbers(scale: int) -> pa.Table:
    """Sums of these often need more than 38 digits, and later fit again."""
    chance = random.Random(scale)
    numbers = [GREATEST, GREATEST.copy_negate(), None, Decimal(1), Decimal(-1), Decimal(0)]
    values = [chance.choice(numbers) for _ in range(60)]
    return pa.table(
        {
            "ticker": [chance.choice("AB") for _ in values],
            "ts": pa.array([row * 10**9 for row in range(60)]).cast(pa.timestamp("ns", "UTC")),
            "x": pa.array([value and value.scaleb(-scale, WIDE) for value in values], pa.decimal128(38, scale)),
        }
    )


def _total(values: list[Decimal | None], scale: int) -> tuple[Decimal | None, Decimal | None]:
    """SUM and AVG; NULL for more than 38 digits."""
    known, total = [value for value in values if value is not None], Decimal(0)
    for value in known:
        total = WIDE.add(total, value)
    if not known:
        return None, None
    of_mean = min(scale + 4, 38)
    mean = _rounded(WIDE.divide(total, Decimal(len(known))), of_mean)
    return (
        total if WIDE.abs(total.scaleb(scale, WIDE)) <= GREATEST else None,
        mean if WIDE.abs(mean.scaleb(of_mean, WIDE)) <= GREATEST else None,
    )


@pytest.mark.parametrize("frame", [2, 100])
@pytest.mark.parametrize("scale", [0, 8, 38])
def test_totals_with_too_many_digits_are_null_until_they_fit_again(scale: int, frame: int) -> None:
    table = _of_great_numbers(scale)
    rows = "UNBOUNDED" if frame == 100 else frame
    sql = (
        f"SELECT ticker, ts, SUM(x) OVER w AS s, AVG(x) OVER w AS m FROM ticks "
        f"WINDOW w AS (PARTITION BY ticker ORDER BY ts ROWS {rows} PRECEDING)"
    )
    past: dict[str, list[Decimal | None]] = {}
    wanted = []
    for row in table.to_pylist():
        values = past.setdefault(row["ticker"], [])
        values.append(row["x"])
        total, mean = _total(values[-frame - 1 :], scale)
        wanted.append({"ticker": row["ticker"], "ts": row["ts"], "s": total, "m": mean})
    assert ordered(assert_streams(sql, table, 1)) == ordered(wanted)
    known = [row["s"] is not None for row in wanted]
    assert any(now and not before for before, now in pairwise(known))


GREAT = [
    "SELECT ticker, SUM(x) AS s, AVG(x) AS m, MAX(x) AS h FROM ticks GROUP BY ticker EMIT CHANGES",
    "SELECT ticker, window_end, SUM(x) AS s, AVG(x) AS m, SUM(DISTINCT x) AS d FROM TABLE(HOP(TABLE ticks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND)) GROUP BY ticker, window_start, window_end",
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES SUM(B.x) AS s, AVG(B.x) AS m, LAST(B.x) AS l PATTERN (A B{1,4}) DEFINE B AS AVG(B.x) IS NOT NULL OR SUM(B.x) IS NULL)",
]  # fmt: skip


@pytest.mark.parametrize("sql", GREAT)
@pytest.mark.parametrize("scale", [0, 8, 38])
def test_a_stream_of_great_numbers_gives_the_rows_of_a_finished_table(sql: str, scale: int) -> None:
    assert assert_streams(sql, _of_great_numbers(scale), scale)


@pytest.mark.parametrize(
    ("condition", "parameters"),
    [
        ("CAST(price AS DECIMAL(20, 8)) + :p = 0.3", {"p": "0.2"}),
        ("CAST(price AS DECIMAL(20, 8)) * :p = 0.01", {"p": "0.1"}),
        ("CAST(price AS DECIMAL(20, 8)) IN (:p, 5)", {"p": "0.1"}),
        ("CAST(price AS DECIMAL(20, 8)) BETWEEN :p AND :q", {"p": "0.1", "q": "0.10"}),
        ("NOT CAST(price AS DECIMAL(20, 8)) > :p", {"p": "0.1"}),
        ("CAST(price AS DECIMAL(38, 30)) < :p", {"p": "0.100000000000000000000000000001"}),
    ],
)
def test_a_parameter_beside_a_decimal_is_exact(condition: str, parameters: dict[str, str]) -> None:
    assert evaluate(condition, pa.table({"price": [0.1]}), parameters).num_rows == 1


def _of_one(expression: str, **columns: Any) -> Any:
    return evaluate(f"SELECT {expression} AS x FROM ticks", pa.table({"one": [1], **columns})).column("x")[0].as_py()


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        # A double is the number as which it is written; a literal beside a DECIMAL is exact.
        ("CAST(0.1 AS DECIMAL(20, 18))", "0.1"),
        ("CAST(1.005 AS DECIMAL(10, 2))", "1.01"),
        ("CAST(0.1 AS DECIMAL(4, 2)) + 0.2", "0.3"),
        ("CAST('1' AS DECIMAL(30, 20)) * 1.23456789012345678901", None),
        ("CAST(1.2345678901234567890123 AS DECIMAL(30, 22))", "1.2345678901234567890123"),
        ("CAST('-0.5' AS DECIMAL(3, 0))", "-1"),
        ("CAST(' 12.50 ' AS DECIMAL(5, 2))", "12.5"),
        ("CAST('1e3' AS DECIMAL(5, 1))", "1000"),
        ("CAST(1 AS DECIMAL(5, 2)) / 3", "0.333333"),
        ("CAST(-7 AS DECIMAL(3, 1)) % 3", "-1"),
        # NULL for too many digits, and for text that is not a number.
        ("CAST(1000 AS DECIMAL(5, 2))", None),
        ("CAST('x' AS DECIMAL(5, 2))", None),
        ("CAST('1e999999' AS DECIMAL(5, 2))", None),
        ("CAST(INFINITY() AS DECIMAL(5, 2))", None),
        ("CAST(1 AS DECIMAL(5, 2)) / 0", None),
        ("CAST(99999999999999999999999999999999999999.0 AS DECIMAL(38, 0)) + 1", None),
    ],
)  # fmt: skip
def test_conversions(expression: str, wanted: str | None) -> None:
    if "* 1.234" in expression:
        with pytest.raises(TriggerRejected, match="cannot be applied"):
            _of_one(expression)
        return
    assert _of_one(expression) == (None if wanted is None else Decimal(wanted))


@pytest.mark.parametrize("kind", ["DECIMAL(39, 2)", "DECIMAL(4, 5)", "NUMERIC(0)"])
def test_impossible_types_are_refused(kind: str) -> None:
    with pytest.raises(TriggerRejected, match="is not possible") as refused:
        _of_one(f"CAST(1 AS {kind})")
    assert "1 to 38 digits" in str(refused.value)


def test_a_double_with_a_decimal_gives_a_double() -> None:
    found = evaluate("SELECT a * price AS x, a > price AS y FROM ticks", _trades(1))
    assert found.schema.types == [pa.float64(), pa.bool_()]


def test_lists_and_percentiles_hold_decimals() -> None:
    table = pa.table({"a": pa.array([Decimal("2.50"), Decimal("1.10"), None], pa.decimal128(5, 2))})
    sql = (
        "SELECT ARRAY_JOIN(ARRAY_AGG(a), '|') AS l, PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY a) AS p, MODE(a) AS m, "
        "MEDIAN(a) AS d FROM ticks"
    )
    assert evaluate(sql, table).to_pylist() == [
        {"l": "2.50|1.10", "p": Decimal("1.10"), "m": Decimal("2.50"), "d": 1.8}
    ]


STREAMS = [
    "SELECT ticker, a * b - 0.5 AS x FROM ticks WHERE a / 3 > 0.25",
    "SELECT ticker, window_start, SUM(c) AS s, AVG(a) AS m, MAX(c) AS h, COUNT(DISTINCT a) AS n FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY ticker, window_start, window_end",
    "SELECT ticker, ts, SUM(c) OVER (PARTITION BY ticker ORDER BY ts) AS s, AVG(a) OVER (PARTITION BY ticker ORDER BY ts) AS m, MAX(c) OVER (PARTITION BY ticker ORDER BY ts ROWS 5 PRECEDING) AS h, LAG(a) OVER (PARTITION BY ticker ORDER BY ts) AS l FROM ticks",
    """SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts
       MEASURES FIRST(a) AS first, SUM(B.c) AS s, AVG(B.a) AS m, MAX(c) - MIN(c) AS span, ARRAY_JOIN(ARRAY_AGG(a), ' ') AS l
       PATTERN (A B+ C) DEFINE B AS B.a > A.a AND SUM(B.c) < 1e20, C AS C.c < AVG(B.c) AND C.a <> PREV(C.a))""",
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES COUNT(*) AS k, LAST(U.a) AS last ALL ROWS PER MATCH PATTERN (D U+) DEFINE U AS U.a > PREV(U.a) AND U.a > D.a * 1.01) WHERE last > 0",
    "SELECT a, COUNT(*) AS n, SUM(b) AS s FROM ticks GROUP BY a, TUMBLE(ts, INTERVAL '5' MINUTE)",
    "SELECT ts, FIRST_VALUE(a) OVER w AS f, LAST_VALUE(c) OVER w AS l, MAX(d) OVER w AS h, ANY_VALUE(b) OVER w AS y, MIN_BY(c, a) OVER w AS z, STDDEV(a) OVER w AS v, EMA(b, 3) OVER (PARTITION BY ticker ORDER BY ts) AS e FROM ticks WINDOW w AS (PARTITION BY ticker ORDER BY ts)",
    "SELECT ticker, SUM(c) AS s, AVG(a) AS m, MIN_BY(c, a) AS z, FIRST_VALUE(d) AS f FROM ticks GROUP BY ticker EMIT CHANGES",
    "SELECT t.ts, t.a - o.a AS x FROM ticks t ASOF JOIN ticks o ON t.ticker = o.ticker AND t.ts > o.ts WHERE t.a > o.a",
    "SELECT t.ts, t.a * o.b AS x FROM ticks t LEFT JOIN ticks o ON o.ts BETWEEN t.ts - INTERVAL '20' SECOND AND t.ts AND t.ticker <> o.ticker",
    "SELECT t.ts, v.k FROM ticks t JOIN (VALUES (CAST(1 AS DECIMAL(3, 0)), 1), (CAST(0 AS DECIMAL(3, 0)), 0)) AS v(x, k) ON CAST(t.a / 100000000 AS DECIMAL(3, 0)) = v.x",
    "SELECT a, ts FROM ticks UNION ALL SELECT b, ts FROM ticks",
    "SELECT ts, LEAD(c) OVER (PARTITION BY ticker ORDER BY ts) AS n, SUM(c) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS s FROM ticks",
    "SELECT ts, LAG(c, 2, 0) OVER (PARTITION BY ticker ORDER BY ts) AS l, SUM(c) OVER (PARTITION BY ticker ORDER BY ts RANGE INTERVAL '90' SECOND PRECEDING) AS s FROM ticks",
    "SELECT ticker, GROUPING(ticker) AS g, window_start, SUM(c) FILTER (WHERE a > 0) AS s, AVG(a) AS m FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY ROLLUP(ticker), window_start, window_end HAVING MAX(c) > 0.5",
    "SELECT ticker, window_start, a FROM (SELECT ticker, window_start, SUM(a) AS a FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY ticker, window_start, window_end) QUALIFY RANK() OVER (PARTITION BY window_start ORDER BY a DESC) <= 1",
    "SELECT a, ts, SUM(b) OVER (PARTITION BY a ORDER BY ts) AS s FROM (SELECT ticker, ts, b, CAST(a / 100000 AS DECIMAL(3, 0)) AS a FROM ticks)",
]  # fmt: skip


@pytest.mark.parametrize("sql", STREAMS)
@pytest.mark.parametrize("seed", seeds(6))
def test_a_stream_gives_the_same_decimals(sql: str, seed: int) -> None:
    assert assert_streams(sql, _trades(seed), seed)


def test_an_interval_takes_a_decimal() -> None:
    assert _of_one("INTERVAL '1' SECOND * CAST(1.5 AS DECIMAL(3, 1)) = INTERVAL '1500' MILLISECOND")


def test_bars_and_ranges_of_decimal_prices() -> None:
    table = pa.table(
        {
            "ticker": ["A"] * 4,
            "ts": pa.array([1, 2, 3, 4], pa.timestamp("ns", "UTC")),
            "price": pa.array([Decimal(n) for n in (1, 3, 2, 5)], pa.decimal128(10, 2)),
            "size": pa.array([Decimal(1)] * 4, pa.decimal128(10, 2)),
        }
    )
    found = evaluate("SELECT open, high, low, close FROM ticks BARS BY TRADES 2", table).to_pylist()
    assert found == [{"open": 1, "high": 3, "low": 1, "close": 3}, {"open": 2, "high": 5, "low": 2, "close": 5}]


@pytest.mark.parametrize("values", [[], [0], [0, None], [0, 1, 2**62]])
def test_zeros_take_any_digits_after_the_point(values: list[int | None]) -> None:
    table = pa.table({"n": pa.array(values, pa.int64()), "ts": range(len(values))})
    found = evaluate("SELECT CAST(n AS DECIMAL(38, 30)) AS a FROM ticks", table).column("a").to_pylist()
    assert found == [value if value is not None and value < 10**8 else None for value in values]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_null_with_a_column_without_nulls_is_null(rows: int) -> None:
    table = pa.table({"m": pa.array([Decimal("1.5")] * rows, pa.decimal128(20, 8))})
    sql = "SELECT 1 + (NULL - m) AS a, CEIL(NULL * m) AS b FROM ticks"
    assert evaluate(sql, table).to_pylist() == [{"a": None, "b": None}] * rows
