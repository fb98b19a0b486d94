"""The platform's operations as generators of steps, shared by both clients."""

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

from candlewright.client.errors import (
    InvalidRequest,
    PlatformRefused,
    RequestFailed,
    RequestNotFound,
    RequestTimedOut,
)
from candlewright.client.history.legacy_pages import LegacyPages
from candlewright.client.history.progress import Progress, Reporter
from candlewright.client.history.relayed_rows import RelayedRows
from candlewright.client.records import (
    Market,
    Notification,
    Outcome,
    Range,
    RequestState,
    Snapshot,
    Submission,
    Venue,
)
from candlewright.client.session.questions import Questions, answer_of, fresh_id, refused
from candlewright.client.session.session import Operation, Published, Reply, Send, Session, Subscribe, TimedOut, Wait
from candlewright.client.triggers.operations import TriggerOperations
from candlewright.client.triggers.view_operations import ViewOperations
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames, streams
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.times import format_nanoseconds

#: Pause between two polls of a running request's state; it grows up to the second figure.
POLL_SECONDS, POLL_MAX_SECONDS = 0.25, 2.0
#: How long a running request is followed without an answer: parts of the platform may restart meanwhile.
SILENCE_SECONDS = 60.0

#: A number beyond any topic's.
_BEYOND = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Newest:
    """The number of the newest message of a stream topic, 0 = none yet, at a time of the platform's clock (ns)."""

    number: int
    at: int


class Operations(Questions):
    """Operations on requests, venues and topics; all others are under the name of their subject. `timeout_seconds`: how
    long to wait for one answer, including resends.
    """

    def __init__(
        self, session: Session, client_id: str, *, address: str, timeout_seconds: float, name: str = ""
    ) -> None:
        super().__init__(session, client_id, address=address, timeout_seconds=timeout_seconds, name=name)
        self.rows = RelayedRows(session, client_id, address=address, timeout_seconds=timeout_seconds, name=name)
        self.triggers = TriggerOperations(
            session, client_id, address=address, timeout_seconds=timeout_seconds, name=name
        )
        self.views = ViewOperations(session, client_id, address=address, timeout_seconds=timeout_seconds, name=name)
        self.legacy = LegacyPages(session, client_id, address=address, timeout_seconds=timeout_seconds, name=name)

    # ---- historical requests
    def submit(self, wanted: Range, request_id: str) -> Operation[Submission]:
        """Durable once this returns. Raises InvalidRequest, PlatformRefused, PlatformUnreachable."""
        yield Subscribe(self.response_topic, keep=True)
        answer = yield from self._ask(self._submit_message(wanted, request_id), ing.SubmitResponse)
        return _accepted(answer)

    def history(
        self, wanted: Range, request_id: str, progress: Progress | None, *, timeout_seconds: float | None
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
        """Follow a request of any client to its final notification, whatever its status."""
        yield Subscribe(streams.history_ready(request_id))
        return (yield from self._follow(request_id, None, [], progress, timeout_seconds))

    def state(self, request_id: str) -> Operation[RequestState]:
        answer = yield from self._ask(cw.RequestStateQuery(request_id=request_id), cw.RequestState)
        return RequestState.from_message(answer)

    def cancel(self, request_id: str) -> Operation[RequestState]:
        """Raises RequestNotFound for an id that the platform does not know."""
        # A DEALER's cancellation is answered only if it fails; the state query after it always is.
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
    def realtime(
        self, ticker: str, *, ticks: bool, ohlc_periods: Sequence[int], request_id: str
    ) -> Operation[Submission]:
        """Durable once this returns; raises the same errors as `submit`."""
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

    # ---- venues, snapshots, replay
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
        yield Subscribe(streams.snapshot(ticker))
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
                # A failure has no snapshot to publish: the request's state reports it.
                yield Send(cw.RequestStateQuery(request_id=request.request_id))
                pause = min(pause * 2, POLL_MAX_SECONDS)
                ask_at = self._session.now + pause
            elif isinstance(answer, Reply):
                if isinstance(answer.message, cw.Error):
                    raise refused(answer.message)
                if isinstance(answer.message, cw.RequestState) and answer.message.state == "done":
                    final = answer.message.notification
                    if final.error_message:
                        raise RequestFailed(request.request_id, final.error_message, Notification.from_message(final))

    def replay(self, topic: str, from_sequence: int, to_sequence: int) -> Operation[list[tuple[int, Message]]]:
        """The messages of a stream topic, by sequence; raises PlatformRefused if they have expired."""
        records = yield from self.replay_records(topic, from_sequence, to_sequence)
        return [(record.sequence, frames.decode_body(record.body, frames.ON_TOPIC)) for record in records]

    def replay_records(self, topic: str, from_sequence: int, to_sequence: int) -> Operation[list[cw.TopicRecord]]:
        """As `replay`, as the platform keeps them."""
        request = cw.TopicReplay(topic=topic, from_sequence=from_sequence, to_sequence=to_sequence)
        records: dict[int, cw.TopicRecord] = {}

        def pick(message: Message) -> cw.TopicRecord | None:
            # Another question about the topic may be refused meanwhile.
            is_other = isinstance(message, cw.Error) and message.topic and message.from_sequence != from_sequence
            return None if is_other else answer_of(cw.TopicRecord)(message)

        record, _ = yield from self._asked([request], pick)
        while True:
            if record.body:
                records[record.sequence] = record
            if record.is_final:
                return [records[number] for number in sorted(records)]
            following = yield from self._next(pick)
            if following is None:
                # A frame was lost: everything is requested again.
                following, _ = yield from self._asked([request], pick)
            record = following

    def newest(self, topic: str) -> Operation[Newest]:
        # The newest number comes with the refusal of one beyond it.
        def pick(message: Message) -> Newest | None:
            if not isinstance(message, cw.Error) or message.from_sequence != _BEYOND:
                return None
            if not message.HasField("newest_sequence"):
                raise refused(message)
            return Newest(message.newest_sequence, message.at)

        found, _ = yield from self._asked([cw.TopicReplay(topic=topic, from_sequence=_BEYOND)], pick)
        return found

    # ---- inside
    def _follow(
        self,
        request_id: str,
        submitted: Message | None,
        heard: list[Published],
        progress: Progress | None,
        timeout_seconds: float | None,
    ) -> Operation[Notification]:
        """Follow the request to its final: by notification, or by its state if a notification was missed."""
        report = Reporter(f"request {request_id}", progress)
        expected = 0
        for event in heard:
            if (final := _final_in(event.message, request_id)) is not None:
                _report_end(report, final, expected)
                return final
        started = last_heard = self._session.now
        give_up = started + timeout_seconds if timeout_seconds is not None else float("inf")
        pause = POLL_SECONDS
        complaint: cw.Error | None = None
        while True:
            event_or_time = yield Wait(min(give_up, self._session.now + pause))
            if isinstance(event_or_time, TimedOut):
                if self._session.now >= give_up:
                    why = f": {report.note}" if report.note else ""
                    raise RequestTimedOut(
                        request_id, f"request {request_id} has not ended within {timeout_seconds:g} s{why}"
                    )
                if self._session.now - last_heard > max(SILENCE_SECONDS, self._timeout_seconds):
                    raise refused(complaint) if complaint else self._unreachable(last_heard)
                pause = min(pause * 1.3, POLL_MAX_SECONDS)
                yield Send(cw.RequestStateQuery(request_id=request_id))
                continue
            assert event_or_time is not None
            message = event_or_time.message
            if isinstance(message, cw.Error):
                if isinstance(event_or_time, Published):
                    # The answer concerns a trigger whose callback is this topic.
                    continue
                # The request continues although this poll failed: the platform may be restarting.
                complaint = message
                continue
            complaint, last_heard = None, self._session.now
            if (final := _final_in(message, request_id)) is not None:
                _report_end(report, final, expected)
                return final
            if isinstance(message, cw.RequestState):
                if message.state == "unknown":
                    if submitted is None:
                        raise RequestNotFound(request_id, f"the platform knows no request {request_id}")
                    # The same id with the same content: harmless if it is known after all.
                    yield Send(submitted)
                else:
                    expected = message.expected_candles
                    report(message.done_candles, expected, message.reason or _closed(message))

    def _submit_message(self, wanted: Range, request_id: str) -> Message:
        request = ing.SubmitHistoricalRequest(
            request_id=request_id,
            ticker=wanted.ticker,
            start_time=wanted.start,
            end_time=wanted.end,
            period_seconds=wanted.period_seconds,
            limit=wanted.limit,
            client_id=self._client_id,
        )
        return cw.RefreshHistoricalRequest(request=request) if wanted.refresh else request


def _final_in(message: Message, request_id: str) -> Notification | None:
    if isinstance(message, cw.RequestState) and message.state == "done" and message.HasField("notification"):
        message = message.notification
    if isinstance(message, ing.HistoryReadyNotification) and message.request_id == request_id:
        return Notification.from_message(message)
    return None


def _report_end(report: Reporter, final: Notification, expected: int) -> None:
    """A request may end before its state was polled, and a failed one has no more candles to come."""
    if final.status is Outcome.OK:
        all_of_it = max(expected, final.row_count)
        report(all_of_it, all_of_it, "")


def _closed(message: cw.RequestState) -> str:
    if not message.closed_until:
        return ""
    return f"closed until {format_nanoseconds(message.closed_until)}; later candles are left out"


def _accepted(answer: ing.SubmitResponse) -> Submission:
    if answer.status == ing.SubmitResponse.INVALID:
        raise InvalidRequest(answer.error_message or "the platform refused this request without a reason")
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
