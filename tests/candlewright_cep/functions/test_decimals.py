# ruff: noqa: E501  (texts of SQL)
"""DECIMAL: compared with DuckDB where it is exact too, with Python elsewhere, and the same on a stream."""

import random
from decimal import ROUND_HALF_UP, Context, Decimal
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
