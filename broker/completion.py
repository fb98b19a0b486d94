"""What a historical job that its ingestor calls complete is worth."""

from typing import NamedTuple

from broker.collected import Collected, coverage
from broker.events import Candle, PieceResult
from broker.requests import HistoricalRequest, Job, Piece
from core.failures import Failure, FailureCode
from venues import grid


class Delivered(NamedTuple):
    """Candles of a foreign ingestor, still to be published, and what they add up to."""

    candles: tuple[Candle, ...]
    counted: PieceResult


def judge(job: Job, request: HistoricalRequest, wall_ns: int) -> PieceResult | Delivered | Failure:
    """The result as a native ingestor states it, or as the rows of a foreign one give it, or why there is none."""
    collected = job.collected
    if job.result is not None:
        if collected is not None:
            return Failure(FailureCode.BAD_REPLY, "both HistoryEnd and DataResponse in one job")
        problem = _problem_with(job.result, job.piece, request)
        return Failure(FailureCode.BAD_REPLY, problem) if problem else job.result
    if job.is_adopted:
        # An earlier run of the broker may have got the rows: without them, silence is not emptiness.
        return Failure(FailureCode.SHUTDOWN, "its results went to a broker that stopped")
    if collected is not None:
        return _of_rows(collected, job.piece, request, wall_ns)
    if job.progress:
        return Failure(FailureCode.BAD_REPLY, f"{job.progress} candles announced, none delivered")
    return _counted(job.piece, request, [], wall_ns)


def _problem_with(result: PieceResult, piece: Piece, request: HistoricalRequest) -> str:
    """Why a stated result cannot be that of its piece, or an empty string."""
    opens = grid.count_opens(piece.start, piece.end, request.period_seconds)
    if result.rows > opens or result.expected > opens:
        return f"{result.rows} rows, {result.expected} expected, in a range of {opens} candles"
    if piece.limit is not None and result.rows > piece.limit:
        return f"{result.rows} rows where {piece.limit} were asked for"
    if any(start < piece.start or start >= piece.end for start, _ in result.holes):
        return "a hole outside of the range"
    return ""


def _of_rows(
    collected: Collected, piece: Piece, request: HistoricalRequest, wall_ns: int
) -> PieceResult | Delivered | Failure:
    if collected.problem:
        failure = Failure.parse(collected.problem)
        unnamed = failure.code is FailureCode.UNKNOWN
        return Failure(FailureCode.BAD_REPLY, failure.text) if unnamed else failure
    if collected.received < collected.claimed:
        text = f"{collected.claimed} records announced, {collected.received} received"
        return Failure(FailureCode.BAD_REPLY, text)
    candles = collected.closed(request.period_seconds, wall_ns, piece.limit)
    counted = _counted(piece, request, [candle.open_time for candle in candles], wall_ns)
    return Delivered(candles, counted) if candles else counted


def _counted(piece: Piece, request: HistoricalRequest, opens: list[int], wall_ns: int) -> PieceResult:
    expected, holes = coverage(opens, piece.start, piece.end, request.period_seconds, wall_ns, piece.limit)
    return PieceResult(0, (), len(opens), expected, holes)
