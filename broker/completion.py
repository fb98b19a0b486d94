"""What a historical job that its ingestor calls complete is worth."""

from typing import NamedTuple

from broker.events import Candle, PieceResult
from broker.jobs import Collected, Job, coverage
from broker.requests import HistoricalRequest, Piece
from core.failures import Failure, FailureCode


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
        return job.result
    if job.is_adopted:
        # An earlier run of the broker may have got the rows: without them, silence is not emptiness.
        return Failure(FailureCode.SHUTDOWN, "its results went to a broker that stopped")
    if collected is not None:
        return _of_rows(collected, job.piece, request, wall_ns)
    if job.progress:
        return Failure(FailureCode.BAD_REPLY, f"{job.progress} candles announced, none delivered")
    return _counted(job.piece, request, [], wall_ns)


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
