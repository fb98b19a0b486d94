"""A trigger's suspension reaches the readers of its events: once, after the last of them, also after restarts."""

from collections.abc import Callable

import pytest

import candlewright as cw
from bus import topics as bus_topics
from candlewright.client.live.feed import Feed
from candlewright.client.session.session import Session, Subscribe, Ticket, Unsubscribe
from candlewright.client.triggers.trigger_events import TriggerEvent, TriggerEvents
from candlewright.wire import candlewright_pb2 as pb
from candlewright.wire import frames
from core.settings import Settings
from protobuf import records_pb2 as rec
from tests.candlewright.client.trigger_relay import event
from tests.relay import pipeline
from tests.relay.conftest import Start, start_relay  # noqa: F401
from tests.relay.harness import Platform
from tests.relay.test_live import eventually
from tests.relay.test_triggers import state_of

SQL = "price > 1"
OLD, NEW = 1_000, 2_000


def suspension(
    registered_at: int = OLD, newest: int = 0, trigger_id: str = "t", *, reason: str = "too slow"
) -> pb.Error:
    return pb.Error(
        code="TRIGGER_SUSPENDED",
        text=reason,
        request_id=trigger_id,
        topic=f"TRIGGER:{trigger_id}",
        newest_sequence=newest,
        registered_at=registered_at,
    )


class Reader:
    """One feed of trigger `t` in a session without sockets."""

    def __init__(self, first: int = 1) -> None:
        self.session = Session()
        self.feed: Feed[TriggerEvent] = Feed("TRIGGER:t", TriggerEvents("t"), first=first)
        self.ticket: Ticket[None] = self.session.begin(self.feed.run(self.session), 0.0)

    def hear(self, *messages: object) -> None:
        for message in messages:
            self.session.receive_publication([b"TRIGGER:t", *frames.encode(message)], 0.0)  # type: ignore[arg-type]

    def taken(self) -> list[object]:
        """Numbers of events, and registrations that were suspended."""
        found: list[object] = []
        while (item := self.feed.take()) is not None:
            assert isinstance(item, TriggerEvent | cw.TriggerSuspended)
            found.append(item.sequence if isinstance(item, TriggerEvent) else (item.registered_at, item.reason))
        return found


def test_a_suspension_comes_once_after_the_events_before_it() -> None:
    reader = Reader()
    reader.hear(suspension(newest=2), event("t", 1))
    assert reader.taken() == [1]
    reader.hear(event("t", 2), suspension(newest=2))
    assert reader.taken() == [2, (OLD, "too slow")]
    reader.hear(suspension(newest=2))
    assert reader.taken() == []
    reader.hear(event("t", 3), suspension(NEW, newest=3, reason="again"))
    assert reader.taken() == [3, (NEW, "again")]


def test_earlier_events_that_were_missed_are_requested() -> None:
    reader = Reader()
    reader.session.take_commands()
    reader.hear(suspension(newest=2))
    assert reader.taken() == []
    record = pb.TopicRecord(topic="TRIGGER:t", sequence=1, body=frames.encode_body(event("t", 1)))
    last = pb.TopicRecord(topic="TRIGGER:t", sequence=2, body=frames.encode_body(event("t", 2)), is_final=True)
    for each in (record, last):
        reader.session.receive_reply(frames.encode(each), 0.0)
    assert reader.taken() == [1, 2, (OLD, "too slow")]


def test_a_new_registration_is_not_notified_of_the_end_of_an_old_one() -> None:
    reader = Reader()
    reader.feed.begin_at(1, NEW - 500)
    reader.hear(suspension(OLD))
    reader.feed.registered(is_new=True)
    assert reader.taken() == []
    reader.hear(suspension(OLD), suspension(NEW))
    assert reader.taken() == [(NEW, "too slow")]
    other = Reader()
    other.feed.begin_at(1, NEW - 500)
    other.hear(suspension(NEW))
    other.feed.registered(is_new=True)
    assert other.taken() == [(NEW, "too slow")]
    # One that was already there may have been registered long ago.
    known = Reader()
    known.feed.begin_at(1, NEW - 500)
    known.feed.registered(is_new=False)
    known.hear(suspension(OLD))
    assert known.taken() == [(OLD, "too slow")]


def test_a_second_stream_of_the_same_client_subscribes_again_and_gets_it_too() -> None:
    reader = Reader()
    reader.session.take_commands()
    reader.hear(suspension())
    second: Feed[TriggerEvent] = Feed("TRIGGER:t", TriggerEvents("t"), first=1)
    reader.session.begin(second.run(reader.session), 0.0)
    moves = [each for each in reader.session.take_commands() if isinstance(each, Subscribe | Unsubscribe)]
    assert moves == [Unsubscribe("TRIGGER:t"), Subscribe("TRIGGER:t")]


def test_other_errors_on_a_topic_are_skipped() -> None:
    reader = Reader()
    reader.hear(pb.Error(code="SOMETHING", text="else", registered_at=OLD))
    assert reader.taken() == []
    assert not reader.ticket.is_done


# ---- against a relay
def connect(platform: Platform) -> cw.Client:
    relay = platform.relay
    return cw.connect(relay.requests_address, relay.notifications_address, settings=Settings())


def suspend(platform: Platform, trigger_id: str, reason: str = "too slow") -> None:
    bus = platform.bus
    version = pipeline.entries(bus)[trigger_id].registration.version
    end = bus.state(bus_topics.TRIGGER_CONTROLS)[0].end
    pipeline.report(bus, 0, end, rec.TriggerSuspended(trigger_id=trigger_id, version=version, reason=reason))


def heard(next_one: Callable[[float], object]) -> str:
    with pytest.raises(cw.TriggerSuspended) as raised:
        next_one(10)
    assert str(raised.value) == f"trigger {raised.value.trigger_id} is suspended: {raised.value.reason}"
    return raised.value.reason


def test_the_owner_is_notified_once_over_a_relay_restart_and_so_is_a_late_one(start_relay: Start) -> None:  # noqa: F811
    first = start_relay()
    bus, address = first.bus, first.relay.notifications_address
    with pipeline.running(bus), connect(first) as client:
        trigger = client.triggers.add(SQL, trigger_id="mine", callback_id=client.client_id)
        events = trigger.events()
        pipeline.fire(bus, "mine", 1)
        assert events.next(10).sequence == 1
        # It is stopped while no relay runs.
        requests = first.relay.requests_address
        first.relay.close()
        suspend(first, "mine")
        second = start_relay(bus, notifications_bind=address, requests_bind=requests)
        assert heard(events.next) == "too slow"
        assert (trigger.info().state, trigger.info().reason) == ("suspended", "too slow")
        second.relay.close()
        third = start_relay(bus, notifications_bind=address, requests_bind=requests)
        with connect(third) as other:
            assert heard(other.triggers.events("mine").next) == "too slow"
        assert list(trigger.events(timeout=0.5)) == []
        with client.triggers.events("mine", from_sequence=1) as again:
            assert again.next(10).sequence == 1
            assert heard(again.next) == "too slow"
        renewed = client.triggers.add(SQL, trigger_id="mine")
        assert renewed.is_new
        assert renewed.info().state == "active"
        assert list(renewed.events(timeout=0.5)) == []
        suspend(third, "mine", "slow again")
        assert [heard(events.next), heard(renewed.events().next)] == ["slow again"] * 2


async def test_the_async_client_gets_it_as_well(start_relay: Start) -> None:  # noqa: F811
    platform = start_relay()
    relay = platform.relay
    with pipeline.running(platform.bus):
        async with cw.aconnect(relay.requests_address, relay.notifications_address, settings=Settings()) as client:
            trigger = await client.triggers.add(SQL)
            suspend(platform, trigger.id)
            with pytest.raises(cw.TriggerSuspended, match="too slow"):
                async for _ in trigger.events(timeout=10):
                    pass
            assert [each async for each in trigger.events(timeout=0.3)] == []
            with pytest.raises(cw.TriggerSuspended):
                await client.triggers.events(trigger.id).next(timeout=10)


def test_a_trigger_that_waits_for_the_pipeline_is_listed_as_starting(start_relay: Start) -> None:  # noqa: F811
    platform = start_relay()
    with connect(platform) as client:
        with pytest.raises(cw.PlatformUnreachable):
            client.triggers.add(SQL, trigger_id="t", timeout=0.5)
        [info] = client.triggers.list()
        assert (info.state, info.is_starting) == ("active", True)
        assert state_of(platform.client()) == []
        pipeline.report_all(platform.bus)
        eventually(lambda: not client.triggers.get("t").is_starting)
        assert state_of(platform.client()) == [("active", "")]
