"""The thread that watches for new records in every partition for which a call waits."""

import asyncio
import threading
import time
from collections.abc import Iterable

from bus.api import Log, TopicPartition
from candlewright.wire.errors import BusError
from core.background import start_thread
from core.log import get_logger
from gateways.rocketmq.metrics import FAILURES

log = get_logger()

#: How long a partition is still watched without a waiter: polling clients come back.
_WATCH_SECONDS = 60.0
#: The longest that one look at the bus takes, and so the longest wait of a newly watched partition.
_LOOK_SECONDS = 0.2


class Feed:
    """`watch` names partitions, and the event to set at the next record of any of them."""

    def __init__(self, bus: Log) -> None:
        self._bus = bus
        self._lock = threading.Lock()
        self._waiting: dict[TopicPartition, set[asyncio.Event]] = {}
        self._wanted_at: dict[TopicPartition, float] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = start_thread("rocketmq-arrivals", self._watch, restarts_after=1.0, stopping=self._stop)

    def end(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        self.end()
        if self._thread is not None:
            self._thread.join()

    def watch(self, places: Iterable[TopicPartition], event: asyncio.Event) -> None:
        now = time.monotonic()
        with self._lock:
            for place in places:
                self._waiting.setdefault(place, set()).add(event)
                self._wanted_at[place] = now

    def unwatch(self, places: Iterable[TopicPartition], event: asyncio.Event) -> None:
        with self._lock:
            for place in places:
                events = self._waiting.get(place)
                if events is not None:
                    events.discard(event)
                    if not events:
                        del self._waiting[place]

    @property
    def waiting(self) -> int:
        with self._lock:
            return len(set().union(*self._waiting.values()))

    def places(self) -> list[TopicPartition]:
        with self._lock:
            return list(self._waiting)

    def nudge(self, places: Iterable[TopicPartition]) -> None:
        with self._lock:
            events = [event for place in places for event in self._waiting.pop(place, ())]
        for event in events:
            event.set()

    def _watch(self) -> None:
        ends: dict[TopicPartition, int] = {}
        while not self._stop.is_set():
            oldest = time.monotonic() - _WATCH_SECONDS
            with self._lock:
                for place in [place for place, at in self._wanted_at.items() if at < oldest]:
                    del self._wanted_at[place]
                wanted = list(self._wanted_at)
            try:
                ready = self._look(ends, wanted)
            except BusError as error:
                FAILURES.labels("arrivals").inc()
                log.warning("rocketmq_arrivals_failed", error=str(error))
                self._stop.wait(1.0)
                continue
            if ready:
                self._loop.call_soon_threadsafe(self.nudge, ready)

    def _look(self, ends: dict[TopicPartition, int], wanted: list[TopicPartition]) -> set[TopicPartition]:
        """The partitions that have grown since `ends`, including new ones; updates `ends`."""
        for place in [place for place in ends if place not in wanted]:
            del ends[place]
        fresh = {place for place in wanted if place not in ends}
        ready = fresh or self._bus.wait({place: ends[place] for place in wanted}, _LOOK_SECONDS)
        for topic in {topic for topic, _ in ready}:
            states = self._bus.state(topic) if self._bus.partitions(topic) else []
            for partition, state in enumerate(states):
                if (topic, partition) in ready:
                    ends[topic, partition] = state.end
        for place in ready:
            ends.setdefault(place, 0)
        return ready
