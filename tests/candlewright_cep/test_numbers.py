"""Numeric functions at their edges, against exact arithmetic; conditions on a match compute the same values."""

import math
import re
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from candlewright_cep import evaluate
from tests.rounds import rounds

MOST, LEAST = 2**63 - 1, -(2**63)
_SETTINGS = settings(max_examples=rounds(60), deadline=None)

_EDGES = [0, 1, -1, 2, 10, MOST, MOST - 1, LEAST, LEAST + 1, 2**62, -(2**62), 2**53 + 1, 3037000500, -3037000500, 2**31]
integers = st.one_of(st.sampled_from(_EDGES), st.integers(LEAST, MOST), st.integers(-20, 20))
_DOUBLES = [
    0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, -0.49999999999999994, 4503599627370497.0,
    4503599627370495.5, -4503599627370497.0, 9007199254740993.0, 2.0**63, -(2.0**63), 2.0**63 - 1024, 1e300, -1e300,
    5e-324, math.inf, -math.inf, math.nan,
]  # fmt: skip
doubles = st.one_of(st.sampled_from(_DOUBLES), st.floats(), st.floats(-1000, 1000))


def table(**columns: Any) -> pa.Table:
    kinds = {int: pa.int64(), float: pa.float64()}
    return pa.table({name: pa.array([value], kinds[type(value)]) for name, value in columns.items()})


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    return type(one) is type(other) and one == other


def check(expression: str, wanted: Any, **columns: Any) -> None:
    """Evaluate it in a query, and in a condition that looks back at an earlier row of the match."""
    rows = table(**columns)
    found = evaluate(f"SELECT {expression} AS x FROM ticks", rows).column("x")[0].as_py()
    assert same(found, wanted), (expression, columns, found, wanted)
    kind = pa.float64() if isinstance(wanted, float) else pa.int64()
    first = rows.append_column("wanted", pa.array([wanted], kind)).append_column("n", pa.array([1]))
    both = pa.concat_tables([first, first.set_column(first.num_columns - 1, "n", pa.array([2]))])
    earlier = re.sub(r"[a-z]+", lambda word: f"A.{word[0]}" if word[0] in columns else word[0], expression)
    matches = evaluate(
        "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY n MEASURES 1 AS one PATTERN (A B) "
        f"DEFINE B AS {earlier} IS NOT DISTINCT FROM A.wanted) AS m",
        both,
    )
    assert matches.num_rows == 1, (earlier, columns, wanted)


def fitting(value: int) -> int | None:
    return value if LEAST <= value <= MOST else None


def toward_zero(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def half_away(value: Fraction) -> int:
    found = math.floor(abs(value) + Fraction(1, 2))
    return found if value >= 0 else -found


@_SETTINGS
@given(integers, integers)
@example(LEAST, -1)
@example(MOST, 1)
@example(LEAST, 1)
def test_integer_arithmetic_is_exact_or_null(a: int, b: int) -> None:
    check("a + b", fitting(a + b), a=a, b=b)
    check("a - b", fitting(a - b), a=a, b=b)
    check("a * b", fitting(a * b), a=a, b=b)
    check("a / b", fitting(toward_zero(a, b)) if b else None, a=a, b=b)
    check("MOD(a, b)", a - b * toward_zero(a, b) if b else None, a=a, b=b)
    check("-a", fitting(-a), a=a)
    check("ABS(a)", fitting(abs(a)), a=a)
    check("CAST(a AS INT)", a if -(2**31) <= a < 2**31 else None, a=a)
    check("CAST(a AS DOUBLE)", float(a), a=a)


@_SETTINGS
@given(integers, st.integers(-22, 3))
@example(MOST, -19)
def test_integers_are_rounded_exactly(a: int, digits: int) -> None:
    step = 10 ** max(0, -digits)
    check(f"ROUND(a, {digits})", fitting(half_away(Fraction(a, step)) * step), a=a)
    check(f"TRUNCATE(a, {digits})", toward_zero(a, step) * step, a=a)


@_SETTINGS
@given(doubles)
@example(0.49999999999999994)
@example(4503599627370497.0)
@example(-(2.0**63))
def test_doubles_are_rounded_exactly(d: float) -> None:
    if not math.isfinite(d):
        for expression in ("ROUND(d)", "FLOOR(d)", "CEIL(d)", "TRUNCATE(d)", "ROUND(d, 2)", "TRUNCATE(d, -2)"):
            check(expression, d, d=d)
        check("CAST(d AS BIGINT)", None, d=d)
        check("CAST(d AS INT)", None, d=d)
        return
    nearest = half_away(Fraction(d))
    check("ROUND(d)", float(nearest), d=d)
    check("FLOOR(d)", float(math.floor(d)), d=d)
    check("CEIL(d)", float(math.ceil(d)), d=d)
    check("TRUNCATE(d)", float(math.trunc(d)), d=d)
    check("CAST(d AS BIGINT)", fitting(nearest), d=d)
    check("CAST(d AS INT)", nearest if -(2**31) <= nearest < 2**31 else None, d=d)


@_SETTINGS
@given(doubles.filter(math.isfinite), st.integers(-400, 400))
@example(123456789012345.67, 2)
@example(1e300, 100)
@example(7.0, -400)
@example(1.7976931348623157e308, -177)
def test_rounding_to_digits_is_off_by_less_than_a_digit(d: float, digits: int) -> None:
    def value(expression: str) -> float:
        found = evaluate(f"SELECT {expression} AS x FROM ticks", table(d=d)).column("x")[0].as_py()
        assert isinstance(found, float) and math.isfinite(found)
        return found

    step = Fraction(10) ** -digits
    near = abs(Fraction(d)) / 2**50
    assert abs(Fraction(value(f"ROUND(d, {digits})")) - Fraction(d)) <= step / 2 + near
    assert abs(Fraction(value(f"TRUNCATE(d, {digits})")) - Fraction(d)) <= step + near


@_SETTINGS
@given(doubles, doubles)
def test_doubles_follow_ieee(d: float, e: float) -> None:
    def java_remainder() -> float:
        return math.nan if math.isnan(d) or math.isnan(e) or math.isinf(d) or e == 0 else math.fmod(d, e)

    check("MOD(d, e)", java_remainder(), d=d, e=e)
    check("d + e", d + e, d=d, e=e)
    check("d * e", d * e, d=d, e=e)
    check("-d", -d, d=d)
    check("ABS(d)", abs(d), d=d)
    if e != 0 or math.isnan(e):
        check("d / e", d / e, d=d, e=e)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("LN(0)", -math.inf),
        ("LN(-1)", math.nan),
        ("LOG10(0)", -math.inf),
        ("SQRT(-1)", math.nan),
        ("EXP(1000)", math.inf),
        ("POWER(0, -1)", math.inf),
        ("POWER(-8, 0.5)", math.nan),
        ("POWER(0, 0)", 1.0),
        ("1.0 / 0", math.inf),
        ("0.0 / 0", math.nan),
        ("-9223372036854775807 - 1", LEAST),
        ("(-9223372036854775807 - 1) / -1", None),
        ("MOD(-9223372036854775807 - 1, -1)", 0),
        ("CAST('-2147483648' AS INT)", -(2**31)),
        ("CAST('2147483648' AS INT)", None),
        ("CAST('-9223372036854775808' AS BIGINT)", LEAST),
        ("CAST('9223372036854775808' AS BIGINT)", None),
        ("CAST('00000000000000000000000007' AS BIGINT)", 7),
        ("ABS(CAST('-2147483648' AS INT))", None),
        ("1 + 0.5", 1.5),
        ("9007199254740993 + 0.0", 9007199254740992.0),
    ],
)
def test_values_at_the_edges(expression: str, wanted: Any) -> None:
    check(expression, wanted, z=0)


@pytest.mark.parametrize(
    ("expression", "is_null"),
    [
        ("INTERVAL '1' SECOND / 0.0", True),
        ("INTERVAL '1' SECOND / 1e-300", True),
        ("INTERVAL '1' SECOND / (0.0 / 0)", True),
        ("INTERVAL '1' SECOND * 1e300", True),
        ("INTERVAL '1' SECOND / 0.5", False),
        ("-INTERVAL '1' SECOND", False),
    ],
)
def test_intervals_past_64_bits_are_null(expression: str, is_null: bool) -> None:
    found = evaluate(f"SELECT ({expression}) IS NULL AS x FROM ticks", table(z=0)).column("x")[0].as_py()
    assert found is is_null


#: As Spark SQL 4.1 answers.
BUCKETS: list[tuple[str, int | None]] = [
    ("5.35, 0.024, 10.06, 5", 3),
    ("-2.1, 1.3, 3.4, 3", 0),
    ("8.1, 0.0, 5.7, 4", 5),
    ("-0.9, 5.2, 0.5, 2", 3),
    ("10, 10, 0, 5", 1),
    ("0, 10, 0, 5", 6),
    ("8, 10, 0, 5", 2),
    ("8.1, 10, 0, 5", 1),
    ("11, 10, 0, 5", 0),
    ("-1, 10, 0, 5", 6),
    ("0, 0, 10, 5", 1),
    ("10, 0, 10, 5", 6),
    ("1e300, 0, 10, 5", 6),
    ("CAST('nan' AS DOUBLE), 0, 10, 5", None),
    ("5, CAST('nan' AS DOUBLE), 10, 5", None),
    ("5, 0, CAST('infinity' AS DOUBLE), 5", None),
    ("5, 3, 3, 5", None),
    ("5, 0, 10, 0", None),
    ("5, 0, 10, -5", None),
    ("5, 0, 10, 9223372036854775807", None),
    ("5, 0, 10, 9223372036854775806", 2**62 + 1),
]


@pytest.mark.parametrize(("arguments", "wanted"), BUCKETS)
def test_buckets_of_equal_width(arguments: str, wanted: int | None) -> None:
    check(f"WIDTH_BUCKET({arguments})", wanted, z=0)


@_SETTINGS
@given(st.lists(integers, min_size=1, max_size=6))
@example([MOST, 1, -1])
@example([MOST - 5, 4])
def test_sums_are_exact_or_null(values: list[int]) -> None:
    rows = pa.table({"a": pa.array(values, pa.int64()), "n": pa.array(range(len(values)))})
    found = evaluate("SELECT SUM(a) AS x FROM ticks", rows).column("x")[0].as_py()
    assert found == fitting(sum(values))
    matched = evaluate(
        "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY n MEASURES SUM(a) AS x PATTERN (A+ $)) AS m", rows
    )
    assert matched.column("x").to_pylist() == [fitting(sum(values))]
