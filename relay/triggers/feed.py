"""The thread that reads trigger events from the bus and publishes each on its topic, and on that of its callback.

Events are alerts, so after a restart this thread continues where it stopped. Its position is a hold on the bus that
lags by a second, so events that were in transit when the relay died are sent again, under the same number and id.
Subscribers need a moment to return, so events published soon after a start are kept for them.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from bus import topics as bus_topics
from bus.api import Bus, FewRecords, PartitionState, StoredRecord
from candlewright.wire import streams
from relay import metrics
from relay.doors.notifier import Batch
from relay.live.follower import Follower
from relay.live.numbered import Numbered, numbered, unreadable
from relay.live.recent_events import RecentEvents
from relay.settings import RelayLimits
from relay.store import RelayStore
from relay.triggers.store import READER

_TOPIC = bus_topics.TRIGGER_EVENTS
_READ_RECORDS = 1_000
#: Records of each partition in one round.
_PER_PARTITION = 5_000
_WAIT_SECONDS = 0.5
#: How long (s) after a start returning subscribers get missed events again.
_RETURNING_SECONDS = 0.05
_SAVE_SECONDS = 1.0
_AGAIN_SECONDS = 0.25
_MAX_RETURNING = 100_000


class TriggerFeed(Follower):
    def __init__(
        self,
        bus: Bus,
        relay_store: RelayStore,
        limits: RelayLimits,
        *,
        callback_of: Callable[[str], str],
        publish: Callable[[Batch, float], bool],
        is_registry: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__("trigger_feed", bus, relay_store, publish=publish)
        self._limits = limits
        self._is_registry = is_registry
        self._callback_of = callback_of
        self._recent = RecentEvents(limits.max_recent, limits.max_recent_bytes)
        self._recent_until: float | None = None
        self._returning: deque[bytes] = deque(maxlen=_MAX_RETURNING)
        self._again_at = 0.0
        self._next: dict[int, int] = {}
        #: The positions at the last save, which are saved next.
        self._sent: dict[int, int] = {}
        self._saved: dict[int, int] = {}
        self._save_at = 0.0

    def subscribed(self, topic: bytes) -> None:
        """Handle a new subscription; called by the notifications thread. A repetition goes to all subscribers of the
        topic, which drop duplicates.
        """
        if self._recent_until is None or time.monotonic() < self._recent_until:
            self._returning.append(topic)

    def have_passed(self, ends: dict[int, int]) -> bool:
        """Whether all events before these offsets were handed over."""
        return all(self._next.get(partition, 0) >= end for partition, end in ends.items())

    def run(self, stop: threading.Event) -> None:
        self._recent_until = time.monotonic() + self._limits.recent_seconds
        super().run(stop)

    def _resume(self, stop: threading.Event) -> None:
        held = self._bus.holds(_TOPIC, READER)
        self._next = self._kept(_TOPIC, held | self._next, lambda state: state.first)
        self._sent = dict(self._next)
        self._saved = {}
        self._save()

    def _round(self, stop: threading.Event) -> None:
        after = {(_TOPIC, partition): offset for partition, offset in self._next.items()}
        is_returning = time.monotonic() < (self._recent_until or 0.0)
        waiting = _RETURNING_SECONDS if is_returning or self._returning else _WAIT_SECONDS
        few: FewRecords = {}
        found = self._bus.states_after(after, self._patience(waiting), lives=self._lives, few_records=few)
        states = [found[place] for place in sorted(found)]
        if any(state.end > self._next[partition] for partition, state in enumerate(states)):
            records = self._gather(states, few)
            events = self._readable(records, partial(numbered, streams.TRIGGERS), unreadable(streams.TRIGGERS))
            # The tickers of one trigger may be in several partitions.
            events.sort(key=lambda event: (event.topic, event.first))
            batch = [message for event in events for message in self._messages(event)]
            if not self._hand_over(batch, _TOPIC, stop):
                return
            if time.monotonic() < (self._recent_until or 0.0):
                self._recent.add(batch)
            for record in records:
                self._next[record.partition] = record.offset + 1
        self._send_again(stop)
        if time.monotonic() >= self._save_at:
            self._save()

    def _gather(self, states: Sequence[PartitionState], few: FewRecords) -> list[StoredRecord]:
        """New records of all partitions up to the same moment, so that no topic has a hole in its numbers. `few`:
        those that need not be read.
        """
        found: list[StoredRecord] = []
        cut_ms: int | None = None
        for partition, state in enumerate(states):
            offset, read = self._next[partition], 0
            while offset < state.end and read < _PER_PARTITION:
                records = few.pop((_TOPIC, partition), None)
                records = records or self._read(_TOPIC, partition, offset, min(_READ_RECORDS, state.end - offset))
                if not records:
                    break
                found += records
                offset, read = records[-1].offset + 1, read + len(records)
            if offset < state.end and read:
                last_ms = found[-1].timestamp_ms
                cut_ms = last_ms if cut_ms is None else min(cut_ms, last_ms)
        if cut_ms is None:
            return found
        # There are more records than one round takes; everything before the earliest position reached is complete.
        return [record for record in found if record.timestamp_ms < cut_ms] or found

    def _messages(self, event: Numbered) -> list[tuple[bytes, bytes]]:
        names = [event.topic]
        callback = self._callback_of(event.topic.removeprefix(streams.TRIGGERS.prefix))
        if callback:
            names.append(streams.response(callback))
        return [*self._lost_before(event.topic, event.first), *((name.encode(), event.body) for name in names)]

    def _send_again(self, stop: threading.Event) -> None:
        if self._returning and time.monotonic() >= self._again_at:
            self._again_at = time.monotonic() + _AGAIN_SECONDS
            # Subscribers that return to the same topic are served together.
            topics_again = {self._returning.popleft(): None for _ in range(len(self._returning))}
            for topic in topics_again:
                batch = self._recent.under(topic)
                if self._hand_over(batch, _TOPIC, stop):
                    metrics.REPEATED_EVENTS.inc(len(batch))
        if time.monotonic() >= (self._recent_until or 0.0):
            self._recent.clear()

    def _save(self) -> None:
        self._save_at = time.monotonic() + _SAVE_SECONDS
        if self._sent != self._saved and self._is_registry():
            self._bus.hold(_TOPIC, READER, self._sent)
            self._saved = dict(self._sent)
        self._sent = dict(self._next)
