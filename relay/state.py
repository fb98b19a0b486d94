"""The decisions behind the requests socket: events in, commands out. No socket, clock, thread or bus in here.

A client's message leads either to an immediate answer or to commands for the bus, whose result arrives as another event
(relay.events).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.grid import count_opens
from protobuf import records_pb2 as rec
from relay import topics
from relay.asked import CancelAsked, Kind, Peer, Repeated, StateAsked, Submission
from relay.commands import (
    Announce,
    AskTriggers,
    Command,
    Enqueue,
    ListVenues,
    LookUp,
    PublishControl,
    ReadRows,
    ReadStored,
    ReplayTopic,
    Reply,
)
from relay.doors import ownership
from relay.events import (
    CommandFailed,
    ControlPublished,
    Enqueued,
    Event,
    FinalArrived,
    FrameRefused,
    LookedUp,
    MessageReceived,
    TimePassed,
    VenuesListed,
)
from relay.requests import validation
from relay.settings import SECOND_NS, RelayConfig
from relay.triggers import requests as trigger_requests
from relay.triggers.views import refused_view
from relay.venues.venue_book import VenueBook, list_venues
from venues.served import waiting_for_slot

#: The client id of legacy requests, which wait for their candles on the requests socket.
LEGACY_CLIENT = "relay.ohlc"
#: An id is echoed up to this size, so that the answer to an overlong one is still small.
MAX_ECHOED = 16_384
#: Characters of a connection's routing id, which a client may choose, in a record.
_LANE_CHARACTERS = 64
_LEGACY_GRACE_NS = 60 * SECOND_NS


@dataclass(frozen=True, slots=True)
class _Waiter:
    peer: Peer
    request: ing.SubmitHistoricalRequest
    expires_ns: int


class RelayState:
    def __init__(self, config: RelayConfig, venues: VenueBook | None = None) -> None:
        self.config = config
        self.venues = venues or VenueBook()
        #: Legacy requests by id; the feed checks here which finals clients wait for.
        self.waiting: dict[str, list[_Waiter]] = {}
        self._next_expiry_ns = 0
        #: The names of all clients, with keys on.
        self.names: Sequence[str] = ()
        self._on_event: dict[type, Callable[[Any], list[Command]]] = {
            MessageReceived: self._on_message_received,
            FrameRefused: self._on_frame_refused,
            Enqueued: self._on_enqueued,
            LookedUp: self._on_looked_up,
            ControlPublished: self._on_control_published,
            VenuesListed: self._on_venues_listed,
            FinalArrived: self._on_final_arrived,
            CommandFailed: self._on_command_failed,
            TimePassed: self._on_time_passed,
        }
        self._on_message: dict[type[Message], Callable[[Peer, Any, int], list[Command]]] = {
            ing.SubmitHistoricalRequest: self._submit_historical,
            cw.RefreshHistoricalRequest: lambda peer, message, at_ns: self._submit_historical(
                peer, message.request, at_ns, refresh=True
            ),
            ing.DataRequest: self._submit_data,
            ing.OHLCRequest: self._submit_legacy,
            ing.IngestorControl: self._control,
            ing.CEPTriggerRequest: self._register_trigger,
            cw.TriggerRemove: self._remove_trigger,
            cw.TriggerQuery: lambda peer, query, at_ns: [AskTriggers(peer, query, at_ns)],
            cw.ViewRequest: self._change_view,
            cw.ViewRemove: self._change_view,
            cw.ViewQuery: lambda peer, query, at_ns: [AskTriggers(peer, query, at_ns)],
            cw.RequestStateQuery: lambda peer, query, at_ns: [LookUp(StateAsked(peer), query.request_id)],
            cw.TopicReplay: self._replay,
            cw.VenueQuery: lambda peer, query, at_ns: [ListVenues(peer, query)],
            cw.StoredQuery: self._read_stored,
        }

    def handle(self, event: Event) -> list[Command]:
        return self._on_event[type(event)](event)

    # ---- messages of clients

    def _on_message_received(self, event: MessageReceived) -> list[Command]:
        act = self._on_message.get(type(event.message))
        if act is None:
            name = type(event.message).DESCRIPTOR.name
            return [_error(event.peer, "UNEXPECTED_TYPE", f"{name} is not accepted here.")]
        return act(event.peer, event.message, event.at_ns)

    def _on_frame_refused(self, event: FrameRefused) -> list[Command]:
        return [_error(event.peer, event.code, event.text, event.request_id)]

    def _submit_historical(
        self, peer: Peer, message: ing.SubmitHistoricalRequest, at_ns: int, *, refresh: bool = False
    ) -> list[Command]:
        try:
            request = validation.historical(message, self.venues)
            self._claim(peer, request)
        except InvalidRequest as error:
            return [_submit_response(peer, message.request_id, ing.SubmitResponse.INVALID, error)]
        stored = rec.Request(historical=request, owner=peer.name, refresh=refresh)
        return [self._enqueue(Submission(peer, Kind.HISTORICAL, stored, at_ns))]

    def _submit_data(self, peer: Peer, message: ing.DataRequest, at_ns: int) -> list[Command]:
        try:
            request = validation.data_request(message, self.venues)
            self._claim(peer, request)
        except InvalidRequest as error:
            return [_submit_response(peer, message.request_id, ing.SubmitResponse.INVALID, error)]
        return [self._enqueue(Submission(peer, Kind.DATA, rec.Request(data=request, owner=peer.name), at_ns))]

    def _submit_legacy(self, peer: Peer, message: ing.OHLCRequest, at_ns: int) -> list[Command]:
        limits = self.config.limits
        try:
            request = validation.legacy(message, LEGACY_CLIENT, self.venues, max_rows=limits.max_legacy_rows)
            ownership.check_foreign(peer.name, "request_id", request.request_id, names=self.names)
        except InvalidRequest as error:
            return [_legacy_end(peer, message.request_id, ing.Response.ERROR, str(error))]
        # A repeated request of a client that waits is answered once. After a restart of the relay, it makes the client
        # wait again.
        others = [w for w in self.waiting.get(request.request_id, ()) if w.peer != peer or w.request != request]
        self._keep_waiting(request.request_id, others)
        if sum(map(len, self.waiting.values())) >= limits.max_waiting_reads:
            busy = f"{limits.max_waiting_reads} OHLCRequests are waiting already; try again later."
            return [_legacy_end(peer, message.request_id, ing.Response.ERROR, busy)]
        # It waits before the request is on the bus, so that no final is missed.
        expires_ns = at_ns + self.config.timeout_ns + _LEGACY_GRACE_NS
        self.waiting.setdefault(request.request_id, []).append(_Waiter(peer, request, expires_ns))
        return [self._enqueue(Submission(peer, Kind.LEGACY, rec.Request(historical=request, owner=peer.name), at_ns))]

    def _claim(self, peer: Peer, request: ing.SubmitHistoricalRequest | ing.DataRequest) -> None:
        """With keys on, check that the answer's topic belongs to the client. Raises InvalidRequest."""
        if peer.name:
            ownership.check_foreign(peer.name, "request_id", request.request_id, names=self.names)
            request.client_id = request.client_id or peer.name
            ownership.check_own(peer.name, "client_id", request.client_id)

    def _replay(self, peer: Peer, query: cw.TopicReplay, at_ns: int) -> list[Command]:
        if not ownership.may_subscribe(peer.name, query.topic.encode()):
            text = f"With keys on, {query.topic[:200]!r} is not this client's: its ids begin with {peer.name!r}."
            return self._on_command_failed(CommandFailed(ReplayTopic(peer, query), "NOT_ALLOWED", text))
        return [ReplayTopic(peer, query)]

    def _read_stored(self, peer: Peer, query: cw.StoredQuery, at_ns: int) -> list[Command]:
        try:
            validation.check_stored(query)
            ownership.check_foreign(peer.name, "covered_by", query.covered_by, names=self.names)
        except InvalidRequest as error:
            return [_error(peer, "INVALID", str(error), query.request_id)]
        return [ReadStored(peer, query)]

    def _enqueue(self, submission: Submission) -> Enqueue:
        peer = submission.peer
        sender, connection = peer.name or peer.address, peer.identity.hex()[:_LANE_CHARACTERS]
        record = rec.Request(accepted_at=submission.at_ns, sender=sender, connection=connection)
        record.MergeFrom(submission.request)
        if not (submission.kind is Kind.DATA and submission.request.data.type == ing.DataRequest.REALTIME_TICKS):
            record.deadline = submission.at_ns + self.config.timeout_ns
        return Enqueue(submission, record)

    def _control(self, peer: Peer, control: ing.IngestorControl, at_ns: int) -> list[Command]:
        if control.action == ing.IngestorControl.HEARTBEAT:
            return [Reply(peer, control)]
        if control.action != ing.IngestorControl.CANCEL:
            known = control.action in ing.IngestorControl.ControlAction.values()
            name = ing.IngestorControl.ControlAction.Name(control.action) if known else str(control.action)
            text = f"A client may send CANCEL and HEARTBEAT, not {name}."
            return [_error(peer, "NOT_ALLOWED", text, control.request_id)]
        return [LookUp(CancelAsked(peer, control, at_ns), control.request_id)]

    def _register_trigger(self, peer: Peer, message: ing.CEPTriggerRequest, at_ns: int) -> list[Command]:
        try:
            request = trigger_requests.clean(message)
            ownership.check_own(peer.name, "trigger_id", request.trigger_id)
            if request.callback_id:
                ownership.check_own(peer.name, "callback_id", request.callback_id)
        except InvalidRequest as error:
            return [_trigger_error(peer, message.trigger_id, str(error))]
        return [AskTriggers(peer, request, at_ns)]

    def _remove_trigger(self, peer: Peer, message: cw.TriggerRemove, at_ns: int) -> list[Command]:
        try:
            validation.check_id("trigger_id", message.trigger_id)
            ownership.check_own(peer.name, "trigger_id", message.trigger_id)
        except InvalidRequest as error:
            return [_trigger_error(peer, message.trigger_id, str(error))]
        return [AskTriggers(peer, message, at_ns)]

    def _change_view(self, peer: Peer, message: cw.ViewRequest | cw.ViewRemove, at_ns: int) -> list[Command]:
        try:
            trigger_requests.check_view(message)
            ownership.check_own(peer.name, "name of the view", message.name)
        except InvalidRequest as error:
            answer = refused_view(peer, message, cw.ViewAck.ERROR, text=str(error))
            return [Reply(peer, answer.message)]
        return [AskTriggers(peer, message, at_ns)]

    # ---- results from the bus

    def _on_enqueued(self, event: Enqueued) -> list[Command]:
        submission = event.submission
        request_id = submission.body.request_id
        if not event.is_first and event.known != submission.request:
            text = f"The request_id {request_id!r} is taken by a request with other content."
            if submission.kind is Kind.LEGACY:
                self._stop_waiting(submission)
                return [_legacy_end(submission.peer, request_id, ing.Response.ERROR, text)]
            return [_submit_response(submission.peer, request_id, ing.SubmitResponse.INVALID, text)]
        again: list[Command] = [] if event.is_first else [LookUp(Repeated(submission), request_id)]
        if submission.kind is Kind.LEGACY:
            return again
        status = ing.SubmitResponse.QUEUED if event.is_first else ing.SubmitResponse.DUPLICATE
        answer = ing.SubmitResponse(request_id=request_id, status=status, notification_topic=submission.topic)
        return [Reply(submission.peer, answer), *again]

    def _on_looked_up(self, event: LookedUp) -> list[Command]:
        purpose = event.purpose
        if not isinstance(purpose, Repeated) and not ownership.owns_request(
            purpose.peer.name, event.request_id, event.request
        ):
            # Another client's request counts as unknown.
            event = LookedUp(purpose, event.request_id, None, None, None)
        if isinstance(purpose, StateAsked):
            return [Reply(purpose.peer, _request_state(event))]
        if isinstance(purpose, CancelAsked):
            return self._cancel(purpose, event)
        if event.final is None:
            return []
        if purpose.submission.kind is Kind.LEGACY:
            return self._on_final_arrived(FinalArrived(event.final))
        client_id = purpose.submission.body.client_id
        owner = purpose.submission.request.owner
        return [Announce(topics.final_topics(event.request_id, client_id, owner), event.final)]

    def _cancel(self, asked: CancelAsked, event: LookedUp) -> list[Command]:
        if event.request is None:
            text = f"There is no request {event.request_id[:100]!r} to cancel."
            return [_error(asked.peer, "UNKNOWN_REQUEST", text, event.request_id)]
        if event.final is None:
            control = ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id=event.request_id)
            return [PublishControl(asked.peer, asked.control, rec.Request(control=control, accepted_at=asked.at_ns))]
        # The request has ended, so its final is the answer.
        client_id = ownership.client_of(event.request)
        echo = self._on_control_published(ControlPublished(asked.peer, asked.control))
        return [*echo, Announce(topics.final_topics(event.request_id, client_id), event.final)]

    def _on_control_published(self, event: ControlPublished) -> list[Command]:
        return [Reply(event.peer, event.control)] if event.peer.is_req else []

    def _on_venues_listed(self, event: VenuesListed) -> list[Command]:
        wanted = event.query.venue.upper()
        found = list_venues(wanted, event.records)
        request_id = event.query.request_id
        if wanted and not found:
            return [_error(event.peer, "UNKNOWN_VENUE", self.venues.unknown_venue(wanted), request_id)]
        return [Reply(event.peer, cw.VenueList(request_id=request_id, venues=found))]

    def _on_final_arrived(self, event: FinalArrived) -> list[Command]:
        final = event.final
        commands: list[Command] = []
        for waiter in self.waiting.pop(final.request_id, ()):
            if final.status == ing.HistoryReadyNotification.OK:
                commands.append(ReadRows(waiter.peer, waiter.request))
            elif final.status == ing.HistoryReadyNotification.NOT_FOUND:
                text = final.error_message or "The venue has no candles of this ticker in this range."
                commands.append(_legacy_end(waiter.peer, final.request_id, ing.Response.NOT_FOUND, text))
            else:
                name = ing.HistoryReadyNotification.NotificationStatus.Name(final.status)
                text = final.error_message or f"The request ended as {name}."
                commands.append(_legacy_end(waiter.peer, final.request_id, ing.Response.ERROR, text))
        return commands

    def _on_command_failed(self, event: CommandFailed) -> list[Command]:
        command = event.command
        if isinstance(command, Enqueue):
            submission = command.submission
            request_id = submission.body.request_id
            if submission.kind is Kind.LEGACY:
                self._stop_waiting(submission)
                return [_legacy_end(submission.peer, request_id, ing.Response.ERROR, event.text)]
            return [_submit_response(submission.peer, request_id, ing.SubmitResponse.ERROR, event.text)]
        if isinstance(command, ReadRows):
            return [_legacy_end(command.peer, command.request.request_id, ing.Response.ERROR, event.text)]
        if isinstance(command, LookUp):
            if isinstance(command.purpose, Repeated):
                return []  # answered already; the final comes with the next try or on its own
            return [_error(command.purpose.peer, event.code, event.text, command.request_id)]
        if isinstance(command, PublishControl):
            return [_error(command.peer, event.code, event.text, command.control.request_id)]
        if isinstance(command, ListVenues | ReadStored):
            return [_error(command.peer, event.code, event.text, command.query.request_id)]
        if isinstance(command, AskTriggers):
            if isinstance(command.message, cw.TriggerQuery):
                return [_error(command.peer, event.code, event.text)]
            if isinstance(command.message, cw.ViewRequest | cw.ViewRemove | cw.ViewQuery):
                return [_error(command.peer, event.code, event.text, command.message.request_id)]
            return [_trigger_error(command.peer, command.message.trigger_id, event.text)]
        if isinstance(command, ReplayTopic):
            query = command.query
            error = cw.Error(
                code=event.code,
                text=event.text,
                topic=query.topic[:512],
                from_sequence=query.from_sequence,
                newest_sequence=event.newest_sequence,
                at=event.at_ns,
            )
            return [Reply(command.peer, error)]
        return []

    def _on_time_passed(self, event: TimePassed) -> list[Command]:
        if event.at_ns < self._next_expiry_ns:
            return []
        self._next_expiry_ns = event.at_ns + SECOND_NS
        commands: list[Command] = []
        for request_id, waiters in list(self.waiting.items()):
            late = [waiter for waiter in waiters if waiter.expires_ns <= event.at_ns]
            text = "No final notification came in time."
            commands += [_legacy_end(waiter.peer, request_id, ing.Response.ERROR, text) for waiter in late]
            self._keep_waiting(request_id, [waiter for waiter in waiters if waiter.expires_ns > event.at_ns])
        return commands

    def _stop_waiting(self, submission: Submission) -> None:
        request_id = submission.body.request_id
        waiters = self.waiting.get(request_id, [])
        kept = [w for w in waiters if w.peer != submission.peer or w.request != submission.request.historical]
        self._keep_waiting(request_id, kept)

    def _keep_waiting(self, request_id: str, waiters: Sequence[_Waiter]) -> None:
        if waiters:
            self.waiting[request_id] = list(waiters)
        else:
            self.waiting.pop(request_id, None)


def _error(peer: Peer, code: str, text: str, request_id: str = "") -> Reply:
    return Reply(peer, cw.Error(code=code, text=text, request_id=request_id[:MAX_ECHOED]))


def _trigger_error(peer: Peer, trigger_id: str, text: str) -> Reply:
    status = ing.CEPTriggerAck.ERROR
    return Reply(peer, ing.CEPTriggerAck(trigger_id=trigger_id[:MAX_ECHOED], status=status, error_message=text))


def _submit_response(
    peer: Peer, request_id: str, status: ing.SubmitResponse.SubmitStatus, reason: InvalidRequest | str
) -> Reply:
    """A refusal, which names no topic, since nothing will be published."""
    message = ing.SubmitResponse(request_id=request_id[:MAX_ECHOED], status=status, error_message=str(reason))
    return Reply(peer, message)


def _legacy_end(peer: Peer, request_id: str, status: ing.Response.ResponseStatus, text: str) -> Reply:
    message = ing.Response(
        request_id=request_id[:MAX_ECHOED], status=status, error_message=text, total_records=0, is_final=True
    )
    return Reply(peer, message)


def _request_state(event: LookedUp) -> cw.RequestState:
    state = cw.RequestState(request_id=event.request_id[:MAX_ECHOED])
    if event.progress is not None:
        state.state = event.progress.state
        state.done_candles = event.progress.done_candles
        state.expected_candles = event.progress.expected_candles
        state.closed_until = event.progress.closed_until
        if event.progress.HasField("notification"):
            # The reason why a snapshot failed, or why a realtime job is not running.
            state.notification.CopyFrom(event.progress.notification)
    elif event.request is not None:
        state.state = "queued"
        asked = event.request.historical
        if asked.period_seconds:
            state.expected_candles = _asked_candles(asked)
    if event.final is not None:
        state.state = "done"
        state.notification.CopyFrom(event.final)
        if event.progress is None:
            state.done_candles = event.final.row_count
            state.expected_candles = max(state.expected_candles, state.done_candles)
    elif not state.state:
        state.state = "unknown"
    else:
        state.reason = _reason(event, state)
    return state


def _reason(event: LookedUp, state: cw.RequestState) -> str:
    """What an unfinished request waits for; empty if its venue has slots."""
    if event.request is not None and event.served is not None and state.state != "done":
        is_live = event.request.data.type == ing.DataRequest.REALTIME_TICKS
        served = event.served.realtime if is_live else event.served.historical
        ticker = event.request.data.ticker or event.request.historical.ticker
        return waiting_for_slot(ticker.rpartition(".")[2], served)
    return ""


def _asked_candles(request: ing.SubmitHistoricalRequest) -> int:
    """The candles in the requested range; an upper bound until the broker knows the exchange's time."""
    count = count_opens(request.start_time, request.end_time, request.period_seconds)
    return min(count, request.limit or count)
