"""Events on the topics of their trigger and of its callback: live, after a restart, and again on demand."""

import threading
from dataclasses import replace
from random import Random
from typing import Any

from bus import topics as bus_topics
from bus.api import Record
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.frames import ON_TOPIC, decode_body
from protobuf import records_pb2 as rec
from relay.doors.notifier import Batch
from relay.live.recent_events import RecentEvents
from relay.settings import RelayLimits
from relay.store import RelayStore
from relay.triggers.feed import TriggerFeed
from tests.fresh_bus import FreshBus
from tests.relay import pipeline
from tests.relay.conftest import Start
from tests.relay.harness import Platform, Subscriber, config
from tests.relay.test_live import eventually
from tests.relay.test_triggers import trigger

#: Without the repetitions of the first moments, which reach every subscriber that comes in them.
NO_REPETITION = replace(RelayLimits(), recent_seconds=0.0)


def registered(platform: Platform, trigger_id: str = "t", **fields: Any) -> None:
    with pipeline.running(platform.bus):
        assert platform.client().ask(trigger(trigger_id, **fields)).status == ing.CEPTriggerAck.REGISTERED


def numbers(subscriber: Subscriber, count: int) -> list[tuple[str, int]]:
    """Topic and sequence of the next messages."""
    found = [subscriber.next() for _ in range(count)]
    return [(topic, int(event.context["sequence"])) for topic, event in found]


def test_an_event_goes_to_its_topic_and_its_callback(start_relay: Start) -> None:
    platform = start_relay(limits=NO_REPETITION)
    registered(platform, callback_id="c")
    registered(platform, "u")
    both = platform.ready_subscriber("TRIGGER:t", "RESPONSE:c")
    callback = platform.ready_subscriber("RESPONSE:c")
    everything = platform.ready_subscriber("TRIGGER:")
    pipeline.fire(platform.bus, "u", 1)
    pipeline.fire(platform.bus, "t", 2)
    topic, event = callback.next()
    assert (topic, event.trigger_id) == ("RESPONSE:c", "t")
    assert dict(event.context) == {"event_id": "e2", "sequence": "1"}
    assert numbers(both, 2) == [("TRIGGER:t", 1), ("RESPONSE:c", 1)]
    assert sorted(numbers(everything, 2)) == [("TRIGGER:t", 1), ("TRIGGER:u", 1)]
    assert callback.drain() == []


def test_a_callback_changes_with_its_trigger_and_ends_with_it(start_relay: Start) -> None:
    platform = start_relay(limits=NO_REPETITION)
    registered(platform, callback_id="c")
    subscriber = platform.ready_subscriber("RESPONSE:")
    registered(platform, callback_id="d")
    pipeline.fire(platform.bus, "t", 1)
    assert numbers(subscriber, 1) == [("RESPONSE:d", 1)]
    registered(platform)
    pipeline.fire(platform.bus, "t", 2)
    assert subscriber.drain() == []


def test_events_from_before_a_removal_still_reach_the_callback(start_relay: Start) -> None:
    platform = start_relay()
    registered(platform, callback_id="c")
    subscriber = platform.ready_subscriber("RESPONSE:c")
    platform.relay.close()
    for number in range(50):
        pipeline.fire(platform.bus, "t", number)
    address = platform.relay.notifications_address
    second = start_relay(platform.bus, notifications_bind=address)
    with pipeline.running(platform.bus):
        assert second.client().ask(cw.TriggerRemove(trigger_id="t")).status == ing.CEPTriggerAck.REGISTERED
        eventually(lambda: pipeline.entries(platform.bus) == {})
    assert {number for _, number in numbers(subscriber, 50)} == set(range(1, 51))


def test_events_fired_while_the_relay_was_down_reach_returning_clients(start_relay: Start) -> None:
    first = start_relay()
    registered(first, callback_id="c")
    subscriber = first.ready_subscriber("TRIGGER:t", "RESPONSE:c")
    pipeline.fire(first.bus, "t", 1)
    numbers(subscriber, 2)
    address = first.relay.notifications_address
    first.relay.close()
    pipeline.fire(first.bus, "t", 2)
    pipeline.fire(first.bus, "t", 3)
    second = start_relay(first.bus, notifications_bind=address)
    found: list[tuple[str, int]] = []
    while not {("TRIGGER:t", 2), ("TRIGGER:t", 3), ("RESPONSE:c", 2), ("RESPONSE:c", 3)} <= set(found):
        found += numbers(subscriber, 1)
    # One that comes a little later is owed the same.
    late = second.subscriber("TRIGGER:t")
    seen: set[int] = set()
    while not {2, 3} <= seen:
        seen |= {number for _, number in numbers(late, 1)}


def test_after_the_first_moments_nothing_is_sent_again(start_relay: Start) -> None:
    platform = start_relay(limits=NO_REPETITION)
    registered(platform)
    early = platform.ready_subscriber("TRIGGER:t")
    pipeline.fire(platform.bus, "t", 1)
    assert numbers(early, 1) == [("TRIGGER:t", 1)]
    late = platform.ready_subscriber("TRIGGER:t")
    pipeline.fire(platform.bus, "t", 2)
    assert numbers(late, 1) == [("TRIGGER:t", 2)]
    assert numbers(early, 1) == [("TRIGGER:t", 2)]


def suspend(platform: Platform, trigger_id: str = "t") -> None:
    entry = pipeline.entries(platform.bus)[trigger_id]
    note = rec.TriggerSuspended(trigger_id=trigger_id, version=entry.registration.version, reason="too slow")
    pipeline.report(platform.bus, 0, platform.bus.state(bus_topics.TRIGGER_CONTROLS)[0].end, note)


def suspensions(subscriber: Subscriber, count: int) -> list[tuple[str, str, str, int]]:
    """Topic, trigger, reason and newest event of the next messages."""
    found = [subscriber.next() for _ in range(count)]
    assert all(isinstance(error, cw.Error) and error.code == "TRIGGER_SUSPENDED" for _, error in found)
    return [(topic, error.request_id, error.text, error.newest_sequence) for topic, error in found]


def test_a_suspension_goes_to_its_topic_and_its_callback_and_to_no_other(start_relay: Start) -> None:
    platform = start_relay()
    registered(platform, callback_id="c")
    registered(platform, "u", callback_id="d")
    owner = platform.ready_subscriber("TRIGGER:t", "RESPONSE:c")
    other = platform.ready_subscriber("TRIGGER:u", "RESPONSE:d")
    pipeline.fire(platform.bus, "t", 1)
    assert numbers(owner, 2) == [("TRIGGER:t", 1), ("RESPONSE:c", 1)]
    suspend(platform)
    assert suspensions(owner, 2) == [("TRIGGER:t", "t", "too slow", 1), ("RESPONSE:c", "t", "too slow", 1)]
    suspend(platform)
    assert owner.drain() == other.drain() == []
    removal = rec.TriggerControl(remove=cw.TriggerRemove(trigger_id="t"))
    assert pipeline.controls(platform.bus)[-1] == removal


def test_a_late_subscriber_is_notified_of_a_suspension_before_and_after_a_restart(start_relay: Start) -> None:
    first = start_relay()
    registered(first, callback_id="c")
    suspend(first)
    expected = ("TRIGGER:t", "t", "too slow", 0)
    assert suspensions(first.subscriber("TRIGGER:t"), 1) == [expected]
    first.relay.close()
    second = start_relay(first.bus)
    assert suspensions(second.subscriber("TRIGGER:t"), 1) == [expected]
    assert suspensions(second.subscriber("TRIGGER:"), 1) == [expected]
    assert suspensions(second.subscriber("RESPONSE:c"), 1) == [("RESPONSE:c", *expected[1:])]
    assert second.ready_subscriber("TRIGGER:tt", "RESPONSE:cc").drain() == []
    registered(second)
    assert second.subscriber("TRIGGER:t").drain() == []


def test_a_suspension_while_the_relay_was_down_reaches_returning_clients(start_relay: Start) -> None:
    first = start_relay()
    registered(first)
    subscriber = first.ready_subscriber("TRIGGER:t")
    address = first.relay.notifications_address
    first.relay.close()
    suspend(first)
    start_relay(first.bus, notifications_bind=address)
    assert suspensions(subscriber, 1) == [("TRIGGER:t", "t", "too slow", 0)]


def test_the_readers_position_is_held_on_the_bus(start_relay: Start) -> None:
    platform = start_relay()
    registered(platform)
    for number in range(3):
        pipeline.fire(platform.bus, "t", number)
    [busy] = [part for part, state in enumerate(platform.bus.state(bus_topics.TRIGGER_EVENTS)) if state.end]
    eventually(lambda: platform.bus.holds(bus_topics.TRIGGER_EVENTS, "relay").get(busy) == 3)
    platform.relay.close()
    pipeline.fire(platform.bus, "t", 3)
    assert platform.bus.trim(bus_topics.TRIGGER_EVENTS, keep_seconds=0) == 3


def test_a_gap_is_filled_by_a_replay(start_relay: Start) -> None:
    platform = start_relay()
    registered(platform)
    for number in range(20):
        pipeline.fire(platform.bus, "t", number)
        pipeline.fire(platform.bus, "other", number)
    client = platform.client()
    records = [client.ask(cw.TopicReplay(topic="TRIGGER:t", from_sequence=5, to_sequence=8))]
    while not records[-1].is_final:
        records.append(client.answer())
    assert [record.sequence for record in records] == [5, 6, 7, 8]
    events = [decode_body(record.body, ON_TOPIC) for record in records]
    assert [dict(event.context) for event in events] == [  # type: ignore[attr-defined]
        {"event_id": f"e{number - 1}", "sequence": str(number)} for number in (5, 6, 7, 8)
    ]


def test_events_of_many_tickers_keep_their_order_live_and_replayed(start_relay: Start) -> None:
    """They are in all partitions of the bus."""
    platform = start_relay()
    registered(platform)
    subscriber = platform.ready_subscriber("TRIGGER:t")
    randomly = Random(1)
    for first in range(0, 3_000, 10):
        events = [
            pipeline.fired(trigger_id, number, f"C{randomly.randrange(20)}/USDT.BINANCE")
            for number in range(first, first + 10)
            for trigger_id in ("t", "other")
        ]
        platform.bus.publish(bus_topics.TRIGGER_EVENTS, events)
    assert all(state.end > 100 for state in platform.bus.state(bus_topics.TRIGGER_EVENTS))
    assert numbers(subscriber, 3_000) == [("TRIGGER:t", number) for number in range(1, 3_001)]
    client = platform.client()
    records = [client.ask(cw.TopicReplay(topic="TRIGGER:t", from_sequence=100))]
    while not records[-1].is_final:
        records.append(client.answer())
    assert [record.sequence for record in records] == list(range(100, 3_001))


def test_a_backlog_of_several_rounds_keeps_its_order() -> None:
    bus = FreshBus(partitions=2)
    relay_store = RelayStore(bus, config())
    relay_store.prepare()
    randomly = Random(2)
    for first in range(0, 12_000, 50):
        places = [f"C{randomly.randrange(20)}/USDT.BINANCE" for _ in range(50)]
        events = [pipeline.fired("t", first + number, place) for number, place in enumerate(places)]
        bus.publish(bus_topics.TRIGGER_EVENTS, events)
    assert max(state.end for state in bus.state(bus_topics.TRIGGER_EVENTS)) > 5_000
    published: list[int] = []
    stop = threading.Event()

    def publish(batch: Batch, timeout_seconds: float) -> bool:
        events = [decode_body(body, ON_TOPIC) for _, body in batch]
        published.extend(int(event.context["sequence"]) for event in events)  # type: ignore[attr-defined]
        if len(published) == 12_000:
            stop.set()
        return True

    TriggerFeed(bus, relay_store, RelayLimits(), callback_of=lambda trigger_id: "", publish=publish).run(stop)
    assert published == list(range(1, 12_001))


def test_a_record_that_is_not_an_event_stops_nothing(start_relay: Start) -> None:
    platform = start_relay()
    registered(platform)
    subscriber = platform.ready_subscriber("TRIGGER:")
    platform.bus.publish(bus_topics.TRIGGER_EVENTS, [Record(b"\xff\xff", key=b"t"), Record(b"", key=b"t")])
    pipeline.fire(platform.bus, "t", 1)
    assert numbers(subscriber, 1) == [("TRIGGER:t", 1)]


def test_recent_messages_are_bounded_and_found_by_topic_or_prefix() -> None:
    recent = RecentEvents(3, 100)
    recent.add([(b"TRIGGER:a", b"1"), (b"TRIGGER:ab", b"2"), (b"RESPONSE:c", b"3")])
    assert recent.under(b"TRIGGER:a") == [(b"TRIGGER:a", b"1")]
    assert recent.under(b"TRIGGER:") == [(b"TRIGGER:a", b"1"), (b"TRIGGER:ab", b"2")]
    assert len(recent.under(b"")) == 3
    assert recent.under(b"TRIGGER:x") == []
    recent.add([(b"TRIGGER:a", b"4")])
    assert recent.under(b"TRIGGER:a") == [(b"TRIGGER:a", b"4")]
    recent.add([(b"TRIGGER:a", b"x" * 99)])
    assert recent.under(b"") == [(b"TRIGGER:a", b"4"), (b"TRIGGER:a", b"x" * 99)]
    recent.clear()
    assert recent.under(b"") == []
