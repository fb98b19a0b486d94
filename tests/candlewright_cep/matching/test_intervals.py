"""The spans of a block of rows hold for each of its rows."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candlewright_cep.binding.expressions import Expression
from candlewright_cep.engine import compile_query
from candlewright_cep.matching.intervals import Span, is_telling, span_of, truth
from candlewright_cep.planning.plans import Project
from candlewright_cep.planning.relation import from_table
from tests.rounds import rounds

EDGES = [0.0, -0.0, 1.0, -1.0, 0.1, 3.0, -2.5, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan]
WHOLE = [0, 1, -1, 2, 3, -7, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)]
SCHEMA = pa.schema(
    [("x", pa.float64()), ("y", pa.float64()), ("i", pa.int64()), ("j", pa.int64()), ("t", pa.timestamp("ns"))]
)


def values() -> st.SearchStrategy[str]:
    return st.recursive(
        st.one_of(st.sampled_from(["x", "y", "CAST(i AS DOUBLE)", "2.5", "-0.1"]), st.floats(-9, 9).map(repr)),
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner), st.builds("ABS({})".format, inner)
        ),
        max_leaves=4,
    )


def integers() -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(["i", "j", "3", "-9007199254740993"]),
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner), st.builds("(- {})".format, inner)
        ),
        max_leaves=4,
    )


def conditions() -> st.SearchStrategy[str]:
    symbol = st.sampled_from(["<", "<=", ">", ">=", "=", "<>"])
    simple = st.one_of(
        st.builds("{} {} {}".format, values(), symbol, values()),
        st.builds("{} {} {}".format, integers(), symbol, integers()),
        st.builds("{} BETWEEN {} AND {}".format, values(), values(), values()),
        st.builds("t {} TIMESTAMP '2024-01-01 00:00:00' + INTERVAL '1' SECOND".format, symbol),
        st.builds("t - TIMESTAMP '2024-01-01 00:00:00' {} INTERVAL '1' SECOND".format, symbol),
    )
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("NOT ({})".format, inner),
        ),
        max_leaves=3,
    )


@st.composite
def blocks(draw: st.DrawFn) -> pa.Table:
    size = draw(st.integers(1, 5))

    def column(edges: list[float] | list[int], plain: st.SearchStrategy[float | int]) -> list[float | int | None]:
        return draw(st.lists(st.one_of(plain, st.sampled_from(edges), st.none()), min_size=size, max_size=size))

    base = 1_704_067_200_000_000_000
    return pa.table(
        [
            pa.array(column(EDGES, st.floats(-9, 9)), pa.float64()),
            pa.array(column(EDGES, st.floats(-9, 9)), pa.float64()),
            pa.array(column(WHOLE, st.integers(-9, 9)), pa.int64()),
            pa.array(column(WHOLE, st.integers(-9, 9)), pa.int64()),
            pa.array(column([base], st.integers(base - 10**10, base + 10**10)), pa.int64()).cast(pa.timestamp("ns")),
        ],
        schema=SCHEMA,
    )


def bound(condition: str) -> Expression:
    plan = compile_query(f"SELECT {condition} AS c FROM t", {"t": SCHEMA}, default_table="t").plan
    assert isinstance(plan, Project)
    return plan.expressions[0]


@settings(max_examples=rounds(400), deadline=None)
@given(conditions(), blocks())
def test_the_spans_of_a_block_hold_for_its_rows(condition: str, table: pa.Table) -> None:
    node = bound(condition)
    rows = from_table(table)
    found = rows.values().value(node).true()
    spans = [span_of(rows.column(index)) for index in range(rows.width)]
    whole = [Span(*(np.array([f(part)]) for f, part in zip((min, max, any), span, strict=True))) for span in spans]
    of_block = truth(node, lambda index: whole[index])
    assert of_block.may[0] or not found.any()
    assert found.all() or not of_block.must[0]
    each = truth(node, lambda index: spans[index])
    assert (np.broadcast_to(each.may, len(found)) | ~found).all()
    assert (found | ~np.broadcast_to(each.must, len(found))).all()


@pytest.mark.parametrize(
    ("condition", "may", "must"),
    [
        ("x > 2 * y", False, False),
        ("x < y - 13", True, False),
        ("x < y - 12", True, True),
        ("ABS(x - y) > 15", False, False),
        ("NOT (x < y)", False, False),
        ("x BETWEEN y AND 0", False, False),
        ("x / y < 0", True, True),
        ("x > 0 OR y > 0", True, True),
    ],
)
def test_spans_decide_thresholds(condition: str, may: bool, must: bool) -> None:
    node = bound(condition)
    assert is_telling(node)
    # x from -9 to -8, y from 5 to 6.
    spans = [Span(np.array([low]), np.array([high]), np.array([False])) for low, high in ((-9.0, -8.0), (5.0, 6.0))]
    found = truth(node, lambda index: spans[index])
    assert (bool(found.may[0]), bool(found.must[0])) == (may, must)
