"""The library against the slow matcher, over random patterns, conditions, measures and data."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from candlewright_cep import SkipFailed, evaluate
from candlewright_cep.matching import bulk
from tests.candlewright_cep.random_matches import Case, cases
from tests.candlewright_cep.reference import Reference
from tests.rounds import rounds

_SETTINGS = settings(
    max_examples=rounds(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def expected(case: Case) -> list[tuple[Any, ...]] | None:
    """The slow matcher's rows, None if AFTER MATCH SKIP must fail."""
    within, gap = (None if limit is None else limit * 1000 for limit in (case.within, case.gap))
    reference = Reference(case.rows, {name: condition for name, _, condition in case.defines}, within=within, gap=gap)
    found = reference.matches(case.pattern, case.skip)
    if found is None:
        return None
    functions = [function for _, function, _ in case.measures]
    rows = reference.output(found, case.mode, functions, empty=[empty for _, _, empty in case.measures])
    if case.mode == "one":
        starts_of_empty = {start for start, mapping, _ in found if not mapping}
        rows = [(None if row[0] in starts_of_empty and _is_empty(found, row[0]) else row[0], *row[1:]) for row in rows]
    return sorted(rows, key=repr)


def _is_empty(found: list[Any], start: int) -> bool:
    return any(row == start and not mapping for row, mapping, _ in found)


def check(case: Case) -> None:
    wanted = expected(case)
    if wanted is None:
        with pytest.raises(SkipFailed):
            evaluate(case.sql, case.table)
        return
    found = evaluate(case.sql, case.table)
    assert sorted((tuple(row.values()) for row in found.to_pylist()), key=repr) == wanted, case.sql


@_SETTINGS
@given(cases())
def test_matches_are_those_of_the_slow_matcher(case: Case) -> None:
    check(case)


@_SETTINGS
@given(cases(within=True, untimed=True))
def test_matches_with_within_are_those_of_the_slow_matcher(case: Case) -> None:
    check(case)


@_SETTINGS
@given(st.one_of(cases(), cases(within=True, untimed=True)))
def test_matches_found_in_bulk_are_those_of_the_slow_matcher(case: Case) -> None:
    with patch.object(bulk, "FEWEST_ROWS", 0):
        check(case)
