"""The thread that reads ticks and bars from the bus for those who subscribe to them.

Only new records are streamed: after a restart it goes on at the end of the bus, and subscribers see a gap in the
numbers, which TopicReplay fills. So no number is ever sent twice by this thread.
"""

import threading
import time
from collections.abc import Callable, Iterable

from bus.api import Bus, StoredRecord, TopicPartition
from core.errors import BusError, OffsetOutOfRange
from core.log import get_logger
from relay import metrics
from relay.interest import Interest
from relay.notifier import Batch
from relay.numbered import numbered
from relay.register import Register
from relay.topics import LIVE_BARS, LIVE_TICKS, OHLC, TICKS, Stream

_READ_RECORDS = 1_000
_WAIT_SECONDS = 0.1
_IDLE_SECONDS = 0.05
_RETRY_SECONDS = 0.2
#: Where a topic ends is looked up so often while nobody wants it.
_PARKED_SECONDS = 1.0
_KINDS = ((TICKS, LIVE_TICKS), (OHLC, LIVE_BARS))
log = get_logger()


class LiveFeed:
    """A topic of the bus is not even read while nobody wants anything of it.

    It is then followed from a place that was its end at most about a second ago, so that whoever subscribed misses
    nothing of what is published from then on.
    """

    def __init__(
        self, bus: Bus, register: Register, interest: Interest, publish: Callable[[Batch, float], bool]
    ) -> None:
        self._bus = bus
        self._register = register
        self._interest = interest
        self._publish = publish
        self._streams = {stream.bus_topic: stream for _, stream in _KINDS}
        self._next: dict[str, dict[int, int]] = {}
        self._parked_at: dict[str, float] = {}
        self.problem = "the bus has not been read yet"
        self.seen_at = time.monotonic()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.seen_at = time.monotonic()
            try:
                if self.problem:
                    self._resume()
                    self.problem = ""
                self._round(stop)
            except BusError as error:
                if not self.problem:
                    log.warning("bus_unavailable", error=str(error))
                self.problem = f"the bus cannot be read: {error}"
                metrics.BUS_FAILURES.labels("live").inc()
                self._register.forget_preparation()
                stop.wait(_RETRY_SECONDS)

    def _resume(self) -> None:
        """Begin at the end; after an outage never wait past it, for the store may have lost its newest records."""
        self._register.prepare()
        for topic in self._streams:
            known = self._next.get(topic, {})
            ends = self._ends(topic)
            self._next[topic] = {partition: min(known.get(partition, end), end) for partition, end in ends.items()}

    def _ends(self, topic: str) -> dict[int, int]:
        return {partition: state.end for partition, state in enumerate(self._bus.state(topic))}

    def _round(self, stop: threading.Event) -> None:
        after: dict[TopicPartition, int] = {}
        for kind, stream in _KINDS:
            topic = stream.bus_topic
            if self._interest.follows(kind):
                self._parked_at.pop(topic, None)
                after.update({(topic, partition): offset for partition, offset in self._next[topic].items()})
            elif time.monotonic() - self._parked_at.get(topic, 0.0) >= _PARKED_SECONDS:
                self._next[topic] = self._ends(topic)
                self._parked_at[topic] = time.monotonic()
        if not after:
            stop.wait(_IDLE_SECONDS)
            return
        for topic, partition in self._bus.wait(after, _WAIT_SECONDS):
            records = self._read(topic, partition, after[topic, partition])
            self._hand_over(topic, list(self._wanted(self._streams[topic], records)), stop)
            if records:
                self._next[topic][partition] = records[-1].offset + 1

    def _read(self, topic: str, partition: int, offset: int) -> list[StoredRecord]:
        try:
            return self._bus.read(topic, partition, offset, max_records=_READ_RECORDS)
        except OffsetOutOfRange as error:
            # Subscribers see it as a gap.
            log.warning("records_trimmed_unread", topic=topic, partition=partition, offset=offset, first=error.first)
            metrics.BAD_RECORDS.labels(topic).inc()
            return self._bus.read(topic, partition, error.first, max_records=_READ_RECORDS)

    def _wanted(self, stream: Stream, records: Iterable[StoredRecord]) -> Iterable[tuple[bytes, bytes]]:
        """The key is the ticker: what nobody wants is passed over unparsed."""
        interest = self._interest
        passed_over = 0
        for record in records:
            key = record.key or b""
            is_wanted = interest.wants(TICKS + key) if stream is LIVE_TICKS else interest.wants_bars_of(key)
            if not is_wanted:
                passed_over += 1
                continue
            part = numbered(stream, record)
            if part is not None and interest.wants(topic := part.topic.encode()):
                yield topic, part.body
        metrics.PASSED_OVER.labels(stream.bus_topic).inc(passed_over)

    def _hand_over(self, topic: str, batch: Batch, stop: threading.Event) -> None:
        while batch and not self._publish(batch, _WAIT_SECONDS):
            self.seen_at = time.monotonic()
            if stop.is_set():
                return
        metrics.PUBLISHED.labels(topic).inc(len(batch))
