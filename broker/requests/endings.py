"""How jobs end: accepted, failed, rejected or lost; and what happens to their pieces."""

import heapq
from dataclasses import replace
from itertools import count

from broker.board import Board
from broker.commands import PublishPages, PublishPieceDone, PublishSnapshot, Revoke, StopWork
from broker.events import (
    EMPTY_RESULT,
    AcceptedPiece,
    ConnectionLost,
    Final,
    JobCompleted,
    JobFailed,
    JobRejected,
    PagesPublished,
    PieceResult,
    PublishRefused,
    SnapshotPublished,
)
from broker.requests.completion import judge
from broker.requests.holding import Holding
from broker.requests.lifecycle import Lifecycle
from broker.requests.retries import delay_after
from broker.slots.dispatching import Dispatching
from broker.slots.venue_book import saw_exchange_time
from broker.work import HistoricalRequest, Job, Piece, RealtimeRequest
from candlewright.wire import grid
from core.failures import Failure, FailureCode

#: Time (s) between requests for candles that should have closed.
REST_SECONDS = 1.0


class Endings:
    def __init__(self, board: Board, dispatching: Dispatching, lifecycle: Lifecycle, *, holding: Holding) -> None:
        self._board = board
        self._dispatching = dispatching
        self._lifecycle = lifecycle
        self._holding = holding
        self._turn = count()
        self._delayed: list[tuple[float, int, Piece]] = []

    # ---- success

    def on_completed(self, event: JobCompleted) -> None:
        job = self._holding.worker(event.connection, event.job_id, event.at, frame="WorkComplete")
        if job is None:
            return
        request = job.piece.request
        if isinstance(request, HistoricalRequest):
            self._complete_history(job, request)
        elif isinstance(request, RealtimeRequest):
            self.fail(job, Failure(FailureCode.UNAVAILABLE, "the ingestor ended a job that runs until cancelled"))
        elif job.snapshot is None:
            self.fail(job, Failure(FailureCode.BAD_REPLY, "the ingestor completed a snapshot job without a Snapshot"))
        else:
            job.is_publishing = True
            job.snapshot.request_id = request.request_id
            self._board.say(PublishSnapshot(job.job_id, request.request_id, job.snapshot))

    def _complete_history(self, job: Job, request: HistoricalRequest) -> None:
        found = judge(job, request, self._board.history_partitions)
        if isinstance(found, PieceResult):
            self._accept(job, request, found)
        elif isinstance(found, Failure):
            self.fail(job, found)
        else:
            job.result = found.counted
            job.is_publishing = True
            self._board.say(
                PublishPages(job.job_id, request.request_id, request.ticker, request.period_seconds, found.candles)
            )

    def on_pages_published(self, event: PagesPublished) -> None:
        job = self._board.jobs.get(event.job_id)
        if job is None or not isinstance(job.piece.request, HistoricalRequest):
            self._board.note("fenced_frame", job_id=event.job_id, frame="pages")
            return
        counted = job.result or EMPTY_RESULT
        result = replace(counted, partition=event.partition, spans=event.spans)
        self._accept(job, job.piece.request, result)

    def _accept(self, job: Job, request: HistoricalRequest, result: PieceResult) -> None:
        board = self._board
        piece = job.piece
        end = result.closed_until or piece.end
        if end > piece.start:
            board.out.append(
                PublishPieceDone(
                    request_id=request.request_id,
                    number=piece.number,
                    job_id=job.job_id,
                    ticker=request.ticker,
                    period_seconds=request.period_seconds,
                    start=piece.start,
                    end=end,
                    result=result,
                )
            )
            accepted = AcceptedPiece(piece.number, piece.start, end, result.rows, result.expected, result.holes)
            board.room.accept(request, accepted, result)
        else:
            board.out.append(Revoke(job.job_id, is_finished=True))
        if result.exchange_time:
            saw_exchange_time(request.facts, result.exchange_time, board.wall_ns)
        board.forget_job(job)
        exchange_ns = request.facts.exchange_ns(board.wall_ns)
        rest = request.accept(piece, result, exchange_ns)
        if rest is not None:
            seconds = (rest.end - exchange_ns) / grid.SECOND
            # A venue with a wrong clock may not have closed it yet, and must not be asked in a loop.
            self._requeue_after(rest, max(seconds, REST_SECONDS if piece.is_rest else 0.0))
        board.dirty[request.request_id] = None
        self._lifecycle.proceed(request)

    def on_snapshot_published(self, event: SnapshotPublished) -> None:
        job = self._board.jobs.get(event.job_id)
        if job is not None:
            request = job.piece.request
            self._board.revoke_job(job, is_finished=True)
            self._lifecycle.finish(request, Final.OK, "")

    # ---- failure

    def on_failed(self, event: JobFailed) -> None:
        job = self._holding.worker(event.connection, event.job_id, event.at, frame="WorkComplete")
        if job is not None:
            job.piece.avoided |= {event.connection}
            self.fail(job, event.failure)

    def on_rejected(self, event: JobRejected) -> None:
        job = self._holding.worker(event.connection, event.job_id, event.at, frame="WorkReject")
        if job is not None:
            job.piece.banned |= {event.connection}
            self.fail(job, event.failure, is_rejected=True)

    def on_publish_refused(self, event: PublishRefused) -> None:
        job = self._board.jobs.get(event.job_id)
        if job is not None:
            self.fail(job, Failure(FailureCode.RATE_LIMITED, event.text), stop=True)

    def take_back(self, job_id: str) -> None:
        """Take a job back whose pages and other requests' pages wait for each other's room. If it runs alone, its
        request is too large.
        """
        job = self._board.jobs[job_id]
        request = job.piece.request
        if self._board.room.running == 1 and isinstance(request, HistoricalRequest):
            request.halve(job.piece)
        self._board.note("job_without_room", job_id=job_id, request_id=request.request_id)
        self.fail(job, Failure(FailureCode.RATE_LIMITED, "its pages found no room on the bus"), stop=True)

    def on_connection_lost(self, event: ConnectionLost) -> None:
        self._dispatching.lose_connection(event.connection)
        job = self._board.jobs.get(event.job_id)
        if job is not None and job.connection == event.connection:
            piece = job.piece
            self._board.revoke_job(job)
            self._board.note("dispatch_undeliverable", job_id=event.job_id)
            self._dispatching.requeue(piece)
        self._holding.release(event.connection)

    def expire_leases(self) -> None:
        for job in self._holding.expired():
            # Ending one job may have ended the request of another.
            if job.job_id in self._board.jobs:
                self._lose(job)

    def _lose(self, job: Job) -> None:
        """After its lease expired, fence the job, notify its holder, and give the piece to another connection."""
        board = self._board
        connection = job.connection
        piece = job.piece
        board.note("lease_lost", job_id=job.job_id, request_id=piece.request.request_id)
        if connection is not None:
            peer = board.slots.peers.get(connection)
            if peer is not None and peer.last_heard + board.lease_seconds <= board.at:
                peer.is_suspect = True
            piece.banned |= {connection}
        self.fail(job, Failure(FailureCode.UNAVAILABLE, "its ingestor fell silent"), is_rejected=True, stop=True)

    def fail(self, job: Job, failure: Failure, *, is_rejected: bool = False, stop: bool = False) -> None:
        """End the job without a result; its piece is retried elsewhere or later, or given up."""
        board = self._board
        piece = job.piece
        request = piece.request
        what = "job_rejected" if is_rejected else "job_failed"
        board.note(what, job_id=job.job_id, request_id=request.request_id, code=failure.code, text=failure.text)
        if stop and job.connection is not None:
            board.say(StopWork(job.connection, job.job_id))
        board.revoke_job(job)
        if failure.code.counts_as_attempt:
            piece.attempts += 1
        else:
            piece.waits += 1
        if isinstance(request, RealtimeRequest):
            # A realtime request continues until it is cancelled; its problem is shown meanwhile.
            request.failure = str(failure)
            piece.avoided &= frozenset(board.slots.peers)
            board.show_later(request)
        elif failure.code.is_final or piece.attempts >= board.settings.max_attempts:
            self._give_up(piece, failure)
            return
        delay = delay_after(failure, piece.attempts, piece.waits, moves_on=is_rejected)
        board.note("job_retried", request_id=request.request_id, delay_seconds=delay)
        self._requeue_after(piece, delay)

    def _give_up(self, piece: Piece, failure: Failure) -> None:
        request = piece.request
        if not failure.code.is_final:
            self._board.note("piece_poisoned", request_id=request.request_id, piece=piece.number)
            text = f"{failure.text} (given up after {piece.attempts} failed attempts)"
            failure = Failure(failure.code, text)
        if isinstance(request, HistoricalRequest):
            request.fail(piece, failure)
            self._lifecycle.proceed(request)
        else:
            self._lifecycle.finish(request, Final.ERROR, str(failure))

    def _requeue_after(self, piece: Piece, seconds: float) -> None:
        if seconds > 0:
            heapq.heappush(self._delayed, (self._board.at + seconds, next(self._turn), piece))
        else:
            self._dispatching.requeue(piece)

    def retry_delayed(self) -> None:
        while self._delayed and self._delayed[0][0] <= self._board.at:
            self._dispatching.requeue(heapq.heappop(self._delayed)[2])
