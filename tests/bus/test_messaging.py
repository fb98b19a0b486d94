"""The guarantees of `bus.messaging`."""

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus.api import Bus, Record
from bus.connect import messaging_of
from bus.messaging import MAX_BYTES, ORDER_HEADER, ORDERED_LOOK, Claim, Delivery, Messaging, Settled
from bus.redis import store as bus_store
from bus.redis.redis_bus import RedisBus
from candlewright.wire.errors import BusError, BusFull
from tests.fresh_bus import FreshBus
from tests.rounds import rounds, seeds

HOUR = 3_600.0


@dataclass
class Store:
    bus: Bus
    queue: Messaging

    def receive(
        self, count: int = 10, *, hide: float = HOUR, in_order: bool = False, default: float = HOUR
    ) -> list[Delivery]:
        found = self.queue.receive(
            "t",
            "g",
            "c",
            partition=0,
            max_records=count,
            hide_seconds=hide,
            default_hide_seconds=default,
            in_order=in_order,
        )
        return list(found.deliveries)

    def settle(self, delivery: Delivery) -> Settled:
        return self.queue.acknowledge([claim(delivery)])[0]

    def publish(self, *groups: str) -> None:
        headers = [{ORDER_HEADER: json.dumps({"group": name})} if name else {} for name in groups]
        self.bus.publish("t", [Record(name.encode(), headers=h) for name, h in zip(groups, headers, strict=True)])


def eventually(read: Callable[[], list[Delivery]]) -> list[Delivery]:
    deadline = time.monotonic() + 5
    while not (found := read()) and time.monotonic() < deadline:
        pass
    return found


def claim(delivery: Delivery) -> Claim:
    return Claim("t", "g", 0, delivery.record.offset, delivery.attempt)


def seen(deliveries: list[Delivery]) -> list[tuple[int, int]]:
    return [(delivery.record.offset, delivery.attempt) for delivery in deliveries]


@pytest.fixture
def store() -> Iterator[Store]:
    bus = FreshBus()
    bus.create_topic("t", 1)
    bus.create_group("t", "g", at_end=False)
    queue = messaging_of(bus)
    yield Store(bus, queue)
    queue.close()
    bus.close()


def test_a_delivered_record_is_hidden_for_its_own_time(store: Store) -> None:
    store.publish("a", "b", "c")
    assert seen(store.receive(2)) == [(0, 1), (1, 1)]
    assert seen(store.receive(2, hide=0.0)) == [(2, 1)]
    assert seen(store.receive(2)) == [(2, 2)]
    assert store.receive() == []


def test_an_unknown_group_is_an_error(store: Store) -> None:
    with pytest.raises(BusError):
        store.queue.receive("t", "x", "c", partition=0, max_records=1, hide_seconds=1, default_hide_seconds=1)


def test_the_time_until_something_is_due_is_returned(store: Store) -> None:
    store.publish("a")
    found = store.queue.receive("t", "g", "c", partition=0, max_records=1, hide_seconds=100, default_hide_seconds=1)
    assert found.next_due_seconds is not None
    assert 90 < found.next_due_seconds <= 100


def test_an_acknowledged_record_does_not_come_again_and_frees_retention(store: Store) -> None:
    store.publish("a")
    (first,) = store.receive(hide=0.0)
    assert store.settle(first) is Settled.DONE
    assert store.settle(first) is Settled.BEFORE
    assert store.receive() == []
    assert store.bus.pending("t", "g") == {0: 0}


def test_a_handle_from_an_earlier_delivery_is_stale(store: Store) -> None:
    store.publish("a")
    (first,) = store.receive(hide=0.0)
    (second,) = store.receive(hide=0.0)
    assert store.settle(first) is Settled.STALE
    assert store.queue.postpone(claim(first), 0) is Settled.STALE
    assert store.settle(second) is Settled.DONE
    assert store.settle(first) is Settled.STALE
    assert store.settle(second) is Settled.BEFORE


def test_a_postponed_record_is_delivered_again_after_its_delay(store: Store) -> None:
    store.publish("a")
    (first,) = store.receive()
    assert store.queue.postpone(claim(first), 0.05) is Settled.DONE
    assert store.receive() == []
    assert seen(eventually(store.receive)) == [(0, 2)]


def test_a_returned_record_is_delivered_again_as_the_same_attempt(store: Store) -> None:
    store.publish("a")
    (first,) = store.receive()
    assert store.queue.give_back([claim(first)]) == [Settled.DONE]
    assert seen(store.receive()) == [(0, 1)]


def test_a_buried_record_is_acknowledged_and_waits_on_the_queue_once(store: Store) -> None:
    store.publish("a")
    (first,) = store.receive()
    for outcome in (Settled.DONE, Settled.BEFORE):
        assert store.queue.bury(claim(first), queue="q", id="i", payload=b"p") is outcome
    assert store.queue.claim_due("q", max_items=9, lease_seconds=HOUR) == [("i", b"p")]
    assert store.bus.pending("t", "g") == {0: 0}


def test_records_that_others_of_the_group_were_given_come_after_the_default_time(store: Store) -> None:
    store.publish("a")
    assert len(store.bus.read_group("t", "g", "other")) == 1
    assert store.receive() == []
    store.publish("b")
    assert len(store.bus.read_group("t", "g", "other")) == 1
    assert seen(eventually(lambda: store.receive(default=0.0))) == [(1, 2)]


def test_records_whose_times_were_lost_come_again(redis_url: str) -> None:
    bus = RedisBus(redis_url)
    bus.create_topic("t", 1)
    bus.create_group("t", "g", at_end=False)
    store = Store(bus, messaging_of(bus))
    store.publish("a", "b")
    assert len(store.receive()) == 2
    with redis.Redis.from_url(redis_url) as client:
        client.delete("cw:due:t:0:g")
    assert seen(store.receive(default=0.0)) == [(0, 2), (1, 2)]
    store.queue.close()
    bus.close()


@pytest.mark.parametrize("in_order", [False, True])
def test_records_whose_delivery_answer_was_lost_are_delivered_again(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    bus = RedisBus(redis_url)
    bus.create_topic("t", 1)
    bus.create_group("t", "g", at_end=False)
    store = Store(bus, messaging_of(bus))
    store.publish("a", "b", "c")
    assert seen(store.receive(1, in_order=in_order, hide=0.0)) == [(0, 1)]
    exchange = bus_store.Store._exchange

    def lost(self: bus_store.Store, packed: bytes, replies: int) -> list[object]:
        monkeypatch.setattr(bus_store.Store, "_exchange", exchange)
        self._exchange(packed, replies)
        raise redis.ConnectionError("the connection is lost")

    monkeypatch.setattr(bus_store.Store, "_exchange", lost)
    found = store.receive(2, in_order=in_order)
    assert seen(found) == [(0, 2), (1, 1)]
    assert seen(store.receive(in_order=in_order)) == [(2, 1)]
    assert store.queue.acknowledge(list(map(claim, found))) == [Settled.DONE] * 2
    store.queue.close()
    bus.close()


def test_in_order_nothing_of_a_message_group_passes_a_hidden_one(store: Store) -> None:
    store.publish("a", "a", "b", "a", "b")
    assert seen(store.receive(1, in_order=True)) == [(0, 1)]
    (second,) = store.receive(1, in_order=True)
    assert (second.record.offset, second.attempt) == (2, 1)
    assert store.receive(in_order=True) == []
    assert store.settle(second) is Settled.DONE
    assert seen(store.receive(in_order=True)) == [(4, 1)]


def test_in_order_starts_again_from_the_first_unsettled_one(store: Store) -> None:
    store.publish("a", "a", "a")
    first, second, third = store.receive(in_order=True)
    assert store.settle(first) is Settled.DONE
    assert store.queue.postpone(claim(second), 0) is Settled.DONE
    assert seen(store.receive(in_order=True)) == [(1, 2), (2, 2)]
    assert store.settle(third) is Settled.STALE


def test_in_order_other_groups_continue_however_many_records_wait_for_a_hidden_one(store: Store) -> None:
    behind = ORDERED_LOOK + 500
    store.publish("stuck", *["stuck"] * behind, "free", "other", "free")
    (first,) = store.receive(1, in_order=True)
    found = eventually(lambda: store.receive(in_order=True))
    assert seen(found) == [(behind + 1, 1), (behind + 2, 1), (behind + 3, 1)]
    # Later items cost the bus nothing, and are kept.
    assert store.bus.pending("t", "g") == {0: 4}
    for delivery in found:
        assert store.settle(delivery) is Settled.DONE
    assert store.settle(first) is Settled.DONE
    assert store.bus.trim("t", keep_seconds=-1) == 1
    came: list[int] = []
    while len(came) < behind and (found := eventually(lambda: store.receive(100, in_order=True))):
        came += [delivery.record.offset for delivery in found]
        assert set(store.queue.acknowledge(list(map(claim, found)))) == {Settled.DONE}
    assert came == list(range(1, behind + 1))
    store.publish("stuck")
    assert seen(store.receive(in_order=True)) == [(behind + 4, 1)]
    assert store.bus.trim("t", keep_seconds=-1) == behind + 3


def test_an_unordered_reader_gets_records_that_waited_for_a_hidden_one(store: Store) -> None:
    store.publish("a", "a", "b", "a")
    store.receive(1, in_order=True)
    assert seen(store.receive(1, in_order=True)) == [(2, 1)]
    assert seen(store.receive()) == [(1, 1), (3, 1)]
    store.publish("a")
    assert store.receive(in_order=True) == []


def test_a_recreated_group_starts_afresh(store: Store) -> None:
    store.publish("a", "a", "b", "b")
    store.receive(1, in_order=True)
    store.receive(in_order=True)
    store.bus.delete_group("t", "g")
    store.bus.trim("t", keep_seconds=-1)
    store.publish("a")
    store.bus.create_group("t", "g", at_end=False)
    assert seen(store.receive(in_order=True)) == [(4, 1)]


def test_a_call_returns_a_bounded_number_of_bytes_and_the_next_call_the_rest(store: Store) -> None:
    store.bus.publish("t", [Record(bytes(MAX_BYTES // 4)) for _ in range(20)])
    found = store.receive(20)
    assert 4 <= len(found) < 20
    assert len(store.receive(20)) == min(len(found), 20 - len(found))


def test_settling_an_unknown_message_is_reported(store: Store) -> None:
    store.publish("a")
    (first,) = store.receive()
    claims = [Claim("t", "g", partition, offset, 1) for partition, offset in ((0, 1), (7, 0), (0, 10**30), (10**30, 0))]
    assert store.queue.acknowledge([*claims, claim(first)]) == [Settled.UNKNOWN] * 4 + [Settled.DONE]
    assert store.queue.acknowledge([]) == []
    assert store.queue.acknowledge([Claim("none", "g", 0, 0, 1)]) == [Settled.UNKNOWN]


def test_in_order_a_slow_reader_can_settle_with_its_old_handle(store: Store) -> None:
    store.publish("a", "a")
    late, _ = (claim(store.receive(1, hide=0.0, in_order=True)[0]) for _ in range(2))
    assert store.queue.acknowledge([late._replace(consumer="other"), late]) == [Settled.STALE] * 2
    # It was delivered to itself again.
    assert store.queue.acknowledge([late._replace(consumer="c")]) == [Settled.DONE]
    assert store.queue.acknowledge([late, late._replace(attempt=2)]) == [Settled.BEFORE] * 2
    assert seen(store.receive(in_order=True)) == [(1, 1)]


def test_in_order_without_message_group_the_key_counts(store: Store) -> None:
    store.bus.publish("t", [Record(b"1", key=b"k", partition_key=b""), Record(b"2", key=b"l", partition_key=b"")])
    assert len(store.receive(1, in_order=True)) == 1
    assert seen(store.receive(1, in_order=True)) == [(1, 1)]


@settings(max_examples=rounds(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    groups=st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
    steps=st.lists(st.tuples(st.sampled_from("rand"), st.integers(0, 5)), max_size=40),
)
def test_in_order_deliveries_of_a_group_never_overlap_and_none_is_lost(
    groups: list[str], steps: list[tuple[str, int]]
) -> None:
    bus = FreshBus()
    bus.create_topic("t", 1)
    bus.create_group("t", "g", at_end=False)
    store = Store(bus, messaging_of(bus))
    store.publish(*groups)
    out: dict[int, Delivery] = {}
    done: list[int] = []
    for step, index in [*steps, *[("r", 9), ("d", 0)] * len(groups)]:
        if step in "ra":
            for delivery in store.receive(index % 3 + 1, in_order=True):
                name = groups[delivery.record.offset]
                earlier = [o for o, n in enumerate(groups[: delivery.record.offset]) if n == name and o not in done]
                assert all(o in out for o in earlier), "skipped one that was not given out"
                out[delivery.record.offset] = delivery
        elif out:
            offset = sorted(out)[index % len(out)]
            if step == "d":
                outcome = store.settle(out[offset])
                if outcome is Settled.DONE:
                    done.append(offset)
            else:
                store.queue.postpone(claim(out[offset]), 0)
            del out[offset]
    for _ in groups:
        for delivery in store.receive(in_order=True):
            if store.settle(delivery) is Settled.DONE:
                done.append(delivery.record.offset)
        for delivery in out.values():
            if store.settle(delivery) is Settled.DONE:
                done.append(delivery.record.offset)
    assert sorted(done) == list(range(len(groups)))


@pytest.mark.parametrize("seed", seeds(6))
def test_every_record_is_delivered_despite_concurrent_settling_and_trimming(store: Store, seed: int) -> None:
    choose, count = random.Random(seed), 0
    out: dict[int, Delivery] = {}
    done: set[int] = set()

    def receive(most: int, *, in_order: bool) -> None:
        found = store.receive(most, in_order=in_order)
        assert len(found) <= most
        assert done.isdisjoint(delivery.record.offset for delivery in found)
        out.update((delivery.record.offset, delivery) for delivery in found)

    def settle(verb: str, offset: int) -> None:
        delivery = out.pop(offset)
        mine = claim(delivery)
        outcome = {
            "done": lambda: store.queue.acknowledge([mine])[0],
            "again": lambda: store.queue.postpone(mine, 0),
            "unseen": lambda: store.queue.give_back([mine])[0],
        }[verb]()
        assert outcome is Settled.DONE
        if verb == "done":
            done.add(offset)

    for _ in range(60):
        step = choose.random()
        if step < 0.3:
            groups = [choose.choice("abcd") for _ in range(choose.randint(1, 6))]
            count += len(groups)
            store.publish(*groups)
        elif step < 0.65:
            receive(choose.randint(1, 4), in_order=choose.random() < 0.9)
        elif step < 0.7:
            store.bus.trim("t", keep_seconds=-1)
            assert store.bus.state("t")[0].first == min(set(range(count + 1)) - done)
        elif out:
            settle(choose.choice(["done", "done", "again", "unseen"]), choose.choice(sorted(out)))
    while len(done) < count:
        receive(9, in_order=True)
        assert out
        for offset in sorted(out):
            settle("done", offset)
    assert done == set(range(count))


def test_messages_for_later_are_claimed_when_due_and_go_when_removed(store: Store) -> None:
    queue = store.queue
    assert queue.next_due("q") is None
    assert queue.add("q", "soon", b"1", delay_seconds=0)
    assert queue.add("q", "far", b"2", delay_seconds=HOUR)
    assert not queue.add("q", "soon", b"3", delay_seconds=0)
    assert queue.claim_due("q", max_items=9, lease_seconds=0) == [("soon", b"1")]
    assert queue.claim_due("q", max_items=9, lease_seconds=HOUR) == [("soon", b"1")]
    assert queue.claim_due("q", max_items=9, lease_seconds=HOUR) == []
    queue.remove("q", "soon", registry="r")
    assert queue.claim_due("q", max_items=9, lease_seconds=HOUR) == []
    due = queue.next_due("q")
    assert due is not None and HOUR - 60 < due <= HOUR


def test_timed_and_half_messages_are_bounded_by_the_bytes_of_a_topic(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = store.queue
    monkeypatch.setattr(store.bus, "_max_bytes", 100)
    store.publish("a")
    (dead,) = store.receive()
    assert queue.add("q", "later", bytes(40), delay_seconds=HOUR)
    assert not queue.add("q", "later", bytes(40), delay_seconds=HOUR)
    assert queue.prepare("q", "half", bytes(40), ask_after_seconds=HOUR)
    with pytest.raises(BusFull):
        queue.add("q", "more", bytes(40), delay_seconds=HOUR)
    with pytest.raises(BusFull):
        queue.prepare("q", "more", bytes(40), ask_after_seconds=HOUR)
    # Records that a group gave up always have a place, because they have left their topic.
    assert queue.bury(claim(dead), queue="q", id="dead", payload=bytes(40)) is Settled.DONE
    assert queue.kept_bytes("q") == 120
    assert queue.resolve("q", "half", "commit", delay_seconds=0) == "commit"
    assert queue.kept_bytes("q") == 120
    for id in ("half", "dead", "later", "later"):
        queue.remove("q", id, registry="r")
    assert queue.kept_bytes("q") == 0
    assert queue.prepare("q", "x", bytes(100), ask_after_seconds=HOUR)
    assert queue.resolve("q", "x", "rollback") == "rollback"
    assert queue.kept_bytes("q") == 0


def test_a_half_message_is_resolved_once(store: Store) -> None:
    queue = store.queue
    assert queue.prepare("q", "x", b"p", ask_after_seconds=0)
    assert not queue.prepare("q", "x", b"other", ask_after_seconds=0)
    assert queue.half("q", "x") == b"p"
    assert queue.resolve("q", "x", "commit", delay_seconds=0) == "commit"
    assert queue.resolve("q", "x", "rollback") == "commit"
    assert queue.resolve("q", "unknown", "commit", delay_seconds=0) == ""
    assert queue.half("q", "x") is None
    assert queue.count_asked("q", "x", 0) == 0
    assert queue.claim_due("q", max_items=9, lease_seconds=HOUR) == [("x", b"p")]


def test_a_rolled_back_message_goes_nowhere(store: Store) -> None:
    store.queue.prepare("q", "x", b"p", ask_after_seconds=0)
    assert store.queue.resolve("q", "x", "rollback") == "rollback"
    assert store.queue.resolve("q", "x", "commit", delay_seconds=0) == "rollback"
    assert store.queue.claim_due("q", max_items=9, lease_seconds=0) == []


def test_undecided_messages_are_queried_repeatedly(store: Store) -> None:
    queue = store.queue
    queue.prepare("q", "x", b"p", ask_after_seconds=0)
    queue.prepare("q", "y", b"p", ask_after_seconds=HOUR)
    assert [(half.id, half.asked) for half in queue.claim_unresolved("q", max_items=9, again_seconds=0)] == [("x", 0)]
    assert queue.count_asked("q", "x", 0) == 1
    (half,) = queue.claim_unresolved("q", max_items=9, again_seconds=HOUR)
    assert (half.id, half.payload, half.asked) == ("x", b"p", 1)
    assert queue.claim_unresolved("q", max_items=9, again_seconds=HOUR) == []


def test_mail_is_taken_in_order_and_once(store: Store) -> None:
    store.queue.post("a", b"1", HOUR)
    store.queue.post("a", b"2", HOUR)
    assert store.queue.posted() == 2
    assert store.queue.collect(["a", "b"]) == [b"1", None]
    assert store.queue.collect(["b", "a"]) == [None, b"2"]
    assert store.queue.collect(["a"]) == [None]
    assert store.queue.collect([]) == []
