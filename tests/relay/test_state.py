from typing import Any

import pytest

from protobuf import candlewright_pb2 as cw
from protobuf import ingestor_pb2 as ing
from protobuf import records_pb2 as rec
from relay import state as st
from relay.settings import SECOND_NS
from tests.relay.harness import HOUR, START, config, submit

PEER = st.Peer(b"one", False)
OTHER = st.Peer(b"two", True)
NOW = 1_800_000_000 * SECOND_NS
OK = ing.HistoryReadyNotification.OK


@pytest.fixture
def state() -> st.RelayState:
    return st.RelayState(config())


def send(state: st.RelayState, message: Any, peer: st.Peer = PEER) -> list[st.Command]:
    return state.handle(st.MessageReceived(peer, message, NOW))


def only(commands: list[st.Command], kind: type) -> Any:
    assert [type(command) for command in commands] == [kind]
    return commands[0]


def legacy(request_id: str = "r") -> ing.OHLCRequest:
    return ing.OHLCRequest(
        request_id=request_id, ticker="BTC/USDT.BINANCE", start_time=START, end_time=START + HOUR, period_seconds=60
    )


def looked_up(purpose: st.Purpose, **found: Any) -> st.LookedUp:
    return st.LookedUp(purpose, "r", *(found.get(name) for name in ("request", "progress", "final")))


def test_a_valid_request_is_answered_only_after_it_is_on_the_bus(state: st.RelayState) -> None:
    enqueue = only(send(state, submit("r")), st.Enqueue)
    answer = only(state.handle(st.Enqueued(enqueue.submission, True, rec.Request())), st.Reply)
    assert answer.message == ing.SubmitResponse(request_id="r", notification_topic="HISTORY_READY:r")


def test_the_record_carries_times_and_the_compared_content_does_not(state: st.RelayState) -> None:
    enqueue = only(send(state, submit("r")), st.Enqueue)
    assert enqueue.record.accepted_at == NOW
    assert enqueue.record.deadline == NOW + HOUR
    assert enqueue.record.historical == submit("r")
    assert enqueue.submission.request == rec.Request(historical=submit("r"))


def test_the_same_request_again_is_a_duplicate_on_the_same_topic(state: st.RelayState) -> None:
    submission = only(send(state, submit("r", client_id="c")), st.Enqueue).submission
    reply, again = state.handle(st.Enqueued(submission, False, submission.request))
    assert isinstance(reply, st.Reply)
    assert reply.message.status == ing.SubmitResponse.DUPLICATE
    assert reply.message.notification_topic == "RESPONSE:c"
    assert again == st.LookUp(st.Repeated(submission), "r")
    assert state.handle(looked_up(again.purpose)) == []
    final = ing.HistoryReadyNotification(request_id="r", row_count=3)
    announce = only(state.handle(looked_up(again.purpose, final=final)), st.Announce)
    assert announce == st.Announce(("HISTORY_READY:r", "RESPONSE:c"), final)


@pytest.mark.parametrize(
    "changes", [{"limit": 1}, {"client_id": "c"}, {"end_time": START + 1}, {"period_seconds": 300}]
)
def test_a_known_id_with_other_content_is_invalid_and_names_no_topic(
    state: st.RelayState, changes: dict[str, Any]
) -> None:
    submission = only(send(state, submit("r")), st.Enqueue).submission
    known = rec.Request(historical=submit("r", **changes))
    message = only(state.handle(st.Enqueued(submission, False, known)), st.Reply).message
    assert message.status == ing.SubmitResponse.INVALID
    assert message.notification_topic == ""
    assert message.error_message == "The request_id 'r' is taken by a request with other content."


def test_an_invalid_request_reaches_no_bus_and_names_no_topic(state: st.RelayState) -> None:
    message = only(send(state, submit("r", limit=0)), st.Reply).message
    assert (message.request_id, message.status) == ("r", ing.SubmitResponse.INVALID)
    assert message.error_message.startswith("The limit is 0")
    assert message.notification_topic == ""


def test_a_bus_that_fails_is_an_error_and_not_invalid(state: st.RelayState) -> None:
    enqueue = only(send(state, submit("r")), st.Enqueue)
    message = only(state.handle(st.CommandFailed(enqueue, "UNAVAILABLE", "No bus.")), st.Reply).message
    assert message == ing.SubmitResponse(request_id="r", status=ing.SubmitResponse.ERROR, error_message="No bus.")


def test_an_overlong_id_is_echoed_in_a_bounded_answer(state: st.RelayState) -> None:
    assert only(send(state, submit("x" * 10_000)), st.Reply).message.request_id == "x" * 10_000
    assert only(send(state, submit("x" * 60_000)), st.Reply).message.ByteSize() < 20_000


def test_a_snapshot_has_a_deadline_and_a_realtime_job_has_none(state: st.RelayState) -> None:
    for kind, deadline in ((ing.DataRequest.TICKER_SNAPSHOT, NOW + HOUR), (ing.DataRequest.REALTIME_TICKS, 0)):
        enqueue = only(send(state, ing.DataRequest(request_id="r", type=kind, ticker="A/B.BINANCE")), st.Enqueue)
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
                "progress": cw.RequestState(state="running", done_candles=5, expected_candles=60),
            },
            cw.RequestState(request_id="r", state="running", done_candles=5, expected_candles=60),
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
def test_the_state_of_a_request(state: st.RelayState, found: dict[str, Any], expected: cw.RequestState) -> None:
    lookup = only(send(state, cw.RequestStateQuery(request_id="r")), st.LookUp)
    assert only(state.handle(looked_up(lookup.purpose, **found)), st.Reply).message == expected


def cancel(request_id: str = "r") -> ing.IngestorControl:
    return ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id=request_id)


@pytest.mark.parametrize("peer", [PEER, OTHER])
def test_a_cancellation_goes_on_the_bus_and_only_a_req_gets_an_echo(state: st.RelayState, peer: st.Peer) -> None:
    lookup = only(send(state, cancel(), peer), st.LookUp)
    publish = only(
        state.handle(looked_up(lookup.purpose, request=rec.Request(historical=submit("r")))), st.PublishControl
    )
    assert publish.record == rec.Request(control=cancel(), accepted_at=NOW)
    answers = state.handle(st.ControlPublished(publish.peer, publish.control))
    assert answers == ([st.Reply(peer, cancel())] if peer.is_req else [])


def test_an_unknown_request_cannot_be_cancelled(state: st.RelayState) -> None:
    lookup = only(send(state, cancel()), st.LookUp)
    message = only(state.handle(looked_up(lookup.purpose)), st.Reply).message
    assert (message.code, message.request_id) == ("UNKNOWN_REQUEST", "r")


def test_cancelling_what_is_over_announces_its_final_again(state: st.RelayState) -> None:
    lookup = only(send(state, cancel()), st.LookUp)
    final = ing.HistoryReadyNotification(request_id="r")
    request = rec.Request(historical=submit("r", client_id="c"))
    commands = state.handle(looked_up(lookup.purpose, request=request, final=final))
    assert commands == [st.Announce(("HISTORY_READY:r", "RESPONSE:c"), final)]


def test_a_heartbeat_is_echoed_and_orders_for_ingestors_are_refused(state: st.RelayState) -> None:
    beat = ing.IngestorControl(action=ing.IngestorControl.HEARTBEAT)
    assert send(state, beat) == [st.Reply(PEER, beat)]
    for action in (ing.IngestorControl.SHUTDOWN, ing.IngestorControl.CONFIG_UPDATE, 77):
        message = only(send(state, ing.IngestorControl(action=action)), st.Reply).message
        assert message.code == "NOT_ALLOWED"


def test_triggers_are_refused_while_no_engine_runs(state: st.RelayState) -> None:
    for message in (ing.CEPTriggerRequest(trigger_id="t", sql_pattern="x"), cw.TriggerRemove(trigger_id="t")):
        ack = only(send(state, message), st.Reply).message
        assert (ack.trigger_id, ack.status) == ("t", ing.CEPTriggerAck.ERROR)
        assert "not running" in ack.error_message
    assert "not running" in only(send(state, cw.TriggerQuery()), st.Reply).message.text


def test_a_legacy_request_waits_for_its_final_and_then_reads_the_rows(state: st.RelayState) -> None:
    enqueue = only(send(state, legacy()), st.Enqueue)
    assert enqueue.record.historical == submit("r", client_id=st.LEGACY_CLIENT)
    assert state.handle(st.Enqueued(enqueue.submission, True, rec.Request())) == []
    assert "r" in state.waiting
    read = only(state.handle(st.FinalArrived(ing.HistoryReadyNotification(request_id="r", status=OK))), st.ReadRows)
    assert read == st.ReadRows(PEER, submit("r", client_id=st.LEGACY_CLIENT))
    assert not state.waiting


@pytest.mark.parametrize(
    ("final_status", "status"),
    [("NOT_FOUND", ing.Response.NOT_FOUND), ("ERROR", ing.Response.ERROR), ("TIMEOUT", ing.Response.ERROR)],
)
def test_a_legacy_request_ends_as_its_final_says(state: st.RelayState, final_status: str, status: Any) -> None:
    send(state, legacy())
    value = ing.HistoryReadyNotification.NotificationStatus.Value(final_status)
    final = ing.HistoryReadyNotification(request_id="r", status=value)
    message = only(state.handle(st.FinalArrived(final)), st.Reply).message
    assert (message.status, message.is_final, message.total_records) == (status, True, 0)
    assert message.error_message


def test_a_repeated_legacy_request_that_is_finished_is_served_to_all_who_wait(state: st.RelayState) -> None:
    send(state, legacy(), OTHER)
    submission = only(send(state, legacy()), st.Enqueue).submission
    lookup = only(state.handle(st.Enqueued(submission, False, submission.request)), st.LookUp)
    final = ing.HistoryReadyNotification(request_id="r", status=OK)
    commands = state.handle(looked_up(lookup.purpose, final=final))
    assert [type(command) for command in commands] == [st.ReadRows, st.ReadRows]


def test_a_legacy_request_that_cannot_be_queued_does_not_wait(state: st.RelayState) -> None:
    enqueue = only(send(state, legacy()), st.Enqueue)
    assert only(state.handle(st.CommandFailed(enqueue, "BUSY", "Busy.")), st.Reply).message.error_message == "Busy."
    assert not state.waiting
    submission = only(send(state, legacy()), st.Enqueue).submission
    taken = only(state.handle(st.Enqueued(submission, False, rec.Request(historical=submit("r")))), st.Reply).message
    assert (taken.status, taken.is_final) == (ing.Response.ERROR, True)
    assert not state.waiting


def test_a_legacy_request_does_not_wait_for_ever(state: st.RelayState) -> None:
    send(state, legacy())
    assert state.handle(st.TimePassed(NOW + HOUR)) == []
    message = only(state.handle(st.TimePassed(NOW + 2 * HOUR)), st.Reply).message
    assert (message.status, message.request_id) == (ing.Response.ERROR, "r")
    assert not state.waiting


def test_only_so_many_legacy_requests_wait(state: st.RelayState) -> None:
    for number in range(state.config.limits.max_waiting_reads):
        only(send(state, legacy(f"r{number}")), st.Enqueue)
    refused = only(send(state, legacy("more")), st.Reply).message
    assert refused.status == ing.Response.ERROR
    assert "more" not in state.waiting


def test_venues_are_listed_from_the_bus(state: st.RelayState) -> None:
    query = cw.VenueQuery(request_id="q", venue="house")
    listing = only(send(state, query), st.ListVenues)
    records = {"HOUSE": cw.Venue(venue="HOUSE", period_seconds=[60])}
    found = only(state.handle(st.VenuesListed(listing.peer, query, records)), st.Reply).message
    assert found == cw.VenueList(request_id="q", venues=[records["HOUSE"]])
    missing = only(state.handle(st.VenuesListed(PEER, query, {})), st.Reply).message
    assert (missing.code, missing.request_id) == ("UNKNOWN_VENUE", "q")


def test_every_command_that_fails_is_answered(state: st.RelayState) -> None:
    asked = st.LookUp(st.StateAsked(PEER), "r")
    failing: list[st.Command] = [
        asked,
        st.LookUp(st.CancelAsked(PEER, cancel(), NOW), "r"),
        st.PublishControl(PEER, cancel(), rec.Request()),
        st.ListVenues(PEER, cw.VenueQuery()),
        st.ReplayTopic(PEER, cw.TopicReplay()),
        st.ReadRows(PEER, submit("r")),
    ]
    for command in failing:
        assert only(state.handle(st.CommandFailed(command, "UNAVAILABLE", "No bus.")), st.Reply).peer == PEER
