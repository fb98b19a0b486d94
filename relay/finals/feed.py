"""The thread that reads finals and snapshots from the bus and hands them to the notifications socket."""

import threading
import time
from collections.abc import Callable, Container

from google.protobuf.message import DecodeError

from bus import topics as bus_topics
from bus.api import Bus, StoredRecord, TopicPartition
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire import streams
from candlewright.wire.frames import fits
from core.log import get_logger
from relay import metrics, topics
from relay.doors.notifier import Batch
from relay.finals.index import FinalIndex
from relay.live.follower import Follower
from relay.settings import RelayConfig
from relay.store import RelayStore, StoredFinal

_WAIT_SECONDS = 0.5
_READ_RECORDS = 1_000
_TRIM_SECONDS = 60.0
log = get_logger()


class Feed(Follower):
    """Finals are indexed before they are handed over, so a client that subscribes in between gets them by replay."""

    def __init__(
        self,
        bus: Bus,
        relay_store: RelayStore,
        config: RelayConfig,
        *,
        index: FinalIndex,
        publish: Callable[[Batch, float], bool],
        awaited: Container[str],
        on_awaited: Callable[[StoredFinal], None],
    ) -> None:
        super().__init__("feed", bus, relay_store, publish=publish)
        self._config = config
        self._index = index
        self._awaited = awaited
        self._on_awaited = on_awaited
        self._next: dict[TopicPartition, int] = {}
        self._indexed: dict[int, int] = {}
        self._trim_at = 0.0
        #: Set once all kept finals are indexed.
        self.is_caught_up = threading.Event()

    # ---- start and resume

    def _catch_up(self, stop: threading.Event) -> None:
        """Index the kept finals; old snapshots are skipped."""
        for partition, state in enumerate(self._bus.state(bus_topics.NOTIFICATIONS)):
            first = max(state.first, self._indexed.get(partition, 0))
            offset = self._index_until(partition, first, state.end, stop)
            self._next[bus_topics.NOTIFICATIONS, partition] = offset
        for partition, state in enumerate(self._bus.state(bus_topics.SNAPSHOTS)):
            self._next[bus_topics.SNAPSHOTS, partition] = state.end
        self.is_caught_up.set()
        log.info("finals_indexed", finals=len(self._index))

    def _index_until(self, partition: int, offset: int, end: int, stop: threading.Event) -> int:
        """Index up to `end`; returns the offset of the first final that is not indexed."""
        while offset < end and not stop.is_set():
            records = self._read(bus_topics.NOTIFICATIONS, partition, offset, min(_READ_RECORDS, end - offset))
            self._add_to_index(self._finals([record for record in records if record.offset < end]))
            offset = records[-1].offset + 1 if records else end
            self._indexed[partition] = offset
            self.seen_at = time.monotonic()
        return offset

    def _resume(self, stop: threading.Event) -> None:
        if not self.is_caught_up.is_set():
            self._catch_up(stop)
            return
        before = dict(self._next)
        for topic in (bus_topics.NOTIFICATIONS, bus_topics.SNAPSHOTS):
            known = {partition: offset for (of, partition), offset in self._next.items() if of == topic}
            kept = self._kept(topic, known, lambda state: state.first)
            self._next.update({(topic, partition): offset for partition, offset in kept.items()})
        notifications = bus_topics.NOTIFICATIONS
        if any(self._next[place] < offset for place, offset in before.items() if place[0] == notifications):
            # The offsets of lost finals are assigned again to others.
            self._index.forget_all()
            for (topic, partition), end in self._next.items():
                if topic == notifications:
                    self._index_until(partition, 0, end, stop)

    def _round(self, stop: threading.Event) -> None:
        for place in self._wait(self._next, _WAIT_SECONDS):
            records = self._read(*place, self._next[place])
            if place[0] == bus_topics.NOTIFICATIONS:
                self._publish_finals(records, stop)
            else:
                self._publish_snapshots(records, stop)
            if records:
                self._next[place] = records[-1].offset + 1
        now = time.monotonic()
        if now >= self._trim_at:
            self._trim_at = now + _TRIM_SECONDS
            self._trim()

    def _publish_finals(self, records: list[StoredRecord], stop: threading.Event) -> None:
        finals = self._finals(records)
        self._add_to_index(finals)
        batch = []
        for final in finals:
            names = topics.final_topics(final.request_id, final.client_id, final.owner)
            batch += [(name.encode(), final.body) for name in names]
        self._hand_over(batch, "final", stop)
        for final in finals:
            if final.request_id in self._awaited:
                self._on_awaited(final)

    def _publish_snapshots(self, records: list[StoredRecord], stop: threading.Event) -> None:
        snapshots = self._readable(records, _snapshot, "not a Snapshot that subscribers can take")
        clients = self._relay_store.client_ids([snapshot.request_id for snapshot, _ in snapshots]) if snapshots else []
        head = bytes((streams.SNAPSHOTS.type_id,))
        batch = []
        for (snapshot, value), client_id in zip(snapshots, clients, strict=True):
            names = [streams.SNAPSHOTS.name_of(snapshot)]
            if snapshot.request_id:
                names.append(topics.request_topic(snapshot.request_id, client_id))
            batch += [(name.encode(), head + value) for name in names]
        self._hand_over(batch, "snapshot", stop)

    def _finals(self, records: list[StoredRecord]) -> list[StoredFinal]:
        return self._relay_store.finals_of(
            self._readable(records, _sound_final, "not a HistoryReadyNotification that subscribers can take")
        )

    def _add_to_index(self, finals: list[StoredFinal]) -> None:
        for final in finals:
            if final.client_id:
                self._index.add(final.client_id, final.record.partition, final.record.offset)
        metrics.INDEXED.set(len(self._index))

    def _trim(self) -> None:
        """Trim both topics, since the relay owns them."""
        for topic in (bus_topics.NOTIFICATIONS, bus_topics.SNAPSHOTS):
            self._bus.trim(topic, keep_seconds=self._config.keep_seconds)
        states = self._bus.state(bus_topics.NOTIFICATIONS)
        self._index.forget_before({partition: state.first for partition, state in enumerate(states)})


def _sound_final(record: StoredRecord) -> StoredRecord | None:
    try:
        final = ing.HistoryReadyNotification.FromString(record.value)
    except DecodeError:
        final = ing.HistoryReadyNotification()
    if final.request_id and fits(ing.HistoryReadyNotification, record.value):
        return record
    metrics.BAD_RECORDS.labels(bus_topics.NOTIFICATIONS).inc()
    return None


def _snapshot(record: StoredRecord) -> tuple[cw.Snapshot, bytes] | None:
    try:
        if fits(cw.Snapshot, record.value):
            return cw.Snapshot.FromString(record.value), record.value
    except DecodeError:
        pass
    metrics.BAD_RECORDS.labels(bus_topics.SNAPSHOTS).inc()
    return None
