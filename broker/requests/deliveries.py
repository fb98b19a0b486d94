"""Handles what ingestors without the bus deliver over the socket: candles, a snapshot, ticks."""

from broker.board import Board
from broker.collected import Collected
from broker.commands import PublishTicks, PutTicksAside, Refuse
from broker.events import CandlesReceived, SnapshotReceived, TicksReceived
from broker.requests.endings import Endings
from broker.requests.holding import Holding
from broker.requests.realtime import Realtime
from broker.slots.dispatching import Dispatching
from broker.work import HistoricalRequest, Piece, SnapshotRequest
from core.failures import Failure, FailureCode

#: Candles of foreign ingestors held in memory, over all jobs.
MAX_COLLECTED_ROWS = 3_000_000


class Deliveries:
    def __init__(
        self, board: Board, dispatching: Dispatching, realtime: Realtime, *, holding: Holding, endings: Endings
    ) -> None:
        self._board = board
        self._dispatching = dispatching
        self._realtime = realtime
        self._holding = holding
        self._endings = endings

    def on_candles(self, event: CandlesReceived) -> None:
        board = self._board
        piece = self._named_piece(event.dispatched_id)
        if piece is None or piece.job is None:
            self._dispatching.hear(event.connection, event.at)
            board.note("fenced_frame", request_id=event.dispatched_id, frame="DataResponse")
            return
        request = piece.request
        job = self._holding.worker(event.connection, piece.job.job_id, event.at, frame="DataResponse")
        if job is None or not isinstance(request, HistoricalRequest):
            return
        collected = job.collected = job.collected or Collected()
        if event.period_seconds - {request.period_seconds} or event.tickers - {request.ticker}:
            collected.problem = "candles of another period or ticker than requested"
        collected.problem = collected.problem or event.problem
        if collected.problem:
            return
        collected.claimed = max(collected.claimed, event.total_records)
        board.collected_rows += collected.add(
            event.candles, piece.start, piece.end, period_seconds=request.period_seconds
        )
        job.progress = len(collected.candles)
        board.dirty[request.request_id] = None
        if board.collected_rows > MAX_COLLECTED_ROWS:
            self._endings.fail(
                job, Failure(FailureCode.RATE_LIMITED, "the broker holds too many candles of other jobs")
            )

    def _named_piece(self, dispatched_id: str) -> Piece | None:
        """The piece of a historical request that was dispatched under this id, if any."""
        request_id, _, number = dispatched_id.partition("#")
        request = self._board.requests.get(request_id)
        if not isinstance(request, HistoricalRequest):
            return None
        named = int(number) if number.isdecimal() and len(number) < 10 else next(iter(request.outstanding), -1)
        piece = request.outstanding.get(named)
        return piece if piece is not None and piece.dispatched_id == dispatched_id else None

    def on_snapshot(self, event: SnapshotReceived) -> None:
        request = self._board.requests.get(event.snapshot.request_id)
        job = request.outstanding[0].job if isinstance(request, SnapshotRequest) and request.outstanding else None
        job_id = job.job_id if job is not None else ""
        held = self._holding.holder(event.connection, job_id, event.at, frame="Snapshot")
        if held is None or request is None:
            return
        if event.snapshot.ticker != request.ticker:
            text = f"a snapshot of {event.snapshot.ticker} instead of the requested {request.ticker}"
            self._board.say(Refuse(event.connection, "UNEXPECTED", text, request.request_id))
        else:
            held.snapshot = event.snapshot

    def on_ticks(self, event: TicksReceived) -> None:
        batch = event.batch
        request = self._realtime.by_ticker.get(batch.ticker)
        job = request.piece.job if request is not None else None
        if job is None:
            self._dispatching.hear(event.connection, event.at)
            self._board.note("ticks_without_job", ticker=batch.ticker, ticks=len(batch.timestamp))
            return
        held = self._holding.holder(event.connection, job.job_id, event.at, frame="TickBatch")
        if held is None:
            return
        if event.far is not None:
            self._board.note("ticks_put_aside", ticker=batch.ticker, ticks=len(event.far.timestamp))
            self._board.say(PutTicksAside(event.far, event.reason))
            self._board.say(Refuse(event.connection, "FAR_AHEAD", event.reason))
        if batch.timestamp:
            held.newest_trade = max(held.newest_trade, *batch.timestamp)
            held.trades_at = event.at
            self._board.say(PublishTicks(held.job_id, batch))
