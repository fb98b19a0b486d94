"""All errors of a text at once, the corrected text, and warnings about conditions that are probably not intended."""

import pyarrow as pa
import pytest

from candlewright_cep import Diagnosis, compile_query, diagnose

SCHEMA = pa.schema(
    [("ticker", pa.string()), ("ts", pa.timestamp("ns")), ("price", pa.float64()), ("size", pa.float64()),
     ("side", pa.string()), ("n", pa.int64())]
)  # fmt: skip


def found(sql: str) -> Diagnosis:
    return diagnose(sql, lambda text: compile_query(text, {"ticks": SCHEMA}, {"limit": "3"}).warnings)


def places(sql: str) -> list[tuple[int, int]]:
    return [(problem.line, problem.column) for problem in found(sql).problems]


@pytest.mark.parametrize(
    ("sql", "wanted", "mended"),
    [
        ("SELECT prise, sizee + 1 FROM tics", [(1, 8), (1, 15), (1, 30)], "SELECT price, size + 1 FROM ticks"),
        ("SELECT price FORM ticks\nWHERE prize > 3", [(1, 19), (2, 7)], "SELECT price FROM ticks\nWHERE price > 3"),
        ("price > :limmit && sise > 2", [(1, 9), (1, 17), (1, 20)], "price > :limit AND size > 2"),
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
def test_what_is_probably_not_meant_is_warned_of(sql: str, warning: str) -> None:
    assert any(told.startswith(warning) for told in found(sql).warnings), found(sql).warnings


@pytest.mark.parametrize(
    "sql",
    [
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
def test_what_may_be_meant_is_not(sql: str) -> None:
    assert found(sql).warnings == ()
