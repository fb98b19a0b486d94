"""Publishes the progress of requests."""

from broker.board import Board
from broker.commands import PutState
from broker.work import HistoricalRequest, RealtimeRequest, Request
from candlewright.wire import grid


def show(board: Board) -> None:
    """Publish the states of all requests that changed since the last call."""
    for request_id in board.dirty:
        request = board.requests.get(request_id)
        # A waiting request needs no state, since waiting is the default.
        if request is not None and request.was_dispatched:
            board.shown.add(request_id)
            board.say(_state_of(request_id, request, board.wall_ns))
    board.dirty.clear()


def _state_of(request_id: str, request: Request, wall_ns: int) -> PutState:
    if isinstance(request, HistoricalRequest):
        expected = grid.expected_candles(request.start, request.end, request.period_seconds, exchange_time=wall_ns)
        expected = expected if request.limit is None else min(expected, request.limit)
        closed_until = grid.closed_end(request.end, request.period_seconds, wall_ns + request.facts.ahead_ns)
        if request.limit is not None or closed_until >= request.end:
            closed_until = 0
        done = request.done_candles()
        return PutState(
            request_id=request_id,
            state="running",
            done_candles=done,
            expected_candles=expected,
            ticker=request.ticker,
            closed_until=closed_until,
        )
    failure = request.failure if isinstance(request, RealtimeRequest) else ""
    is_running = any(piece.job is not None for piece in request.outstanding.values())
    return PutState(
        request_id=request_id,
        state="running" if is_running and not failure else "queued",
        done_candles=0,
        expected_candles=0,
        ticker=request.ticker,
        failure=failure,
    )
