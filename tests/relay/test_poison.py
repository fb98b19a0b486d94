"""No record of the topics that the relay reads, from any sender, stops it; later ones are published."""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus import topics as bus_topics
from bus.api import Record, SequenceStamp
from bus.dead_letters import kept
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as rec
from relay.live.follower import PART
from tests.hostile import records_like
from tests.relay import pipeline
from tests.relay.conftest import Start
from tests.relay.harness import Platform, Subscriber, finish
from tests.relay.test_live import BTC, eventually, put_ticks
from tests.rounds import rounds

TOPICS = (
    bus_topics.TICKS,
    bus_topics.OHLC,
    bus_topics.TRIGGER_EVENTS,
    bus_topics.NOTIFICATIONS,
    bus_topics.SNAPSHOTS,
    bus_topics.TRIGGER_PROGRESS,
)


class Stage:
    """A relay with a subscriber of everything, to which a sound message of each kind must come through."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.subscriber: Subscriber = platform.ready_subscriber("")
        self._number = 0

    def put(self, topic: str, values: Sequence[bytes]) -> None:
        """Half of them have a number, like those of the platform's writers."""
        stamp = SequenceStamp("TICKS:wild", tag=b"\x10")
        self.platform.bus.publish(
            topic,
            [
                Record(
                    value, key=BTC.encode(), sequence=stamp if n % 2 and topic != bus_topics.TRIGGER_PROGRESS else None
                )
                for n, value in enumerate(values)
            ],
        )

    def is_well(self) -> bool:
        self._number += 1
        name = f"sound-{self._number}"
        finish(self.platform.bus, name)
        put_ticks(self.platform.bus, BTC, name)
        pipeline.fire(self.platform.bus, name, 1)
        awaited = {f"HISTORY_READY:{name}", f"TRIGGER:{name}", name}
        while awaited:
            topic, message = self.subscriber.next()
            awaited.discard(topic)
            if isinstance(message, cw.TickBatch):
                awaited.difference_update(message.trade_id)
        return not self.platform.relay.failed.is_set() and not self.platform.relay.status().problems


@pytest.fixture
def stage(start_relay: Start) -> Stage:
    return Stage(start_relay())


@pytest.mark.parametrize("topic", TOPICS)
def test_a_record_that_is_not_a_message_is_put_aside(stage: Stage, topic: str) -> None:
    stage.put(topic, [b"\xff\xff"])
    eventually(lambda: [(letter.part, letter.topic) for _, letter in kept(stage.platform.bus)] == [(PART, topic)])
    assert stage.is_well()


def test_progress_that_cannot_have_been_made_is_put_aside(stage: Stage) -> None:
    far = rec.TriggerProgress(partition=0, controls_end=2**63)
    stage.put(bus_topics.TRIGGER_PROGRESS, [far.SerializeToString()])
    eventually(lambda: bool(list(kept(stage.platform.bus))))
    assert stage.is_well()


def test_a_starting_relay_skips_unreadable_records(start_relay: Start) -> None:
    first = start_relay()
    for topic in TOPICS:
        Stage(first).put(topic, [b"\xff\xff", b""])
    first.bus.put("relay_trigger_progress", {"x": b"y", "0": b"-"})
    first.relay.close()
    assert Stage(start_relay(first.bus)).is_well()


_SOUND = {
    bus_topics.TICKS: [cw.TickBatch(ticker=BTC, timestamp=[1], price=[1.0], size=[1.0], side=[1], trade_id=["1"])],
    bus_topics.OHLC: [cw.OHLCV(ticker=BTC, period_seconds=60, open_time=60, open=1.0)],
    bus_topics.TRIGGER_EVENTS: [ing.CEPTriggerEvent(trigger_id="t", context={"event_id": "e"}, timestamp=1)],
    bus_topics.NOTIFICATIONS: [ing.HistoryReadyNotification(request_id="r", ticker=BTC, row_count=1)],
    bus_topics.SNAPSHOTS: [cw.Snapshot(ticker=BTC, request_id="r", last=1.0)],
    bus_topics.TRIGGER_PROGRESS: [
        rec.TriggerProgress(suspended=[rec.TriggerSuspended(trigger_id="t", version=1, reason="why")])
    ],
}


@settings(deadline=None, max_examples=rounds(30), suppress_health_check=list(HealthCheck))
@given(st.fixed_dictionaries({topic: st.lists(records_like(*_SOUND[topic]), max_size=10) for topic in TOPICS}))
def test_no_record_stops_the_relay(stage: Stage, sent: dict[str, list[bytes]]) -> None:
    for topic, values in sent.items():
        if values:
            stage.put(topic, values)
    assert stage.is_well()
