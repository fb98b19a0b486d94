"""Changes of triggers that are in progress, and the clients that wait for them."""

from relay.asked import Peer
from relay.triggers.changes import Changes, Waiter

TIMEOUT = 30.0
JOINT = 2


def changes() -> Changes:
    found = Changes(TIMEOUT)
    found.load_progress({}, partitions=JOINT)
    return found


def waiter(name: str) -> Waiter:
    return Waiter(Peer(name.encode(), False), name, 1)


def test_a_change_is_passed_once_every_partition_has_read_past_it() -> None:
    found = changes()
    number = found.begin(needs_joint=False)
    found.wait(number, waiter("a"))
    assert not found.is_published(number)
    found.note_progress(0, 8)
    found.note_progress(1, 7)
    assert found.end_passed() == []
    found.publish(number, 7, at=0.0)
    assert found.end_passed() == []
    assert found.note_progress(1, 8) and not found.note_progress(1, 8)
    assert found.end_passed() == [(number, [waiter("a")])]
    assert len(found) == found.waiting == 0


def test_a_change_for_the_joint_partition_waits_for_it_too() -> None:
    found = changes()
    number = found.begin(needs_joint=True, offset=0)
    for partition in (0, 1):
        found.note_progress(partition, 1)
    assert found.end_passed() == []
    found.note_progress(JOINT, 1)
    assert found.end_passed([number]) == [(number, [])]


def test_the_time_to_wait_begins_with_the_publish() -> None:
    found = changes()
    number = found.begin(needs_joint=False)
    found.wait(number, waiter("a"))
    assert found.end_late(TIMEOUT + 1) == []
    found.publish(number, 0, at=TIMEOUT + 1)
    assert found.end_late(2 * TIMEOUT) == []
    assert found.end_late(2 * TIMEOUT + 1) == [waiter("a")]
    assert (found.waiting, len(found)) == (0, 1)


def test_a_dismissed_waiter_waits_no_more_while_the_change_continues() -> None:
    found = changes()
    number = found.begin(needs_joint=False)
    found.wait(number, waiter("a"))
    assert found.dismiss(number) == [waiter("a")]
    assert found.dismiss(number) == []
    assert (found.waiting, len(found)) == (0, 1)
    assert found.end(number) == []
    assert found.dismiss(number) == []


def test_controls_are_needed_from_the_slowest_partition_on() -> None:
    found = changes()
    assert found.oldest_needed == 0
    found.load_progress({0: 5, 1: 4}, partitions=JOINT)
    assert found.oldest_needed == 4
    found.note_progress(JOINT, 2)
    assert found.oldest_needed == 2
