"""What the rooms of the state share: the clock, who runs, and the commands of the event at hand."""

from collections.abc import Callable

from broker.commands import CancelWork, Command, Note, Revoke, StopWork
from broker.slots.matching import Matching
from broker.slots.room import HistoryRoom
from broker.work import Job, RealtimeRequest, Request
from core.settings import BrokerSettings


class Board:
    """`at` is monotonic seconds and `wall_ns` the wall clock, both of the last tick. `history_partitions`: of the
    topic `history`, 0 where that is not known. `history_bytes`: what it may hold, 0 = anything.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        new_job_id: Callable[[], str],
        at: float,
        *,
        wall_ns: int,
        history_partitions: int = 0,
        history_bytes: int = 0,
    ) -> None:
        self.settings = settings
        #: For every job; an attribute of the settings takes twice the time.
        self.lease_seconds = settings.lease_seconds
        self.new_job_id = new_job_id
        self.at = at
        self.wall_ns = wall_ns
        self.history_partitions = history_partitions
        self.out: list[Command] = []
        #: A driver answers what the table proves.
        self.has_prover = False
        self.room = HistoryRoom(max_bytes=history_bytes, partitions=history_partitions)
        self.matching = Matching(self.room.fits)
        self.slots = self.matching.slots
        #: Every request that has not ended; those of one ticker's realtime job share one object.
        self.requests: dict[str, Request] = {}
        self.jobs: dict[str, Job] = {}
        #: Candles of foreign ingestors held in memory, all jobs together.
        self.collected_rows = 0
        #: Requests whose state is to be shown again, and those that have been shown.
        self.dirty: dict[str, None] = {}
        self.shown: set[str] = set()

    def say(self, command: Command) -> None:
        self.out.append(command)

    def note(self, what: str, **fields: object) -> None:
        self.out.append(Note(what, fields))

    def show_later(self, request: Request) -> None:
        if isinstance(request, RealtimeRequest):
            self.dirty.update(dict.fromkeys(request.subscribers))
        else:
            self.dirty[request.request_id] = None

    def add_job(self, job: Job) -> None:
        """`job` runs: it was dispatched, or taken over from an earlier run of the broker."""
        request = job.piece.request
        job.piece.job = self.jobs[job.job_id] = job
        self.room.reserve(job)
        self.matching.in_background[request.key] += request.is_background
        request.was_dispatched = True

    def forget_job(self, job: Job) -> None:
        """From here on nothing that speaks for `job` changes anything."""
        del self.jobs[job.job_id]
        job.piece.job = None
        request = job.piece.request
        self.matching.in_background[request.key] -= request.is_background
        self.room.release(job, self.at)
        if job.collected is not None:
            self.collected_rows -= len(job.collected.candles)

    def revoke_job(self, job: Job, *, is_finished: bool = False) -> None:
        """Forget `job`, and take its right to publish away."""
        self.forget_job(job)
        self.out.append(Revoke(job.job_id, is_finished))

    def end(self, request: Request) -> None:
        """Stop what still runs for `request`, and take it out of every queue."""
        if request.outstanding:
            for piece in request.outstanding.values():
                job = piece.job
                if job is not None:
                    if job.connection is not None:
                        self.out.append(CancelWork(job.connection, piece.dispatched_id))
                        self.out.append(StopWork(job.connection, job.job_id))
                    self.revoke_job(job)
            request.outstanding.clear()
        self.matching.end(request)
