"""The thread that reads kept finals again for late subscribers."""

import threading
import time
from collections.abc import Callable, Iterable

from bus import Log
from bus import topics as bus_topics
from bus.api import StoredRecord
from candlewright.wire import streams
from candlewright.wire.errors import BusError, OffsetOutOfRange
from relay import metrics, topics
from relay.doors.notifier import Batch
from relay.finals.index import FinalIndex, runs
from relay.settings import RelayConfig
from relay.store import FINAL_TYPE, RelayStore
from relay.topics import AllFinals, ClientFinals, RequestFinal, Wanted

_MAX_PENDING = 100_000
_RETRY_SECONDS = 0.5
_MAX_GAP = 64
_MAX_RUN = 1_000
_BATCH = 500


class Replays:
    """Finals wanted by several subscribers at once are read and sent once. Beyond its bound, new requests are
    dropped.
    """

    def __init__(
        self,
        bus: Log,
        relay_store: RelayStore,
        config: RelayConfig,
        *,
        index: FinalIndex,
        publish: Callable[[Batch, float], bool],
    ) -> None:
        self._bus = bus
        self._relay_store = relay_store
        self._config = config
        self._index = index
        self._publish = publish
        self._pending: dict[Wanted, None] = {}
        self._changed = threading.Condition()

    def ask(self, wanted: Wanted) -> None:
        with self._changed:
            if len(self._pending) >= _MAX_PENDING:
                metrics.DROPPED_REPLAYS.inc()
                return
            self._pending[wanted] = None
            self._changed.notify()

    def wake(self) -> None:
        """Have `run` check its stop event."""
        with self._changed:
            self._changed.notify()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with self._changed:
                self._changed.wait_for(lambda: bool(self._pending) or stop.is_set(), timeout=1.0)
                todo = list(self._pending)
                self._pending.clear()
            try:
                while todo and not stop.is_set():
                    chunk = todo[:_BATCH]
                    self._send(self._find(chunk), stop)
                    del todo[:_BATCH]
            except BusError:
                metrics.BUS_FAILURES.labels("replays").inc()
                for wanted in todo:
                    self.ask(wanted)
                stop.wait(_RETRY_SECONDS)

    def _find(self, todo: list[Wanted]) -> Iterable[tuple[str, bytes]]:
        request_ids = [wanted.request_id for wanted in todo if isinstance(wanted, RequestFinal)]
        if request_ids:
            for request_id, body in self._relay_store.recall_finals(request_ids).items():
                yield streams.history_ready(request_id), body
        for wanted in todo:
            if isinstance(wanted, ClientFinals):
                yield from self._of_client(wanted.client_id)
            elif isinstance(wanted, AllFinals):
                yield from self._under(wanted.prefix)

    def _of_client(self, client_id: str) -> Iterable[tuple[str, bytes]]:
        positions = self._index.newest(client_id, self._config.limits.max_replayed)
        places = {(position.partition, position.offset) for position in positions}
        topic = streams.response(client_id)
        for partition, first, last in runs(positions, _MAX_GAP, _MAX_RUN):
            for record in self._read(partition, first, last):
                if (partition, record.offset) in places:
                    yield topic, FINAL_TYPE + record.value

    def _under(self, prefix: str) -> Iterable[tuple[str, bytes]]:
        states = self._bus.state(bus_topics.NOTIFICATIONS)
        share = self._config.limits.max_replayed // max(1, len(states))
        for partition, state in enumerate(states):
            for first in range(max(state.first, state.end - share), state.end, _MAX_RUN):
                records = self._read(partition, first, min(first + _MAX_RUN, state.end) - 1)
                for final in self._relay_store.finals_of(records):
                    for topic in topics.final_topics(final.request_id, final.client_id, final.owner):
                        if topic.startswith(prefix):
                            yield topic, final.body

    def _read(self, partition: int, first: int, last: int) -> list[StoredRecord]:
        """The kept records from `first` to `last`, without expired ones."""
        records: list[StoredRecord] = []
        oldest_ms = (time.time() - self._config.keep_seconds) * 1_000
        while first <= last:
            try:
                part = self._bus.read(bus_topics.NOTIFICATIONS, partition, first, max_records=last - first + 1)
            except OffsetOutOfRange as error:
                if error.first <= first:
                    break
                first = error.first
                continue
            if not part:
                break
            records += part
            first = part[-1].offset + 1
        return [record for record in records if record.offset <= last and record.timestamp_ms >= oldest_ms]

    def _send(self, found: Iterable[tuple[str, bytes]], stop: threading.Event) -> None:
        batch: list[tuple[bytes, bytes]] = []
        for topic, body in found:
            batch.append((topic.encode(), body))
            if len(batch) == _BATCH:
                self._hand_over(batch, stop)
                batch = []
        self._hand_over(batch, stop)

    def _hand_over(self, batch: Batch, stop: threading.Event) -> None:
        while batch and not self._publish(batch, 0.25):
            if stop.is_set():
                return
        metrics.REPLAYED.inc(len(batch))
