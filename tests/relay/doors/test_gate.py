"""The connections that hold a topic."""

from relay.doors.gate import Holders


def test_a_topic_is_held_until_its_last_connection_leaves_or_ends() -> None:
    inodes = {7: 100, 8: 101}
    holders = Holders(lambda descriptor: inodes.get(descriptor, 0))
    holders.add(b"t", 7)
    holders.add(b"t", 7)
    holders.add(b"t", 8)
    assert not holders.remove(b"t", 9)
    assert not holders.remove(b"t", 8)
    assert holders.sweep() == []
    inodes[7] = 102
    assert not holders.remove(b"t", 7)
    assert holders.sweep() == [b"t"]
    assert len(holders) == 0


def test_a_connection_that_ended_before_it_was_seen_holds_nothing() -> None:
    holders = Holders(lambda descriptor: 0)
    holders.add(b"t", 7)
    assert holders.sweep() == [b"t"]
