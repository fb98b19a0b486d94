"""Gathers what the broker must write to the bus, while the previous write is running.

There are two lanes, because a dispatch waits only for its lease to be durable; results are written separately. A crash
between the two loses nothing, since a piece whose acceptance was not published is fetched again.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from broker import door
from broker.commands import (
    AskProof,
    CancelWork,
    Command,
    Dispatch,
    DropState,
    ForgetRealtime,
    LookUpVenue,
    PublishClock,
    PublishMark,
    PublishPages,
    PublishPieceDone,
    PublishRequestDone,
    PublishSnapshot,
    PublishTicks,
    PutServed,
    PutState,
    PutTicksAside,
    PutVenue,
    Revoke,
    SaveRealtime,
    SendControl,
    StopWork,
)
from broker.events import Connection, Event, Final
from broker.journal import records
from bus.api import Record
from bus.dead_letters import Letter
from bus.topics import TICKS
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as rec

#: A frame to send once the bus has everything: the receiver, the body, and the job that it dispatches, if any.
Outgoing = tuple[Connection, bytes, str]
Outcome = PublishPieceDone | PublishRequestDone


@dataclass(slots=True)
class Leases:
    """Marks (`records.wanted_value` by ticker), then revocations, then grants, then the frames that rely on all of
    them.

    `finished`: jobs whose outcomes are on the bus. Revoking their leases is not urgent, so it waits for the next batch
    that is written anyway.
    """

    marks: dict[str, bytes] = field(default_factory=dict)
    revoke: dict[str, None] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    grant: dict[str, bytes] = field(default_factory=dict)
    outgoing: list[Outgoing] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.outgoing) + len(self.revoke) + len(self.marks) + len(self.finished)

    @property
    def is_urgent(self) -> bool:
        return bool(self.outgoing or self.revoke or self.marks)


@dataclass(kw_only=True, slots=True)
class Results:
    """What jobs delivered under their leases; outcomes; tables; holds; and the jobs whose leases may be revoked
    afterwards.

    The writer empties each field once it is written, so a failed write continues where it stopped. `events`: the
    write's events for the state; `pieces`: how many of the outcomes are of pieces.
    """

    pages: list[PublishPages] = field(default_factory=list)
    snapshots: list[PublishSnapshot] = field(default_factory=list)
    ticks: list[PublishTicks] = field(default_factory=list)
    aside: list[Letter] = field(default_factory=list)
    clocks: dict[str, int] = field(default_factory=dict)
    questions: list[Record] = field(default_factory=list)
    outcomes: list[Record] = field(default_factory=list)
    pieces: int = 0
    finished: list[str] = field(default_factory=list)
    save_realtime: dict[str, bytes] = field(default_factory=dict)
    forget_realtime: dict[str, None] = field(default_factory=dict)
    put_states: dict[str, bytes] = field(default_factory=dict)
    drop_states: dict[str, None] = field(default_factory=dict)
    venues: dict[str, None] = field(default_factory=dict)
    put_venues: dict[str, None] = field(default_factory=dict)
    served: bytes | None = None
    holds: dict[str, dict[int, int]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    @property
    def size(self) -> int:
        records = len(self.pages) + len(self.snapshots) + len(self.ticks) + len(self.outcomes) + len(self.finished)
        records += len(self.clocks) + len(self.aside) + len(self.questions)
        rows = len(self.put_states) + len(self.drop_states) + len(self.save_realtime) + len(self.forget_realtime)
        venues = len(self.venues) + len(self.put_venues) + (self.served is not None)
        return records + rows + venues + len(self.holds)

    @property
    def has_outcomes_alone(self) -> bool:
        return self.size == len(self.outcomes) + len(self.finished) and bool(self.outcomes)


class Gatherer:
    """Sorts commands into the next batch of each lane."""

    def __init__(self) -> None:
        self.leases = Leases()
        self.results = Results()
        self._outcomes: list[Outcome] = []
        #: Requests that ended since this was last cleared.
        self.ended: Counter[Final] = Counter()
        self._adders: dict[type, Callable[[Any], None]] = {
            Dispatch: self._dispatch,
            Revoke: self._revoke,
            PublishPieceDone: self._piece_done,
            PublishRequestDone: self._request_done,
            AskProof: lambda command: self.results.questions.append(records.question_record(command)),
            PublishPages: lambda command: self.results.pages.append(command),
            PublishSnapshot: lambda command: self.results.snapshots.append(command),
            PublishTicks: lambda command: self.results.ticks.append(command),
            PutTicksAside: self._put_aside,
            PublishClock: self._publish_clock,
            PublishMark: self._publish_mark,
            PutVenue: self._put_venue,
            PutServed: self._put_served,
            StopWork: lambda command: self._send(command.connection, door.stop_body(command)),
            CancelWork: lambda command: self._send(command.connection, door.cancel_body(command)),
            SendControl: lambda command: self._send(command.connection, frames.encode_body(command.control)),
            PutState: self._put_state,
            DropState: self._drop_state,
            SaveRealtime: self._save_realtime,
            ForgetRealtime: self._forget_realtime,
            LookUpVenue: self._look_up,
        }

    @property
    def size(self) -> int:
        return self.leases.size + self.results_size

    @property
    def results_size(self) -> int:
        return self.results.size + len(self._outcomes)

    def add(self, commands: Iterable[Command]) -> list[Command]:
        """Take the commands for the bus, and frames that must wait for it; returns the others."""
        adder_of = self._adders.get
        others: list[Command] = []
        for command in commands:
            adder_of(type(command), others.append)(command)
        return others

    def hold(self, holds: dict[str, dict[int, int]]) -> None:
        self.results.holds = holds

    def release(self, finished: list[str]) -> None:
        """Revoke the leases of these jobs, whose results are on the bus."""
        self.leases.finished += finished

    def take_leases(self) -> Leases:
        taken, self.leases = self.leases, Leases()
        return taken

    def take_results(self) -> Results:
        """Take the next batch of results. Outcomes become records only here, while the loop waits for the answer about
        leases anyway.
        """
        taken, self.results = self.results, Results()
        outcomes, self._outcomes = self._outcomes, []
        taken.outcomes = records.outcome_records(outcomes)
        taken.pieces = sum(type(outcome) is PublishPieceDone for outcome in outcomes)
        return taken

    def _send(self, connection: Connection, body: bytes) -> None:
        self.leases.outgoing.append((connection, body, ""))

    def _dispatch(self, command: Dispatch) -> None:
        self.leases.grant[command.job_id] = records.note_value(command.note)
        self.leases.outgoing.append((command.connection, door.dispatch_body(command), command.job_id))

    def _revoke(self, command: Revoke) -> None:
        if command.is_finished:
            self.results.finished.append(command.job_id)
        else:
            self.leases.grant.pop(command.job_id, None)
            self.leases.revoke[command.job_id] = None

    def _publish_mark(self, command: PublishMark) -> None:
        self.leases.marks[command.ticker] = records.wanted_value(command.wants)

    def _put_aside(self, command: PutTicksAside) -> None:
        key = command.batch.ticker.encode()
        self.results.aside.append(Letter(TICKS, command.batch.SerializeToString(), command.reason, key))

    def _publish_clock(self, command: PublishClock) -> None:
        self.results.clocks[command.ticker] = command.exchange_time

    def _put_venue(self, command: PutVenue) -> None:
        self.results.put_venues[command.venue] = None

    def _put_served(self, command: PutServed) -> None:
        served = rec.ServedVenues(historical=command.historical, realtime=command.realtime)
        self.results.served = served.SerializeToString()

    def _piece_done(self, command: PublishPieceDone) -> None:
        self._outcomes.append(command)
        if not command.is_proven:
            self.results.finished.append(command.job_id)

    def _request_done(self, command: PublishRequestDone) -> None:
        self._outcomes.append(command)
        self.ended[command.status] += 1

    def _put_state(self, command: PutState) -> None:
        self.results.drop_states.pop(command.request_id, None)
        self.results.put_states[command.request_id] = _state_value(command)

    def _drop_state(self, command: DropState) -> None:
        self.results.put_states.pop(command.request_id, None)
        self.results.drop_states[command.request_id] = None

    def _save_realtime(self, command: SaveRealtime) -> None:
        request = command.request
        self.results.forget_realtime.pop(request.request_id, None)
        self.results.save_realtime[request.request_id] = records.realtime_value(request)

    def _forget_realtime(self, command: ForgetRealtime) -> None:
        self.results.save_realtime.pop(command.request_id, None)
        self.results.forget_realtime[command.request_id] = None

    def _look_up(self, command: LookUpVenue) -> None:
        self.results.venues[command.venue] = None


def _state_value(state: PutState) -> bytes:
    message = cw.RequestState(
        request_id=state.request_id,
        state=state.state,
        done_candles=state.done_candles,
        expected_candles=state.expected_candles,
        closed_until=state.closed_until,
    )
    if state.failure:
        message.notification.request_id = state.request_id
        message.notification.ticker = state.ticker
        message.notification.status = ing.HistoryReadyNotification.ERROR
        message.notification.error_message = state.failure
    return message.SerializeToString()
