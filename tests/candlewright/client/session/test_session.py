"""The client without sockets: what it sends, which messages it accepts as its own, when it gives up."""

from dataclasses import replace

import pytest
from google.protobuf.message import Message

from candlewright.client.errors import (
    InvalidRequest,
    PlatformRefused,
    PlatformUnreachable,
    RequestFailed,
    RequestNotFound,
    RequestTimedOut,
)
from candlewright.client.operations import SILENCE_SECONDS, Operations
from candlewright.client.records import Notification, Outcome, Range, RequestState
from candlewright.client.session.session import Send, Session, Subscribe, Ticket, Unsubscribe
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BUS_AWAY

WANTED = Range("BTC/USDT.BINANCE", 60, 0, 600 * 10**9)
FINAL = ing.HistoryReadyNotification


class Conversation:
    """A session with a hand-driven clock; `sent` collects what would leave."""

    def __init__(self, *, has_other_relays: bool = False) -> None:
        self.session = Session(has_other_relays=has_other_relays)
        self.ask = Operations(self.session, "me", address="tcp://relay", timeout_seconds=10.0)
        self.now = 0.0
        self.sent: list[Message] = []
        self.topics: list[str] = []

    def history(self, request_id: str = "r1", timeout: float | None = None) -> Ticket[Notification]:
        self.progress: list[tuple[int, int]] = []

        def progress(done: int, expected: int) -> None:
            self.progress.append((done, expected))

        ticket = self.session.begin(self.ask.history(WANTED, request_id, progress, timeout_seconds=timeout), self.now)
        self.look()
        return ticket

    def look(self) -> None:
        for command in self.session.take_commands():
            match command:
                case Send(message):
                    self.sent.append(message)
                case Subscribe(topic):
                    self.topics.append(topic)
                case Unsubscribe(topic):
                    self.topics.remove(topic)

    def reply(self, message: Message) -> None:
        self.session.receive_reply(frames.encode(message), self.now)
        self.look()

    def publish(self, topic: str, message: Message) -> None:
        self.session.receive_publication([topic.encode(), *frames.encode(message)], self.now)
        self.look()

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (deadline := self.session.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.session.advance(self.now)
            self.look()
        self.now = end

    def queued(self, request_id: str = "r1") -> None:
        self.reply(ing.SubmitResponse(request_id=request_id, notification_topic="RESPONSE:me"))

    def final(self, request_id: str = "r1", status: int = FINAL.OK, topic: str = "RESPONSE:me") -> None:
        self.publish(topic, FINAL(request_id=request_id, status=status, row_count=7))  # type: ignore[arg-type]


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def test_subscribes_before_it_submits(talk: Conversation) -> None:
    talk.session.begin(talk.ask.history(WANTED, "r1", None, timeout_seconds=None), 0.0)
    kinds = [type(command) for command in talk.session.take_commands()]
    assert kinds == [Subscribe, Send]


def test_history_ends_with_the_notification(talk: Conversation) -> None:
    ticket = talk.history()
    talk.queued()
    assert not ticket.is_done
    talk.final()
    assert ticket.is_done
    assert ticket.result().row_count == 7
    assert ticket.result().status is Outcome.OK


def test_submission_carries_the_range_and_the_client(talk: Conversation) -> None:
    talk.history()
    (message,) = talk.sent
    assert isinstance(message, ing.SubmitHistoricalRequest)
    assert (message.ticker, message.period_seconds, message.client_id) == ("BTC/USDT.BINANCE", 60, "me")
    assert not message.HasField("limit")


def test_a_refresh_is_answered_like_a_submission(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.history(replace(WANTED, refresh=True), "r1", None, timeout_seconds=None), 0.0)
    talk.look()
    (message,) = talk.sent
    assert isinstance(message, cw.RefreshHistoricalRequest)
    assert (message.request.request_id, message.request.end_time) == ("r1", WANTED.end)
    talk.queued()
    talk.final()
    assert ticket.result().row_count == 7


def test_a_notification_before_the_answer_is_not_lost(talk: Conversation) -> None:
    ticket = talk.history()
    talk.final()
    talk.queued()
    assert ticket.is_done


def test_a_longer_topic_is_ignored(talk: Conversation) -> None:
    ticket = talk.history()
    talk.queued()
    talk.final(topic="RESPONSE:me2")
    assert not ticket.is_done


def test_the_final_of_another_request_is_ignored(talk: Conversation) -> None:
    ticket = talk.history()
    talk.queued()
    talk.final(request_id="r2")
    assert not ticket.is_done


def test_a_lost_answer_is_requested_again_with_the_same_id(talk: Conversation) -> None:
    ticket = talk.history()
    talk.pass_time(1.0)
    assert len(talk.sent) == 2
    assert talk.sent[0] == talk.sent[1]
    talk.reply(ing.SubmitResponse(request_id="r1", status=ing.SubmitResponse.DUPLICATE))
    talk.final()
    assert ticket.result().status is Outcome.OK


def test_silence_of_the_relay_ends_in_unreachable(talk: Conversation) -> None:
    ticket = talk.history()
    talk.pass_time(10.5)
    with pytest.raises(PlatformUnreachable, match=r"tcp://relay within 10 s"):
        ticket.result()


def test_a_missed_notification_is_found_by_the_state(talk: Conversation) -> None:
    ticket = talk.history()
    talk.queued()
    talk.pass_time(0.5)
    assert isinstance(talk.sent[-1], cw.RequestStateQuery)
    talk.reply(cw.RequestState(request_id="r1", state="running", done_candles=3, expected_candles=10))
    talk.reply(cw.RequestState(request_id="r1", state="running", done_candles=3, expected_candles=10))
    assert talk.progress == [(3, 10), (3, 10)]
    talk.reply(cw.RequestState(request_id="r1", state="done", notification=FINAL(request_id="r1", row_count=10)))
    assert ticket.result().row_count == 10


def test_a_request_that_the_platform_forgot_is_resubmitted(talk: Conversation) -> None:
    ticket = talk.history()
    talk.queued()
    talk.pass_time(0.5)
    talk.reply(cw.RequestState(request_id="r1", state="unknown"))
    assert isinstance(talk.sent[-1], ing.SubmitHistoricalRequest)
    assert not ticket.is_done


def test_an_error_while_following_does_not_end_the_request(talk: Conversation) -> None:
    ticket = talk.history()
    talk.queued()
    talk.pass_time(0.5)
    talk.reply(cw.Error(code="UNAVAILABLE", text="the bus is down", request_id="r1"))
    assert not ticket.is_done
    talk.final()
    assert ticket.is_done


@pytest.mark.parametrize(
    "refusal",
    [
        cw.Error(code="UNAVAILABLE", text="the bus is down", request_id="r1"),
        ing.SubmitResponse(request_id="r1", status=ing.SubmitResponse.ERROR, error_message=BUS_AWAY),
    ],
)
def test_a_relay_that_is_cut_off_is_left_and_the_next_one_is_asked(refusal: Message) -> None:
    talk = Conversation(has_other_relays=True)
    ticket = talk.session.begin(talk.ask.submit(WANTED, "r1"), 0.0)
    talk.look()
    talk.reply(refusal)
    assert talk.session.wants_another_relay and not ticket.is_done
    talk.session.moved(talk.now)
    talk.look()
    assert [type(each) for each in talk.sent] == [ing.SubmitHistoricalRequest] * 2
    talk.queued()
    assert ticket.result().request_id == "r1"


def test_a_caller_learns_that_no_relay_reaches_the_bus() -> None:
    talk = Conversation(has_other_relays=True)
    ticket = talk.session.begin(talk.ask.state("r1"), 0.0)
    for _ in range(30):
        talk.reply(cw.Error(code="UNAVAILABLE", text="the bus is down", request_id="r1"))
        talk.pass_time(0.5)
    with pytest.raises(PlatformRefused, match="the bus is down"):
        ticket.result()
    alone = Conversation()
    ticket = alone.session.begin(alone.ask.state("r1"), 0.0)
    alone.reply(cw.Error(code="UNAVAILABLE", text="the bus is down", request_id="r1"))
    with pytest.raises(PlatformRefused, match="the bus is down"):
        ticket.result()


def test_long_silence_while_following_raises_the_last_complaint(talk: Conversation) -> None:
    ticket = talk.history()
    talk.queued()
    talk.pass_time(0.5)
    talk.reply(cw.Error(code="UNAVAILABLE", text="the bus is down", request_id="r1"))
    talk.pass_time(SILENCE_SECONDS + 5)
    with pytest.raises(PlatformRefused, match="the bus is down"):
        ticket.result()


def test_invalid_is_raised_with_its_sentence(talk: Conversation) -> None:
    ticket = talk.history()
    talk.reply(ing.SubmitResponse(request_id="r1", status=ing.SubmitResponse.INVALID, error_message="limit 0"))
    with pytest.raises(InvalidRequest, match="limit 0"):
        ticket.result()


def test_error_is_raised_as_refused(talk: Conversation) -> None:
    ticket = talk.history()
    talk.reply(ing.SubmitResponse(request_id="r1", status=ing.SubmitResponse.ERROR, error_message="bus is full"))
    with pytest.raises(PlatformRefused, match="bus is full"):
        ticket.result()


@pytest.mark.parametrize(
    ("status", "error"),
    [(FINAL.NOT_FOUND, RequestNotFound), (FINAL.ERROR, RequestFailed), (FINAL.TIMEOUT, RequestTimedOut)],
)
def test_a_final_without_rows_raises_with_the_notification(
    talk: Conversation, status: int, error: type[RequestFailed]
) -> None:
    ticket = talk.history()
    talk.queued()
    talk.final(status=status)
    with pytest.raises(error) as caught:
        ticket.result()
    assert type(caught.value) is error
    assert caught.value.notification is not None
    assert caught.value.request_id == "r1"


def test_the_callers_own_timeout_leaves_no_notification(talk: Conversation) -> None:
    ticket = talk.history(timeout=5)
    talk.queued()
    talk.pass_time(6)
    with pytest.raises(RequestTimedOut) as caught:
        ticket.result()
    assert caught.value.notification is None


def test_the_error_of_a_timeout_gives_the_reason_for_waiting(talk: Conversation) -> None:
    ticket = talk.history(timeout=5)
    talk.queued()
    talk.reply(waiting("waiting for a slot of BINANCE (served now: none)"))
    talk.pass_time(6)
    with pytest.raises(RequestTimedOut, match=r"has not ended within 5 s: waiting for a slot of BINANCE"):
        ticket.result()


def test_two_requests_at_once_get_their_own_finals(talk: Conversation) -> None:
    first, second = talk.history("r1"), talk.history("r2")
    talk.queued("r2")
    talk.queued("r1")
    talk.final("r2")
    assert (first.is_done, second.is_done) == (False, True)
    talk.final("r1")
    assert first.result().request_id == "r1"


def test_the_response_topic_is_subscribed_once_for_all_requests(talk: Conversation) -> None:
    for request_id in ("r1", "r2"):
        talk.history(request_id)
        talk.queued(request_id)
        talk.final(request_id)
    assert talk.topics == ["RESPONSE:me"]


def test_waiting_for_a_foreign_request_ends_its_subscription(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.wait("x", None, None), 0.0)
    talk.look()
    assert talk.topics == ["HISTORY_READY:x"]
    talk.publish("HISTORY_READY:x", FINAL(request_id="x", status=FINAL.ERROR, error_message="cancelled"))
    assert ticket.result().error_message == "cancelled"
    assert talk.topics == []


def test_an_abandoned_operation_gets_nothing_more(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.wait("x", None, None), 0.0)
    talk.session.abandon(ticket)
    talk.look()
    assert talk.topics == []
    assert talk.session.running == 0


def test_an_error_without_a_request_id_goes_to_the_oldest_question(talk: Conversation) -> None:
    first = talk.session.begin(talk.ask.state("a"), 0.0)
    second = talk.session.begin(talk.ask.state("b"), 0.0)
    talk.reply(cw.Error(code="MALFORMED", text="?"))
    with pytest.raises(PlatformRefused, match="MALFORMED"):
        first.result()
    assert not second.is_done


@pytest.mark.parametrize(
    "parts", [[], [b""], [b"\x02", b"\x11"], [b"\x01", b"\xff"], [b"\x01", b"\x11\xff"], [b"a"] * 9]
)
def test_bad_bytes_cost_nothing_but_a_count(talk: Conversation, parts: list[bytes]) -> None:
    ticket = talk.history()
    talk.session.receive_reply(parts, 0.0)
    talk.session.receive_publication(parts, 0.0)
    assert talk.session.bad_frames == 2
    assert not ticket.is_done


def page(request_id: str, *times: int, is_final: bool = False, total: int | None = None) -> ing.Response:
    data = [cw.OHLCV(open_time=time).SerializeToString() for time in times]
    return ing.Response(request_id=request_id, data=data, is_final=is_final, total_records=total)


def request_id_of(talk: Conversation) -> str:
    """The id of the newest legacy request."""
    talk.look()
    return next(each.request_id for each in reversed(talk.sent) if isinstance(each, ing.OHLCRequest))


def test_legacy_pages_are_put_together_in_order(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.legacy.ohlc(WANTED), 0.0)
    name = request_id_of(talk)
    for each in (page(name, 3, 2), page(name, 1, 2, is_final=True)):
        talk.reply(each)
    assert [candle.open_time for candle in ticket.result()] == [1, 2, 3]


def test_a_legacy_request_is_waited_for_as_long_as_the_platform_says_that_it_runs(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.legacy.ohlc(WANTED), 0.0)
    for second in range(1, 200):
        talk.pass_time(1.0)
        state = cw.RequestState(request_id=request_id_of(talk), state="running")
        if second % 5 == 0:
            talk.reply(state)
    assert not ticket.is_done
    asked = [each for each in talk.sent if isinstance(each, ing.OHLCRequest)]
    # A relay that restarted meanwhile learns from one of these which clients wait.
    assert 40 < len(asked) < 60
    assert len({each.request_id for each in asked}) == 1
    talk.reply(page(asked[0].request_id, 1, is_final=True))
    assert [candle.open_time for candle in ticket.result()] == [1]


def test_a_legacy_request_ends_when_the_platform_is_unreachable(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.legacy.ohlc(WANTED), 0.0)
    for _ in range(30):
        talk.pass_time(1.0)
    with pytest.raises(PlatformUnreachable):
        ticket.result()


def test_legacy_pages_that_were_lost_are_requested_again(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.legacy.ohlc(WANTED), 0.0)
    name = request_id_of(talk)
    for each in (page(name, 1, total=3), page(name, 3, total=3, is_final=True)):
        talk.reply(each)
    assert not ticket.is_done
    assert len([each for each in talk.sent if isinstance(each, ing.OHLCRequest)]) == 2
    talk.reply(page(name, 1, 2, total=3))
    # The relay was killed between two pages.
    for _ in range(5):
        talk.pass_time(1.0)
    for each in (page(name, 1, 2, total=3), page(name, 3, total=3, is_final=True)):
        talk.reply(each)
    assert [candle.open_time for candle in ticket.result()] == [1, 2, 3]


def test_candles_that_never_all_come_are_an_error(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.legacy.ohlc(WANTED), 0.0)
    for _ in range(20):
        talk.reply(page(request_id_of(talk), 1, total=2, is_final=True))
    with pytest.raises(PlatformRefused, match="1 of 2 candles"):
        ticket.result()


def test_replay_collects_until_the_final_record(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.replay("OHLC:x:60", 1, 0), 0.0)
    for sequence in (1, 2):
        body = frames.encode_body(cw.OHLCV(open_time=sequence))
        talk.reply(cw.TopicRecord(topic="OHLC:x:60", sequence=sequence, body=body, is_final=sequence == 2))
    assert [sequence for sequence, _ in ticket.result()] == [1, 2]


def test_replay_and_newest_of_one_topic_at_once_get_their_own_answers(talk: Conversation) -> None:
    topic = "TRIGGER:t"
    replayed = talk.session.begin(talk.ask.replay(topic, 1, 1), 0.0)
    newest = talk.session.begin(talk.ask.newest(topic), 0.0)
    talk.look()
    beyond = talk.sent[-1].from_sequence  # type: ignore[attr-defined]
    talk.reply(cw.Error(code="NOT_KEPT", text="none yet", topic=topic, from_sequence=beyond, newest_sequence=1))
    assert newest.result().number == 1
    assert not replayed.is_done
    body = frames.encode_body(cw.OHLCV(open_time=1))
    talk.reply(cw.TopicRecord(topic=topic, sequence=1, body=body, is_final=True))
    assert [sequence for sequence, _ in replayed.result()] == [1]


def test_replay_of_numbers_that_expired_is_refused(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.replay("TRIGGER:t", 3, 5), 0.0)
    talk.reply(cw.Error(code="NOT_KEPT", text="no longer kept", topic="TRIGGER:t", from_sequence=3))
    with pytest.raises(PlatformRefused, match="no longer kept"):
        ticket.result()


def test_a_snapshot_is_matched_by_request(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.snapshot("BTC/USDT.BINANCE"), 0.0)
    talk.look()
    request_id = talk.sent[-1].request_id  # type: ignore[attr-defined]
    talk.queued(request_id)
    talk.publish("SNAPSHOT:BTC/USDT.BINANCE", cw.Snapshot(request_id="other", last=1.0))
    assert not ticket.is_done
    talk.publish("SNAPSHOT:BTC/USDT.BINANCE", cw.Snapshot(request_id=request_id, last=2.0))
    assert ticket.result().last == 2.0
    assert ticket.result().bid is None


def test_the_reason_for_a_missing_snapshot_comes_before_the_timeout(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.snapshot("NOPE/USDT.BINANCE"), 0.0)
    talk.look()
    request_id = talk.sent[-1].request_id  # type: ignore[attr-defined]
    talk.queued(request_id)
    talk.pass_time(1.0)
    assert isinstance(talk.sent[-1], cw.RequestStateQuery)
    talk.reply(cw.RequestState(request_id=request_id, state="running"))
    assert not ticket.is_done
    failure = ing.HistoryReadyNotification(
        request_id=request_id, status=ing.HistoryReadyNotification.ERROR, error_message="UNKNOWN_TICKER: no such market"
    )
    talk.reply(cw.RequestState(request_id=request_id, state="done", notification=failure))
    with pytest.raises(RequestFailed, match="no such market"):
        ticket.result()


def test_markets_of_an_unknown_venue_are_refused(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.markets("NOWHERE"), 0.0)
    talk.look()
    talk.reply(cw.VenueList(request_id=talk.sent[-1].request_id))  # type: ignore[attr-defined]
    with pytest.raises(InvalidRequest, match="NOWHERE"):
        ticket.result()


def test_cancel_is_sent_before_the_question_that_confirms_it(talk: Conversation) -> None:
    ticket = talk.session.begin(talk.ask.cancel("r1"), 0.0)
    talk.look()
    assert [type(message) for message in talk.sent] == [ing.IngestorControl, cw.RequestStateQuery]
    talk.reply(cw.RequestState(request_id="r1", state="running"))
    assert ticket.result().state == "running"


@pytest.mark.parametrize(
    "answer",
    [
        cw.RequestState(request_id="r1", state="unknown"),
        cw.Error(code="UNKNOWN_REQUEST", text="There is no request 'r1' to cancel.", request_id="r1"),
    ],
)
def test_cancelling_an_unknown_request_is_not_found(talk: Conversation, answer: Message) -> None:
    ticket = talk.session.begin(talk.ask.cancel("r1"), 0.0)
    talk.reply(answer)
    with pytest.raises(RequestNotFound):
        ticket.result()


def waiting(reason: str) -> cw.RequestState:
    return cw.RequestState(request_id="r1", state="queued", expected_candles=600, reason=reason)


def test_progress_gets_the_reason_for_waiting_as_a_note(talk: Conversation) -> None:
    heard: list[tuple[int, int, str]] = []

    def progress(done: int, expected: int, *, note: str) -> None:
        heard.append((done, expected, note))

    talk.session.begin(talk.ask.history(WANTED, "r1", progress, timeout_seconds=None), 0.0)
    talk.look()
    talk.queued()
    for reason in ("waiting for a slot of BINANCE (served now: none)", ""):
        talk.reply(waiting(reason))
    assert heard == [(0, 600, "waiting for a slot of BINANCE (served now: none)"), (0, 600, "")]


def test_progress_gets_the_end_of_an_unclosed_range_as_a_note(talk: Conversation) -> None:
    heard: list[str] = []

    def progress(done: int, expected: int, *, note: str) -> None:
        heard.append(note)

    talk.session.begin(talk.ask.history(WANTED, "r1", progress, timeout_seconds=None), 0.0)
    talk.look()
    talk.queued()
    talk.reply(cw.RequestState(request_id="r1", state="running", closed_until=1_704_067_260_000_000_000))
    assert heard == ["closed until 2024-01-01T00:01:00Z; later candles are left out"]


def test_a_note_without_a_receiver_is_logged_once(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    talk.history()
    talk.queued()
    for reason in ("", "waiting for a slot", "waiting for a slot", ""):
        talk.reply(waiting(reason))
    assert [record.getMessage() for record in caplog.records] == ["request r1: waiting for a slot"]
    assert talk.progress == [(0, 600)] * 4


def test_the_state_of_a_live_job_that_failed_says_why() -> None:
    state = cw.RequestState(request_id="r1", state="queued")
    state.notification.error_message = "UNKNOWN_TICKER: not listed"
    assert RequestState.from_message(state).reason == "UNKNOWN_TICKER: not listed"
