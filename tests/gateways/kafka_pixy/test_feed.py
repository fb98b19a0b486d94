"""The thread that watches for new records."""

import queue
from collections.abc import Iterator

import pytest

from bus.api import Record
from gateways.kafka_pixy.feed import Feed
from tests.fresh_bus import FreshBus


class Stage:
    def __init__(self) -> None:
        self.bus = FreshBus(partitions=2)
        self.told: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.feed = Feed(self.bus, self.told.put)
        self.feed.start()

    def next(self) -> str:
        return self.told.get(timeout=10)


@pytest.fixture
def stage() -> Iterator[Stage]:
    found = Stage()
    yield found
    found.feed.close()


def test_new_records_are_reported_for_watched_topics_only(stage: Stage) -> None:
    for topic in "abc":
        stage.bus.publish(topic, [Record(b"")])
    stage.feed.watch(frozenset("ab"))
    assert {stage.next(), stage.next()} == {"a", "b"}
    stage.bus.publish("c", [Record(b"")])
    stage.bus.publish("b", [Record(b"")])
    assert stage.next() == "b"
    stage.feed.watch(frozenset("c"))
    assert stage.next() == "c"
    stage.bus.publish("a", [Record(b"")])
    stage.bus.publish("c", [Record(b"")])
    assert stage.next() == "c"
    assert stage.told.empty()


def test_a_topic_that_is_made_after_it_was_requested_is_watched_with_the_others(stage: Stage) -> None:
    stage.bus.create_topic("a")
    stage.feed.watch(frozenset({"a", "later"}))
    assert stage.next() == "a"
    stage.bus.create_topic("later")
    assert stage.next() == "later"
    for _ in range(2):
        stage.bus.publish("later", [Record(b"")])
        assert stage.next() == "later"
