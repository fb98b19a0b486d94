"""What the threads have in common that read the bus and hand what they find to the notifications socket."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from bus.api import Bus, StoredRecord, TopicPartition
from core.errors import BusError, OffsetOutOfRange
from core.log import get_logger
from relay import metrics
from relay.notifier import Batch
from relay.register import Register

_READ_RECORDS = 1_000
_RETRY_SECONDS = 0.2
_HAND_OVER_SECONDS = 0.1
_CHECK_SECONDS = 1.0
log = get_logger()


class Follower(ABC):
    """Rounds for as long as the bus answers; at the start, and after each outage, a `_resume` before them.

    `problem`: why nothing is read now, empty when all is well. `seen_at`: when the last round began; a round takes as
    long as the notifications socket lets it.
    """

    def __init__(self, name: str, bus: Bus, register: Register, publish: Callable[[Batch, float], bool]) -> None:
        self._name = name
        self._bus = bus
        self._register = register
        self._publish = publish
        self.problem = "the bus has not been read yet"
        self.seen_at = time.monotonic()
        self._check_at = 0.0

    @abstractmethod
    def _resume(self, stop: threading.Event) -> None:
        """After an outage the store may have lost its newest records: never wait past its end."""

    @abstractmethod
    def _round(self, stop: threading.Event) -> None:
        """Read what is new, waiting for it a moment."""

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.seen_at = time.monotonic()
            try:
                if self.problem:
                    self._register.prepare()
                    self._resume(stop)
                self._round(stop)
                self.problem = ""
            except BusError as error:
                if not self.problem:
                    log.warning("bus_unavailable", error=str(error))
                self.problem = f"the bus cannot be read: {error}"
                metrics.BUS_FAILURES.labels(self._name).inc()
                self._register.forget_preparation()
                stop.wait(_RETRY_SECONDS)

    def _wait(self, after: Mapping[TopicPartition, int], seconds: float) -> set[TopicPartition]:
        """As the bus does. Raises BusError when the store has lost what was read of it: what comes would not be seen
        until it has caught up.
        """
        ready = self._bus.wait(after, seconds)
        now = time.monotonic()
        if now >= self._check_at:
            self._check_at = now + _CHECK_SECONDS
            for topic in {topic for topic, _ in after}:
                for partition, state in enumerate(self._bus.state(topic)):
                    offset = after.get((topic, partition), 0)
                    if state.end < offset:
                        raise BusError(f"{topic}/{partition} ends at {state.end} and was read to {offset}")
        return ready

    def _read(self, topic: str, partition: int, offset: int, max_records: int = _READ_RECORDS) -> list[StoredRecord]:
        """From the first record that is kept where this one is not: subscribers see a gap."""
        try:
            return self._bus.read(topic, partition, offset, max_records=max_records)
        except OffsetOutOfRange as error:
            log.warning("records_trimmed_unread", topic=topic, partition=partition, offset=offset, first=error.first)
            metrics.UNREAD_RECORDS.labels(topic).inc(max(0, error.first - offset))
            return self._bus.read(topic, partition, error.first, max_records=max_records)

    def _hand_over(self, batch: Batch, kind: str, stop: threading.Event) -> bool:
        """Wait until the notifications socket has taken it; False when it is to stop before."""
        while batch and not self._publish(batch, _HAND_OVER_SECONDS):
            if stop.is_set():
                return False
        metrics.PUBLISHED.labels(kind).inc(len(batch))
        return True
