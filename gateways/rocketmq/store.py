"""The bus for code on the event loop: its calls block, so they run on a few threads."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from bus.api import Bus, Log, TopicPartition
from bus.messaging import Messaging
from candlewright.wire.errors import BusError
from core.background import start_thread
from core.log import get_logger
from gateways.rocketmq.metrics import FAILURES

log = get_logger()

_THREADS = 16
#: How long a partition is still watched without a waiter: polling clients come back.
_WATCH_SECONDS = 60.0
#: The longest that one look at the bus takes, and so the longest wait of a newly watched partition.
_LOOK_SECONDS = 0.2

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Store:
    """`bus` and `queue` for calls made through `run`, and notification of new records."""

    def __init__(self, bus: Bus, queue: Messaging) -> None:
        self.bus = bus
        self.queue = queue
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="rocketmq")
        self._arrivals = Arrivals(bus)

    async def run(
        self, call: Callable[Parameters, Result], *arguments: Parameters.args, **options: Parameters.kwargs
    ) -> Result:
        """`call` on another thread. It runs to its end even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: call(*arguments, **options))

    def start(self) -> None:
        self._arrivals.start(asyncio.get_running_loop())

    def stop_watching(self) -> None:
        """Stop notifying of new records."""
        self._arrivals.end()

    async def stop(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._arrivals.stop)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.queue.close()

    def watch(self, places: Iterable[TopicPartition], event: asyncio.Event) -> None:
        """Clear `event`, and set it once at the next record of any of `places`. Call before looking for records."""
        event.clear()
        self._arrivals.watch(places, event)

    def unwatch(self, places: Iterable[TopicPartition], event: asyncio.Event) -> None:
        self._arrivals.unwatch(places, event)

    def nudge(self, places: Iterable[TopicPartition]) -> None:
        """Let waiters of `places` look again."""
        self._arrivals.nudge(places)

    @property
    def waiting(self) -> int:
        """Number of events waiting for records."""
        return self._arrivals.waiting

    def nudge_all(self) -> None:
        self._arrivals.nudge(self._arrivals.places())


class Arrivals:
    """One thread that waits for new records in every partition with a waiter."""

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


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for `event`, at most `seconds`; returns whether it was set."""
    try:
        await asyncio.wait_for(event.wait(), max(0.001, seconds))
    except TimeoutError:
        return False
    return True
