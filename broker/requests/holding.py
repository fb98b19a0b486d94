"""Which connection may act for a job: the one that holds it, while its lease lasts."""

from broker.board import Board
from broker.commands import AskHolder, Refuse, Revoke, StopWork
from broker.events import (
    Connection,
    HeartbeatHeard,
    HistoryEnded,
    HolderAsked,
    JobProgressed,
    LeaseFound,
    LeaseNote,
)
from broker.requests.completion import problem_with
from broker.requests.realtime import Realtime
from broker.slots.dispatching import Dispatching
from broker.work import HistoricalRequest, Job, Piece, RealtimeRequest, Request

#: The most candles that an ingestor may announce.
MAX_PROGRESS = 1 << 40


class Holding:
    def __init__(self, board: Board, dispatching: Dispatching, realtime: Realtime) -> None:
        self._board = board
        self._dispatching = dispatching
        self._realtime = realtime

    def holder(self, connection: Connection, job_id: str, at: float, *, frame: str) -> Job | None:
        """The job, if this connection holds it; the frame renews its lease."""
        board = self._board
        self._dispatching.hear(connection, at)
        job = board.jobs.get(job_id)
        if job is not None and job.connection is None:
            job.connection = connection
            board.note("job_taken_over", job_id=job_id)
        if job is None or job.connection != connection:
            board.note("fenced_frame", job_id=job_id, frame=frame)
            return None
        lease_until = at + board.lease_seconds
        if job.lease_until < lease_until:
            job.lease_until = lease_until
        return job

    def worker(self, connection: Connection, job_id: str, at: float, *, frame: str) -> Job | None:
        """The job, if this connection holds it and has not reported it as complete."""
        job = self.holder(connection, job_id, at, frame=frame)
        if job is not None and job.is_publishing:
            self._board.note("late_frame", job_id=job_id, frame=frame)
            return None
        return job

    def release(self, connection: Connection) -> None:
        """Release the jobs of a lost connection; each belongs to the connection that names it next, since its ingestor
        may have moved there.
        """
        for job in self._board.jobs.values():
            if job.connection == connection and not job.is_publishing:
                # Frames may have been lost with the connection.
                job.connection, job.is_adopted = None, True

    def on_heartbeat(self, event: HeartbeatHeard) -> None:
        held = self._board.jobs.get(event.job_id)
        if held is not None and held.connection not in (None, event.connection):
            # Its ingestor may have moved; sending to the previous connection shows whether that is gone.
            self._board.say(AskHolder(held.connection, event.connection, event.job_id, event.at))
        else:
            self.on_holder_asked(event)

    def on_holder_asked(self, event: HeartbeatHeard | HolderAsked) -> None:
        job = self.holder(event.connection, event.job_id, event.at, frame="WorkHeartbeat")
        if job is None:
            # Even if only the connection broke, the ingestor must learn that its slots are gone.
            self._board.say(StopWork(event.connection, event.job_id))
        elif isinstance(job.piece.request, RealtimeRequest) and not job.is_proven:
            job.is_proven = True
            job.piece.attempts = 0
            job.piece.request.failure = ""
            self._board.show_later(job.piece.request)

    def on_progress(self, event: JobProgressed) -> None:
        job = self.holder(event.connection, event.job_id, event.at, frame="WorkProgress")
        if job is not None:
            job.progress = min(event.done_candles, MAX_PROGRESS)
            self._board.dirty[job.piece.request.request_id] = None

    def on_history_end(self, event: HistoryEnded) -> None:
        """Refuse an impossible result at once; the job fails with it when it is reported as complete."""
        job = self.holder(event.connection, event.job_id, event.at, frame="HistoryEnd")
        if job is None:
            return
        job.result = event.result
        request = job.piece.request
        if isinstance(request, HistoricalRequest):
            problem = problem_with(event.result, job.piece, request, partitions=self._board.history_partitions)
            if problem:
                self._board.say(Refuse(event.connection, "INVALID", problem, job.piece.dispatched_id))

    # ---- leases

    def on_lease_found(self, event: LeaseFound) -> None:
        """Continue a job of an earlier run, with a fresh grace period, if its piece is still wanted."""
        board = self._board
        piece = self._adopted(event.note) if event.note is not None else None
        if piece is None:
            board.say(Revoke(event.job_id))
            return
        request = piece.request
        if piece in request.ready:
            request.ready.remove(piece)
        lease_until = event.at + board.lease_seconds
        job = Job(event.job_id, piece, None, lease_until=lease_until)
        job.is_adopted = True
        board.add_job(job)
        board.note("job_adopted", job_id=event.job_id, request_id=request.request_id)

    def _adopted(self, note: LeaseNote) -> Piece | None:
        """The piece that a lease was for; None if it needs no more work."""
        request: Request | None
        if note.realtime_ticker:
            request = self._realtime.by_ticker.get(note.realtime_ticker)
        else:
            request = self._board.requests.get(note.request_id)
        if isinstance(request, HistoricalRequest):
            return request.adopt(note)
        if request is None or not request.outstanding or request.outstanding[0].job is not None:
            return None
        request.dispatch_name = note.dispatched_id
        return request.outstanding[0]

    def forgive_pause(self, seconds: float) -> None:
        """Extend leases after a pause of this process, during which heartbeats waited in its sockets."""
        self._board.note("broker_paused", seconds=seconds)
        self.stand_still(seconds)

    def stand_still(self, seconds: float) -> None:
        """Extend leases by a time that must not count, such as while dispatches wait for the bus."""
        for job in self._board.jobs.values():
            job.lease_until += seconds

    def expired(self) -> list[Job]:
        """Jobs whose holders were silent for too long."""
        at = self._board.at
        late = [job for job in self._board.jobs.values() if job.lease_until <= at]
        for job in late:
            if job.is_publishing:
                # Its ingestor is done and may be silent, since the bus has its rows.
                job.lease_until = at + self._board.lease_seconds
        return [job for job in late if not job.is_publishing]
