"""What the rooms of the state share: the clock, who runs, and the commands of the event at hand."""

from collections.abc import Callable

from broker.commands import CancelWork, Command, Note, Revoke, StopWork
from broker.slots.matching import Matching
from broker.slots.room import HistoryRoom
from broker.work import Job, RealtimeRequest, Request
from core.settings import BrokerSettings


class Board:
    """`at` is monotonic seconds and `wall_ns` the wall clock, both of the last tick. `history_partitions`: the
    partitions of the topic `history`, 0 if unknown. `history_bytes`: what it may hold, 0 = anything.
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
        #: Needed for every job; reading it from the settings takes twice as long.
        self.lease_seconds = settings.lease_seconds
        self.new_job_id = new_job_id
        self.at = at
        self.wall_ns = wall_ns
        self.history_partitions = history_partitions
        self.out: list[Command] = []
        #: Whether a driver answers which parts of a range the table proves.
        self.has_prover = False
        self.room = HistoryRoom(max_bytes=history_bytes, partitions=history_partitions)
        self.matching = Matching(self.room.fits)
        self.slots = self.matching.slots
        #: Every request that has not ended; all requests for one ticker's realtime job share one object.
        self.requests: dict[str, Request] = {}
        self.jobs: dict[str, Job] = {}
        #: Candles of foreign ingestors held in memory, over all jobs.
        self.collected_rows = 0
        #: Requests whose state must be published again, and those whose state has been published.
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
        """Register a running job, which was dispatched, or taken over from an earlier run of the broker."""
        request = job.piece.request
        job.piece.job = self.jobs[job.job_id] = job
        self.room.reserve(job)
        if request.is_background:
            self.matching.in_background[request.key] += 1
        request.was_dispatched = True

    def forget_job(self, job: Job) -> None:
        """Forget `job`, so that its frames have no effect any more."""
        del self.jobs[job.job_id]
        job.piece.job = None
        request = job.piece.request
        if request.is_background:
            self.matching.in_background[request.key] -= 1
        self.room.release(job, self.at)
        if job.collected is not None:
            self.collected_rows -= len(job.collected.candles)

    def revoke_job(self, job: Job, *, is_finished: bool = False) -> None:
        """Forget `job`, and revoke its right to publish."""
        self.forget_job(job)
        self.out.append(Revoke(job.job_id, is_finished))

    def end(self, request: Request) -> None:
        """Stop the running jobs of `request`, and remove it from every queue."""
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
