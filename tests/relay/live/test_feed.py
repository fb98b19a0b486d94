"""The first record that is sent to a subscriber of a published topic."""

import threading
from collections.abc import Callable

import pytest

from bus.api import PartitionState, Record, SequenceStamp
from bus.topics import TICKS as TICKS_TOPIC
from candlewright.wire import candlewright_pb2 as cw
from relay.doors.interest import Interest
from relay.doors.notifier import Batch
from relay.live.feed import LiveFeed
from relay.store import RelayStore
from tests.fresh_bus import FreshBus
from tests.relay.harness import config

TOPIC = b"TICKS:A/B.X"


class SlowBus(FreshBus):
    """`meanwhile` runs while the state of the topic is being read, as if the bus were down for a moment."""

    meanwhile: Callable[[], None] | None = None

    def state(self, topic: str) -> list[PartitionState]:
        if topic == TICKS_TOPIC and (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            meanwhile()
        return super().state(topic)


def publish(bus: FreshBus, number: int) -> None:
    ticks = cw.TickBatch(
        ticker="A/B.X", trade_id=[str(number)], timestamp=[number], price=[1.0], size=[1.0], side=[cw.BUY],
        received_at=[number],
    )  # fmt: skip
    stamp = SequenceStamp(TOPIC.decode(), tag=bytes((cw.TickBatch.FIRST_SEQUENCE_FIELD_NUMBER << 3,)))
    bus.publish(TICKS_TOPIC, [Record(ticks.SerializeToString(), key=b"A/B.X", partition_key=b"A/B.X", sequence=stamp)])


@pytest.mark.parametrize("is_followed", [False, True])
def test_a_subscriber_gets_records_published_while_the_end_is_being_read(is_followed: bool) -> None:
    bus, interest, sent, stop = SlowBus(partitions=1), Interest(), list[Batch](), threading.Event()

    def hand_over(batch: Batch, seconds: float) -> bool:
        sent.append(batch)
        return True

    def subscribed_and_published() -> None:
        if is_followed:
            interest.add(TOPIC)
        publish(bus, 2)

    feed = LiveFeed(bus, RelayStore(bus, config()), interest, publish=hand_over)
    feed._relay_store.prepare()
    publish(bus, 1)
    feed._resume(stop)
    bus.meanwhile = subscribed_and_published
    feed._round(stop)
    interest.add(TOPIC)
    publish(bus, 3)
    feed._round(stop)
    ids = [cw.TickBatch.FromString(body[1:]).trade_id for batch in sent for _, body in batch]
    assert ids == ([["2"], ["3"]] if is_followed else [["3"]])
