"""Events of triggers from their topic into `lake.market.trigger_events`: a thread of the driver.

Apart from the query that makes the events, so that none waits for a commit, and gathered, since each commit is a file
and a snapshot. Exactly once: which records a commit takes is on the bus before it, its snapshot says so too, and that
it is done is on the bus after it; a restart looks for the snapshot of the one that is not.
"""

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import Catalog

from bus import Bus
from bus import topics as bus_topics
from core import metrics
from core.log import get_logger
from flink_replacement_spark.trigger_event_rows import event_rows
from iceberg import TRIGGER_EVENTS, append_or_find, is_committed, load_table

__all__ = ["EventTable"]

log = get_logger()

#: Events of one commit at most; how many are worth one at once, and how long fewer wait since the last one.
_EVENTS = 50_000
_BYTES = 64 << 20
_MANY_EVENTS = 1_000
_INTERVAL_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 15.0
_TABLE = "trigger_table"
_STORED = metrics.Counter(
    "candlewright_spark_trigger_events_stored_total", "Events of triggers in the table.", registry=metrics.REGISTRY
)
_FAILURES = metrics.Counter(
    "candlewright_spark_trigger_table_failures_total", "Commits of events that failed.", registry=metrics.REGISTRY
)


class EventTable:
    """`run` returns when `stopping` is set. `table_lock` is the one lock for writing tables in this driver.

    `published`: set by what has put events onto their topic and will be quiet for a moment, as at the end of a
    micro-batch; without it they are looked for once a second.
    """

    def __init__(
        self,
        bus: Bus,
        catalog: Catalog,
        table_lock: threading.Lock,
        stopping: threading.Event,
        published: threading.Event | None = None,
    ) -> None:
        self.problem = ""
        self.stored = 0
        self.bad_records = 0
        self._bus = bus
        self._catalog = catalog
        self._table_lock = table_lock
        self._stopping = stopping
        self._published = published or threading.Event()
        self._committed_at = -_INTERVAL_SECONDS

    def run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                since = time.monotonic() - self._committed_at
                self._published.wait(_INTERVAL_SECONDS - since if since < _INTERVAL_SECONDS else _INTERVAL_SECONDS)
                self._published.clear()
                if self._is_due():
                    self.step()
                self.problem, pause = "", 0.0
            except Exception as error:  # The last resort of this thread: said, counted, tried again.
                _FAILURES.inc()
                self.problem = f"trigger events cannot be written: {error}"
                log.warning("trigger_events_retried", error=str(error), kind=type(error).__name__)
                pause = min(max(_INTERVAL_SECONDS, 2 * pause), _MAX_PAUSE_SECONDS)

    def _is_due(self) -> bool:
        """Each commit is a file and a snapshot: few events wait until the last one is a while ago."""
        if time.monotonic() >= self._committed_at + _INTERVAL_SECONDS:
            return True
        start = self._start()
        ends = enumerate(self._bus.state(bus_topics.TRIGGER_EVENTS))
        return sum(state.end - start.get(partition, state.first) for partition, state in ends) >= _MANY_EVENTS

    def step(self) -> None:
        """Commit the events that are there."""
        taken = self._taken()
        if taken is None:
            start = self._start()
            taken = self._take(start)
            if taken is None:
                return
        number, start, end = taken
        rows = event_rows(self._values(start, end))
        # Offsets begin anew with another bus, a table need not.
        summary = {"candlewright.trigger-events": f"{self._identity()}:{number}"}
        if rows.num_rows:
            with self._table_lock:
                table = load_table(self._catalog, TRIGGER_EVENTS)
                if not is_committed(table, summary):
                    append_or_find(table, rows, summary)
        self._put(number, start, end, is_done=True)
        self._bus.hold(bus_topics.TRIGGER_EVENTS, bus_topics.READER_TRIGGER_TABLE, end)
        self._committed_at = time.monotonic()
        self.stored += rows.num_rows
        self.bad_records += sum(end.values()) - sum(start.values()) - rows.num_rows
        _STORED.inc(rows.num_rows)

    # ---- which records
    def _identity(self) -> str:
        (found,) = self._bus.get(_TABLE, ["identity"])
        if found is None:
            found = f"{time.time_ns():x}".encode()
            self._bus.put(_TABLE, {"identity": found})
        return found.decode()

    def _record(self) -> dict[str, Any] | None:
        (found,) = self._bus.get(_TABLE, ["taken"])
        return None if found is None else dict(json.loads(found))

    def _taken(self) -> tuple[int, dict[int, int], dict[int, int]] | None:
        """Records that a commit was begun for and not known to be done."""
        found = self._record()
        if found is None or found["done"]:
            return None
        return found["number"], _offsets(found["start"]), _offsets(found["end"])

    def _start(self) -> dict[int, int]:
        found = self._record()
        if found is not None:
            return _offsets(found["end"])
        first = {p: state.first for p, state in enumerate(self._bus.state(bus_topics.TRIGGER_EVENTS))}
        self._bus.hold(bus_topics.TRIGGER_EVENTS, bus_topics.READER_TRIGGER_TABLE, first)
        return first

    def _take(self, start: Mapping[int, int]) -> tuple[int, dict[int, int], dict[int, int]] | None:
        """What the next commit takes, which is on the bus before it; None without any event."""
        states = self._bus.state(bus_topics.TRIGGER_EVENTS)
        kept = sum(state.end - state.first for state in states)
        left = min(_EVENTS, max(1, _BYTES * kept // max(1, sum(state.size_bytes for state in states))))
        end = {}
        for partition, state in enumerate(states):
            first = start.get(partition, 0)
            end[partition] = first + min(left, max(0, state.end - first))
            left -= end[partition] - first
        if all(stop == start.get(partition, 0) for partition, stop in end.items()):
            return None
        before = self._record()
        number = 0 if before is None else before["number"] + 1
        self._put(number, start, end, is_done=False)
        return number, dict(start), end

    def _put(self, number: int, start: Mapping[int, int], end: Mapping[int, int], *, is_done: bool) -> None:
        record = {"number": number, "start": start, "end": end, "done": is_done}
        self._bus.put(_TABLE, {"taken": json.dumps(record).encode()})

    def _values(self, start: Mapping[int, int], end: Mapping[int, int]) -> list[bytes]:
        found = []
        for partition, stop in end.items():
            offset = start.get(partition, 0)
            while offset < stop:
                read = self._bus.read(
                    bus_topics.TRIGGER_EVENTS, partition, offset, max_records=min(1_000, stop - offset)
                )
                found += [record.value for record in read]
                offset = read[-1].offset + 1
        return found


def _offsets(written: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in written.items()}
