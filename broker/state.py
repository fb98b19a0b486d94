"""All decisions of the broker: events in, commands out. No socket, no clock, no bus.

Invariant after every event: no free slot and no waiting piece fit each other.
"""

import heapq
import re
from collections.abc import Callable
from itertools import count

from broker.completion import judge
from broker.events import (
    EMPTY_RESULT,
    CancelAsked,
    CancelWork,
    CandlesReceived,
    ClockTicked,
    Command,
    Connection,
    ConnectionLost,
    ControlAsked,
    Dispatch,
    DropState,
    Event,
    Final,
    FinalSeen,
    ForgetRealtime,
    HeartbeatHeard,
    HistoricalAccepted,
    HistoryEnded,
    JobCompleted,
    JobFailed,
    JobProgressed,
    JobRejected,
    Kind,
    LeaseFound,
    LookUpVenue,
    MarksRefused,
    Note,
    PagesPublished,
    PieceResult,
    PublishMark,
    PublishPages,
    PublishPieceDone,
    PublishRefused,
    PublishRequestDone,
    PublishSnapshot,
    PublishTicks,
    PutState,
    PutVenue,
    RealtimeAccepted,
    Refuse,
    Revoke,
    SaveRealtime,
    SendControl,
    SendHeartbeats,
    SlotOffered,
    SnapshotAccepted,
    SnapshotPublished,
    SnapshotReceived,
    StopWork,
    TicksReceived,
    VenueLearned,
    WantedFound,
    Wants,
)
from broker.jobs import Collected, Job
from broker.matching import Matching
from broker.requests import (
    PAGES_PER_PIECE,
    HistoricalRequest,
    Piece,
    RealtimeRequest,
    Request,
    SnapshotRequest,
    VenueFacts,
    describe_ranges,
)
from broker.retries import delay_after
from broker.slots import Peer, QueueKey, Slot
from core.failures import Failure, FailureCode
from core.settings import BrokerSettings
from venues import grid
from venues.catalogue import is_known

#: A venue's record is looked at again after so long.
VENUE_SECONDS = 30.0
#: Progress is shown this often.
SHOW_SECONDS = 0.5
#: Candles of foreign ingestors held in memory, all jobs together.
MAX_COLLECTED_ROWS = 3_000_000
#: Venues that only foreign ingestors know; others are served without a record.
MAX_OWN_VENUES = 1_000
_VENUE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
#: What an ingestor may claim: candles of one job, and how far its venue's clock is ahead of ours.
MAX_PROGRESS = 1 << 40
MAX_AHEAD_NS = 3_660 * 86_400 * grid.SECOND
#: Venues that slots and requests may name.
MAX_VENUES = 10_000


class BrokerState:
    """`new_job_id` gives ids that never repeat; `at` and `wall_ns` are the time of the start."""

    def __init__(self, settings: BrokerSettings, new_job_id: Callable[[], str], at: float, wall_ns: int) -> None:
        self.settings = settings
        self.wall_ns = wall_ns
        self.matching = Matching()
        self.slots = self.matching.slots
        self.requests: dict[str, Request] = {}
        #: Historical requests whose RequestDone is out and whose final notification was not seen yet -> offset.
        self.decided: dict[str, int] = {}
        self.realtime: dict[str, RealtimeRequest] = {}
        self.jobs: dict[str, Job] = {}
        self.venues: dict[str, VenueFacts] = {}
        self.collected_rows = 0
        self._new_job_id = new_job_id
        self._out: list[Command] = []
        self._ticked_at = self._beaten_at = self._shown_at = at
        self._turn = count()
        self._leases: list[tuple[float, str]] = []
        self._deadlines: list[tuple[int, str]] = []
        self._delayed: list[tuple[float, int, Piece]] = []
        self._dirty: dict[str, None] = {}
        self._shown: set[str] = set()
        #: What the pipeline knows of each ticker that somebody wants; None where that is not certain.
        self._told: dict[str, Wants | None] = {}
        self._untold: set[str] = set()
        #: Venues whose records on the bus are kept alive here.
        self._own_venues: set[str] = set()
        self._venues_put_at = at
        self._handlers: dict[type, Callable[..., None]] = {
            HistoricalAccepted: self._on_historical,
            SnapshotAccepted: self._on_snapshot_request,
            RealtimeAccepted: self._on_realtime_request,
            WantedFound: self._on_wanted_found,
            CancelAsked: self._on_cancel,
            ControlAsked: self._on_control,
            FinalSeen: self._on_final,
            VenueLearned: self._on_venue,
            LeaseFound: self._on_lease_found,
            SlotOffered: self._on_slot,
            HeartbeatHeard: self._on_heartbeat,
            JobProgressed: self._on_progress,
            HistoryEnded: self._on_history_end,
            CandlesReceived: self._on_candles,
            SnapshotReceived: self._on_snapshot,
            TicksReceived: self._on_ticks,
            JobCompleted: self._on_completed,
            JobFailed: self._on_failed,
            JobRejected: self._on_rejected,
            ConnectionLost: self._on_connection_lost,
            PagesPublished: self._on_pages_published,
            SnapshotPublished: self._on_snapshot_published,
            PublishRefused: self._on_publish_refused,
            MarksRefused: self._on_marks_refused,
            ClockTicked: self._on_clock,
        }

    def handle(self, event: Event) -> list[Command]:
        self._out = []
        self._handlers[type(event)](event)
        return self._out

    def oldest_offsets(self) -> tuple[int | None, int | None]:
        """Offset in `requests` of the oldest unfinished request, and of the oldest unfinished historical one."""
        unfinished = [request for request in self.requests.values() if request.offset >= 0]
        historical = [request.offset for request in unfinished if isinstance(request, HistoricalRequest)]
        historical.extend(self.decided.values())
        oldest = min(historical, default=None)
        others = [request.offset for request in unfinished]
        return min(others if oldest is None else [*others, oldest], default=None), oldest

    # ---- requests

    def _on_historical(self, event: HistoricalAccepted) -> None:
        if event.request_id in self.requests or event.request_id in self.decided:
            self._out.append(Note("duplicate_request", {"request_id": event.request_id}))
            return
        if event.is_decided:
            self.decided[event.request_id] = event.offset
            return
        if event.period_seconds <= 0 or event.start >= event.end or event.limit == 0:
            # The relay refuses these; a record that came past it must not stop the broker.
            self.decided[event.request_id] = event.offset
            self._out.append(_refusal(event))
            return
        request = HistoricalRequest(
            event.request_id,
            event.ticker,
            event.venue,
            event.client_id,
            event.deadline_ns,
            event.offset,
            period_seconds=event.period_seconds,
            start=event.start,
            end=event.end,
            limit=event.limit,
            facts=self._facts(event.venue),
        )
        request.restore(event.accepted)
        self._admit(request)

    def _on_snapshot_request(self, event: SnapshotAccepted) -> None:
        if event.request_id in self.requests:
            return
        self._admit(
            SnapshotRequest(
                event.request_id, event.ticker, event.venue, event.client_id, event.deadline_ns, event.offset
            )
        )

    def _on_realtime_request(self, event: RealtimeAccepted) -> None:
        if event.request_id in self.requests:
            return
        request = self.realtime.get(event.ticker)
        is_new = request is None
        if request is None:
            request = RealtimeRequest(event.request_id, event.ticker, event.venue, event.client_id)
            self.realtime[event.ticker] = request
        request.subscribe(event)
        self.requests[event.request_id] = request
        self._dirty[event.request_id] = None
        self._out.append(SaveRealtime(event))
        self._tell_wants(event.ticker)
        if is_new:
            self._offer(request)

    def _tell_wants(self, ticker: str) -> None:
        """Let the pipeline know when what all requests of `ticker` want together has changed."""
        request = self.realtime.get(ticker)
        wants = request.wants() if request is not None else Wants()
        if self._told.get(ticker, Wants()) == wants:
            return
        if wants == Wants():
            del self._told[ticker]
        else:
            self._told[ticker] = wants
        self._out.append(PublishMark(ticker, wants))

    def _on_wanted_found(self, event: WantedFound) -> None:
        if event.ticker not in self._told:
            self._told[event.ticker] = None
            self._tell_wants(event.ticker)

    def _on_marks_refused(self, event: MarksRefused) -> None:
        self._told.update(dict.fromkeys(event.tickers))
        self._untold.update(event.tickers)

    def _admit(self, request: Request) -> None:
        self.requests[request.request_id] = request
        heapq.heappush(self._deadlines, (request.deadline_ns, request.request_id))
        self._proceed(request)

    def _on_cancel(self, event: CancelAsked) -> None:
        request = self.requests.get(event.request_id)
        if request is None:
            self._out.append(Note("cancel_of_unknown", {"request_id": event.request_id}))
        elif isinstance(request, RealtimeRequest):
            del request.subscribers[event.request_id]
            self._close_realtime(event.request_id, request)
            if not request.subscribers:
                self._end(request)
            self._tell_wants(request.ticker)
        else:
            self._finish(request, Final.ERROR, "cancelled")

    def _on_control(self, event: ControlAsked) -> None:
        self._out.extend(SendControl(connection, event.control) for connection in self.slots.peers)

    def _on_final(self, event: FinalSeen) -> None:
        request = self.requests.get(event.request_id)
        if isinstance(request, HistoricalRequest):
            # Another run of the broker must have decided it; its final stands, so nothing here can matter any more.
            self._out.append(Note("final_of_running", {"request_id": event.request_id}))
            self._end(request)
            del self.requests[event.request_id]
        self.decided.pop(event.request_id, None)
        if event.request_id in self._shown:
            self._shown.discard(event.request_id)
            self._out.append(DropState(event.request_id))

    def _proceed(self, request: Request) -> None:
        """After anything that may have settled `request` or made a piece of it ready."""
        if isinstance(request, HistoricalRequest) and request.is_settled(self.wall_ns):
            status, message = request.verdict()
            self._finish(request, status, message)
        elif request.has_more(self.wall_ns):
            self._offer(request)

    def _finish(self, request: Request, status: Final, message: str) -> None:
        """Publish the end of a historical or snapshot request, and stop what still runs for it."""
        del self.requests[request.request_id]
        if isinstance(request, HistoricalRequest):
            self._out.append(
                PublishRequestDone(
                    request.request_id,
                    request.ticker,
                    request.period_seconds,
                    request.start,
                    request.end,
                    status,
                    message,
                    request.rows,
                    request.expected,
                    request.merged_holes(),
                    request.client_id,
                )
            )
            self.decided[request.request_id] = request.offset
        else:
            self._close_state(request.request_id, request.ticker, message)
        self._end(request)

    def _close_realtime(self, request_id: str, request: RealtimeRequest) -> None:
        del self.requests[request_id]
        self._out.append(ForgetRealtime(request_id))
        self._close_state(request_id, request.ticker, "")

    def _close_state(self, request_id: str, ticker: str, failure: str) -> None:
        self._shown.discard(request_id)
        self._out.append(PutState(request_id, "done", ticker=ticker, failure=failure))

    def _end(self, request: Request) -> None:
        for piece in list(request.outstanding.values()):
            job = piece.job
            if job is not None:
                if job.connection is not None:
                    self._out.append(CancelWork(job.connection, piece.dispatched_id))
                    self._out.append(StopWork(job.connection, job.job_id))
                self._forget_job(job)
        request.outstanding.clear()
        self.matching.withdraw(request)
        if isinstance(request, RealtimeRequest):
            self.realtime.pop(request.ticker, None)

    # ---- venues

    def _facts(self, venue: str) -> VenueFacts:
        facts = self.venues.get(venue)
        if facts is None:
            facts = self.venues[venue] = VenueFacts()
        return facts

    def _on_venue(self, event: VenueLearned) -> None:
        facts = self._facts(event.venue)
        facts.candles_per_piece = max(1, event.candles_per_page) * PAGES_PER_PIECE
        facts.depth_candles = event.depth_candles
        # ccxt's venues are described by their ingestors, whose records must not be overwritten.
        facts.is_bare = event.is_bare and not is_known(event.venue) and _VENUE.fullmatch(event.venue) is not None
        if facts.is_bare:
            self._keep_venue(event.venue)
        else:
            self._own_venues.discard(event.venue)
        if not facts.is_known:
            facts.is_known = True
            self._match((event.venue, Kind.HISTORICAL))

    def _keep_venue(self, venue: str) -> None:
        if venue not in self._own_venues and len(self._own_venues) < MAX_OWN_VENUES:
            self._own_venues.add(venue)
            self._out.append(PutVenue(venue))

    def _refresh_venues(self) -> None:
        """A venue is served as long as a connection that offered a slot for it is there."""
        if self._own_venues:
            served = {venue for peer in self.slots.peers.values() for venue, _ in peer.keys}
            self._own_venues &= served
            self._out.extend(PutVenue(venue) for venue in sorted(self._own_venues))

    # ---- slots and dispatch

    def _hear(self, connection: Connection, at: float) -> Peer | None:
        peer = self.slots.peers.get(connection)
        if peer is None:
            if len(self.slots.peers) >= self.settings.max_connections:
                text = f"this broker takes {self.settings.max_connections} connections"
                self._out.append(Refuse(connection, "TOO_MANY_CONNECTIONS", text))
                return None
            peer = self.slots.peers[connection] = Peer(at)
        peer.last_heard = at
        if peer.is_suspect:
            peer.is_suspect = False
            for key in peer.keys:
                self.matching.unpark(key, connection)
                self._match(key)
        return peer

    def _on_slot(self, event: SlotOffered) -> None:
        connection = event.connection
        if self._hear(connection, event.at) is None:
            return
        if self.slots.total >= self.settings.max_slots:
            self._out.append(Refuse(connection, "TOO_MANY_SLOTS", f"{self.settings.max_slots} slots wait already"))
            return
        for venue in event.venues:
            if venue not in self.venues and len(self.venues) >= MAX_VENUES:
                self._out.append(Refuse(connection, "TOO_MANY_VENUES", f"{MAX_VENUES} venues are known already"))
                return
            facts = self._facts(venue)
            if event.at - facts.asked_at > VENUE_SECONDS:
                facts.asked_at = event.at
                self._out.append(LookUpVenue(venue))
            elif facts.is_bare:
                self._keep_venue(venue)
        offer = self.slots.add(connection, event.venues, event.kinds)
        keys = offer.keys
        if len(keys) > 1:
            turn = next(self._turn) % len(keys)
            keys = keys[turn:] + keys[:turn]
        for key in keys:
            self.matching.unpark(key, connection)
            self._match(key)

    def _match(self, key: QueueKey) -> None:
        if key[1] is Kind.HISTORICAL and not self._facts(key[0]).is_known:
            return
        while (pair := self.matching.next_pair(key, self.wall_ns)) is not None:
            self._dispatch(*pair)

    def _offer(self, request: Request) -> None:
        self.matching.offer(request)
        self._match(request.key)

    def _dispatch(self, slot: Slot, piece: Piece) -> None:
        request = piece.request
        lease_until = self._ticked_at + self.settings.lease_seconds
        job = Job(self._new_job_id(), piece, slot.connection, lease_until)
        piece.job = job
        request.was_dispatched = True
        self.jobs[job.job_id] = job
        heapq.heappush(self._leases, (lease_until, job.job_id))
        self._show_later(request)
        self._out.append(Dispatch(slot.connection, job.job_id, request.note_of(piece), request.describe(piece)))

    # ---- jobs: who may speak for them

    def _holder(self, connection: Connection, job_id: str, at: float, frame: str) -> Job | None:
        """The job, if this connection holds it: proof of life renews its lease."""
        self._hear(connection, at)
        job = self.jobs.get(job_id)
        if job is not None and job.connection is None:
            job.connection = connection
            self._out.append(Note("job_taken_over", {"job_id": job_id}))
        if job is None or job.connection != connection:
            self._out.append(Note("fenced_frame", {"job_id": job_id, "frame": frame}))
            return None
        if job.lease_until < at + self.settings.lease_seconds:
            job.lease_until = at + self.settings.lease_seconds
        return job

    def _on_heartbeat(self, event: HeartbeatHeard) -> None:
        job = self._holder(event.connection, event.job_id, event.at, "WorkHeartbeat")
        if job is None:
            self._out.append(StopWork(event.connection, event.job_id))
        elif isinstance(job.piece.request, RealtimeRequest) and not job.is_proven:
            job.is_proven = True
            job.piece.attempts = 0
            job.piece.request.failure = ""
            self._show_later(job.piece.request)

    def _on_progress(self, event: JobProgressed) -> None:
        job = self._holder(event.connection, event.job_id, event.at, "WorkProgress")
        if job is not None:
            job.progress = min(event.done_candles, MAX_PROGRESS)
            self._dirty[job.piece.request.request_id] = None

    def _on_history_end(self, event: HistoryEnded) -> None:
        job = self._holder(event.connection, event.job_id, event.at, "HistoryEnd")
        if job is not None:
            job.result = event.result

    def _on_candles(self, event: CandlesReceived) -> None:
        request_id, _, number = event.dispatched_id.partition("#")
        request = self.requests.get(request_id)
        piece = None
        if isinstance(request, HistoricalRequest):
            named = int(number) if number.isdecimal() and len(number) < 10 else next(iter(request.outstanding), -1)
            piece = request.outstanding.get(named)
        if piece is None or piece.job is None or piece.dispatched_id != event.dispatched_id:
            self._hear(event.connection, event.at)
            self._out.append(Note("fenced_frame", {"request_id": event.dispatched_id, "frame": "DataResponse"}))
            return
        job = self._holder(event.connection, piece.job.job_id, event.at, "DataResponse")
        if job is None or job.is_publishing or not isinstance(request, HistoricalRequest):
            return
        collected = job.collected = job.collected or Collected()
        if event.period_seconds - {request.period_seconds} or event.tickers - {request.ticker}:
            collected.problem = "candles of another period or ticker than the asked one"
        collected.problem = collected.problem or event.problem
        if collected.problem:
            return
        collected.claimed = max(collected.claimed, event.total_records)
        self.collected_rows += collected.add(event.candles, piece.start, piece.end, request.period_seconds)
        job.progress = len(collected.candles)
        self._dirty[request_id] = None
        if self.collected_rows > MAX_COLLECTED_ROWS:
            self._fail(job, Failure(FailureCode.RATE_LIMITED, "the broker holds too many candles of other jobs"))

    def _on_snapshot(self, event: SnapshotReceived) -> None:
        request = self.requests.get(event.snapshot.request_id)
        job = request.outstanding[0].job if isinstance(request, SnapshotRequest) and request.outstanding else None
        job_id = job.job_id if job is not None else ""
        held = self._holder(event.connection, job_id, event.at, "Snapshot")
        if held is None or request is None:
            return
        if event.snapshot.ticker != request.ticker:
            text = f"a snapshot of {event.snapshot.ticker} where {request.ticker} was asked for"
            self._out.append(Refuse(event.connection, "UNEXPECTED", text, request.request_id))
        else:
            held.snapshot = event.snapshot

    def _on_ticks(self, event: TicksReceived) -> None:
        request = self.realtime.get(event.batch.ticker)
        job = request.piece.job if request is not None else None
        held = self._holder(event.connection, job.job_id if job is not None else "", event.at, "TickBatch")
        if held is not None:
            self._out.append(PublishTicks(held.job_id, event.batch))

    # ---- jobs: how they end

    def _on_completed(self, event: JobCompleted) -> None:
        job = self._holder(event.connection, event.job_id, event.at, "WorkComplete")
        if job is None or job.is_publishing:
            return
        request = job.piece.request
        if isinstance(request, HistoricalRequest):
            self._complete_history(job, request)
        elif isinstance(request, RealtimeRequest):
            self._fail(job, Failure(FailureCode.UNAVAILABLE, "the ingestor ended a job that runs until cancelled"))
        elif job.snapshot is None:
            self._fail(job, Failure(FailureCode.BAD_REPLY, "the ingestor completed a snapshot job without a Snapshot"))
        else:
            job.is_publishing = True
            job.snapshot.request_id = request.request_id
            self._out.append(PublishSnapshot(job.job_id, request.request_id, job.snapshot))

    def _complete_history(self, job: Job, request: HistoricalRequest) -> None:
        found = judge(job, request, self.wall_ns)
        if isinstance(found, Failure):
            self._fail(job, found)
        elif isinstance(found, PieceResult):
            self._accept(job, request, found)
        else:
            job.result = found.counted
            job.is_publishing = True
            self._out.append(
                PublishPages(job.job_id, request.request_id, request.ticker, request.period_seconds, found.candles)
            )

    def _on_pages_published(self, event: PagesPublished) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or not isinstance(job.piece.request, HistoricalRequest):
            self._out.append(Note("fenced_frame", {"job_id": event.job_id, "frame": "pages"}))
            return
        counted = job.result or EMPTY_RESULT
        result = PieceResult(event.partition, event.spans, counted.rows, counted.expected, counted.holes)
        self._accept(job, job.piece.request, result)

    def _on_snapshot_published(self, event: SnapshotPublished) -> None:
        job = self.jobs.get(event.job_id)
        if job is not None:
            request = job.piece.request
            self._forget_job(job, is_finished=True)
            request.outstanding.clear()
            self._finish(request, Final.OK, "")

    def _on_publish_refused(self, event: PublishRefused) -> None:
        job = self.jobs.get(event.job_id)
        if job is not None:
            self._fail(job, Failure(FailureCode.RATE_LIMITED, event.text), stop=True)

    def _accept(self, job: Job, request: HistoricalRequest, result: PieceResult) -> None:
        piece = job.piece
        self._out.append(
            PublishPieceDone(
                request.request_id,
                piece.number,
                job.job_id,
                request.ticker,
                request.period_seconds,
                piece.start,
                piece.end,
                result,
            )
        )
        ahead_ns = result.exchange_time - self.wall_ns
        if request.facts.ahead_ns < ahead_ns < MAX_AHEAD_NS:
            request.facts.ahead_ns = ahead_ns
        self._forget_job(job, is_finished=True)
        request.accept(piece, result)
        self._dirty[request.request_id] = None
        self._proceed(request)

    def _on_failed(self, event: JobFailed) -> None:
        job = self._holder(event.connection, event.job_id, event.at, "WorkComplete")
        if job is not None and not job.is_publishing:
            job.piece.avoided |= {event.connection}
            self._fail(job, event.failure)

    def _on_rejected(self, event: JobRejected) -> None:
        job = self._holder(event.connection, event.job_id, event.at, "WorkReject")
        if job is not None and not job.is_publishing:
            job.piece.banned |= {event.connection}
            self._fail(job, event.failure, is_rejected=True)

    def _fail(self, job: Job, failure: Failure, is_rejected: bool = False, stop: bool = False) -> None:
        """The job is over without a result; its piece is tried again, elsewhere or later, or given up."""
        piece = job.piece
        request = piece.request
        what = "job_rejected" if is_rejected else "job_failed"
        fields = {"job_id": job.job_id, "request_id": request.request_id, "code": failure.code, "text": failure.text}
        self._out.append(Note(what, fields))
        if stop and job.connection is not None:
            self._out.append(StopWork(job.connection, job.job_id))
        self._forget_job(job)
        if failure.code.counts_as_attempt:
            piece.attempts += 1
        else:
            piece.waits += 1
        if isinstance(request, RealtimeRequest):
            # It goes on until it is cancelled; what is wrong with it is shown meanwhile.
            request.failure = str(failure)
            piece.avoided &= frozenset(self.slots.peers)
            self._show_later(request)
        elif failure.code.is_final or piece.attempts >= self.settings.max_attempts:
            self._give_up(piece, failure)
            return
        delay = delay_after(failure, piece.attempts, piece.waits, moves_on=is_rejected)
        self._out.append(Note("job_retried", {"request_id": request.request_id, "delay_seconds": delay}))
        if delay > 0:
            heapq.heappush(self._delayed, (self._ticked_at + delay, next(self._turn), piece))
        else:
            self._requeue(piece)

    def _give_up(self, piece: Piece, failure: Failure) -> None:
        request = piece.request
        if not failure.code.is_final:
            self._out.append(Note("piece_poisoned", {"request_id": request.request_id, "piece": piece.number}))
            text = f"{failure.text} (given up after {piece.attempts} failed attempts)"
            failure = Failure(failure.code, text)
        if isinstance(request, HistoricalRequest):
            request.fail(piece, failure)
            self._proceed(request)
        else:
            request.outstanding.clear()
            self._finish(request, Final.ERROR, str(failure))

    def _requeue(self, piece: Piece) -> None:
        if piece.is_live and piece.job is None:
            piece.request.ready.append(piece)
            self._offer(piece.request)

    def _forget_job(self, job: Job, is_finished: bool = False) -> None:
        """From here on nothing that speaks for `job` changes anything."""
        del self.jobs[job.job_id]
        job.piece.job = None
        if job.collected is not None:
            self.collected_rows -= len(job.collected.candles)
        self._out.append(Revoke(job.job_id, is_finished))

    def _lose(self, job: Job, at: float) -> None:
        """The lease ran out: fence the job, tell its holder, give the piece to another connection."""
        connection = job.connection
        piece = job.piece
        self._out.append(Note("lease_lost", {"job_id": job.job_id, "request_id": piece.request.request_id}))
        if connection is not None:
            peer = self.slots.peers.get(connection)
            if peer is not None and peer.last_heard + self.settings.lease_seconds <= at:
                peer.is_suspect = True
            piece.banned |= {connection}
        self._fail(job, Failure(FailureCode.UNAVAILABLE, "its ingestor fell silent"), is_rejected=True, stop=True)

    def _on_connection_lost(self, event: ConnectionLost) -> None:
        dropped = self.slots.drop(event.connection)
        self._out.append(Note("connection_lost", {"slots": dropped}))
        job = self.jobs.get(event.job_id)
        if job is not None and job.connection == event.connection:
            piece = job.piece
            self._forget_job(job)
            self._out.append(Note("dispatch_undeliverable", {"job_id": event.job_id}))
            self._requeue(piece)

    # ---- time

    def _on_lease_found(self, event: LeaseFound) -> None:
        """A job of an earlier run: it lives on if its piece is still wanted, with a fresh grace period."""
        note = event.note
        request: Request | None = None
        piece: Piece | None = None
        if note is not None and note.realtime_ticker:
            request = self.realtime.get(note.realtime_ticker)
        elif note is not None:
            request = self.requests.get(note.request_id)
        if note is not None and isinstance(request, HistoricalRequest):
            piece = request.adopt(note)
        elif note is not None and request is not None and request.outstanding:
            piece = request.outstanding[0] if request.outstanding[0].job is None else None
            request.dispatch_name = note.dispatched_id
        if piece is None or request is None:
            self._out.append(Revoke(event.job_id))
            return
        if piece in request.ready:
            request.ready.remove(piece)
        lease_until = event.at + self.settings.lease_seconds
        job = Job(event.job_id, piece, None, lease_until, is_adopted=True)
        piece.job = job
        request.was_dispatched = True
        self.jobs[job.job_id] = job
        heapq.heappush(self._leases, (lease_until, job.job_id))
        self._out.append(Note("job_adopted", {"job_id": job.job_id, "request_id": request.request_id}))

    def _on_clock(self, event: ClockTicked) -> None:
        pause = event.at - self._ticked_at
        self._ticked_at = event.at
        self.wall_ns = event.wall_ns
        if pause > self.settings.lease_seconds / 2:
            # We were stopped, not the ingestors: their heartbeats wait in our sockets.
            self._out.append(Note("broker_paused", {"seconds": pause}))
            for job in self.jobs.values():
                job.lease_until += pause
        self._expire_leases(event.at)
        self._expire_requests()
        while self._delayed and self._delayed[0][0] <= event.at:
            self._requeue(heapq.heappop(self._delayed)[2])
        if event.at - self._beaten_at >= self.settings.heartbeat_seconds:
            self._beaten_at = event.at
            self._out.append(SendHeartbeats(tuple(self.slots.peers)))
        if event.at - self._shown_at >= SHOW_SECONDS:
            self._shown_at = event.at
            self._show_progress()
            for ticker in self._untold:
                self._tell_wants(ticker)
            self._untold.clear()
        if event.at - self._venues_put_at >= VENUE_SECONDS:
            self._venues_put_at = event.at
            self._refresh_venues()

    def _expire_leases(self, at: float) -> None:
        while self._leases and self._leases[0][0] <= at:
            _, job_id = heapq.heappop(self._leases)
            job = self.jobs.get(job_id)
            if job is None:
                continue
            if job.is_publishing:
                # Its ingestor is done and may be silent; the bus has its rows.
                job.lease_until = at + self.settings.lease_seconds
            if job.lease_until > at:
                heapq.heappush(self._leases, (job.lease_until, job_id))
            else:
                self._lose(job, at)

    def _expire_requests(self) -> None:
        while self._deadlines and self._deadlines[0][0] <= self.wall_ns:
            _, request_id = heapq.heappop(self._deadlines)
            request = self.requests.get(request_id)
            if request is None or request.deadline_ns > self.wall_ns:
                continue
            text = "not finished in time"
            if not request.was_dispatched:
                text += f": no ingestor had a free slot for {request.venue}"
            if isinstance(request, HistoricalRequest):
                text += f"; missing {describe_ranges(request.unfinished_ranges())}"
            self._finish(request, Final.TIMEOUT, text)

    def _show_later(self, request: Request) -> None:
        shared = request.subscribers if isinstance(request, RealtimeRequest) else (request.request_id,)
        self._dirty.update(dict.fromkeys(shared))

    def _show_progress(self) -> None:
        for request_id in self._dirty:
            request = self.requests.get(request_id)
            # That a request waits is known without us.
            if request is None or not request.was_dispatched:
                continue
            is_running = any(piece.job is not None for piece in request.outstanding.values())
            done = expected = 0
            if isinstance(request, HistoricalRequest):
                done = request.done_candles()
                is_running = True
                expected = grid.expected_candles(request.start, request.end, request.period_seconds, self.wall_ns)
                expected = expected if request.limit is None else min(expected, request.limit)
            failure = request.failure if isinstance(request, RealtimeRequest) else ""
            state = "running" if is_running and not failure else "queued"
            self._shown.add(request_id)
            self._out.append(PutState(request_id, state, done, expected, request.ticker, failure))
        self._dirty.clear()


def _refusal(event: HistoricalAccepted) -> PublishRequestDone:
    return PublishRequestDone(
        event.request_id,
        event.ticker,
        event.period_seconds,
        event.start,
        event.end,
        Final.ERROR,
        "REFUSED: not a range of candles",
        0,
        0,
        (),
        event.client_id,
    )
