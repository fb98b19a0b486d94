"""The common base of the threads that read the bus and hand messages to the notifications socket."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from bus.api import Bus, FewRecords, Lives, PartitionState, StoredRecord, TopicPartition
from bus.dead_letters import Letter, put_aside
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import BusError, OffsetOutOfRange
from candlewright.wire.frames import encode_body
from core.log import get_logger
from core.poison import is_poison, reason_of
from relay import metrics
from relay.doors.notifier import Batch
from relay.store import RelayStore

_READ_RECORDS = 1_000
_RETRY_SECONDS = 0.2
_HAND_OVER_SECONDS = 0.1
_TELL_SECONDS = 60.0
RECORDS_LOST = "RECORDS_LOST"
#: The part named in dead letters.
PART = "relay"
log = get_logger()
Read = TypeVar("Read")


class Follower(ABC):
    """Runs `_resume` at the start and after each outage, then rounds while the bus answers.

    `problem`: why nothing is read now; empty if all is well. `seen_at`: when the last round began; a round may take as
    long as the notifications socket needs.
    """

    def __init__(
        self, name: str, bus: Bus, relay_store: RelayStore, *, publish: Callable[[Batch, float], bool]
    ) -> None:
        self._name = name
        self._bus = bus
        self._relay_store = relay_store
        self._publish = publish
        self.problem = "the bus has not been read yet"
        self.seen_at = time.monotonic()
        #: How far this thread is.
        self._lives = Lives()
        #: After the store lost records: the topics whose subscribers were notified, and until when others will be.
        self._told: set[str] = set()
        self._tell_until = 0.0

    @abstractmethod
    def _resume(self, stop: threading.Event) -> None:
        """Find the positions to read from. The store may have lost records in an outage; see `_kept`."""

    @abstractmethod
    def _round(self, stop: threading.Event) -> None:
        """Read new records, waiting briefly for them."""

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.seen_at = time.monotonic()
            try:
                if self.problem:
                    self._relay_store.prepare()
                    self._resume(stop)
                self._round(stop)
                self.problem = ""
            except BusError as error:
                if not self.problem:
                    log.warning("bus_unavailable", error=str(error))
                self.problem = f"the bus cannot be read: {error}"
                metrics.BUS_FAILURES.labels(self._name).inc()
                self._relay_store.forget_preparation()
                stop.wait(_RETRY_SECONDS)

    def _kept(self, topic: str, known: Mapping[int, int], default: Callable[[PartitionState], int]) -> dict[int, int]:
        """For each partition the position in `known`, or, if the store lost records, that of the first record that
        replaced a read one; `default` if no position is known.
        """
        found = {}
        for partition, state in enumerate(self._bus.state(topic)):
            offset = known.get(partition, default(state))
            found[partition] = self._lives.rewound((topic, partition), offset, state.lives, end=state.end)
            if found[partition] < offset:
                self._told, self._tell_until = set(), time.monotonic() + _TELL_SECONDS
        return found

    def _lost_before(self, topic: str, first: int) -> Batch:
        """A notice sent before number `first` of `topic`, the first one after records were lost, which says that
        numbers from there on are assigned again. Subscribers of quiet topics learn this when they next ask.
        """
        if time.monotonic() >= self._tell_until or topic in self._told:
            return []
        self._told.add(topic)
        text = f"The platform has lost records; numbers from {first} on are assigned again."
        error = cw.Error(code=RECORDS_LOST, text=text, topic=topic, newest_sequence=first - 1)
        return [(topic.encode(), encode_body(error))]

    def _wait(
        self, after: Mapping[TopicPartition, int], seconds: float, few_records: FewRecords | None = None
    ) -> set[TopicPartition]:
        """Wait as `Bus.wait` does. Raises RecordsLost if the store has lost records that were read, because the records
        that replaced them would be skipped.
        """
        return self._bus.wait(after, self._patience(seconds), lives=self._lives, few_records=few_records)

    def _patience(self, seconds: float) -> float:
        """How long a round may wait; the first one does not wait, so that it clears `problem` at once."""
        return 0.0 if self.problem else seconds

    def _read(self, topic: str, partition: int, offset: int, max_records: int = _READ_RECORDS) -> list[StoredRecord]:
        """Records from `offset`, or from the first kept one if that was trimmed; subscribers then see a gap."""
        try:
            return self._bus.read(topic, partition, offset, max_records=max_records, lives=self._lives)
        except OffsetOutOfRange as error:
            log.warning("records_trimmed_unread", topic=topic, partition=partition, offset=offset, first=error.first)
            metrics.UNREAD_RECORDS.labels(topic).inc(max(0, error.first - offset))
            return self._bus.read(topic, partition, error.first, max_records=max_records, lives=self._lives)

    def _readable(
        self, records: Iterable[StoredRecord], read: Callable[[StoredRecord], Read | None], reason: str
    ) -> list[Read]:
        """The results of `read` for each record. Records without a result are put aside, and the others continue."""
        found: list[Read] = []
        letters: list[Letter] = []
        for record in records:
            try:
                part, why = read(record), reason
            except Exception as error:  # No record may stop those after it.
                if not is_poison(error):
                    raise
                part, why = None, reason_of(error)
            if part is None:
                letters.append(Letter.of(record, why))
            else:
                found.append(part)
        put_aside(self._bus, PART, letters)
        return found

    def _hand_over(self, batch: Batch, kind: str, stop: threading.Event) -> bool:
        """Wait until the notifications socket has taken the batch; False if the thread must stop first."""
        while batch and not self._publish(batch, _HAND_OVER_SECONDS):
            if stop.is_set():
                return False
        metrics.PUBLISHED.labels(kind).inc(len(batch))
        return True
