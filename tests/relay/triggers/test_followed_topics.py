"""Live topics that triggers read."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as hyp

from relay.triggers.followed_topics import FollowedTopics

NAMES, TOPICS = hyp.sampled_from("ab"), hyp.lists(hyp.sampled_from("xyz")).map(tuple)


@settings(deadline=None)
@given(hyp.lists(hyp.tuples(NAMES, TOPICS)))
def test_a_topic_is_followed_exactly_while_some_trigger_reads_it(steps: list[tuple[str, tuple[str, ...]]]) -> None:
    followed = FollowedTopics()
    reads: dict[str, tuple[str, ...]] = {}
    is_followed: Counter[str] = Counter()
    for name, wanted in steps:
        reads[name] = wanted
        for command in set(followed.follow(name, wanted)):
            is_followed[command.topic] += 1 if command.is_wanted else -1
        assert {topic: 1 for topics in reads.values() for topic in topics} == dict(+is_followed)
    for command in set(followed.drop_others(())):
        is_followed[command.topic] -= 1
    assert not +is_followed


def test_only_topics_of_removed_triggers_are_dropped() -> None:
    followed = FollowedTopics()
    followed.follow("stays", ("x", "y"))
    followed.follow("goes", ("y", "z"))
    assert [(command.topic, command.is_wanted) for command in followed.drop_others({"stays"})] == [("z", False)]
    assert followed.drop_others({"stays"}) == []
