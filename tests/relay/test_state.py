from typing import Any

import pytest

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as rec
from relay import commands as do
from relay import events as ev
from relay.asked import CancelAsked, Peer, Purpose, Repeated, StateAsked
from relay.settings import SECOND_NS
from relay.state import LEGACY_CLIENT, RelayState
from tests.relay.harness import HOUR, START, config, submit

PEER = Peer(b"one", False)
OTHER = Peer(b"two", True)
NOW = 1_800_000_000 * SECOND_NS
OK = ing.HistoryReadyNotification.OK


@pytest.fixture
def state() -> RelayState:
    return RelayState(config())


def send(state: RelayState, message: Any, peer: Peer = PEER) -> list[do.Command]:
    return state.handle(ev.MessageReceived(peer, message, NOW))


def only(commands: list[do.Command], kind: type) -> Any:
    assert [type(command) for command in commands] == [kind]
    return commands[0]


def legacy(request_id: str = "r") -> ing.OHLCRequest:
    return ing.OHLCRequest(
        request_id=request_id, ticker="BTC/USDT.BINANCE", start_time=START, end_time=START + HOUR, period_seconds=60
    )


def looked_up(purpose: Purpose, **found: Any) -> ev.LookedUp:
    return ev.LookedUp(purpose, "r", *(found.get(name) for name in ("request", "progress", "final")))


def test_a_valid_request_is_answered_only_after_it_is_on_the_bus(state: RelayState) -> None:
    enqueue = only(send(state, submit("r")), do.Enqueue)
    answer = only(state.handle(ev.Enqueued(enqueue.submission, True, rec.Request())), do.Reply)
    assert answer.message == ing.SubmitResponse(request_id="r", notification_topic="HISTORY_READY:r")


def test_the_record_carries_times_and_the_compared_content_does_not(state: RelayState) -> None:
    enqueue = only(send(state, submit("r")), do.Enqueue)
    assert enqueue.record.accepted_at == NOW
    assert enqueue.record.deadline == NOW + HOUR
    assert enqueue.record.historical == submit("r")
    assert enqueue.submission.request == rec.Request(historical=submit("r"))


def test_a_refresh_is_marked_in_the_request(state: RelayState) -> None:
    enqueue = only(send(state, cw.RefreshHistoricalRequest(request=submit("r"))), do.Enqueue)
    assert (enqueue.record.historical, enqueue.record.refresh) == (submit("r"), True)
    answer = only(state.handle(ev.Enqueued(enqueue.submission, True, rec.Request())), do.Reply)
    assert answer.message == ing.SubmitResponse(request_id="r", notification_topic="HISTORY_READY:r")
    known = rec.Request(historical=submit("r"))
    refused = only(state.handle(ev.Enqueued(enqueue.submission, False, known)), do.Reply).message
    assert refused.status == ing.SubmitResponse.INVALID


def test_a_refresh_without_a_request_is_invalid(state: RelayState) -> None:
    message = only(send(state, cw.RefreshHistoricalRequest()), do.Reply).message
    assert (message.status, message.notification_topic) == (ing.SubmitResponse.INVALID, "")


def test_the_same_request_again_is_a_duplicate_on_the_same_topic(state: RelayState) -> None:
    submission = only(send(state, submit("r", client_id="c")), do.Enqueue).submission
    reply, again = state.handle(ev.Enqueued(submission, False, submission.request))
    assert isinstance(reply, do.Reply)
    assert reply.message.status == ing.SubmitResponse.DUPLICATE
    assert reply.message.notification_topic == "RESPONSE:c"
    assert again == do.LookUp(Repeated(submission), "r")
    assert state.handle(looked_up(again.purpose)) == []
    final = ing.HistoryReadyNotification(request_id="r", row_count=3)
    announce = only(state.handle(looked_up(again.purpose, final=final)), do.Announce)
    assert announce == do.Announce(("HISTORY_READY:r", "RESPONSE:c"), final)


@pytest.mark.parametrize(
    "changes", [{"limit": 1}, {"client_id": "c"}, {"end_time": START + 1}, {"period_seconds": 300}]
)
def test_a_known_id_with_other_content_is_invalid_and_names_no_topic(
    state: RelayState, changes: dict[str, Any]
) -> None:
    submission = only(send(state, submit("r")), do.Enqueue).submission
    known = rec.Request(historical=submit("r", **changes))
    message = only(state.handle(ev.Enqueued(submission, False, known)), do.Reply).message
    assert message.status == ing.SubmitResponse.INVALID
    assert message.notification_topic == ""
    assert message.error_message == "The request_id 'r' is taken by a request with other content."


def test_an_invalid_request_reaches_no_bus_and_names_no_topic(state: RelayState) -> None:
    message = only(send(state, submit("r", limit=0)), do.Reply).message
    assert (message.request_id, message.status) == ("r", ing.SubmitResponse.INVALID)
    assert message.error_message.startswith("The limit is 0")
    assert message.notification_topic == ""


def test_a_bus_that_fails_is_an_error_and_not_invalid(state: RelayState) -> None:
    enqueue = only(send(state, submit("r")), do.Enqueue)
    message = only(state.handle(ev.CommandFailed(enqueue, "UNAVAILABLE", "No bus.")), do.Reply).message
    assert message == ing.SubmitResponse(request_id="r", status=ing.SubmitResponse.ERROR, error_message="No bus.")


def test_an_overlong_id_is_echoed_in_a_bounded_answer(state: RelayState) -> None:
    assert only(send(state, submit("x" * 10_000)), do.Reply).message.request_id == "x" * 10_000
    assert only(send(state, submit("x" * 60_000)), do.Reply).message.ByteSize() < 20_000


def test_a_snapshot_has_a_deadline_and_a_realtime_job_has_none(state: RelayState) -> None:
    for kind, deadline in ((ing.DataRequest.TICKER_SNAPSHOT, NOW + HOUR), (ing.DataRequest.REALTIME_TICKS, 0)):
        enqueue = only(send(state, ing.DataRequest(request_id="r", type=kind, ticker="A/B.BINANCE")), do.Enqueue)
        assert enqueue.record.deadline == deadline
        assert enqueue.record.data.type == kind


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, cw.RequestState(request_id="r", state="unknown")),
        (
            {"request": rec.Request(historical=submit("r"))},
            cw.RequestState(request_id="r", state="queued", expected_candles=60),
        ),
        (
            {"request": rec.Request(historical=submit("r", limit=7))},
            cw.RequestState(request_id="r", state="queued", expected_candles=7),
        ),
        (
            {
                "request": rec.Request(historical=submit("r")),
                "progress": cw.RequestState(state="running", done_candles=5, expected_candles=60, closed_until=NOW),
            },
            cw.RequestState(request_id="r", state="running", done_candles=5, expected_candles=60, closed_until=NOW),
        ),
        (
            {"final": ing.HistoryReadyNotification(request_id="r", status=OK, row_count=9)},
            cw.RequestState(
                request_id="r",
                state="done",
                done_candles=9,
                expected_candles=9,
                notification=ing.HistoryReadyNotification(request_id="r", status=OK, row_count=9),
            ),
        ),
        (
            {
                "progress": cw.RequestState(state="running", done_candles=60, expected_candles=60),
                "final": ing.HistoryReadyNotification(request_id="r", row_count=58),
            },
            cw.RequestState(
                request_id="r",
                state="done",
                done_candles=60,
                expected_candles=60,
                notification=ing.HistoryReadyNotification(request_id="r", row_count=58),
            ),
        ),
    ],
)
def test_the_state_of_a_request(state: RelayState, found: dict[str, Any], expected: cw.RequestState) -> None:
    lookup = only(send(state, cw.RequestStateQuery(request_id="r")), do.LookUp)
    assert only(state.handle(looked_up(lookup.purpose, **found)), do.Reply).message == expected


def cancel(request_id: str = "r") -> ing.IngestorControl:
    return ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id=request_id)


@pytest.mark.parametrize("peer", [PEER, OTHER])
def test_a_cancellation_is_put_on_the_bus_and_only_a_req_gets_an_echo(state: RelayState, peer: Peer) -> None:
    lookup = only(send(state, cancel(), peer), do.LookUp)
    publish = only(
        state.handle(looked_up(lookup.purpose, request=rec.Request(historical=submit("r")))), do.PublishControl
    )
    assert publish.record == rec.Request(control=cancel(), accepted_at=NOW)
    answers = state.handle(ev.ControlPublished(publish.peer, publish.control))
    assert answers == ([do.Reply(peer, cancel())] if peer.is_req else [])


def test_an_unknown_request_cannot_be_cancelled(state: RelayState) -> None:
    lookup = only(send(state, cancel()), do.LookUp)
    message = only(state.handle(looked_up(lookup.purpose)), do.Reply).message
    assert (message.code, message.request_id) == ("UNKNOWN_REQUEST", "r")


def test_cancelling_a_finished_request_announces_its_final_again(state: RelayState) -> None:
    lookup = only(send(state, cancel()), do.LookUp)
    final = ing.HistoryReadyNotification(request_id="r")
    request = rec.Request(historical=submit("r", client_id="c"))
    commands = state.handle(looked_up(lookup.purpose, request=request, final=final))
    assert commands == [do.Announce(("HISTORY_READY:r", "RESPONSE:c"), final)]


def test_a_heartbeat_is_echoed_and_orders_for_ingestors_are_refused(state: RelayState) -> None:
    beat = ing.IngestorControl(action=ing.IngestorControl.HEARTBEAT)
    assert send(state, beat) == [do.Reply(PEER, beat)]
    for action in (ing.IngestorControl.SHUTDOWN, ing.IngestorControl.CONFIG_UPDATE, 77):
        message = only(send(state, ing.IngestorControl(action=action)), do.Reply).message
        assert message.code == "NOT_ALLOWED"


def test_sound_messages_about_triggers_are_handed_on_and_others_refused(state: RelayState) -> None:
    for message in (ing.CEPTriggerRequest(trigger_id="t", sql_pattern="x"), cw.TriggerRemove(trigger_id="t")):
        asked = only(send(state, message), do.AskTriggers)
        assert asked == do.AskTriggers(PEER, message, NOW)
        ack = only(state.handle(ev.CommandFailed(asked, "BUSY", "Too many.")), do.Reply).message
        assert ack == ing.CEPTriggerAck(trigger_id="t", status=ing.CEPTriggerAck.ERROR, error_message="Too many.")
    asked = only(send(state, cw.TriggerQuery()), do.AskTriggers)
    assert only(state.handle(ev.CommandFailed(asked, "BUSY", "Too many.")), do.Reply).message.code == "BUSY"
    for trigger_id in ("", "a#1", "x" * 201):
        for message in (ing.CEPTriggerRequest(trigger_id=trigger_id), cw.TriggerRemove(trigger_id=trigger_id)):
            assert only(send(state, message), do.Reply).message.status == ing.CEPTriggerAck.ERROR


def test_a_legacy_request_waits_for_its_final_and_then_reads_the_rows(state: RelayState) -> None:
    enqueue = only(send(state, legacy()), do.Enqueue)
    assert enqueue.record.historical == submit("r", client_id=LEGACY_CLIENT)
    assert state.handle(ev.Enqueued(enqueue.submission, True, rec.Request())) == []
    assert "r" in state.waiting
    read = only(state.handle(ev.FinalArrived(ing.HistoryReadyNotification(request_id="r", status=OK))), do.ReadRows)
    assert read == do.ReadRows(PEER, submit("r", client_id=LEGACY_CLIENT))
    assert not state.waiting


@pytest.mark.parametrize(
    ("final_status", "status"),
    [("NOT_FOUND", ing.Response.NOT_FOUND), ("ERROR", ing.Response.ERROR), ("TIMEOUT", ing.Response.ERROR)],
)
def test_a_legacy_request_ends_as_its_final_says(state: RelayState, final_status: str, status: Any) -> None:
    send(state, legacy())
    value = ing.HistoryReadyNotification.NotificationStatus.Value(final_status)
    final = ing.HistoryReadyNotification(request_id="r", status=value)
    message = only(state.handle(ev.FinalArrived(final)), do.Reply).message
    assert (message.status, message.is_final, message.total_records) == (status, True, 0)
    assert message.error_message


def test_a_repeated_finished_legacy_request_is_served_to_all_waiting_clients(state: RelayState) -> None:
    send(state, legacy(), OTHER)
    submission = only(send(state, legacy()), do.Enqueue).submission
    lookup = only(state.handle(ev.Enqueued(submission, False, submission.request)), do.LookUp)
    final = ing.HistoryReadyNotification(request_id="r", status=OK)
    commands = state.handle(looked_up(lookup.purpose, final=final))
    assert [type(command) for command in commands] == [do.ReadRows, do.ReadRows]


def test_a_legacy_request_that_its_client_sends_again_waits_once(state: RelayState) -> None:
    for _ in range(3):
        submission = only(send(state, legacy()), do.Enqueue).submission
        state.handle(ev.Enqueued(submission, False, submission.request))
    final = ev.FinalArrived(ing.HistoryReadyNotification(request_id="r", status=OK))
    assert [type(command) for command in state.handle(final)] == [do.ReadRows]


def test_a_legacy_request_that_cannot_be_queued_does_not_wait(state: RelayState) -> None:
    enqueue = only(send(state, legacy()), do.Enqueue)
    assert only(state.handle(ev.CommandFailed(enqueue, "BUSY", "Busy.")), do.Reply).message.error_message == "Busy."
    assert not state.waiting
    submission = only(send(state, legacy()), do.Enqueue).submission
    taken = only(state.handle(ev.Enqueued(submission, False, rec.Request(historical=submit("r")))), do.Reply).message
    assert (taken.status, taken.is_final) == (ing.Response.ERROR, True)
    assert not state.waiting


def test_a_legacy_request_does_not_wait_forever(state: RelayState) -> None:
    send(state, legacy())
    assert state.handle(ev.TimePassed(NOW + HOUR)) == []
    message = only(state.handle(ev.TimePassed(NOW + 2 * HOUR)), do.Reply).message
    assert (message.status, message.request_id) == (ing.Response.ERROR, "r")
    assert not state.waiting


def test_the_number_of_waiting_legacy_requests_is_limited(state: RelayState) -> None:
    for number in range(state.config.limits.max_waiting_reads):
        only(send(state, legacy(f"r{number}")), do.Enqueue)
    refused = only(send(state, legacy("more")), do.Reply).message
    assert refused.status == ing.Response.ERROR
    assert "more" not in state.waiting


def test_venues_are_listed_from_the_bus(state: RelayState) -> None:
    query = cw.VenueQuery(request_id="q", venue="house")
    listing = only(send(state, query), do.ListVenues)
    records = {"HOUSE": cw.Venue(venue="HOUSE", period_seconds=[60])}
    found = only(state.handle(ev.VenuesListed(listing.peer, query, records)), do.Reply).message
    assert found == cw.VenueList(request_id="q", venues=[records["HOUSE"]])
    missing = only(state.handle(ev.VenuesListed(PEER, query, {})), do.Reply).message
    assert (missing.code, missing.request_id) == ("UNKNOWN_VENUE", "q")


def test_every_command_that_fails_is_answered(state: RelayState) -> None:
    asked = do.LookUp(StateAsked(PEER), "r")
    failing: list[do.Command] = [
        asked,
        do.LookUp(CancelAsked(PEER, cancel(), NOW), "r"),
        do.PublishControl(PEER, cancel(), rec.Request()),
        do.ListVenues(PEER, cw.VenueQuery()),
        do.ReplayTopic(PEER, cw.TopicReplay()),
        do.ReadRows(PEER, submit("r")),
    ]
    for command in failing:
        assert only(state.handle(ev.CommandFailed(command, "UNAVAILABLE", "No bus.")), do.Reply).peer == PEER


SERVED = rec.ServedVenues(historical=["OKX", "BINANCE"], realtime=["OKX"])


def state_of(state: RelayState, request: rec.Request, served: rec.ServedVenues | None, **found: Any) -> Any:
    known = ev.LookedUp(StateAsked(PEER), "r", request, found.get("progress"), found.get("final"), served)
    return only(state.handle(known), do.Reply).message


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (rec.Request(historical=submit("r")), ""),
        (
            rec.Request(historical=submit("r", ticker="A/B.KRAKEN")),
            "waiting for a slot of KRAKEN (served now: BINANCE, OKX)",
        ),
        (
            rec.Request(data=ing.DataRequest(ticker="A/B.BINANCE", type=ing.DataRequest.REALTIME_TICKS)),
            "waiting for a slot of BINANCE (served now: OKX)",
        ),
        (rec.Request(data=ing.DataRequest(ticker="A/B.BINANCE", type=ing.DataRequest.TICKER_SNAPSHOT)), ""),
    ],
)
def test_a_request_for_a_venue_without_slots_says_that_it_waits(
    state: RelayState, request_: rec.Request, text: str
) -> None:
    answer = state_of(state, request_, SERVED)
    assert (answer.state, answer.reason) == ("queued", text)


def test_a_running_request_reports_the_loss_of_its_last_slot(state: RelayState) -> None:
    running = cw.RequestState(request_id="r", state="running", done_candles=3, expected_candles=9)
    answer = state_of(state, rec.Request(historical=submit("r")), rec.ServedVenues(), progress=running)
    assert (answer.state, answer.done_candles) == ("running", 3)
    assert answer.reason == "waiting for a slot of BINANCE (served now: none)"


def test_no_reason_is_given_for_ended_requests_or_while_no_broker_reports_its_venues(state: RelayState) -> None:
    request = rec.Request(historical=submit("r", ticker="A/B.KRAKEN"))
    assert state_of(state, request, None).reason == ""
    final = ing.HistoryReadyNotification(request_id="r", status=OK)
    assert state_of(state, request, SERVED, final=final).reason == ""
    done = cw.RequestState(request_id="r", state="done")
    assert state_of(state, request, SERVED, progress=done).reason == ""
