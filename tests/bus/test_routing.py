"""The partition of a record, and the order in which a group reads partitions."""

from bus.api import Record
from bus.routing import Router


def test_groups_that_are_read_in_turn_begin_at_each_partition() -> None:
    router = Router()
    starts = [router.rotated(group, None, 4)[0] for _ in range(8) for group in "ab"]
    assert sorted(starts[::2]) == sorted(starts[1::2]) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_keyless_records_of_topics_that_are_written_in_turn_go_to_each_partition() -> None:
    router = Router()
    chosen = [router.route(topic, [Record(b"")], 4)[0] for _ in range(8) for topic in "ab"]
    assert sorted(chosen[::2]) == sorted(chosen[1::2]) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_counters_of_ever_new_topics_are_bounded() -> None:
    router = Router()
    for number in range(10_100):
        router.route(str(number), [Record(b"")], 4)
    assert len(router._counters) < 200
