"""The items of SQL:2016 on row patterns, each with a case whose answer follows from the standard's text.

`docs/reference/sql-conformance.md` lists the same items.
"""

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import TriggerRejected, evaluate
from tests.conftest import ROOT

ROWS = pa.table(
    {
        "k": ["a"] * 6 + ["b"] * 3,
        "t": [1, 2, 3, 4, 5, 6, 1, 2, 3],
        "v": [10, 8, 6, 7, 9, 5, 3, 2, 4],
    }
)
_DEFINE = "DEFINE D AS v < PREV(v), U AS v > PREV(v)"
_V = f"PATTERN (S D+ U+) {_DEFINE}"
_ONE = "SELECT * FROM r WHERE k = 'a'"


@dataclass(frozen=True)
class Case:
    """`text` has the answer `rows`; a case without rows is rejected with `refused` in the message."""

    text: str
    rows: list[tuple[Any, ...]] | None = None
    refused: str = ""


def over(clause: str, select: str = "*", source: str = f"({_ONE})") -> str:
    return f"SELECT {select} FROM {source} MATCH_RECOGNIZE ({clause}) AS m"


def first_and_last(rest: str, order: str = "ORDER BY t") -> str:
    return over(f"{order} MEASURES FIRST(t) AS f, LAST(t) AS l {rest}")


R010 = {
    "PARTITION BY": Case(
        over(f"PARTITION BY k ORDER BY t MEASURES LAST(t) AS l {_V}", source="r"), [("a", 5), ("b", 3)]
    ),
    "no PARTITION BY": Case(first_and_last(_V), [(1, 5)]),
    "ORDER BY several keys, DESC": Case(
        first_and_last("PATTERN (A B) DEFINE B AS v < A.v", "ORDER BY k, t DESC"), [(5, 4)]
    ),
    "MEASURES": Case(over(f"ORDER BY t MEASURES S.v AS top, LAST(D.v) AS low, U.v - D.v AS rise {_V}"), [(10, 6, 3)]),
    "ONE ROW PER MATCH": Case(first_and_last(f"ONE ROW PER MATCH {_V}"), [(1, 5)]),
    "ALL ROWS PER MATCH": Case(
        over(f"ORDER BY t MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH {_V}", "t, c"),
        [(1, "S"), (2, "D"), (3, "D"), (4, "U"), (5, "U")],
    ),
    "SHOW EMPTY MATCHES": Case(
        over(
            "ORDER BY t MEASURES COUNT(A.t) AS n ALL ROWS PER MATCH SHOW EMPTY MATCHES PATTERN (A*) DEFINE A AS v > 8",
            "t, n",
        ),
        [(1, 1), (2, 0), (3, 0), (4, 0), (5, 1), (6, 0)],
    ),
    "OMIT EMPTY MATCHES": Case(
        over(
            "ORDER BY t MEASURES COUNT(A.t) AS n ALL ROWS PER MATCH OMIT EMPTY MATCHES PATTERN (A*) DEFINE A AS v > 8",
            "t, n",
        ),
        [(1, 1), (5, 1)],
    ),
    "WITH UNMATCHED ROWS": Case(
        over(
            "ORDER BY t MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A B) "
            "DEFINE A AS v = 6, B AS v = 7",
            "t, c",
        ),
        [(1, None), (2, None), (3, "A"), (4, "B"), (5, None), (6, None)],
    ),
    "AFTER MATCH SKIP PAST LAST ROW": Case(
        first_and_last("AFTER MATCH SKIP PAST LAST ROW PATTERN (A B)"), [(1, 2), (3, 4), (5, 6)]
    ),
    "AFTER MATCH SKIP TO NEXT ROW": Case(
        first_and_last("AFTER MATCH SKIP TO NEXT ROW PATTERN (A B)"), [(n, n + 1) for n in range(1, 6)]
    ),
    "AFTER MATCH SKIP TO FIRST": Case(
        first_and_last("AFTER MATCH SKIP TO FIRST B PATTERN (A B B)"), [(1, 3), (2, 4), (3, 5), (4, 6)]
    ),
    "AFTER MATCH SKIP TO LAST": Case(first_and_last("AFTER MATCH SKIP TO LAST B PATTERN (A B B)"), [(1, 3), (3, 5)]),
    "concatenation and alternation": Case(
        first_and_last("PATTERN ((A | B) C) DEFINE A AS v = 6, B AS v = 9, C AS v < 8"), [(3, 4), (5, 6)]
    ),
    "quantifiers * + ? {n} {n,} {,m} {n,m}": Case(
        first_and_last(
            "PATTERN (A{1} B+ C* D? E{1,} F{,1} G{1,2}) DEFINE B AS v < PREV(v), C AS v = 0, D AS v = 7, E AS v = 9"
        ),
        [(1, 6)],
    ),
    "reluctant quantifiers": Case(first_and_last("PATTERN (A B+?)"), [(1, 2), (3, 4), (5, 6)]),
    "grouping and ()": Case(first_and_last("PATTERN ((A B){2} ())"), [(1, 4)]),
    "PERMUTE": Case(first_and_last("PATTERN (PERMUTE(A, B, C)) DEFINE A AS v = 7, B AS v = 8, C AS v = 6"), [(2, 4)]),
    "exclusion {- -}": Case(
        over(f"ORDER BY t ALL ROWS PER MATCH PATTERN (S {{- D+ -}} U+) {_DEFINE}", "t"), [(1,), (4,), (5,)]
    ),
    "anchors ^ and $": Case(first_and_last("PATTERN (^ A B* $)"), [(1, 6)]),
    "SUBSET": Case(over(f"ORDER BY t MEASURES LAST(X.t) AS l PATTERN (S D+ U+) SUBSET X = (S, D) {_DEFINE}"), [(3,)]),
    "DEFINE, a variable without condition": Case(first_and_last("PATTERN (A B) DEFINE B AS v > 8"), [(4, 5)]),
    "PREV and NEXT with offsets": Case(
        first_and_last("PATTERN (A) DEFINE A AS PREV(v, 2) = 10 AND NEXT(v, 2) = 9"), [(3, 3)]
    ),
    "FIRST and LAST with offsets": Case(over(f"ORDER BY t MEASURES FIRST(v, 1) AS a, LAST(v, 1) AS b {_V}"), [(8, 7)]),
    "PREV of FIRST": Case(over(f"ORDER BY t MEASURES PREV(LAST(U.v), 2) AS a, NEXT(FIRST(D.v)) AS b {_V}"), [(6, 6)]),
    "RUNNING and FINAL": Case(
        over(f"ORDER BY t MEASURES RUNNING LAST(v) AS r, FINAL LAST(v) AS f ALL ROWS PER MATCH {_V}", "t, r, f"),
        [(1, 10, 9), (2, 8, 9), (3, 6, 9), (4, 7, 9), (5, 9, 9)],
    ),
    "CLASSIFIER": Case(over(f"ORDER BY t MEASURES CLASSIFIER() AS c {_V}"), [("U",)]),
    "MATCH_NUMBER": Case(over("ORDER BY t MEASURES MATCH_NUMBER() AS n PATTERN (A B)"), [(1,), (2,), (3,)]),
    "CLASSIFIER in DEFINE": Case(
        first_and_last("PATTERN (A (B | C) D) DEFINE D AS CLASSIFIER(D) = 'D' AND v = 7"), [(2, 4)]
    ),
    "a pattern inside a query": Case(
        f"SELECT k, l + 1 FROM r MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES LAST(t) AS l {_V}) WHERE l > 4",
        [("a", 6)],
    ),
    "nested: over the matches of another": Case(
        over(
            "ORDER BY l MEASURES COUNT(*) AS n PATTERN (A+)",
            source=f"({over('ORDER BY t MEASURES LAST(t) AS l PATTERN (A B)')})",
        ),
        [(3,)],
    ),
    "NULL keys are one partition": Case(
        over(
            "PARTITION BY p ORDER BY t MEASURES COUNT(*) AS n PATTERN (A+)",
            source="(SELECT CASE WHEN t > 4 THEN k END AS p, t FROM r WHERE k = 'a')",
        ),
        [(None, 4), ("a", 2)],
    ),
    "ORDER BY with NULLS FIRST": Case(
        over(
            "ORDER BY n NULLS FIRST, t MEASURES FIRST(t) AS f, LAST(t) AS l PATTERN (A B) DEFINE A AS n IS NULL",
            source="(SELECT t, NULLIF(v, 8) AS n FROM r WHERE k = 'a')",
        ),
        [(2, 6)],
    ),
    "columns of ONE ROW PER MATCH: partition, measures": Case(
        over(f"PARTITION BY k ORDER BY t MEASURES U.v AS x, LAST(t) AS l {_V}", source="r"),
        [("a", 9, 5), ("b", 4, 3)],
    ),
    "columns of ALL ROWS PER MATCH: partition, order, measures, the others": Case(
        over(
            "PARTITION BY k ORDER BY t MEASURES -v AS x ALL ROWS PER MATCH PATTERN (^ A)",
            source="(SELECT v, t, k FROM r WHERE k = 'a')",
        ),
        [("a", 1, -10, 10)],
    ),
    "names fold to upper case, quoted ones do not": Case(
        over('ORDER BY t MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH PATTERN (^ a "b")', "c"), [("A",), ("b",)]
    ),
    "a greedy loop gives rows back": Case(first_and_last("PATTERN (A+ B) DEFINE B AS v > 6"), [(1, 5)]),
    "the left branch is preferred, whatever its length": Case(
        first_and_last("PATTERN (A | A B)"), [(n, n) for n in range(1, 7)]
    ),
    "a loop ends after an iteration without rows": Case(
        first_and_last("PATTERN ((A?)+ (B*){2,} C) DEFINE A AS v > 8, B AS v > 8, C AS v < 7"), [(3, 3), (5, 6)]
    ),
    "a condition that is NULL is not met": Case(
        first_and_last("PATTERN (A+) DEFINE A AS NULLIF(v, 8) > 1"), [(1, 1), (3, 6)]
    ),
    "a condition sees the match so far": Case(
        first_and_last(
            "PATTERN (A B C) DEFINE A AS A.v = v AND B.v IS NULL, B AS FIRST(B.v, 1) IS NULL, C AS C.v > B.v"
        ),
        [(2, 4)],
    ),
    "navigation reaches rows outside the match": Case(
        over("ORDER BY t MEASURES PREV(A.v * 10 + A.t) AS p, NEXT(B.v) AS n PATTERN (A B) DEFINE A AS v = 6"), [(82, 9)]
    ),
    "MATCH_NUMBER in DEFINE": Case(first_and_last("PATTERN (A) DEFINE A AS MATCH_NUMBER() < 3"), [(1, 1), (2, 2)]),
    "an empty match has a number and no values": Case(
        over(
            "ORDER BY t MEASURES MATCH_NUMBER() AS m, COUNT(*) AS n, MAX(v) AS x, CLASSIFIER() AS c PATTERN (A*) "
            "DEFINE A AS v = 6 OR v = 7"
        ),
        [(1, 0, None, None), (2, 0, None, None), (3, 2, 7, "A"), (4, 0, None, None), (5, 0, None, None)],
    ),
    "MATCH_NUMBER counts omitted empty matches": Case(
        over(
            "ORDER BY t MEASURES MATCH_NUMBER() AS m ALL ROWS PER MATCH OMIT EMPTY MATCHES PATTERN (A*) "
            "DEFINE A AS v = 6 OR v = 7",
            "t, m",
        ),
        [(3, 3), (4, 3)],
    ),
    "an unmatched row has no values": Case(
        over(
            "ORDER BY t MEASURES MATCH_NUMBER() AS m, COUNT(*) AS n ALL ROWS PER MATCH WITH UNMATCHED ROWS "
            "PATTERN (A) DEFINE A AS v > 9",
            "t, m, n",
        ),
        [(1, 1, 1), *((n, None, None) for n in range(2, 7))],
    ),
    "rows of overlapping matches are repeated": Case(
        over(
            "ORDER BY t MEASURES MATCH_NUMBER() AS m ALL ROWS PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) "
            "DEFINE A AS v > 6, B AS v > 6",
            "t, m",
        ),
        [(1, 1), (2, 1), (4, 2), (5, 2)],
    ),
    "AFTER MATCH SKIP TO a variable: its last row": Case(
        first_and_last("AFTER MATCH SKIP TO B PATTERN (A B B)"), [(1, 3), (3, 5)]
    ),
    "AFTER MATCH SKIP TO a SUBSET": Case(
        first_and_last("AFTER MATCH SKIP TO FIRST X PATTERN (A B C) SUBSET X = (B, C)"),
        [(n, n + 2) for n in range(1, 5)],
    ),
    "AFTER MATCH SKIP TO an excluded row": Case(
        over(
            "ORDER BY t MEASURES MATCH_NUMBER() AS m ALL ROWS PER MATCH AFTER MATCH SKIP TO B PATTERN (A {- B -} C)",
            "t, m",
        ),
        [(1, 1), (3, 1), (2, 2), (4, 2), (3, 3), (5, 3), (4, 4), (6, 4)],
    ),
    "excluded rows count": Case(
        over(
            f"ORDER BY t MEASURES COUNT(*) AS n, PREV(v) AS p ALL ROWS PER MATCH PATTERN (S {{- D+ -}} U+) {_DEFINE}",
            "t, n, p",
        ),
        [(1, 1, None), (4, 4, 6), (5, 5, 7)],
    ),
    "exclusion with ONE ROW PER MATCH": Case(
        over(f"ORDER BY t MEASURES COUNT(D.v) AS n, LAST(D.v) AS l PATTERN (S {{- D+ -}} U+) {_DEFINE}"), [(2, 6)]
    ),
    "an anchor of one branch": Case(first_and_last("PATTERN (^ A | B C $)"), [(1, 1), (5, 6)]),
    "an anchor inside never matches": Case(first_and_last("PATTERN (A ^ B)"), []),
    "CLASSIFIER of a SUBSET": Case(
        over(f"ORDER BY t MEASURES CLASSIFIER(X) AS c PATTERN (S D+ U+) SUBSET X = (S, D) {_DEFINE}"), [("D",)]
    ),
    "RUNNING does not look ahead": Case(
        over(f"ORDER BY t MEASURES FIRST(U.v) AS r, FINAL FIRST(U.v) AS f ALL ROWS PER MATCH {_V}", "t, r, f"),
        [(1, None, 7), (2, None, 7), (3, None, 7), (4, 7, 7), (5, 7, 7)],
    ),
    "refused: a column outside the partition with ONE ROW PER MATCH": Case(
        over(f"PARTITION BY k ORDER BY t MEASURES LAST(t) AS l {_V}", "v", source="r"), refused="'v'"
    ),
    "refused: a variable that PATTERN lacks": Case(
        first_and_last("PATTERN (A) DEFINE B AS v > 1"), refused="not a variable of the pattern"
    ),
    "refused: an exclusion with UNMATCHED ROWS": Case(
        over("ORDER BY t ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A {- B -})"), refused="not possible together"
    ),
}

_WINDOW = "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"


def in_window(rest: str, what: str = "c OVER w", frame: str = _WINDOW) -> str:
    return f"SELECT t, {what} AS x FROM ({_ONE}) WINDOW w AS (ORDER BY t MEASURES COUNT(*) AS c {frame} {rest})"


R020 = {
    "row pattern in a WINDOW clause": Case(
        in_window(_V), [(1, 5), (2, None), (3, None), (4, None), (5, None), (6, None)]
    ),
    "INITIAL": Case(in_window(f"INITIAL {_V}"), [(1, 5), (2, None), (3, None), (4, None), (5, None), (6, None)]),
    "SEEK": Case(
        in_window(
            "AFTER MATCH SKIP TO NEXT ROW SEEK PATTERN (A B) DEFINE A AS v = 6, B AS v = 7", "FIRST_VALUE(t) OVER w"
        ),
        [(1, 3), (2, 3), (3, 3), (4, None), (5, None), (6, None)],
    ),
    "aggregates over the reduced frame": Case(
        in_window(_V, "SUM(v) OVER w"), [(1, 40), (2, None), (3, None), (4, None), (5, None), (6, None)]
    ),
    "measures": Case(
        f"SELECT t, low OVER w AS x, c OVER w AS y FROM ({_ONE}) WINDOW w AS (ORDER BY t MEASURES MIN(D.v) AS low, "
        f"CLASSIFIER() AS c {_WINDOW} {_V})",
        [(1, 6, "U"), (2, None, None), (3, None, None), (4, None, None), (5, None, None), (6, None, None)],
    ),
    "the frame bounds the match": Case(
        in_window(_V, frame="ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING"),
        [(1, 4), (2, None), (3, None), (4, None), (5, None), (6, None)],
    ),
}

R030 = {
    "COUNT(*) and COUNT(variable.*)": Case(over(f"ORDER BY t MEASURES COUNT(*) AS n, COUNT(D.*) AS d {_V}"), [(5, 2)]),
    "SUM, AVG, MIN, MAX over a variable": Case(
        over(f"ORDER BY t MEASURES SUM(D.v) AS s, AVG(U.v) AS a, MIN(D.v) AS lo, MAX(v) AS hi {_V}"), [(14, 8.0, 6, 10)]
    ),
    "aggregates over no rows": Case(
        over("ORDER BY t MEASURES COUNT(B.v) AS n, SUM(B.v) AS s, MAX(B.v) AS m PATTERN (^ A B?) DEFINE B AS v > 9"),
        [(0, None, None)],
    ),
    "aggregates in DEFINE are running": Case(
        first_and_last("PATTERN (A+) DEFINE A AS SUM(A.v) <= 20"), [(1, 2), (3, 4), (5, 6)]
    ),
    "aggregates over a SUBSET": Case(
        over(f"ORDER BY t MEASURES SUM(X.v) AS s PATTERN (S D+ U+) SUBSET X = (D, U) {_DEFINE}"), [(30,)]
    ),
    "RUNNING and FINAL aggregates": Case(
        over("ORDER BY t MEASURES RUNNING SUM(v) AS r, FINAL SUM(v) AS f ALL ROWS PER MATCH PATTERN (A B)", "t, r, f"),
        [(1, 10, 18), (2, 18, 18), (3, 6, 13), (4, 13, 13), (5, 9, 14), (6, 14, 14)],
    ),
    "DISTINCT in an aggregate": Case(
        over("ORDER BY t MEASURES COUNT(DISTINCT v) AS n, SUM(DISTINCT v % 2) AS s PATTERN (A+)"), [(6, 1)]
    ),
    "FILTER of an aggregate": Case(over("ORDER BY t MEASURES SUM(v) FILTER (WHERE v > 7) AS s PATTERN (A+)"), [(27,)]),
    "statistical aggregates": Case(
        over("ORDER BY t MEASURES VAR_POP(v) AS x PATTERN (A B)"), [(1.0,), (0.25,), (4.0,)]
    ),
    "ordered: ARRAY_AGG": Case(over(f"ORDER BY t MEASURES ARRAY_AGG(U.v) AS x {_V}"), [([7, 9],)]),
    "CLASSIFIER and MATCH_NUMBER in arguments": Case(
        over(f"ORDER BY t MEASURES COUNT(CLASSIFIER()) AS n, MAX(MATCH_NUMBER()) AS m {_V}"), [(5, 1)]
    ),
}

FEATURES = {"R010": R010, "R020": R020, "R030": R030}
_CASES = [pytest.param(case, id=f"{code} {name}") for code, cases in FEATURES.items() for name, case in cases.items()]


@pytest.mark.parametrize("case", _CASES)
def test_an_item_has_the_standards_answer(case: Case) -> None:
    if case.rows is None:
        with pytest.raises(TriggerRejected, match=case.refused):
            evaluate(case.text, {"r": ROWS})
        return
    found = evaluate(case.text, {"r": ROWS})
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == case.rows


def test_the_document_lists_these_items() -> None:
    text = (ROOT / "docs" / "reference" / "sql-conformance.md").read_text()
    for code, cases in FEATURES.items():
        section = text.partition(f"## {code}")[2].partition("\n## ")[0]
        assert re.findall(r"^\| ([^|]+?) \| (?:yes|refused)", section, re.MULTILINE) == [*cases]
