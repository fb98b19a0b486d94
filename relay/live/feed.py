"""The thread that reads ticks and bars from the bus for subscribers.

Only new records are streamed. After a restart it continues at the end of the bus, and subscribers see a gap in the
numbers, which they can fill by TopicReplay. So this thread never sends a number twice.
"""

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from bus.api import Bus, FewRecords, StoredRecord, TopicPartition
from candlewright.wire import streams
from candlewright.wire.streams import Stream
from relay import metrics
from relay.doors.interest import Interest
from relay.doors.notifier import Batch
from relay.live.follower import Follower
from relay.live.numbered import numbered, unreadable
from relay.store import RelayStore
from relay.topics import OHLC, TICKS

_WAIT_SECONDS = 0.25
#: How often (s) the end of a topic without subscribers is looked up; a subscription ends the wait.
_PARKED_SECONDS = 1.0
_KINDS = ((TICKS, streams.TICKS), (OHLC, streams.BARS))


class LiveFeed(Follower):
    """A topic of the bus is not read while it has no subscribers.

    Its first subscriber starts it from a position that was its end about a second ago at most, so the subscriber misses
    nothing published after subscribing.
    """

    def __init__(
        self, bus: Bus, relay_store: RelayStore, interest: Interest, *, publish: Callable[[Batch, float], bool]
    ) -> None:
        super().__init__("live", bus, relay_store, publish=publish)
        self._interest = interest
        self._streams = {stream.bus_topic: stream for _, stream in _KINDS}
        self._next: dict[str, dict[int, int]] = {}
        self._parked_at: dict[str, float] = {}

    def wake(self) -> None:
        """Have `run` check its stop event."""
        self._interest.changed.set()

    def _resume(self, stop: threading.Event) -> None:
        """Begin at the end of the topics."""
        for topic in self._streams:
            self._next[topic] = self._kept(topic, self._next.get(topic, {}), lambda state: state.end)

    def _park(self, kind: bytes, topic: str) -> None:
        """Advance to the end of a topic without subscribers."""
        states = self._bus.state(topic)
        # A client that subscribed during this call must still get what was published meanwhile.
        if not self._interest.follows(kind):
            self._lives.start(topic, states)
            self._next[topic] = {partition: state.end for partition, state in enumerate(states)}
            self._parked_at[topic] = time.monotonic()

    def _round(self, stop: threading.Event) -> None:
        after: dict[TopicPartition, int] = {}
        self._interest.changed.clear()
        for kind, stream in _KINDS:
            topic = stream.bus_topic
            if self._interest.follows(kind):
                self._parked_at.pop(topic, None)
                after.update({(topic, partition): offset for partition, offset in self._next[topic].items()})
            elif time.monotonic() - self._parked_at.get(topic, 0.0) >= _PARKED_SECONDS:
                self._park(kind, topic)
        if not after:
            if not stop.is_set():
                self._interest.changed.wait(self._patience(_PARKED_SECONDS))
            return
        few: FewRecords = {}
        for topic, partition in self._wait(after, _WAIT_SECONDS, few):
            place = topic, partition
            records = few[place] if place in few else self._read(topic, partition, after[place])
            self._hand_over(list(self._wanted(self._streams[topic], records)), topic, stop)
            if records:
                self._next[topic][partition] = records[-1].offset + 1

    def _wanted(self, stream: Stream, records: Iterable[StoredRecord]) -> Iterable[tuple[bytes, bytes]]:
        """The (topic, body) pairs that have subscribers. A record's key is its ticker, so records without a subscriber
        are skipped unparsed.
        """
        interest = self._interest
        passed_over = 0
        wanted = []
        for record in records:
            key = record.key or b""
            is_wanted = interest.wants(TICKS + key) if stream is streams.TICKS else interest.wants_bars_of(key)
            if is_wanted:
                wanted.append(record)
            else:
                passed_over += 1
        metrics.PASSED_OVER.labels(stream.bus_topic).inc(passed_over)
        for part in self._readable(wanted, partial(numbered, stream), unreadable(stream)):
            if interest.wants(topic := part.topic.encode()):
                yield from self._lost_before(part.topic, part.first)
                yield topic, part.body
