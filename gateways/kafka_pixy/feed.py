"""The thread that watches for new records in all consumed topics, with one blocking call."""

import threading
from collections.abc import Callable

from bus.api import Log, TopicPartition
from core.background import start_thread
from core.log import get_logger
from gateways.kafka_pixy import metrics

#: How long one call blocks, and so how long a newly watched topic waits at most.
_BLOCK_SECONDS = 0.1
#: Pause between two looks at busy topics. The gateway learns of its own writes sooner, without this thread.
_PAUSE_SECONDS = 0.02
#: A look costs time per partition: with this many partitions both times double, with twice as many they triple, etc.
_PARTITIONS = 500
_MOST_SECONDS = 1.0
_RETRY_SECONDS = 0.5
log = get_logger()


class Feed:
    """`notify(topic)` is called on the thread for new records, and once when a topic is first watched."""

    def __init__(self, bus: Log, notify: Callable[[str], None]) -> None:
        self._bus = bus
        self._notify = notify
        self._wanted: frozenset[str] = frozenset()
        self._changed = threading.Event()
        self._stop = threading.Event()
        self._ends: dict[TopicPartition, int] = {}
        self._watched: frozenset[str] = frozenset()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = start_thread("kafka-pixy-arrivals", self._run)

    def watch(self, topics: frozenset[str]) -> None:
        """Watch exactly these from now on."""
        self._wanted = topics
        self._changed.set()

    def close(self) -> None:
        self._stop.set()
        self._changed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._round()
            except Exception as error:  # The outermost loop of the thread.
                metrics.BUS_FAILURES.labels("arrivals").inc()
                log.warning("arrivals_unread", error=repr(error))
                # Records that arrived meanwhile are unknown.
                self._watched = frozenset()
                self._stop.wait(_RETRY_SECONDS)

    def _round(self) -> None:
        wanted = self._wanted
        if self._watched - wanted:
            self._ends = {place: end for place, end in self._ends.items() if place[0] in wanted}
        # A topic that does not exist yet is checked again later.
        added = [topic for topic in wanted - self._watched if self._note_ends(topic)]
        self._watched = (self._watched & wanted).union(added)
        # Records may have arrived before their ends were noted.
        for topic in added:
            self._notify(topic)
        slower = 1 + len(self._ends) / _PARTITIONS
        if not self._ends:
            self._changed.wait(_BLOCK_SECONDS if wanted else None)
            self._changed.clear()
            return
        for topic in {topic for topic, _ in self._bus.wait(self._ends, min(_MOST_SECONDS, _BLOCK_SECONDS * slower))}:
            self._note_ends(topic)
            self._notify(topic)
        self._stop.wait(min(_MOST_SECONDS, _PAUSE_SECONDS * slower))

    def _note_ends(self, topic: str) -> bool:
        """False for a topic that does not exist."""
        if not self._bus.partitions(topic):
            return False
        for partition, state in enumerate(self._bus.state(topic)):
            self._ends[topic, partition] = state.end
        return True
