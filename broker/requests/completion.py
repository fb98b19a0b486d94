"""Judges the result of a historical job that its ingestor reports as complete."""

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from broker.collected import Collected, coverage
from broker.events import Candle, PieceResult
from broker.work import HistoricalRequest, Job, Piece
from bus.api import partition_of
from candlewright.wire import grid
from core.failures import Failure, FailureCode


class Delivered(NamedTuple):
    """Candles of a foreign ingestor, still to be published, with their totals."""

    candles: tuple[Candle, ...]
    counted: PieceResult


#: A bound on offsets of the bus; a larger one cannot have been assigned.
MAX_OFFSET = 1 << 53


def judge(job: Job, request: HistoricalRequest, partitions: int) -> PieceResult | Delivered | Failure:
    """The result stated by a native ingestor, or computed from the rows of a foreign one, or the reason why there is
    none.

    A DataResponse does not say when its candles were read. That was after the dispatch, so only candles that had closed
    by the dispatch are certain. `partitions`: the partitions of the topic `history`.
    """
    collected = job.collected
    if job.result is not None:
        if collected is not None:
            return Failure(FailureCode.BAD_REPLY, "both HistoryEnd and DataResponse in one job")
        problem = problem_with(job.result, job.piece, request, partitions=partitions)
        return Failure(FailureCode.BAD_REPLY, problem) if problem else job.result
    if job.is_adopted:
        # An earlier run of the broker may have received the rows, so a lack of rows does not mean an empty range.
        return Failure(FailureCode.SHUTDOWN, "its results went to a broker that stopped")
    if collected is not None:
        return _of_rows(collected, job, request)
    if job.progress:
        return Failure(FailureCode.BAD_REPLY, f"{job.progress} candles announced, none delivered")
    return _counted(job, request, [], request.facts.exchange_ns(job.dispatched_ns))


def problem_with(result: PieceResult, piece: Piece, request: HistoricalRequest, *, partitions: int) -> str:
    """The reason why a stated result cannot be correct for its piece, or an empty string."""
    if result.closed_until and not piece.start <= result.closed_until < piece.end:
        return "it ends outside of the range"
    opens = grid.count_opens(piece.start, result.closed_until or piece.end, request.period_seconds)
    if result.rows > opens or result.expected > opens:
        return f"{result.rows} rows, {result.expected} expected, in a range of {opens} candles"
    if piece.limit is not None and result.rows > piece.limit:
        return f"{result.rows} rows where {piece.limit} were asked for"
    if result.expected < opens and result.rows != piece.limit:
        # Only a limit ends a range early; otherwise, uncounted candles would be missing unnoticed.
        return f"{result.expected} candles were expected in a range of {opens}"
    latest = piece.end + request.period_seconds * grid.SECOND
    if any(start < piece.start or start >= piece.end or end > latest for start, end in result.holes):
        return "a hole outside of the range"
    missing = sum(grid.count_opens(start, end, request.period_seconds) for start, end in result.holes)
    if result.rows + missing != result.expected:
        return f"{result.rows} rows and holes of {missing} candles, where {result.expected} were expected"
    return _problem_with_spans(result, request.ticker, partitions) if result.spans else ""


def _problem_with_spans(result: PieceResult, ticker: str, partitions: int) -> str:
    """The problem with the stated spans of pages, or an empty string. Whether the pages exist is checked by the history
    writer, which reads them.
    """
    if partitions and result.partition != (own := partition_of(ticker.encode(), partitions)):
        return f"pages in partition {result.partition} of history, where {ticker} has partition {own}"
    if result.spans[-1][1] >= MAX_OFFSET or any(left[1] >= right[0] for left, right in pairwise(result.spans)):
        return "spans of offsets that do not ascend"
    pages = sum(last - first + 1 for first, last in result.spans)
    return f"{pages} pages for {result.rows} rows" if pages > result.rows else ""


def _of_rows(collected: Collected, job: Job, request: HistoricalRequest) -> PieceResult | Delivered | Failure:
    if collected.problem:
        failure = Failure.parse(collected.problem)
        unnamed = failure.code is FailureCode.UNKNOWN
        return Failure(FailureCode.BAD_REPLY, failure.text) if unnamed else failure
    if collected.received < collected.claimed:
        text = f"{collected.claimed} records announced, {collected.received} received"
        return Failure(FailureCode.BAD_REPLY, text)
    closed_ns = collected.closed_ns(request.facts.exchange_ns(job.dispatched_ns))
    candles = collected.closed(request.period_seconds, closed_ns, job.piece.limit)
    counted = _counted(job, request, [candle.open_time for candle in candles], closed_ns)
    return Delivered(candles, counted) if candles else counted


def _counted(job: Job, request: HistoricalRequest, opens: list[int], closed_ns: int) -> PieceResult:
    piece, period_seconds = job.piece, request.period_seconds
    if not opens and closed_ns >= piece.end + period_seconds * grid.SECOND:
        return _nothing_in(piece.start, piece.end, period_seconds)
    closed_until = 0
    if piece.limit is not None and len(opens) >= piece.limit:
        end = opens[-1] + period_seconds * grid.SECOND
    else:
        end = grid.closed_end(piece.end, period_seconds, closed_ns)
        if end < piece.end:
            end = closed_until = max(end, piece.start)
    expected, holes = coverage(opens, piece.start, end, period_seconds=period_seconds)
    return PieceResult(
        partition=0, spans=(), rows=len(opens), expected=expected, holes=holes, closed_until=closed_until
    )


@lru_cache(maxsize=1_000)
def _nothing_in(start: int, end: int, period_seconds: int) -> PieceResult:
    """The result of a past range without candles; many tickers have the same ones."""
    expected, holes = coverage([], start, end, period_seconds=period_seconds)
    return PieceResult(partition=0, spans=(), rows=0, expected=expected, holes=holes)
