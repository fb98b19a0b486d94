"""The relay with keys on: which keys are accepted, and who sees what. Real sockets over a bus."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import zmq

from bus import topics as bus_topics
from bus.api import Record, SequenceStamp
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.frames import encode
from candlewright.wire.keys import ClientKey
from core.doors import KeyFolder, Role
from core.metrics import REGISTRY
from tests.relay import pipeline
from tests.relay.conftest import Start
from tests.relay.harness import MARKERS, Client, Platform, Subscriber, finish, submit

Ack = ing.CEPTriggerAck
QUIET_MILLISECONDS = 300
pytestmark = pytest.mark.timeout(60)


class Guarded:
    """A relay with keys on, and clients that show theirs."""

    def __init__(self, platform: Platform, folder: KeyFolder, where: Path, *, stack: ExitStack) -> None:
        self.platform = platform
        self.bus = platform.bus
        self._folder = folder
        self._where = where
        self._stack = stack
        self.context: zmq.Context[zmq.Socket[bytes]] = stack.enter_context(zmq.Context())

    def key(self, name: str, role: Role = Role.client) -> ClientKey:
        return self._folder.new(name, self._where / f"{name}-{len(list(self._where.iterdir()))}.key", role)

    def remove(self, name: str) -> None:
        self._folder.remove(name)

    def socket(self, kind: int, key: ClientKey | None) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = self._stack.enter_context(self.context.socket(kind))
        socket.setsockopt(zmq.RECONNECT_IVL, 20)
        if key is not None:
            socket.setsockopt(zmq.CURVE_SERVERKEY, key.platform.encode())
            socket.setsockopt(zmq.CURVE_PUBLICKEY, key.public.encode())
            socket.setsockopt(zmq.CURVE_SECRETKEY, key.secret.encode())
        return socket

    def client(self, key: ClientKey | None, kind: int = zmq.DEALER) -> Client:
        return Client(self.socket(kind, key), self.platform.relay.requests_address)

    def subscriber(self, key: ClientKey | None, *subscriptions: str) -> "Watched":
        """Return once the subscriptions are accepted or refused, and kept messages replayed."""
        address = self.platform.relay.notifications_address
        if key is None:
            return Watched(self.socket(zmq.SUB, None), address, *subscriptions)
        marker = f"{key.name}-marker-{next(MARKERS)}"
        finish(self.bus, marker)
        subscriber = Watched(self.socket(zmq.SUB, key), address, *subscriptions, f"HISTORY_READY:{marker}")
        subscriber.await_marker(f"HISTORY_READY:{marker}")
        return subscriber


class Watched(Subscriber):
    """`early`: the topics that came before the relay had taken its subscriptions."""

    early: list[str]

    def await_marker(self, marker: str) -> None:
        self.early = []
        while (topic := self.next()[0]) != marker:
            self.early.append(topic)
        self.socket.unsubscribe(marker)
        self.early += [topic for topic in self.drain() if topic != marker]


@pytest.fixture
def guarded(start_relay: Start, tmp_path: Path) -> Iterator[Guarded]:
    with ExitStack() as stack:
        (tmp_path / "clients").mkdir()
        platform = start_relay(keys_in=tmp_path / "data")
        yield Guarded(platform, KeyFolder(tmp_path / "data"), tmp_path / "clients", stack=stack)


def keys_refused() -> float:
    return REGISTRY.get_sample_value("candlewright_relay_refused_keys_total") or 0.0


def refused() -> float:
    return REGISTRY.get_sample_value("candlewright_relay_refused_subscriptions_total") or 0.0


def wait_for(is_so: Callable[[], bool]) -> None:
    socket = zmq.Context.instance().socket(zmq.PAIR)
    try:
        for _ in range(200):
            if is_so():
                return
            socket.poll(50)
    finally:
        socket.close()
    raise AssertionError("it did not come so")


def test_a_known_key_is_served_and_its_final_comes_on_its_own_topic(guarded: Guarded) -> None:
    alice = guarded.key("alice")
    client = guarded.client(alice)
    subscriber = guarded.subscriber(alice, "RESPONSE:alice")
    answer = client.ask(submit("r1"))
    assert (answer.status, answer.notification_topic) == (ing.SubmitResponse.QUEUED, "RESPONSE:alice")
    finish(guarded.bus, "r1", row_count=60)
    topic, final = subscriber.next()
    assert (topic, final.request_id, final.row_count) == ("RESPONSE:alice", "r1", 60)
    assert client.ask(cw.RequestStateQuery(request_id="r1")).state == "done"


def test_a_kept_final_is_replayed_to_its_owner_only(guarded: Guarded) -> None:
    alice, bob = guarded.key("alice"), guarded.key("bob")
    guarded.client(alice).ask(submit("alice-1", client_id="alice-desk"))
    finish(guarded.bus, "alice-1")
    other = guarded.subscriber(bob, "RESPONSE:", "", "RESPONSE:alice-desk", "HISTORY_READY:alice-1", "R", "RESPONSE:b")
    own = guarded.subscriber(alice, "HISTORY_READY:alice-1")
    late = Subscriber(
        guarded.socket(zmq.SUB, alice), guarded.platform.relay.notifications_address, "RESPONSE:alice-desk"
    )
    assert late.next()[1].request_id == "alice-1"
    assert own.early == ["HISTORY_READY:alice-1"]
    assert [*other.early, *other.drain()] == []


def test_clients_without_a_known_key_are_not_served(guarded: Guarded) -> None:
    alice = guarded.key("alice")
    public, secret = (part.decode() for part in zmq.curve_keypair())
    unknown = ClientKey("alice", public, secret, alice.platform)
    worker = guarded.key("worker", Role.ingestor)
    strangers, subscribers = [], []
    for key in (None, unknown, worker):
        for join in (
            lambda key=key: strangers.append(guarded.client(key)),
            lambda key=key: subscribers.append(
                Watched(guarded.socket(zmq.SUB, key), guarded.platform.relay.notifications_address, "")
            ),
        ):
            before = keys_refused()
            join()
            wait_for(lambda before=before: keys_refused() > before)
    for stranger in strangers:
        # A socket whose connection has been refused already has no place for it.
        with suppress(zmq.Again):
            stranger.socket.send_multipart(encode(submit("r1")), zmq.NOBLOCK)
    served = guarded.client(alice)
    assert served.ask(submit("r2")).status == ing.SubmitResponse.QUEUED
    finish(guarded.bus, "r2")
    for socket in [stranger.socket for stranger in strangers] + [each.socket for each in subscribers]:
        assert not socket.poll(QUIET_MILLISECONDS)
    assert [record.historical.request_id for record in guarded.platform.queued()] == ["r2"]


def test_a_new_key_works_and_a_removed_one_is_cut_off_without_a_restart(guarded: Guarded) -> None:
    alice = guarded.key("alice")
    client = guarded.client(alice)
    assert client.ask(submit("r1")).status == ing.SubmitResponse.QUEUED
    subscriber = guarded.subscriber(alice, "RESPONSE:alice")
    bob = guarded.key("bob")
    assert guarded.client(bob).ask(submit("r2")).status == ing.SubmitResponse.QUEUED
    own = guarded.subscriber(bob, "RESPONSE:bob")
    guarded.remove("alice")
    wait_for(lambda: client.ask(cw.RequestStateQuery(request_id="r1")).DESCRIPTOR.name == "Error")
    # All connections end. Bob's is recreated, and subscribed again once it is read; alice's does not come back.
    wait_for(lambda: len(guarded.platform.relay._notifier._gate or ()) == 0)
    finish(guarded.bus, "r2")
    while own.next()[1].request_id != "r2":
        pass
    wait_for(lambda: len(guarded.platform.relay._notifier._gate or ()) == 1)
    guarded.key("alice")
    guarded.client(bob)
    finish(guarded.bus, "r1")
    assert subscriber.drain() == []


@pytest.mark.parametrize("subscription", ["RESPONSE:alice", "RESPONSE:", "", "R", "TRIGGER:alice-t", "HISTORY_READY:"])
def test_another_clients_topics_are_refused_and_counted(guarded: Guarded, subscription: str) -> None:
    alice, bob = guarded.key("alice"), guarded.key("bob")
    before = refused()
    other = guarded.subscriber(bob, subscription)
    assert refused() == before + 1
    client = guarded.client(alice)
    assert client.ask(submit("alice-1", client_id="alice")).status == ing.SubmitResponse.QUEUED
    own = guarded.subscriber(alice, "RESPONSE:alice", "HISTORY_READY:alice-1")
    finish(guarded.bus, "alice-1")
    assert {own.next()[0], own.next()[0]} == {"RESPONSE:alice", "HISTORY_READY:alice-1"}
    assert other.drain() == []


def test_ids_of_others_are_invalid(guarded: Guarded) -> None:
    guarded.key("alice")
    client = guarded.client(guarded.key("bob"))
    for request in (
        submit("r1", client_id="alice"),
        submit("alice-1"),
        submit("r2", client_id="bo"),
        ing.DataRequest(
            request_id="r3", type=ing.DataRequest.REALTIME_TICKS, ticker="BTC/USDT.BINANCE", client_id="alice"
        ),
    ):
        answer = client.ask(request)
        assert answer.status == ing.SubmitResponse.INVALID
        assert "client" in answer.error_message
        assert not answer.notification_topic
    assert guarded.platform.queued() == []


def test_another_clients_request_is_unknown_and_cannot_be_cancelled(guarded: Guarded) -> None:
    owner, other = guarded.client(guarded.key("alice")), guarded.client(guarded.key("bob"))
    owner.ask(submit("r1"))
    assert other.ask(cw.RequestStateQuery(request_id="r1")).state == "unknown"
    cancel = ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id="r1")
    assert other.ask(cancel).code == "UNKNOWN_REQUEST"
    assert other.ask(submit("r1")).status == ing.SubmitResponse.INVALID
    assert len(guarded.platform.queued()) == 1
    assert owner.ask(cw.RequestStateQuery(request_id="r1")).state == "queued"
    owner.socket.send_multipart(encode(cancel))
    owner.ask(cw.RequestStateQuery(request_id="r1"))
    assert guarded.platform.queued()[1].control == cancel


def test_another_clients_trigger_can_be_neither_seen_nor_touched(guarded: Guarded) -> None:
    alice, bob = guarded.key("alice"), guarded.key("bob")
    owner, other = guarded.client(alice), guarded.client(bob)
    request = ing.CEPTriggerRequest(trigger_id="alice-t", sql_pattern="price > 1", callback_id="alice-desk")
    with pipeline.running(guarded.bus):
        assert owner.ask(request).status == Ack.REGISTERED
        for refusal in (
            request,
            ing.CEPTriggerRequest(trigger_id="bob-t", sql_pattern="price > 1", callback_id="alice-desk"),
            ing.CEPTriggerRequest(trigger_id="t", sql_pattern="price > 1"),
            cw.TriggerRemove(trigger_id="alice-t"),
        ):
            assert other.ask(refusal).status == Ack.ERROR
        assert list(other.ask(cw.TriggerQuery()).triggers) == []
        assert list(other.ask(cw.TriggerQuery(trigger_id="alice-t")).triggers) == []
        assert other.ask(cw.TopicReplay(topic="TRIGGER:alice-t")).code == "NOT_ALLOWED"
        assert [each.trigger_id for each in owner.ask(cw.TriggerQuery()).triggers] == ["alice-t"]
        spy = guarded.subscriber(bob, "TRIGGER:alice-t", "TRIGGER:", "RESPONSE:alice-desk")
        own = guarded.subscriber(alice, "TRIGGER:alice-t", "RESPONSE:alice-desk")
        pipeline.fire(guarded.bus, "alice-t", 1)
        assert {own.next()[0], own.next()[0]} == {"TRIGGER:alice-t", "RESPONSE:alice-desk"}
        assert spy.drain() == []
        assert owner.ask(cw.TopicReplay(topic="TRIGGER:alice-t")).sequence == 1


def test_public_topics_are_for_every_key(guarded: Guarded) -> None:
    subscriber = guarded.subscriber(guarded.key("bob"), "SNAPSHOT:BTC")
    stamp = SequenceStamp("SNAPSHOT:BTC/USDT.BINANCE", tag=b"\x58")
    snapshot = cw.Snapshot(ticker="BTC/USDT.BINANCE", last=7.0)
    guarded.bus.publish(bus_topics.SNAPSHOTS, [Record(snapshot.SerializeToString(), key=b"k", sequence=stamp)])
    assert subscriber.next()[0] == "SNAPSHOT:BTC/USDT.BINANCE"


def test_a_connection_may_not_name_itself(guarded: Guarded) -> None:
    socket = guarded.socket(zmq.DEALER, guarded.key("bob"))
    socket.setsockopt(zmq.ROUTING_ID, b"alice")
    client = Client(socket, guarded.platform.relay.requests_address)
    assert client.ask(submit("r1")).code == "NOT_ALLOWED"
    assert guarded.platform.queued() == []


def test_messages_that_are_not_subscriptions_reveal_no_topic_of_another_client(guarded: Guarded) -> None:
    """They make libzmq attribute subscriptions to another connection, so the client that sends one is disconnected."""
    alice, bob = guarded.key("alice"), guarded.key("bob")
    guarded.client(alice).ask(submit("r1"))
    address = guarded.platform.relay.notifications_address
    spy = guarded.socket(zmq.XSUB, bob)
    spy.connect(address)
    spies = [Subscriber(guarded.socket(zmq.SUB, alice), address, "RESPONSE:alice") for _ in range(5)]
    for number in range(200):
        spy.send(b"junk")
        spy.send(b"\x01RESPONSE:bob-%d" % number)
    finish(guarded.bus, "r1")
    for own in spies:
        assert own.next()[0] == "RESPONSE:alice"
    assert not spy.poll(QUIET_MILLISECONDS)
    # It is refused from now on.
    late = guarded.client(bob)
    late.socket.send_multipart(encode(submit("r2")))
    assert not late.socket.poll(QUIET_MILLISECONDS)


def test_a_connection_that_dies_ends_its_subscriptions(guarded: Guarded) -> None:
    alice = guarded.key("alice")
    gate = guarded.platform.relay._notifier._gate
    assert gate is not None
    first = guarded.subscriber(alice, "TICKS:", "RESPONSE:alice")
    second = guarded.subscriber(alice, "TICKS:")
    wait_for(lambda: len(gate) == 2)
    first.socket.close()
    wait_for(lambda: len(gate) == 1)
    second.socket.unsubscribe("TICKS:")
    wait_for(lambda: len(gate) == 0)


def test_a_later_key_does_not_get_requests_made_under_its_name(guarded: Guarded) -> None:
    bob = guarded.client(guarded.key("bob"))
    for request_id in ("alex-1", "alex-2"):
        assert bob.ask(submit(request_id)).status == ing.SubmitResponse.QUEUED
    finish(guarded.bus, "alex-1")
    wait_for(lambda: bob.ask(cw.RequestStateQuery(request_id="alex-1")).state == "done")
    alex = guarded.key("alex")
    spy = guarded.subscriber(alex, "HISTORY_READY:alex-1", "HISTORY_READY:alex-2")
    finish(guarded.bus, "alex-2")
    assert guarded.client(alex).ask(cw.RequestStateQuery(request_id="alex-2")).state == "unknown"
    assert [*spy.early, *spy.drain()] == []


def test_a_live_topic_has_a_job_until_its_last_connection_dies(guarded: Guarded) -> None:
    alice, bob = guarded.key("alice"), guarded.key("bob")
    first = guarded.subscriber(alice, "TICKS:BTC/USDT.BINANCE")
    second = guarded.subscriber(bob, "TICKS:BTC/USDT.BINANCE")
    wait_for(lambda: len(guarded.platform.queued()) == 1)
    request = guarded.platform.queued()[0].data
    assert request.request_id.startswith("subscription:TICKS:BTC/USDT.BINANCE:")
    # It has no owner: neither seen nor ended by a client.
    client = guarded.client(bob)
    cancel = ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id=request.request_id)
    assert client.ask(cancel).code == "UNKNOWN_REQUEST"
    first.socket.close()
    gate = guarded.platform.relay._notifier._gate
    assert gate is not None
    holders = gate._holders._by_topic
    wait_for(lambda: len(holders[b"TICKS:BTC/USDT.BINANCE"]) == 1)
    assert len(guarded.platform.queued()) == 1
    second.socket.close()
    wait_for(lambda: len(guarded.platform.queued()) == 2)
    assert guarded.platform.queued()[1].control.action == ing.IngestorControl.CANCEL


def test_a_legacy_request_is_answered_and_its_final_goes_to_no_other_client(guarded: Guarded) -> None:
    alice = guarded.key("alice")
    client = guarded.client(alice)
    spy = guarded.subscriber(guarded.key("bob"), "RESPONSE:relay.ohlc", "HISTORY_READY:o1")
    asked = submit("o1")
    request = ing.OHLCRequest(
        request_id="o1", ticker=asked.ticker, start_time=asked.start_time, end_time=asked.end_time, period_seconds=60
    )
    client.socket.send_multipart(encode(request))
    wait_for(lambda: len(guarded.platform.queued()) == 1)
    finish(guarded.bus, "o1", status=ing.HistoryReadyNotification.NOT_FOUND)
    assert client.answer().status == ing.Response.NOT_FOUND
    assert spy.drain() == []


def test_a_relay_with_keys_off_accepts_every_client(start_relay: Start) -> None:
    platform = start_relay()
    assert platform.client().ask(submit("alice-1", client_id="x")).notification_topic == "RESPONSE:x"
    assert platform.queued()[0].owner == ""
