"""The requests socket, over real sockets."""

from typing import Any

import pytest
import zmq
from hypothesis import HealthCheck, given, settings

from bus import topics as bus_topics
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BusFull, BusUnavailable
from candlewright.wire.frames import CLIENT_TO_RELAY, RELAY_TO_CLIENT, VERSION, decode, encode
from core.metrics import REGISTRY
from relay.settings import RelayLimits
from tests.fresh_bus import FreshBus
from tests.relay.conftest import Start
from tests.relay.harness import START, Platform, finish, submit
from tests.relay.test_door import FRAME_LISTS
from tests.rounds import rounds

Status = ing.SubmitResponse


def test_a_request_is_queued_once_and_then_a_duplicate(start_relay: Start) -> None:
    platform = start_relay()
    client = platform.client()
    first, second = client.ask(submit("r", client_id="c")), client.ask(submit("r", client_id="c"))
    assert first == Status(request_id="r", notification_topic="RESPONSE:c")
    assert second == Status(request_id="r", status=Status.DUPLICATE, notification_topic="RESPONSE:c")
    (record,) = platform.queued()
    assert record.historical == submit("r", client_id="c")
    assert record.deadline - record.accepted_at == 3_600 * 10**9
    assert platform.bus.partitions(bus_topics.REQUESTS) == 1


def test_a_known_id_with_other_content_is_invalid(platform: Platform) -> None:
    client = platform.client()
    assert client.ask(submit("other-content")).status == Status.QUEUED
    answer = client.ask(submit("other-content", limit=3))
    assert (answer.status, answer.notification_topic) == (Status.INVALID, "")
    snapshot = ing.DataRequest(
        request_id="other-content", type=ing.DataRequest.TICKER_SNAPSHOT, ticker="BTC/USDT.BINANCE"
    )
    assert client.ask(snapshot).status == Status.INVALID


def test_one_of_two_racing_clients_is_queued(platform: Platform) -> None:
    clients = [platform.client() for _ in range(2)]
    for number in range(50):
        for client in clients:
            client.socket.send_multipart(encode(submit(f"race-{number}")))
        outcomes = sorted(client.answer().status for client in clients)
        assert outcomes == [Status.QUEUED, Status.DUPLICATE]
    ids = [record.historical.request_id for record in platform.queued()]
    assert all(ids.count(f"race-{number}") == 1 for number in range(50))


def test_answers_leave_in_the_order_of_the_messages(platform: Platform) -> None:
    client = platform.client()
    wanted = []
    for number in range(100):
        bad = number % 3 == 0
        client.socket.send_multipart(encode(submit(f"order-{number}", period_seconds=0 if bad else 60)))
        wanted.append((f"order-{number}", Status.INVALID if bad else Status.QUEUED))
    answers = [client.answer() for _ in wanted]
    assert [(answer.request_id, answer.status) for answer in answers] == wanted


@pytest.mark.parametrize("size", [201, 10_000])
def test_an_overlong_id_is_invalid(platform: Platform, size: int) -> None:
    answer = platform.client().ask(submit("x" * size))
    assert (answer.status, answer.request_id) == (Status.INVALID, "x" * size)


def test_a_req_client_is_served_like_a_dealer(platform: Platform) -> None:
    client = platform.client(zmq.REQ)
    assert client.ask(submit("req")).status == Status.QUEUED
    assert client.ask(submit("req")).status == Status.DUPLICATE
    client.socket.send(b"nonsense")
    assert client.answer().code == "MALFORMED"
    cancelled = ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id="req")
    assert client.ask(cancelled) == cancelled


def test_the_periods_of_the_ingestors_decide(start_relay: Start) -> None:
    platform = start_relay()
    record = cw.Venue(venue="HOUSE", period_seconds=[77])
    platform.bus.put(bus_topics.TABLE_VENUES, {"HOUSE": record.SerializeToString()})
    client = platform.client()
    assert client.ask(submit("a", ticker="X/Y.HOUSE", period_seconds=77)).status == Status.QUEUED
    refused = client.ask(submit("b", ticker="X/Y.HOUSE", period_seconds=60))
    assert (refused.status, "it offers 77s" in refused.error_message) == (Status.INVALID, True)
    assert client.ask(submit("c", ticker="X/Y.NOSUCH", period_seconds=60)).status == Status.INVALID


def test_realtime_and_snapshot_requests_are_put_on_the_bus(start_relay: Start) -> None:
    platform = start_relay()
    client = platform.client()
    kinds = ing.DataRequest.TICKER_SNAPSHOT, ing.DataRequest.REALTIME_TICKS
    for kind in kinds:
        request = ing.DataRequest(request_id=f"d{kind}", type=kind, ticker="BTC/USDT.BINANCE", client_id="me")
        assert client.ask(request).status == Status.QUEUED
        assert client.ask(request).status == Status.DUPLICATE
    assert [record.data.type for record in platform.queued()] == list(kinds)


def test_the_state_of_a_request_follows_it(platform: Platform) -> None:
    client = platform.client()
    query = cw.RequestStateQuery(request_id="followed")
    assert client.ask(query).state == "unknown"
    client.ask(submit("followed"))
    assert client.ask(query).state == "queued"
    running = cw.RequestState(request_id="followed", state="running", done_candles=10, expected_candles=60)
    platform.bus.put(bus_topics.TABLE_REQUEST_STATES, {"followed": running.SerializeToString()})
    assert client.ask(query) == running
    final = finish(platform.bus, "followed", row_count=60)
    done = client.ask(query)
    assert (done.state, done.notification) == ("done", final)


def test_a_cancellation_is_put_on_the_bus_after_its_request(start_relay: Start) -> None:
    platform = start_relay()
    client = platform.client()
    cancel = ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id="r")
    assert client.ask(cancel).code == "UNKNOWN_REQUEST"
    client.socket.send_multipart(encode(submit("r")))
    client.socket.send_multipart(encode(cancel))
    assert client.answer().status == Status.QUEUED
    heartbeat = ing.IngestorControl(action=ing.IngestorControl.HEARTBEAT)
    assert client.ask(heartbeat) == heartbeat
    assert platform.client(zmq.REQ).ask(cancel) == cancel
    queued = platform.queued()
    assert [record.WhichOneof("body") for record in queued] == ["historical", "control", "control"]
    assert queued[1].control == cancel


def test_venues_and_markets_are_listed(start_relay: Start) -> None:
    platform = start_relay()
    house = cw.Venue(venue="HOUSE", period_seconds=[60], markets=[cw.Market(symbol="X/Y")])
    platform.bus.put(bus_topics.TABLE_VENUES, {"HOUSE": house.SerializeToString()})
    client = platform.client()
    everything = client.ask(cw.VenueQuery(request_id="q"))
    assert everything.request_id == "q"
    assert {"HOUSE", "BINANCE", "KRAKEN"} <= {venue.venue for venue in everything.venues}
    assert client.ask(cw.VenueQuery(venue="HOUSE")).venues[0] == house
    assert client.ask(cw.VenueQuery(venue="NOSUCH")).code == "UNKNOWN_VENUE"


# ---- bad frames


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([b""], "MALFORMED"),
        ([b"", b""], "MALFORMED"),
        ([VERSION], "MALFORMED"),
        ([VERSION, b""], "MALFORMED"),
        ([b"\x02", b"\x10"], "UNKNOWN_VERSION"),
        ([VERSION, b"\x99"], "UNKNOWN_TYPE"),
        ([VERSION, b"\x11"], "UNEXPECTED_TYPE"),
        ([VERSION, b"\x24"], "UNEXPECTED_TYPE"),
        ([VERSION, encode(submit("r"))[1][:-1]], "MALFORMED"),
        ([VERSION, b"\x10\x0a\x02\xff\xff"], "MALFORMED"),
        ([VERSION, b"\x10" + bytes(70_000)], "TOO_LARGE"),
        ([VERSION] * 3, "MALFORMED"),
        ([b"x"] * 10_000, "MALFORMED"),
    ],
)
def test_a_bad_frame_gets_an_error(platform: Platform, frames: list[bytes], code: str) -> None:
    client = platform.client()
    client.socket.send_multipart(frames)
    answer = client.socket.recv_multipart()
    if len(frames) > 1 and frames[0] == b"":
        assert answer.pop(0) == b""
    error: Any = decode(answer, RELAY_TO_CLIENT)
    assert (type(error), error.code) == (cw.Error, code)
    assert error.text


def test_a_frame_beyond_all_limits_closes_the_connection_and_nothing_else(platform: Platform) -> None:
    client, bystander = platform.client(), platform.client()
    assert bystander.ask(submit("bystander")).status == Status.QUEUED
    monitor = client.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    client.socket.send_multipart([VERSION, b"\x10" + bytes(18 << 20)])
    with monitor:
        assert monitor.poll(10_000)
        client.socket.disable_monitor()
    assert bystander.ask(submit("bystander")).status == Status.DUPLICATE


@settings(max_examples=rounds(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FRAME_LISTS.filter(bool))
def test_any_frames_are_survived_and_answered(platform: Platform, frames: list[bytes]) -> None:
    client = platform.client()
    with client.socket as socket:
        socket.send_multipart(frames)
        answer = socket.recv_multipart()
        if len(frames) > 1 and frames[0] == b"":
            assert answer.pop(0) == b""
        assert decode(answer, (*RELAY_TO_CLIENT, *CLIENT_TO_RELAY)) is not None


# ---- an unreachable or full bus


class FailingBus(FreshBus):
    failure: Exception | None = None

    def publish_once(self, *args: Any, **kwargs: Any) -> Any:
        if self.failure:
            raise self.failure
        return super().publish_once(*args, **kwargs)


@pytest.mark.parametrize(
    ("failure", "words"),
    [(BusUnavailable("gone"), "cannot be reached"), (BusFull("requests", 2, 1), "more work than it can store")],
)
def test_a_bus_that_fails_is_reported_and_the_next_try_succeeds(
    start_relay: Start, failure: Exception, words: str
) -> None:
    bus = FailingBus()
    client = start_relay(bus).client()
    bus.failure = failure
    for number in range(300):
        client.socket.send_multipart(encode(submit(f"r{number}")))
    answers = [client.answer() for _ in range(300)]
    assert {answer.status for answer in answers} == {Status.ERROR}
    assert all(words in answer.error_message for answer in answers)
    bus.failure = None
    while client.ask(submit("r0")).status == Status.ERROR:
        pass
    assert client.ask(submit("r0")).status == Status.DUPLICATE


# ---- clients that do not read


def test_a_client_that_reads_nothing_harms_no_other(start_relay: Start) -> None:
    platform = start_relay(limits=RelayLimits(client_queue=10, client_backlog=100))
    lazy, busy = platform.client(), platform.client()
    beat = encode(ing.IngestorControl(action=ing.IngestorControl.HEARTBEAT))
    for _ in range(3_000):
        lazy.socket.send_multipart(beat)
    assert busy.ask(submit("r", start_time=START)).status == Status.QUEUED


def test_the_status_lists_the_bound_addresses(platform: Platform) -> None:
    status = platform.relay.status()
    assert status.part == "relay"
    assert status.details["requests"] == platform.relay.requests_address


def test_values_on_the_bus_that_cannot_be_read_stop_nothing(start_relay: Start) -> None:
    platform = start_relay()
    garbage = b"\xff\xff\xff"
    platform.bus.put(bus_topics.TABLE_VENUES, {"BINANCE": garbage, "*": garbage})
    platform.bus.put(bus_topics.TABLE_REQUEST_STATES, {"r": garbage})
    client = platform.client()
    assert client.ask(submit("r")).status == Status.QUEUED
    assert client.ask(cw.RequestStateQuery(request_id="r")).state == "queued"
    assert client.ask(cw.VenueQuery()).venues


def test_refusals_and_repetitions_are_counted(start_relay: Start) -> None:
    names = {
        "invalid": ("candlewright_relay_submissions_total", {"status": "INVALID"}),
        "duplicate": ("candlewright_relay_submissions_total", {"status": "DUPLICATE"}),
        "bad frame": ("candlewright_relay_bad_frames_total", {"code": "UNKNOWN_TYPE"}),
        "error": ("candlewright_relay_errors_total", {"code": "UNKNOWN_TYPE"}),
    }

    def counts() -> dict[str, float]:
        return {key: REGISTRY.get_sample_value(name, labels) or 0.0 for key, (name, labels) in names.items()}

    client = start_relay().client()
    before = counts()
    client.ask(submit("counted", limit=0))
    client.ask(submit("counted"))
    client.ask(submit("counted"))
    client.socket.send_multipart([VERSION, b"\x99"])
    client.answer()
    assert counts() == {key: value + 1 for key, value in before.items()}
