"""Releases old records of every topic, so that nothing on the bus grows without limit.

Records that a hold or a consumer group still needs are never trimmed, whatever their age.
"""

import threading
from dataclasses import dataclass

from broker.metrics import TRIM_FAILURES
from bus import dead_letters, topics
from bus.api import Bus
from bus.topics import Kept
from candlewright.wire.errors import BusError
from core.background import start_thread
from core.log import get_logger
from core.settings import Settings

_CLOSE_SECONDS = 5.0
_RESTART_SECONDS = 5.0

log = get_logger()


@dataclass(frozen=True, slots=True)
class Retention:
    """How long topics are kept. Topics of gateway clients are kept up to `max_bytes` each, whatever the age."""

    journal_seconds: float = 600.0
    stream_seconds: float = 86_400.0
    max_bytes: int = 1 << 30
    interval_seconds: float = 60.0

    @classmethod
    def of(cls, settings: Settings) -> "Retention":
        return cls(
            stream_seconds=settings.relay.keep_notifications_hours * 3_600.0,
            max_bytes=settings.bus.max_bytes,
        )

    def keep_seconds(self, topic: str) -> float:
        if topic == topics.DEAD_LETTERS:
            return dead_letters.KEEP_SECONDS
        known = topics.TOPICS.get(topic)
        if known is None or known.kept is Kept.UP_TO_SIZE:
            return float("inf")
        return self.journal_seconds if known.kept is Kept.JOURNAL else self.stream_seconds

    def keep_bytes(self, topic: str) -> int:
        return min(self.max_bytes, dead_letters.KEEP_BYTES) if topic == topics.DEAD_LETTERS else self.max_bytes


class Trimmer:
    """Trims in a separate thread, so that a long trim, or a bus that is down, never delays the broker."""

    def __init__(self, bus: Bus, retention: Retention) -> None:
        self._bus = bus
        self._retention = retention
        self._stopping = threading.Event()
        self._thread = start_thread("bus-trimmer", self._run, restarts_after=_RESTART_SECONDS, stopping=self._stopping)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._stopping.wait(self._retention.interval_seconds):
            try:
                for topic in self._bus.topics():
                    self._trim(topic)
                self._bus.count_evicted()
            except BusError as error:
                TRIM_FAILURES.inc()
                log.warning("topics_unknown", error=str(error))

    def _trim(self, topic: str) -> None:
        """Trim one topic; if that fails, it is left for the next round."""
        if self._stopping.is_set():
            return
        keep_seconds = self._retention.keep_seconds(topic)
        try:
            dropped = self._bus.trim(topic, keep_seconds=keep_seconds, keep_bytes=self._retention.keep_bytes(topic))
        except BusError as error:
            TRIM_FAILURES.inc()
            log.warning("trim_failed", topic=topic, error=str(error))
        else:
            if dropped:
                log.info("records_trimmed", topic=topic, records=dropped)
