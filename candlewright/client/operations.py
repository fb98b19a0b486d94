"""What can be asked of the platform, as generators of steps: the one copy that both twins run."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from candlewright.client.errors import (
    InvalidRequest,
    InvalidTrigger,
    PlatformRefused,
    PlatformUnreachable,
    RequestFailed,
    RequestNotFound,
    RequestTimedOut,
    TriggerNotFound,
)
from candlewright.client.records import (
    Market,
    Notification,
    Outcome,
    Registration,
    RequestState,
    Snapshot,
    Submission,
    TriggerInfo,
    Venue,
)
from candlewright.client.session import Operation, Published, Reply, Send, Session, Subscribe, TimedOut, Wait
from protobuf import candlewright_pb2 as cw
from protobuf import frames
from protobuf import ingestor_pb2 as ing

M = TypeVar("M", bound=Message)
Progress = Callable[[int, int], None]

#: Pause before an unanswered question is asked again; it doubles up to the second figure.
RESEND_SECONDS, RESEND_MAX_SECONDS = 0.5, 4.0
#: Pause between two questions for the state of a running request; it grows up to the second figure.
POLL_SECONDS, POLL_MAX_SECONDS = 0.25, 2.0
#: The same for triggers: their acknowledgement waits for the pipeline.
TRIGGER_RESEND_SECONDS, TRIGGER_RESEND_MAX_SECONDS = 3.0, 6.0
#: While another list of triggers is asked for.
TURN_SECONDS = 0.01
#: So often the pages of a legacy answer are asked for.
LOSSES = 5
#: How long stored candles may take to be read for a legacy request.
READ_SECONDS = 10.0
#: How long a running request is followed through silence: parts of the platform may restart meanwhile.
SILENCE_SECONDS = 60.0


_REGISTERED = (ing.CEPTriggerAck.REGISTERED, ing.CEPTriggerAck.ALREADY_REGISTERED)
#: A number that no topic reaches.
_BEYOND = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Range:
    """A historical request as the caller means it; `start` and `end` in ns, half-open by open time."""

    ticker: str
    period_seconds: int
    start: int
    end: int
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Newest:
    """The number of the newest message of a stream topic, 0 = none yet, at a time of the platform's clock (ns)."""

    number: int
    at: int


def fresh_id(prefix: str, name: str = "") -> str:
    """`name`: of the client's key, which its ids begin with."""
    return "-".join(filter(None, (name, prefix, secrets.token_hex(8))))


class Operations:
    """`timeout_seconds` is how long one answer is waited for, resends included."""

    def __init__(self, session: Session, client_id: str, address: str, timeout_seconds: float, name: str = "") -> None:
        self._session = session
        self._client_id = client_id
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._name = name
        self._is_listing = False
        self.response_topic = f"RESPONSE:{client_id}"

    # ---- historical requests
    def submit(self, wanted: Range, request_id: str) -> Operation[Submission]:
        """Durable once this returns. Raises InvalidRequest, PlatformRefused, PlatformUnreachable."""
        yield Subscribe(self.response_topic, keep=True)
        answer = yield from self._ask(self._submit_message(wanted, request_id), ing.SubmitResponse)
        return _accepted(answer)

    def history(
        self, wanted: Range, request_id: str, progress: Progress | None, timeout_seconds: float | None
    ) -> Operation[Notification]:
        """Submit and follow to an OK; raises what `submit` does and RequestFailed."""
        yield Subscribe(self.response_topic, keep=True)
        message = self._submit_message(wanted, request_id)
        heard: list[Published] = []
        _accepted((yield from self._ask(message, ing.SubmitResponse, heard)))
        final = yield from self._follow(request_id, message, heard, progress, timeout_seconds)
        return _checked(final)

    def wait(
        self, request_id: str, progress: Progress | None, timeout_seconds: float | None
    ) -> Operation[Notification]:
        """Follow a request of any client to its final, whatever that says."""
        yield Subscribe(f"HISTORY_READY:{request_id}")
        return (yield from self._follow(request_id, None, [], progress, timeout_seconds))

    def state(self, request_id: str) -> Operation[RequestState]:
        answer = yield from self._ask(cw.RequestStateQuery(request_id=request_id), cw.RequestState)
        return RequestState.from_message(answer)

    def cancel(self, request_id: str) -> Operation[RequestState]:
        """Raises RequestNotFound for an id that the platform does not know."""
        # A DEALER's cancellation is answered only where it cannot be; the question behind it always is.
        control = ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id=request_id)
        query = cw.RequestStateQuery(request_id=request_id)
        unknown = RequestNotFound(request_id, f"the platform knows no request {request_id}")
        try:
            state = RequestState.from_message((yield from self._ask([control, query], cw.RequestState)))
        except PlatformRefused as refused:
            if refused.code == "UNKNOWN_REQUEST":
                raise unknown from refused
            raise
        if state.state == "unknown":
            raise unknown
        return state

    # ---- live data
    def realtime(self, ticker: str, ticks: bool, ohlc_periods: Sequence[int], request_id: str) -> Operation[Submission]:
        """Durable once this returns; raises what `submit` does."""
        params = ing.RealtimeParams(
            include_ticks=ticks, include_ohlc=bool(ohlc_periods), ohlc_period_seconds=ohlc_periods
        )
        request = ing.DataRequest(
            request_id=request_id,
            type=ing.DataRequest.REALTIME_TICKS,
            ticker=ticker,
            realtime=params,
            client_id=self._client_id,
        )
        return _accepted((yield from self._ask(request, ing.SubmitResponse)))

    # ---- venues, snapshots, legacy pages, replay
    def venues(self, venue: str = "") -> Operation[list[cw.Venue]]:
        query = cw.VenueQuery(request_id=fresh_id("v", self._name), venue=venue)
        answer = yield from self._ask(query, cw.VenueList)
        return list(answer.venues)

    def venue_list(self) -> Operation[list[Venue]]:
        found = yield from self.venues()
        return sorted((Venue.from_message(each) for each in found), key=lambda each: each.name)

    def markets(self, venue: str) -> Operation[list[Market]]:
        """Raises InvalidRequest for a venue that no ingestor has announced."""
        found = [each for each in (yield from self.venues(venue)) if each.venue == venue]
        if not found:
            raise InvalidRequest(f"no ingestor has announced a venue {venue}")
        return [Market.from_message(venue, each) for each in found[0].markets]

    def snapshot(self, ticker: str) -> Operation[Snapshot]:
        """Raises RequestFailed when the venue has none to give."""
        yield Subscribe(self.response_topic, keep=True)
        yield Subscribe(f"SNAPSHOT:{ticker}")
        give_up = self._session.now + self._timeout_seconds
        heard: list[Published] = []
        request = ing.DataRequest(
            request_id=fresh_id("s", self._name),
            type=ing.DataRequest.TICKER_SNAPSHOT,
            ticker=ticker,
            client_id=self._client_id,
        )
        _accepted((yield from self._ask(request, ing.SubmitResponse, heard)))
        pause = POLL_SECONDS
        ask_at = self._session.now + pause
        while True:
            for event in heard:
                found = event.message
                if isinstance(found, cw.Snapshot) and found.request_id == request.request_id:
                    return Snapshot.from_message(found)
            answer = yield Wait(min(ask_at, give_up))
            heard = [answer] if isinstance(answer, Published) else []
            if isinstance(answer, TimedOut):
                if self._session.now >= give_up:
                    text = f"no snapshot of {ticker} within {self._timeout_seconds:g} s"
                    raise RequestTimedOut(request.request_id, text)
                # A failure has no snapshot to publish: the request's state tells of it.
                yield Send(cw.RequestStateQuery(request_id=request.request_id))
                pause = min(pause * 2, POLL_MAX_SECONDS)
                ask_at = self._session.now + pause
            elif isinstance(answer, Reply):
                if isinstance(answer.message, cw.Error):
                    raise _refused(answer.message)
                if isinstance(answer.message, cw.RequestState) and answer.message.state == "done":
                    final = answer.message.notification
                    if final.error_message:
                        raise RequestFailed(request.request_id, final.error_message, Notification.from_message(final))

    def ohlc(self, wanted: Range) -> Operation[list[cw.OHLCV]]:
        """The legacy request: all pages, in order, unique by open time."""
        request = ing.OHLCRequest(
            request_id=fresh_id("o", self._name),
            ticker=wanted.ticker,
            start_time=wanted.start,
            end_time=wanted.end,
            period_seconds=wanted.period_seconds,
            limit=wanted.limit,
        )
        candles: dict[int, cw.OHLCV] = {}
        page = yield from self._first_page(request)
        losses = 0
        while True:
            if page.status == ing.Response.NOT_FOUND:
                raise RequestNotFound(request.request_id, page.error_message or f"nothing of {wanted.ticker} there")
            if page.status != ing.Response.OK:
                raise PlatformRefused("ERROR", page.error_message, request.request_id)
            for data in page.data:
                candle = cw.OHLCV.FromString(data)
                candles[candle.open_time] = candle
            if page.is_final and len(candles) >= page.total_records:
                return [candles[open_time] for open_time in sorted(candles)]
            following = None if page.is_final else (yield from self._next_page())
            if following is None:
                # Pages were lost on the way: all are asked for again.
                losses += 1
                if losses == LOSSES:
                    text = f"{len(candles)} of {page.total_records} candles came; the rest was lost {losses} times"
                    raise PlatformRefused("ERROR", text, request.request_id)
                following = yield from self._first_page(request)
            page = following

    def _first_page(self, request: ing.OHLCRequest) -> Operation[ing.Response]:
        """It comes when the request has ended. A relay that was restarted meanwhile knows who waits when it is asked
        again; the request's state, asked for beside it, tells that somebody is there.
        """
        last_heard = self._session.now
        pause = RESEND_SECONDS
        complaint: cw.Error | None = None
        while self._session.now - last_heard < self._timeout_seconds:
            yield Send(request)
            yield Send(cw.RequestStateQuery(request_id=request.request_id))
            until = self._session.now + pause
            pause = min(pause * 2, RESEND_MAX_SECONDS)
            while not isinstance(event := (yield Wait(until)), TimedOut):
                message = event.message if isinstance(event, Reply) else None
                if isinstance(message, ing.Response):
                    return message
                if isinstance(message, cw.RequestState):
                    last_heard, complaint = self._session.now, None
                    if message.state == "done":
                        # The rows are being read: another question would have them read twice.
                        until = max(until, self._session.now + READ_SECONDS)
                elif isinstance(message, cw.Error):
                    complaint = message
        raise _refused(complaint) if complaint else self._unreachable(last_heard)

    def _next_page(self) -> Operation[ing.Response | None]:
        """None when it does not come."""
        until = self._session.now + RESEND_MAX_SECONDS
        while not isinstance(event := (yield Wait(until)), TimedOut):
            if isinstance(event, Reply):
                if isinstance(event.message, ing.Response):
                    return event.message
                if isinstance(event.message, cw.Error):
                    raise _refused(event.message)
        return None

    def replay(self, topic: str, from_sequence: int, to_sequence: int) -> Operation[list[tuple[int, Message]]]:
        """What a stream topic carried, by sequence; raises PlatformRefused for what is no longer kept."""
        request = cw.TopicReplay(topic=topic, from_sequence=from_sequence, to_sequence=to_sequence)
        records: dict[int, Message] = {}
        record = yield from self._ask(request, cw.TopicRecord)
        while True:
            if record.body:
                records[record.sequence] = frames.decode_body(record.body, frames.ON_TOPIC)
            if record.is_final:
                return sorted(records.items())
            record = yield from self._next_of(cw.TopicRecord, request)

    def newest(self, topic: str) -> Operation[Newest]:
        # The newest number comes with the refusal of one that lies beyond.
        request = cw.TopicReplay(topic=topic, from_sequence=_BEYOND)
        give_up = self._session.now + self._timeout_seconds
        pause = RESEND_SECONDS
        while self._session.now < give_up:
            yield Send(request)
            until = min(give_up, self._session.now + pause)
            pause = min(pause * 2, RESEND_MAX_SECONDS)
            while not isinstance(event := (yield Wait(until)), TimedOut):
                error = event.message if isinstance(event, Reply) else None
                if isinstance(error, cw.Error) and error.from_sequence == _BEYOND:
                    if error.HasField("newest_sequence"):
                        return Newest(error.newest_sequence, error.at)
                    raise _refused(error)
        raise PlatformUnreachable(self._address, self._timeout_seconds, self._name)

    # ---- triggers
    def add_trigger(self, request: ing.CEPTriggerRequest, timeout_seconds: float) -> Operation[Registration]:
        """Active once this returns. Raises InvalidTrigger, PlatformRefused, PlatformUnreachable."""
        trigger_id = request.trigger_id
        give_up = self._session.now + timeout_seconds
        while True:
            answer, _ = yield from self._acknowledged(request, give_up - self._session.now)
            if answer.status == ing.CEPTriggerAck.INVALID_SQL:
                raise InvalidTrigger.parse(request.sql_pattern, answer.error_message)
            if answer.status in _REGISTERED:
                warnings = tuple(filter(None, map(str.strip, answer.error_message.splitlines())))
                return Registration(trigger_id, answer.status == ing.CEPTriggerAck.REGISTERED, warnings)
            found = yield from self.triggers(trigger_id)
            if not found or not found[0].is_starting:
                raise PlatformRefused("ERROR", answer.error_message, trigger_id)
            # It is stored, and the platform tired of waiting for the pipeline before the caller did: the same again.
            if give_up - self._session.now <= TRIGGER_RESEND_SECONDS:
                raise PlatformRefused("ERROR", f"trigger {trigger_id}: {answer.error_message}", trigger_id)

    def remove_trigger(self, trigger_id: str, timeout_seconds: float) -> Operation[None]:
        """Raises TriggerNotFound, PlatformRefused, PlatformUnreachable."""
        was_there = yield from self.triggers(trigger_id)
        answer, sent = yield from self._acknowledged(cw.TriggerRemove(trigger_id=trigger_id), timeout_seconds)
        if answer.status in _REGISTERED:
            return
        if not was_there:
            raise TriggerNotFound(trigger_id)
        # Where the answer to the first question was lost, what it asked for may have been done.
        if sent == 1 or (yield from self.triggers(trigger_id)):
            raise PlatformRefused("ERROR", answer.error_message, trigger_id)

    def trigger(self, trigger_id: str) -> Operation[TriggerInfo]:
        """Raises TriggerNotFound."""
        for found in (yield from self.triggers(trigger_id)):
            return found
        raise TriggerNotFound(trigger_id)

    def triggers(self, trigger_id: str = "") -> Operation[list[TriggerInfo]]:
        """What is registered or about to be, by id; of one id alone, or all."""
        # An answer does not say what was asked, so one question at a time.
        while self._is_listing:
            yield Wait(self._session.now + TURN_SECONDS)
        self._is_listing = True
        found: dict[str, TriggerInfo] = {}
        try:
            query = cw.TriggerQuery(trigger_id=trigger_id, include_starting=True)
            while True:
                answer = yield from self._ask(query, cw.TriggerList)
                page = [TriggerInfo.from_message(each) for each in answer.triggers]
                found |= {each.trigger_id: each for each in page if trigger_id in ("", each.trigger_id)}
                last = max((each.trigger_id for each in page), default="")
                if not answer.has_more or last <= query.after_trigger_id:
                    return [found[name] for name in sorted(found)]
                query = cw.TriggerQuery(after_trigger_id=last, include_starting=True)
        finally:
            self._is_listing = False

    def _acknowledged(
        self, message: ing.CEPTriggerRequest | cw.TriggerRemove, timeout_seconds: float
    ) -> Operation[tuple[ing.CEPTriggerAck, int]]:
        """The answer, and how often the question was sent until it came; the same again is harmless."""
        give_up = self._session.now + timeout_seconds
        pause, sent = TRIGGER_RESEND_SECONDS, 0
        while self._session.now < give_up:
            yield Send(message)
            sent += 1
            until = min(give_up, self._session.now + pause)
            pause = min(pause * 2, TRIGGER_RESEND_MAX_SECONDS)
            while not isinstance(event := (yield Wait(until)), TimedOut):
                if isinstance(event, Reply):
                    if isinstance(event.message, ing.CEPTriggerAck):
                        return event.message, sent
                    if isinstance(event.message, cw.Error):
                        raise _refused(event.message)
        raise PlatformUnreachable(self._address, timeout_seconds, self._name)

    # ---- the three ways to wait
    def _ask(
        self, message: Message | Sequence[Message], answer: type[M], heard: list[Published] | None = None
    ) -> Operation[M]:
        """Send, and send again, until an `answer` comes; publications that come first go to `heard`."""
        messages = [message] if isinstance(message, Message) else message
        give_up = self._session.now + self._timeout_seconds
        pause = RESEND_SECONDS
        while self._session.now < give_up:
            for each in messages:
                yield Send(each)
            until = min(give_up, self._session.now + pause)
            pause = min(pause * 2, RESEND_MAX_SECONDS)
            while not isinstance(event := (yield Wait(until)), TimedOut):
                if isinstance(event, Published):
                    if heard is not None:
                        heard.append(event)
                elif isinstance(event, Reply):
                    if isinstance(event.message, answer):
                        return event.message
                    if isinstance(event.message, cw.Error):
                        raise _refused(event.message)
        raise PlatformUnreachable(self._address, self._timeout_seconds, self._name)

    def _next_of(self, answer: type[M], request: Message) -> Operation[M]:
        """The next page; asks for everything anew when it does not come."""
        until = self._session.now + RESEND_MAX_SECONDS
        while not isinstance(event := (yield Wait(until)), TimedOut):
            if isinstance(event, Reply):
                if isinstance(event.message, answer):
                    return event.message
                if isinstance(event.message, cw.Error):
                    raise _refused(event.message)
        return (yield from self._ask(request, answer))

    def _follow(
        self,
        request_id: str,
        submitted: Message | None,
        heard: list[Published],
        progress: Progress | None,
        timeout_seconds: float | None,
    ) -> Operation[Notification]:
        """Until the final: by notification, or by the state of the request where a notification was missed."""
        for event in heard:
            if (final := _final_in(event.message, request_id)) is not None:
                return final
        started = last_heard = self._session.now
        give_up = started + timeout_seconds if timeout_seconds is not None else float("inf")
        pause = POLL_SECONDS
        complaint: cw.Error | None = None
        while True:
            event_or_time = yield Wait(min(give_up, self._session.now + pause))
            if isinstance(event_or_time, TimedOut):
                if self._session.now >= give_up:
                    raise RequestTimedOut(
                        request_id, f"request {request_id} has not ended within {timeout_seconds:g} s"
                    )
                if self._session.now - last_heard > max(SILENCE_SECONDS, self._timeout_seconds):
                    raise _refused(complaint) if complaint else self._unreachable(last_heard)
                pause = min(pause * 1.3, POLL_MAX_SECONDS)
                yield Send(cw.RequestStateQuery(request_id=request_id))
                continue
            assert event_or_time is not None
            message = event_or_time.message
            if isinstance(message, cw.Error):
                if isinstance(event_or_time, Published):
                    # Of a trigger that has this topic for its callback.
                    continue
                # The request lives on although this question failed: the platform may be restarting.
                complaint = message
                continue
            complaint, last_heard = None, self._session.now
            if (final := _final_in(message, request_id)) is not None:
                return final
            if isinstance(message, cw.RequestState):
                if message.state == "unknown":
                    if submitted is None:
                        raise RequestNotFound(request_id, f"the platform knows no request {request_id}")
                    # The same id with the same content: harmless where it is known after all.
                    yield Send(submitted)
                elif progress is not None:
                    progress(message.done_candles, message.expected_candles)

    def _unreachable(self, since: float) -> PlatformUnreachable:
        return PlatformUnreachable(self._address, round(self._session.now - since, 1), self._name)

    def _submit_message(self, wanted: Range, request_id: str) -> ing.SubmitHistoricalRequest:
        return ing.SubmitHistoricalRequest(
            request_id=request_id,
            ticker=wanted.ticker,
            start_time=wanted.start,
            end_time=wanted.end,
            period_seconds=wanted.period_seconds,
            limit=wanted.limit,
            client_id=self._client_id,
        )


def _final_in(message: Message, request_id: str) -> Notification | None:
    if isinstance(message, cw.RequestState) and message.state == "done" and message.HasField("notification"):
        message = message.notification
    if isinstance(message, ing.HistoryReadyNotification) and message.request_id == request_id:
        return Notification.from_message(message)
    return None


def _accepted(answer: ing.SubmitResponse) -> Submission:
    if answer.status == ing.SubmitResponse.INVALID:
        raise InvalidRequest(answer.error_message or "the platform calls this request invalid")
    if answer.status not in (ing.SubmitResponse.QUEUED, ing.SubmitResponse.DUPLICATE):
        raise PlatformRefused("ERROR", answer.error_message, answer.request_id)
    is_duplicate = answer.status == ing.SubmitResponse.DUPLICATE
    return Submission(answer.request_id, answer.notification_topic, is_duplicate)


def _checked(final: Notification) -> Notification:
    if final.status is Outcome.OK:
        return final
    text = final.error_message or {
        Outcome.NOT_FOUND: f"the venue has no candle of {final.ticker} in this range",
        Outcome.TIMEOUT: "the platform gave up on this request",
    }.get(final.status, "the request failed")
    kind = {Outcome.NOT_FOUND: RequestNotFound, Outcome.TIMEOUT: RequestTimedOut}.get(final.status, RequestFailed)
    raise kind(final.request_id, text, final)


def _refused(error: cw.Error) -> PlatformRefused:
    return PlatformRefused(error.code, error.text, error.request_id)
