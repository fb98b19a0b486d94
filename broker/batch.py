"""What one round of the broker writes to the bus and sends, in the order that makes it safe."""

from dataclasses import dataclass, field

from broker import door, records
from broker.events import (
    CancelWork,
    Command,
    Connection,
    Dispatch,
    DropState,
    Event,
    ForgetRealtime,
    LookUpVenue,
    PublishPages,
    PublishPieceDone,
    PublishRequestDone,
    PublishSnapshot,
    PublishTicks,
    PutState,
    Revoke,
    SaveRealtime,
    SendControl,
    StopWork,
)
from bus.api import Record
from protobuf import candlewright_pb2 as cw
from protobuf import frames
from protobuf import ingestor_pb2 as ing

#: A frame to send once the bus has everything: to whom, its body, and the job that it gives away, if any.
Outgoing = tuple[Connection, bytes, str]


@dataclass(slots=True)
class Batch:
    """Results first (their leases still stand), then outcomes, revocations, grants, tables, holds; frames last.

    The writer empties each field once it is done, so that a failed round goes on where it stopped.
    """

    pages: list[PublishPages] = field(default_factory=list)
    snapshots: list[PublishSnapshot] = field(default_factory=list)
    ticks: list[PublishTicks] = field(default_factory=list)
    outcomes: list[Record] = field(default_factory=list)
    revoke: dict[str, None] = field(default_factory=dict)
    grant: dict[str, bytes] = field(default_factory=dict)
    save_realtime: dict[str, bytes] = field(default_factory=dict)
    forget_realtime: dict[str, None] = field(default_factory=dict)
    put_states: dict[str, bytes] = field(default_factory=dict)
    drop_states: dict[str, None] = field(default_factory=dict)
    venues: dict[str, None] = field(default_factory=dict)
    holds: dict[str, dict[int, int]] = field(default_factory=dict)
    outgoing: list[Outgoing] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    size: int = 0

    def add(self, command: Command) -> None:
        self.size += 1
        if isinstance(command, Dispatch):
            self.grant[command.job_id] = records.note_value(command.note)
            self.outgoing.append((command.connection, door.dispatch_body(command), command.job_id))
        elif isinstance(command, Revoke):
            self.grant.pop(command.job_id, None)
            self.revoke[command.job_id] = None
        elif isinstance(command, PublishPieceDone):
            self.outcomes.append(records.piece_record(command))
        elif isinstance(command, PublishRequestDone):
            self.outcomes.append(records.request_record(command))
        elif isinstance(command, PublishPages):
            self.pages.append(command)
        elif isinstance(command, PublishTicks):
            self.ticks.append(command)
        elif isinstance(command, StopWork):
            self.outgoing.append((command.connection, door.stop_body(command), ""))
        elif isinstance(command, CancelWork):
            self.outgoing.append((command.connection, door.cancel_body(command), ""))
        elif isinstance(command, SendControl):
            self.outgoing.append((command.connection, frames.encode_body(command.control), ""))
        else:
            self._add_rare(command)

    def _add_rare(self, command: Command) -> None:
        if isinstance(command, PutState):
            self.drop_states.pop(command.request_id, None)
            self.put_states[command.request_id] = _state_value(command)
        elif isinstance(command, DropState):
            self.put_states.pop(command.request_id, None)
            self.drop_states[command.request_id] = None
        elif isinstance(command, PublishSnapshot):
            self.snapshots.append(command)
        elif isinstance(command, SaveRealtime):
            request = command.request
            self.forget_realtime.pop(request.request_id, None)
            self.save_realtime[request.request_id] = records.realtime_value(request)
        elif isinstance(command, ForgetRealtime):
            self.save_realtime.pop(command.request_id, None)
            self.forget_realtime[command.request_id] = None
        elif isinstance(command, LookUpVenue):
            self.venues[command.venue] = None
        else:
            raise TypeError(f"{type(command).__name__} is not written to the bus")


def _state_value(state: PutState) -> bytes:
    message = cw.RequestState(
        request_id=state.request_id,
        state=state.state,
        done_candles=state.done_candles,
        expected_candles=state.expected_candles,
    )
    if state.failure:
        message.notification.request_id = state.request_id
        message.notification.ticker = state.ticker
        message.notification.status = ing.HistoryReadyNotification.ERROR
        message.notification.error_message = state.failure
    return message.SerializeToString()
