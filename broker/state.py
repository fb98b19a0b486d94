"""All decisions of the broker: events in, commands out. No socket, no clock, no bus.

Each event goes to one room:

    requests    lifecycle.py    historical ones and snapshots: admitted, settled, ended once
                realtime.py     one job a ticker, shared; what the pipeline learns
    slots       dispatching.py  connections, slots, and which piece goes where
                venue_book.py   what is known about venues
    jobs        holding.py      who may speak for a job, and for how long
                endings.py      accepted, failed, rejected, lost
                deliveries.py   results of ingestors without the bus

They share the board (board.py). A room calls those above it in `BrokerState.__init__`, never one below.
"""

from collections.abc import Callable, Iterable

from broker.board import Board
from broker.commands import Command, SendControl, SendHeartbeats
from broker.events import (
    CancelAsked,
    CandlesReceived,
    ClockTicked,
    ConnectionLost,
    ControlAsked,
    Event,
    Final,
    FinalSeen,
    HeartbeatHeard,
    HistoricalAccepted,
    HistoryEnded,
    HistoryMeasured,
    HolderAsked,
    JobCompleted,
    JobFailed,
    JobProgressed,
    JobRejected,
    LeaseFound,
    MarksRefused,
    OutcomesWritten,
    PagesPublished,
    ProofFound,
    PublishRefused,
    RealtimeAccepted,
    SlotOffered,
    SnapshotAccepted,
    SnapshotPublished,
    SnapshotReceived,
    TicksReceived,
    VenueLearned,
    WantedFound,
)
from broker.journal import progress
from broker.requests.deliveries import Deliveries
from broker.requests.endings import Endings
from broker.requests.holding import Holding
from broker.requests.lifecycle import Lifecycle
from broker.requests.realtime import Realtime
from broker.slots.dispatching import Dispatching
from broker.slots.venue_book import VenueBook
from broker.work import RealtimeRequest
from core.settings import BrokerSettings

#: How often (s) progress is published.
SHOW_SECONDS = 0.5


class BrokerState:
    """`new_job_id` returns ids that never repeat; `at` and `wall_ns` are the time of the start. `history_partitions`,
    `history_bytes`: see `Board`.
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
        board = self._board = Board(
            settings,
            new_job_id,
            at,
            wall_ns=wall_ns,
            history_partitions=history_partitions,
            history_bytes=history_bytes,
        )
        self.room = board.room
        venues = self._venues = VenueBook(board)
        dispatching = self._dispatching = Dispatching(board, venues)
        lifecycle = self.lifecycle = Lifecycle(board, venues, dispatching)
        realtime = self._realtime = Realtime(board, dispatching, lifecycle)
        holding = self._holding = Holding(board, dispatching, realtime)
        endings = self._endings = Endings(board, dispatching, lifecycle, holding=holding)
        deliveries = Deliveries(board, dispatching, realtime, holding=holding, endings=endings)

        self.matching = board.matching
        self.slots = board.slots
        self.requests = board.requests
        self.jobs = board.jobs
        self.decided = lifecycle.decided
        self.oldest_offsets = lifecycle.oldest_offsets
        self._beaten_at = self._shown_at = at
        #: Ingestors answer with heartbeats of their jobs, often enough for any lease, whatever lease they assume.
        self._beat_seconds = min(settings.heartbeat_seconds, settings.lease_seconds / 3)
        self._handlers: dict[type, Callable[..., None]] = {
            HistoricalAccepted: lifecycle.on_historical,
            SnapshotAccepted: lifecycle.on_snapshot_request,
            RealtimeAccepted: realtime.on_request,
            WantedFound: realtime.on_wanted_found,
            CancelAsked: self._on_cancel,
            ControlAsked: self._on_control,
            FinalSeen: lifecycle.on_final,
            ProofFound: lifecycle.on_proof,
            VenueLearned: dispatching.on_venue,
            LeaseFound: holding.on_lease_found,
            SlotOffered: dispatching.on_slot,
            HeartbeatHeard: holding.on_heartbeat,
            JobProgressed: holding.on_progress,
            HistoryEnded: holding.on_history_end,
            CandlesReceived: deliveries.on_candles,
            SnapshotReceived: deliveries.on_snapshot,
            TicksReceived: deliveries.on_ticks,
            JobCompleted: endings.on_completed,
            JobFailed: endings.on_failed,
            JobRejected: endings.on_rejected,
            HolderAsked: holding.on_holder_asked,
            ConnectionLost: endings.on_connection_lost,
            PagesPublished: endings.on_pages_published,
            SnapshotPublished: endings.on_snapshot_published,
            PublishRefused: endings.on_publish_refused,
            MarksRefused: realtime.on_marks_refused,
            HistoryMeasured: self._on_measured,
            OutcomesWritten: board.room.on_outcomes,
            ClockTicked: self._on_clock,
        }

    @property
    def is_quiet(self) -> bool:
        """Whether only realtime requests run; then only leases and heartbeats depend on the clock."""
        return len(self.requests) == self._realtime.running and not self.decided

    def handle(self, event: Event) -> list[Command]:
        return self.handle_all((event,))

    def handle_all(self, events: Iterable[Event]) -> list[Command]:
        """The commands that follow from `events`, in order."""
        out: list[Command] = []
        self._board.out = out
        handlers = self._handlers
        for event in events:
            handlers[type(event)](event)
        return out

    def _on_cancel(self, event: CancelAsked) -> None:
        request = self.requests.get(event.request_id)
        if request is None:
            self._board.note("cancel_of_unknown", request_id=event.request_id)
        elif isinstance(request, RealtimeRequest):
            self._realtime.cancel(event.request_id, request)
        else:
            self.lifecycle.finish(request, Final.ERROR, "cancelled")

    def _on_measured(self, event: HistoryMeasured) -> None:
        room = self.room
        room.on_measured(event)
        self._board.has_prover = event.has_prover
        if (stuck := room.stuck_job(event.at)) is not None:
            self._endings.take_back(stuck)
        self._dispatching.retry_waiting()

    def _on_control(self, event: ControlAsked) -> None:
        for connection in self.slots.peers:
            self._board.say(SendControl(connection, event.control))

    def _on_clock(self, event: ClockTicked) -> None:
        board = self._board
        pause = event.at - board.at
        board.at = event.at
        board.wall_ns = event.wall_ns
        if event.leases_wait:
            self._holding.stand_still(pause)
        elif pause > board.lease_seconds / 2:
            self._holding.forgive_pause(pause)
        self._endings.expire_leases()
        self.lifecycle.expire()
        self.lifecycle.stop_asking()
        self._endings.retry_delayed()
        if event.at - self._beaten_at >= self._beat_seconds:
            self._beaten_at = event.at
            board.say(SendHeartbeats(tuple(self.slots.peers)))
        if event.at - self._shown_at >= SHOW_SECONDS:
            self._shown_at = event.at
            progress.show(board)
            self._realtime.tell_again()
            self._realtime.tell_time()
            self._venues.tell_served()
        self._venues.refresh()
