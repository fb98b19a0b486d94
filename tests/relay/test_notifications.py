"""The notifications socket, over real sockets."""

import time
from typing import Any

import zmq

from bus import topics as bus_topics
from bus.api import Record, SequenceStamp
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BusUnavailable
from relay.settings import RelayLimits
from tests.fresh_bus import FreshBus
from tests.relay.conftest import Start
from tests.relay.harness import Platform, finish, submit


def test_a_final_reaches_the_topics_of_the_request_and_of_its_client(platform: Platform) -> None:
    own, client = platform.ready_subscriber("HISTORY_READY:both"), platform.ready_subscriber("RESPONSE:both-client")
    platform.client().ask(submit("both", client_id="both-client"))
    final = finish(platform.bus, "both", row_count=60)
    assert own.next() == ("HISTORY_READY:both", final)
    assert client.next() == ("RESPONSE:both-client", final)


def test_a_final_of_a_request_without_a_client_has_one_topic(platform: Platform) -> None:
    everything = platform.ready_subscriber("")
    platform.client().ask(submit("alone"))
    finish(platform.bus, "alone")
    assert everything.next()[0] == "HISTORY_READY:alone"
    assert everything.drain() == []


def test_late_subscribers_get_the_finals_of_their_topics(platform: Platform) -> None:
    client = platform.client()
    for number in range(3):
        client.ask(submit(f"late-{number}", client_id="late"))
        finish(platform.bus, f"late-{number}", row_count=number)
    assert platform.subscriber("HISTORY_READY:late-1").next()[1].row_count == 1
    late = platform.subscriber("RESPONSE:late")
    # A final that is published while they subscribe is also replayed, with the same content.
    found: dict[int, object] = {}
    while len(found) < 3:
        final = late.next()[1]
        assert found.setdefault(final.row_count, final) == final
    assert found.keys() == {0, 1, 2}


def test_a_topic_that_is_a_prefix_of_another_is_replayed_alone(platform: Platform) -> None:
    client = platform.client()
    client.ask(submit("prefix-1", client_id="a"))
    client.ask(submit("prefix-2", client_id="ab"))
    for request_id in ("prefix-1", "prefix-2"):
        finish(platform.bus, request_id)
    # Each may come twice: live, and as a replay.
    assert set(platform.subscriber("RESPONSE:ab").drain()) == {"RESPONSE:ab"}
    assert set(platform.subscriber("RESPONSE:a").drain()) == {"RESPONSE:a"}


def test_a_live_final_carries_its_whole_topic_to_prefix_subscribers(platform: Platform) -> None:
    subscriber = platform.ready_subscriber("RESPONSE:live-a")
    client = platform.client()
    client.ask(submit("live-1", client_id="live-a"))
    client.ask(submit("live-2", client_id="live-ab"))
    for request_id in ("live-1", "live-2"):
        finish(platform.bus, request_id)
    assert sorted(subscriber.next()[0] for _ in range(2)) == ["RESPONSE:live-a", "RESPONSE:live-ab"]


def test_a_bare_prefix_gets_all_retained_finals(start_relay: Start) -> None:
    first = start_relay()
    client = first.client()
    for number in range(20):
        client.ask(submit(f"r{number}", client_id=f"c{number % 2}"))
        finish(first.bus, f"r{number}")
    first.relay.close()
    platform = start_relay(first.bus)
    assert sorted(platform.subscriber("HISTORY_READY:").drain()) == sorted(f"HISTORY_READY:r{n}" for n in range(20))
    assert sorted(platform.subscriber("RESPONSE:").drain()) == ["RESPONSE:c0"] * 10 + ["RESPONSE:c1"] * 10


def test_a_duplicate_of_a_finished_request_announces_its_final_again(platform: Platform) -> None:
    client = platform.client()
    client.ask(submit("again", client_id="again-client"))
    final = finish(platform.bus, "again", row_count=5)
    subscriber = platform.subscriber("RESPONSE:again-client")
    assert subscriber.next() == ("RESPONSE:again-client", final)
    assert client.ask(submit("again", client_id="again-client")).status == ing.SubmitResponse.DUPLICATE
    assert subscriber.next() == ("RESPONSE:again-client", final)


def test_finals_published_while_the_relay_was_down_reach_existing_subscribers(start_relay: Start) -> None:
    first = start_relay()
    first.client().ask(submit("down", client_id="stays"))
    subscriber = first.ready_subscriber("RESPONSE:stays")
    address = first.relay.notifications_address
    first.relay.close()
    final = finish(first.bus, "down", row_count=8)
    start_relay(first.bus, notifications_bind=address)
    assert subscriber.next() == ("RESPONSE:stays", final)


def test_a_restarted_relay_still_knows_the_finals_of_clients(start_relay: Start) -> None:
    first = start_relay()
    client = first.client()
    for number in range(5):
        client.ask(submit(f"r{number}", client_id="c"))
        finish(first.bus, f"r{number}")
    first.relay.close()
    second = start_relay(first.bus)
    assert second.subscriber("RESPONSE:c").drain() == ["RESPONSE:c"] * 5
    assert second.subscriber("HISTORY_READY:r3").next()[0] == "HISTORY_READY:r3"


def test_finals_past_their_time_are_not_replayed(start_relay: Start) -> None:
    first = start_relay()
    first.client().ask(submit("old", client_id="c"))
    finish(first.bus, "old")
    first.relay.close()
    second = start_relay(first.bus, keep_seconds=0.001)
    assert second.subscriber("RESPONSE:c").drain() == []


def test_a_replay_has_a_bound(start_relay: Start) -> None:
    first = start_relay()
    client = first.client()
    for number in range(10):
        client.ask(submit(f"r{number}", client_id="c"))
        finish(first.bus, f"r{number}")
    first.relay.close()
    platform = start_relay(first.bus, limits=RelayLimits(max_replayed=4))
    assert platform.subscriber("RESPONSE:c").drain() == ["RESPONSE:c"] * 4


def test_records_that_are_not_a_final_are_skipped(platform: Platform) -> None:
    subscriber = platform.ready_subscriber("HISTORY_READY:behind-garbage")
    platform.bus.publish(bus_topics.NOTIFICATIONS, [Record(b"\xff\xff\xff", key=b"behind-garbage")])
    final = finish(platform.bus, "behind-garbage")
    assert subscriber.next() == ("HISTORY_READY:behind-garbage", final)


def snapshot(bus: Any, ticker: str, request_id: str, *, last: float) -> None:
    record = cw.Snapshot(ticker=ticker, request_id=request_id, last=last).SerializeToString()
    stamp = SequenceStamp(f"SNAPSHOT:{ticker}", tag=b"\x58")
    bus.publish(bus_topics.SNAPSHOTS, [Record(record, key=ticker.encode(), sequence=stamp)])


def test_a_snapshot_goes_to_its_ticker_and_to_the_topic_of_its_request(platform: Platform) -> None:
    ticker = "SNAP/USDT.BINANCE"
    by_ticker = platform.ready_subscriber(f"SNAPSHOT:{ticker}")
    by_client, by_request = (
        platform.ready_subscriber("RESPONSE:snap-client"),
        platform.ready_subscriber("HISTORY_READY:s2"),
    )
    for request_id, client_id in (("s1", "snap-client"), ("s2", "")):
        kind = ing.DataRequest.TICKER_SNAPSHOT
        message = ing.DataRequest(request_id=request_id, type=kind, ticker=ticker, client_id=client_id)
        platform.client().ask(message)
    snapshot(platform.bus, ticker, "s1", last=1.5)
    snapshot(platform.bus, ticker, "s2", last=2.5)
    topic, first = by_client.next()
    assert (topic, first.last, first.sequence) == ("RESPONSE:snap-client", 1.5, 1)
    topic, second = by_request.next()
    assert (topic, second.last, second.sequence) == ("HISTORY_READY:s2", 2.5, 2)
    assert [by_ticker.next() for _ in range(2)] == [(f"SNAPSHOT:{ticker}", first), (f"SNAPSHOT:{ticker}", second)]


def test_a_slow_subscriber_loses_and_a_quick_one_does_not(start_relay: Start) -> None:
    platform = start_relay(limits=RelayLimits(subscriber_queue=1_000))
    ticker, count = "SLOW/USDT.BINANCE", 10_000
    slow = platform.ready_subscriber(f"SNAPSHOT:{ticker}")
    quick = platform.ready_subscriber(f"SNAPSHOT:{ticker}")
    value = cw.Snapshot(ticker=ticker, request_id="x" * 3_000).SerializeToString()
    stamp = SequenceStamp(f"SNAPSHOT:{ticker}", tag=b"\x58")
    record = Record(value, key=ticker.encode(), sequence=stamp)
    seen = 0
    for _ in range(count // 250):
        platform.bus.publish(bus_topics.SNAPSHOTS, [record] * 250)
        for _ in range(250):
            seen += 1
            assert quick.next()[1].sequence == seen
    got = [slow.next()[1].sequence for _ in range(1_000)]
    assert got == list(range(1, 1_001))
    slow.socket.rcvtimeo = 500
    rest = 1_000
    try:
        while True:
            slow.socket.recv_multipart()
            rest += 1
    except zmq.Again:
        assert rest < count


class OutageBus(FreshBus):
    is_down = False

    def _check(self) -> None:
        if self.is_down:
            raise BusUnavailable("down")

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        self._check()
        return super().wait(*args, **kwargs)

    def read(self, *args: Any, **kwargs: Any) -> Any:
        self._check()
        return super().read(*args, **kwargs)

    def recall(self, *args: Any, **kwargs: Any) -> Any:
        self._check()
        return super().recall(*args, **kwargs)


def test_an_outage_of_the_bus_loses_no_final_and_no_replay(start_relay: Start) -> None:
    bus = OutageBus()
    platform = start_relay(bus)
    platform.client().ask(submit("early", client_id="c"))
    finish(bus, "early")
    live = platform.ready_subscriber("HISTORY_READY:during")
    bus.is_down = True
    finish(bus, "during")
    late = platform.subscriber("RESPONSE:c")
    until = time.monotonic() + 10
    while not platform.relay.status().problems and time.monotonic() < until:
        live.socket.poll(10)
    assert "cannot be read" in platform.relay.status().problems[0]
    bus.is_down = False
    assert live.next()[0] == "HISTORY_READY:during"
    assert late.next()[0] == "RESPONSE:c"


def test_a_relay_that_starts_before_its_bus_serves_once_it_is_there(start_relay: Start) -> None:
    bus = OutageBus()
    bus.is_down = True
    platform = start_relay(bus)
    subscriber = platform.subscriber("HISTORY_READY:r")
    assert not platform.relay.status().is_ready
    finish(bus, "r")
    bus.is_down = False
    assert subscriber.next()[0] == "HISTORY_READY:r"


def test_frames_that_are_not_subscriptions_do_no_harm(platform: Platform) -> None:
    with zmq.Context() as context, context.socket(zmq.XSUB) as socket:
        socket.linger = 0
        socket.rcvtimeo = 10_000
        socket.connect(platform.relay.notifications_address)
        finish(platform.bus, "xsub")
        for frames in ([b"\x07hello"], [b"\x07", b"part"], [b"\x01" + b"T" * 2_000], [b"\x01\xff\xfe"]):
            socket.send_multipart(frames)
        socket.send(b"\x01HISTORY_READY:xsub")
        assert socket.recv_multipart()[0] == b"HISTORY_READY:xsub"
