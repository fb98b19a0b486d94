"""What a change of one of many triggers writes again, and what is read back."""

from collections.abc import Mapping

from tests.triggers.trigger_records import TICKER, prices, register, remove
from triggers.partition import TriggerPartition
from triggers.running.saved import archive_of

COUNT = 500


def many() -> TriggerPartition:
    partition = TriggerPartition()
    controls = [register(f"t{number}", f"price > {number + 1}", f"T{number}/USDT.BINANCE") for number in range(COUNT)]
    partition.process([], controls=[*controls, register("own", "price > 10", TICKER)])
    return partition


def changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> int:
    """The bytes of the parts about triggers, without the parts of their streams, that are not the same objects."""
    names = [name for name in after if name.startswith(("triggers", "histories"))]
    assert sum(len(after[name]) for name in names) > 30 * COUNT
    return sum(len(after[name]) for name in names if after[name] is not before.get(name))


def test_a_registration_and_an_event_write_few_triggers_again() -> None:
    partition = many()
    parts = partition.segments()
    partition.process([], controls=[register("new", "price > 3", "NEW/USDT.BINANCE")])
    registered = partition.segments()
    assert 0 < changed(parts, registered) < 30 * COUNT / 10
    assert len(partition.process([prices(1, 11.0)]).fired) == 1
    fired = partition.segments()
    assert 0 < changed(registered, fired) < 200
    partition.process([prices(2, 9.0)])
    assert changed(fired, partition.segments()) == 0


def test_triggers_keep_their_order_and_their_counts_of_events() -> None:
    partition = many()
    partition.process([prices(1, 11.0)])
    partition.process([], controls=[register("t3", "price > 5", TICKER, version=2), remove("t4")])
    for _ in range(2):
        found = TriggerPartition.of(partition.segments())
        assert list(found.triggers) == [*(f"t{n}" for n in range(COUNT) if n not in (3, 4)), "own", "t3"]
        assert (found.triggers["own"].events, found.triggers["t3"].events) == (1, 0)
        partition = TriggerPartition.load(archive_of(found.segments()))
    partition.process([], controls=[remove(trigger_id) for trigger_id in list(partition.triggers)])
    assert not any(name.startswith(("triggers", "histories")) for name in partition.segments())
