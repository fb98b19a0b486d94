"""A store that lost its newest records assigns their offsets again; no reader may mistake the new records for the old.

A real Redis is restored from a copy of its folder, and then filled beyond its former end before any reader looks again.
"""

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from broker.events import HistoricalAccepted
from broker.journal import journal
from broker.journal.feed import Feed as BrokerFeed
from bus import topics
from bus.api import FewRecords, Lives, Record, TopicPartition
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import RecordsLost
from candlewright.wire.frames import ON_TOPIC, decode_body
from core.metrics import REGISTRY
from flink_replacement_spark.engine.bus_source import BusStreamReader, positions_of
from flink_replacement_spark.tables.follower import Followed, Taken
from flink_replacement_spark.tables.follower import Follower as TableFollower
from protobuf import records_pb2 as rec
from relay.doors.notifier import Batch
from relay.finals.feed import Feed as RelayFeed
from relay.finals.index import FinalIndex
from relay.live.follower import Follower
from relay.settings import RelayLimits
from relay.store import RelayStore
from relay.triggers.feed import TriggerFeed
from tests.broker.harness import eventually
from tests.relay import pipeline
from tests.relay.harness import config

TOPIC = "t"
#: Before the copy; after it and lost; in their place.
KEPT, LOST, NEW = 5, 4, 12


class PausingBus(RedisBus):
    """The bus of a reader that blocks while `is_held` is held."""

    def __init__(self, url: str) -> None:
        super().__init__(url, retry_seconds=60)
        self.is_held = threading.Lock()

    def wait(
        self,
        after: Mapping[TopicPartition, int],
        timeout_seconds: float,
        *,
        lives: Lives | None = None,
        few_records: FewRecords | None = None,
    ) -> set[TopicPartition]:
        with self.is_held:
            return super().wait(after, timeout_seconds, lives=lives, few_records=few_records)


class Store:
    def __init__(self, folder: Path) -> None:
        self._folder, self._copy = folder / "redis", folder / "copy"
        self.server = EmbeddedRedis(self._folder).start()
        self.bus = RedisBus(self.server.url, retry_seconds=60)
        self.reading = PausingBus(self.server.url)

    def close(self) -> None:
        self.bus.close()
        self.reading.close()
        self.server.stop()

    def copy(self) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._folder, self._copy)

    def restore(self) -> None:
        self.server.kill()
        shutil.rmtree(self._folder)
        shutil.copytree(self._copy, self._folder)
        self.server.start()

    def go_back_and_be_filled(self, publish: Callable[[Sequence[str]], object], seen: Callable[[], int]) -> None:
        """`publish` this many records; `seen`: how many of them the reader has read."""
        publish(names("kept", KEPT))
        eventually(lambda: seen() == KEPT)
        self.copy()
        publish(names("lost", LOST))
        eventually(lambda: seen() == KEPT + LOST)
        with self.reading.is_held:
            self.restore()
            publish(names("new", NEW))

    def publish(self, values: Sequence[str]) -> None:
        self.bus.publish(TOPIC, [Record(value.encode(), partition=0) for value in values])


def names(kind: str, count: int) -> list[str]:
    return [f"{kind}{number}" for number in range(count)]


EXPECTED = names("kept", KEPT) + names("lost", LOST) + names("new", NEW)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store(tmp_path)
    found.bus.create_topic(TOPIC, 1)
    yield found
    found.close()


def submitted(name: str) -> ing.SubmitHistoricalRequest:
    return ing.SubmitHistoricalRequest(
        request_id=name,
        client_id=f"client of {name}",
        ticker="BTC/USDT.BINANCE",
        period_seconds=60,
        start_time=0,
        end_time=60_000_000_000,
    )


def lost(topic: str) -> float:
    return REGISTRY.get_sample_value("candlewright_bus_lost_records_total", {"topic": topic}) or 0.0


class Reader(Follower):
    def __init__(self, bus: RedisBus) -> None:
        super().__init__("reader", bus, RelayStore(bus, config()), publish=lambda batch, seconds: True)
        self.next: dict[int, int] = {}
        self.values: list[str] = []

    def _resume(self, stop: threading.Event) -> None:
        self.next = self._kept(TOPIC, self.next, lambda state: state.end)

    def _round(self, stop: threading.Event) -> None:
        for place in self._wait({(TOPIC, 0): self.next[0]}, 0.01):
            for record in self._read(*place, self.next[0]):
                self.values.append(record.value.decode())
                self.next[0] = record.offset + 1


def test_the_relay_continues_at_the_first_replaced_record(store: Store) -> None:
    reader, stop, before = Reader(store.reading), threading.Event(), lost(TOPIC)
    thread = threading.Thread(target=reader.run, args=(stop,))
    thread.start()
    try:
        eventually(lambda: not reader.problem)
        store.go_back_and_be_filled(store.publish, lambda: len(reader.values))
        eventually(lambda: len(reader.values) >= len(EXPECTED))
        assert reader.values == EXPECTED
        assert lost(TOPIC) - before == LOST
        # A restart that loses nothing is not a loss.
        store.server.kill()
        store.server.start()
        store.publish(["last"])
        eventually(lambda: reader.values == [*EXPECTED, "last"])
        assert lost(TOPIC) - before == LOST
    finally:
        stop.set()
        thread.join(30)


def test_finals_that_were_lost_are_not_replayed_from_the_places_of_others(store: Store) -> None:
    bus = store.bus
    for topic in (topics.NOTIFICATIONS, topics.SNAPSHOTS):
        bus.create_topic(topic, 1)
    index = FinalIndex(1_000)
    published: list[bytes] = []

    def publish(batch: Sequence[tuple[bytes, bytes]], seconds: float) -> bool:
        published.extend(topic for topic, _ in batch if topic.startswith(b"HISTORY_READY:"))
        return True

    def end(names: Sequence[str]) -> None:
        for name in names:
            request = rec.Request(historical=submitted(name))
            bus.publish_once(
                topics.REQUESTS,
                Record(request.SerializeToString(), key=name.encode()),
                registry=topics.REGISTRY_REQUESTS,
                name=name,
                content=request.SerializeToString(),
                keep_seconds=600,
            )
            final = ing.HistoryReadyNotification(request_id=name)
            bus.publish(topics.NOTIFICATIONS, [Record(final.SerializeToString(), key=name.encode())])

    feed = RelayFeed(
        store.reading,
        RelayStore(bus, config()),
        config(),
        index=index,
        publish=publish,
        awaited=set(),
        on_awaited=lambda final: None,
    )
    stop = threading.Event()
    thread = threading.Thread(target=feed.run, args=(stop,))
    thread.start()
    try:
        eventually(feed.is_caught_up.is_set)
        store.go_back_and_be_filled(end, lambda: len(published))
        eventually(lambda: len(published) >= len(EXPECTED))
        assert [topic.decode().removeprefix("HISTORY_READY:") for topic in published] == EXPECTED
        assert len(index) == KEPT + NEW
        for name in names("lost", LOST):
            assert index.newest(f"client of {name}", 10) == []
    finally:
        stop.set()
        thread.join(30)


def test_subscribers_are_notified_that_numbers_are_assigned_again(store: Store) -> None:
    store.bus.create_topic(topics.TRIGGER_EVENTS, 1)
    heard: list[tuple[str, int]] = []

    def publish(batch: Batch, seconds: float) -> bool:
        for topic, body in batch:
            message = decode_body(body, ON_TOPIC)
            assert topic == b"TRIGGER:t"
            if isinstance(message, cw.Error):
                heard.append((message.code, message.newest_sequence))
            else:
                assert isinstance(message, ing.CEPTriggerEvent)
                heard.append(("event", int(message.context["sequence"])))
        return True

    def events() -> int:
        return sum(kind == "event" for kind, _ in heard)

    def fire(names: Sequence[str]) -> None:
        for number in range(len(names)):
            pipeline.fire(store.bus, "t", number)

    relay_store, stop = RelayStore(store.reading, config()), threading.Event()
    feed = TriggerFeed(store.reading, relay_store, RelayLimits(), callback_of=lambda trigger_id: "", publish=publish)
    thread = threading.Thread(target=feed.run, args=(stop,))
    thread.start()
    try:
        store.go_back_and_be_filled(fire, events)
        eventually(lambda: events() >= len(EXPECTED))
        seen = [("event", number) for number in range(1, KEPT + LOST + 1)]
        again = [("event", number) for number in range(KEPT + 1, KEPT + NEW + 1)]
        assert heard == [*seen, ("RECORDS_LOST", KEPT), *again]
    finally:
        stop.set()
        thread.join(30)


def test_a_broker_ends_and_the_next_one_finds_every_request(store: Store) -> None:
    bus = store.bus

    def accept(names: Sequence[str]) -> None:
        for name in names:
            request = rec.Request(historical=submitted(name), accepted_at=1)
            bus.publish(topics.REQUESTS, [Record(request.SerializeToString(), key=name.encode())])

    feed = BrokerFeed(store.reading, journal.replay(bus, 0.0), lambda: None)
    seen: list[str] = []

    def take() -> int:
        while (portion := feed.take()) is not None:
            seen.extend(event.request_id for event in portion.events if isinstance(event, HistoricalAccepted))
        return len(seen)

    store.go_back_and_be_filled(accept, take)
    with pytest.raises(RecordsLost):
        eventually(lambda: take() < 0)
    feed.close()
    assert set(seen).isdisjoint(names("new", NEW))
    replayed = journal.replay(bus, 0.0)
    found = [event.request_id for event in replayed.events if isinstance(event, HistoricalAccepted)]
    assert found == names("kept", KEPT) + names("new", NEW)


def test_a_spark_source_does_not_continue_from_lost_records(store: Store) -> None:
    options = {"url": store.server.url, "topic": TOPIC, "reader": "me", "max_records": "100"}
    reader = BusStreamReader(options)
    reader.initialOffset()
    store.publish(names("kept", KEPT))
    store.copy()
    store.publish(names("lost", LOST))
    planned = reader.latestOffset()
    assert positions_of(planned) == {"0": KEPT + LOST}
    store.restore()
    store.publish(names("new", NEW))
    with pytest.raises(RecordsLost, match=f"read up to {KEPT + LOST}, but is unchanged only up to {KEPT}"):
        reader.latestOffset()
    reader.stop()
    # A restart loses nothing: the same offsets continue.
    again = BusStreamReader(options | {"reader": "other"})
    again.initialOffset()
    planned = again.latestOffset()
    store.server.kill()
    store.server.start()
    store.publish(["last"])
    end = again.latestOffset()
    assert positions_of(end) == {"0": KEPT + NEW + 1}
    assert [each.ranges for each in again.partitions(planned, end)] == [  # type: ignore[attr-defined]
        ((TOPIC, 0, KEPT + NEW, KEPT + NEW, -1),)
    ]
    again.stop()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_table_gets_every_record_that_took_the_place_of_a_lost_one(store: Store, restarts: bool) -> None:
    commits: dict[str, list[str]] = {}
    followed = Followed(topic=TOPIC, reader="table", state="table-state", max_records=3, many_records=1)

    def write(taken: Taken) -> None:
        # As `append_or_find` does.
        commits.setdefault(taken.name, [record.value.decode() for record in taken.records])

    def follower() -> TableFollower:
        return TableFollower(store.bus, followed, write, stopping=threading.Event())

    one = follower()

    def drain() -> int:
        while one.step():
            pass
        return sum(map(len, commits.values()))

    store.go_back_and_be_filled(store.publish, drain)
    if restarts:
        one = follower()
    drain()
    assert [value for values in commits.values() for value in values] == EXPECTED
    assert one.lost_records == (0 if restarts else LOST)
    assert store.bus.holds(TOPIC, "table") == {0: KEPT + NEW}


def test_restarts_that_lose_nothing_are_not_a_loss(store: Store) -> None:
    """Only restarts followed by an append count, and a reader follows them."""
    lives = Lives()
    for number in range(8):
        store.publish([f"{number}"])
        assert len(store.bus.read(TOPIC, 0, number, lives=lives)) == 1
        store.server.kill()
        store.server.start()
    assert store.bus.wait({(TOPIC, 0): 8}, 0, lives=lives) == set()
    assert len(store.bus.state(TOPIC)[0].lives.split()) == 8
