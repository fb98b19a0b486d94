"""The result that an ingestor reports must add up: a candle that is neither present nor in a hole is missing
unnoticed.
"""

import pytest

from broker.events import PieceResult
from broker.requests.completion import problem_with
from broker.work import HistoricalRequest, Piece, VenueFacts
from candlewright.wire.grid import SECOND

MINUTE = 60 * SECOND
SPANS = ((0, 0),)


def problem(result: PieceResult, limit: int | None = None) -> str:
    request = HistoricalRequest(
        "r",
        "A/B.X",
        "X",
        client_id="c",
        deadline_ns=0,
        offset=0,
        period_seconds=60,
        start=0,
        end=10 * MINUTE,
        limit=limit,
        facts=VenueFacts(),
    )
    piece = Piece(request, 0, start=0, end=10 * MINUTE, limit=limit)
    return problem_with(result, piece, request, partitions=0)


@pytest.mark.parametrize(
    "result",
    [
        PieceResult(partition=0, spans=SPANS, rows=10, expected=10, holes=()),
        PieceResult(
            partition=0, spans=SPANS, rows=7, expected=10, holes=((MINUTE, 2 * MINUTE), (8 * MINUTE, 10 * MINUTE))
        ),
        PieceResult(partition=0, spans=(), rows=0, expected=10, holes=((0, 10 * MINUTE),)),
        PieceResult(partition=0, spans=SPANS, rows=4, expected=4, holes=(), closed_until=4 * MINUTE),
    ],
)
def test_consistent_results_are_accepted(result: PieceResult) -> None:
    assert problem(result) == ""


@pytest.mark.parametrize(
    "result",
    [
        PieceResult(partition=0, spans=SPANS, rows=7, expected=10, holes=()),
        PieceResult(partition=0, spans=SPANS, rows=7, expected=10, holes=((MINUTE, 2 * MINUTE),)),
        PieceResult(partition=0, spans=SPANS, rows=7, expected=7, holes=((MINUTE, 2 * MINUTE),)),
        PieceResult(partition=0, spans=(), rows=0, expected=10, holes=()),
    ],
)
def test_candles_that_are_missing_and_in_no_hole_are_a_bad_reply(result: PieceResult) -> None:
    assert "were expected" in problem(result)


@pytest.mark.parametrize("limit", [None, 8])
def test_candles_of_the_range_that_are_not_even_expected_are_a_bad_reply(limit: int | None) -> None:
    assert "in a range of 10" in problem(PieceResult(partition=0, spans=SPANS, rows=7, expected=7, holes=()), limit)
    assert "in a range of 10" in problem(PieceResult(partition=0, spans=(), rows=0, expected=0, holes=()), limit)
    assert "in a range of 4" in problem(
        PieceResult(partition=0, spans=SPANS, rows=3, expected=3, holes=(), closed_until=4 * MINUTE), limit
    )


def test_a_limited_result_must_add_up_too() -> None:
    assert (
        problem(PieceResult(partition=0, spans=SPANS, rows=3, expected=5, holes=((MINUTE, 3 * MINUTE),)), limit=3) == ""
    )
    assert problem(PieceResult(partition=0, spans=SPANS, rows=3, expected=5, holes=()), limit=3) != ""
