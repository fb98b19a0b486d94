"""An acknowledgement settles only the record that was delivered, not one that got its offset after the store lost
it.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as hyp

from bus.api import GroupRecord, Record
from bus.connect import messaging_of
from bus.lives import LATE_ACKNOWLEDGEMENTS, life_of
from bus.messaging import Claim, Delivery, Messaging, Settled
from tests.fresh_bus import FreshBus

OLD, NEW = b"old", b"new"


@pytest.fixture
def bus() -> FreshBus:
    found = FreshBus()
    fill(found, OLD)
    return found


def fill(bus: FreshBus, value: bytes) -> None:
    bus.create_group("t", "g", at_end=False)
    bus.publish("t", [Record(value, partition=0)])


def lose_everything(bus: FreshBus) -> None:
    """Lose every record, then fill their offsets with new ones."""
    bus._store.call("FLUSHDB")
    fill(bus, NEW)


def late() -> float:
    return LATE_ACKNOWLEDGEMENTS.labels("t")._value.get()


def acknowledged(bus: FreshBus, given: GroupRecord) -> int:
    record = given.record
    return bus.acknowledge("t", "g", record.partition, offsets=[record.offset], lives={record.offset: given.life})


@pytest.mark.parametrize("is_claimed", [False, True])
def test_a_late_acknowledgement_leaves_the_record_in_its_place_pending(bus: FreshBus, is_claimed: bool) -> None:
    (given_old,) = bus.read_group("t", "g", "one")
    if is_claimed:
        (given_old,) = bus.claim_expired("t", "g", "two", min_idle_seconds=0)
    lose_everything(bus)
    before = late()
    (given_new,) = bus.read_group("t", "g", "two")
    assert acknowledged(bus, given_old) == 0
    assert (late() - before, bus.pending("t", "g")[0]) == (1, 1)
    (again,) = bus.claim_expired("t", "g", "two", min_idle_seconds=0)
    assert (again.record.value, again.life) == (NEW, given_new.life)
    assert acknowledged(bus, again) == 1
    assert late() - before == 1


@pytest.mark.parametrize("what", ["acknowledge", "postpone", "give_back", "bury"])
def test_no_late_answer_changes_the_delivery_of_the_record_in_its_place(bus: FreshBus, what: str) -> None:
    queue = messaging_of(bus)
    old = received(queue)
    lose_everything(bus)
    new, before = received(queue), late()
    assert new.attempt == old.attempt == 1
    answers = {
        "acknowledge": lambda claim: queue.acknowledge([claim])[0],
        "postpone": lambda claim: queue.postpone(claim, 0),
        "give_back": lambda claim: queue.give_back([claim])[0],
        "bury": lambda claim: queue.bury(claim, queue="q", id="i", payload=b""),
    }
    assert answers[what](claim_of(old)) is Settled.UNKNOWN
    assert (late() - before, bus.pending("t", "g")[0], queue.claim_due("q", max_items=1, lease_seconds=1)) == (1, 1, [])
    assert answers["acknowledge"](claim_of(new)) is Settled.DONE
    queue.close()


def received(queue: Messaging) -> Delivery:
    found = queue.receive("t", "g", "c", partition=0, max_records=1, hide_seconds=60, default_hide_seconds=60)
    return found.deliveries[0]


def claim_of(delivery: Delivery) -> Claim:
    return Claim("t", "g", 0, delivery.record.offset, delivery.attempt, life=delivery.life)


@given(hyp.lists(hyp.integers(0, 3), max_size=6))
def test_the_store_and_its_readers_name_the_same_life(runs: list[int]) -> None:
    bus = FreshBus(partitions=1)
    bus.create_group("t", "g", at_end=False)
    wanted = []
    for number, count in enumerate(runs):
        bus._store.call("SET", "cw:life", f"{number:012}")
        bus.publish("t", [Record(b"")] * count)
        wanted += [f"{number:012}"] * count
    found = bus.read_group("t", "g", "c")
    history = bus.state("t")[0].lives
    assert [each.life for each in found] == wanted == [life_of(history, offset) for offset in range(len(wanted))]
    lives = {each.record.offset: each.life for each in found}
    assert bus.acknowledge("t", "g", 0, offsets=list(lives), lives=lives) == len(wanted)
