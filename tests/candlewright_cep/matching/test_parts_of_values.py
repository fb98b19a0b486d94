"""DISTINCT aggregates, arrays and fields in DEFINE and MEASURES, over tables and over streams that restart."""

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import TriggerRejected, evaluate
from candlewright_cep.limits import Limits
from tests.candlewright_cep.streams import assert_streams

NAN = float("nan")


def _table(seed: int, rows: int = 120) -> pa.Table:
    chance = random.Random(seed)
    fields = pa.struct([("fee", pa.float64()), ("at", pa.timestamp("us"))])

    def some(make: object) -> object:
        return make if chance.random() < 0.9 else None

    return pa.table(
        {
            "ticker": [chance.choice("AB") for _ in range(rows)],
            "ts": pa.array([second * 10**9 for second in range(rows)]).cast(pa.timestamp("ns", "UTC")),
            "n": pa.array([some(chance.randint(0, 4)) for _ in range(rows)], pa.int64()),
            "price": pa.array([some(chance.choice([1.0, 2.0, 2.5, NAN])) for _ in range(rows)], pa.float64()),
            "times": pa.array(
                [some([some(chance.randint(0, 3)) for _ in range(chance.randint(0, 3))]) for _ in range(rows)],
                pa.list_(pa.timestamp("ms")),
            ),
            "tags": pa.array(
                [some([chance.choice("xyz") for _ in range(chance.randint(0, 3))]) for _ in range(rows)],
                pa.list_(pa.string()),
            ),
            "detail": pa.array(
                [some({"fee": chance.random(), "at": chance.randint(0, 9)}) for _ in range(rows)], fields
            ),
        }
    )


#: A condition of B, and its meaning for the rows mapped to A and B: `a` are A's rows, `b` is B's row.
CONDITIONS: dict[str, Callable[[list[dict[str, Any]], dict[str, Any]], bool]] = {
    "COUNT(DISTINCT A.n) >= 2": lambda a, b: len({row["n"] for row in a} - {None}) >= 2,
    "COUNT(DISTINCT price) = 3": lambda a, b: len({repr(row["price"]) for row in [*a, b]} - {"None"}) == 3,
    "SUM(DISTINCT A.n) > 4": lambda a, b: sum({row["n"] for row in a} - {None}) > 4,
    "COUNT(DISTINCT A.n) FILTER (WHERE A.n > 1) = 2": lambda a, b: (
        len({row["n"] for row in a if (row["n"] or 0) > 1}) == 2
    ),
    "CARDINALITY(ARRAY_AGG(A.n)) = 3": lambda a, b: len(a) == 3,
    "ARRAY_AGG(A.n)[1] = n": lambda a, b: b["n"] is not None and a[0]["n"] == b["n"],
    "ARRAY_CONTAINS(ARRAY_AGG(A.n), B.n)": lambda a, b: b["n"] is not None and b["n"] in [row["n"] for row in a],
    "ARRAY_AGG(A.ts)[2] + INTERVAL '3' SECOND <= B.ts": lambda a, b: (
        len(a) > 1 and (b["ts"] - a[1]["ts"]).total_seconds() >= 3
    ),
    "CARDINALITY(FIRST(A.tags)) = CARDINALITY(tags)": lambda a, b: (
        None not in (a[0]["tags"], b["tags"]) and len(a[0]["tags"]) == len(b["tags"])
    ),
    "LAST(A.tags) = B.tags": lambda a, b: None not in (a[-1]["tags"], b["tags"]) and a[-1]["tags"] == b["tags"],
    "LAST(A.times) = FIRST(B.times)": lambda a, b: (
        None not in (a[-1]["times"], b["times"]) and a[-1]["times"] == b["times"]
    ),
    "ARRAY_JOIN(A.tags, '') = 'x'": lambda a, b: a[-1]["tags"] == ["x"],
    "A.detail['fee'] < B.detail['fee']": lambda a, b: (
        None not in (a[-1]["detail"], b["detail"]) and a[-1]["detail"]["fee"] < b["detail"]["fee"]
    ),
    "FIRST(A.detail)['at'] = detail['at']": lambda a, b: (
        None not in (a[0]["detail"], b["detail"]) and a[0]["detail"]["at"] == b["detail"]["at"]
    ),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_over_parts_of_values_agree_with_python(condition: str) -> None:
    table = _table(len(condition))
    sql = f"""
        SELECT ticker, since, at FROM ticks MATCH_RECOGNIZE (
          PARTITION BY ticker ORDER BY ts MEASURES FIRST(ts) AS since, LAST(ts) AS at
          PATTERN (A+? B) DEFINE B AS {condition}
        ) AS m"""
    expected = []
    for ticker in "AB":
        rows = [row for row in table.to_pylist() if row["ticker"] == ticker]
        start = 0
        while start < len(rows):
            holds = CONDITIONS[condition]
            end = next((end for end in range(start + 1, len(rows)) if holds(rows[start:end], rows[end])), None)
            if end is not None:
                expected.append({"ticker": ticker, "since": rows[start]["ts"], "at": rows[end]["ts"]})
            start = start + 1 if end is None else end + 1
    assert sorted(assert_streams(sql, table, 7), key=repr) == sorted(expected, key=repr)
    assert expected


MEASURES = "COUNT(DISTINCT A.n) AS c, FINAL SUM(DISTINCT n) AS s, MAX(DISTINCT n) AS m, AVG(DISTINCT A.n) AS a"


def test_measures_count_different_values() -> None:
    pattern = f"MEASURES {MEASURES} PATTERN (A{{3,5}}? B) DEFINE B AS n > 2"
    found = assert_streams(
        f"SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts {pattern}) AS m", _table(1), 3
    )
    assert len(found) > 5 and any(row["c"] == 2 for row in found)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("COUNT(DISTINCT *) > 1", "COUNT of DISTINCT values needs a column"),
        ("COUNT(DISTINCT A.*) > 1", "COUNT of DISTINCT values needs a column"),
        ("MEDIAN(DISTINCT A.n) > 1", "DISTINCT is not possible with MEDIAN over a row pattern"),
        ("PREV(DISTINCT n) > 1", "DISTINCT is not possible with PREV"),
        ("LAST_VALUE(A.detail)['fee'] > 1", "a STRUCT cannot be compared or gathered"),
        ("CARDINALITY(ARRAY_AGG(A.detail)) > 1", "a STRUCT cannot be compared or gathered"),
        ("A.detail['fees'] > 1", r"the column has no field 'fees' \(did you mean 'fee'"),
        ("A.detail > B.detail", "a STRUCT cannot be compared or gathered"),
    ],
)
def test_meaningless_conditions_are_refused(condition: str, message: str) -> None:
    sql = f"SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts PATTERN (A+ B) DEFINE B AS {condition}) AS m"
    with pytest.raises(TriggerRejected, match=message):
        evaluate(sql, _table(1, 5))


@pytest.mark.parametrize(
    "condition", ["COUNT(DISTINCT A.ts) > 0", "CARDINALITY(ARRAY_AGG(A.ts)) > 0", "MEDIAN(A.n + 1) > 0"]
)
def test_values_that_a_search_keeps_are_bounded(condition: str) -> None:
    """Each row of a loop has a separate state, to which the search may return."""
    pattern = f"PATTERN (A* B) DEFINE A AS {condition}, B AS COUNT(*) < 0"
    sql = f"SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts {pattern}) AS m"
    table = _table(1, 3_000).drop_columns(["times", "tags", "detail", "price"])
    with pytest.raises(TriggerRejected, match="took more than"):
        evaluate(sql, table, limits=Limits(steps_per_batch=50_000, steps_per_row=1))
