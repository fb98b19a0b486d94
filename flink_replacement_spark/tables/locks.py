"""Decides who may commit to a table: the writers of this driver take turns, and maintenance yields to them.

A writer compares its rows with the table before it commits, so no other writer may commit in between. Maintenance needs
no turn while it works: it holds a table only for its commit, and only if no writer holds or waits for it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from core import metrics
from iceberg import TableDefinition

__all__ = ["TableLocks", "Turn"]

MAINTENANCE = "maintenance"

_WAITS = metrics.Histogram(
    "candlewright_spark_table_wait_seconds",
    "How long writers waited for their turn at a table.",
    ["table", "writer"],
    registry=metrics.REGISTRY,
)
_HOLDS = metrics.Histogram(
    "candlewright_spark_maintenance_hold_seconds",
    "How long maintenance held a table, which is how long it can keep a writer waiting.",
    ["table"],
    registry=metrics.REGISTRY,
)
_WORST_HOLD = metrics.Gauge(
    "candlewright_spark_maintenance_worst_hold_seconds",
    "The longest that maintenance held a table since the start.",
    ["table"],
    registry=metrics.REGISTRY,
)


@dataclass(frozen=True, slots=True)
class Turn:
    """`since`: when it began to wait, or got the table; monotonic seconds."""

    table: str
    writer: str
    since: float

    def describe(self) -> str:
        return f"{self.writer} has waited {time.monotonic() - self.since:.0f} s for table {self.table}"


class TableLocks:
    """Safe for threads. A thread takes one table at a time.

    `sign` is called right before each commit with the entries of its summary and returns them with the driver's epoch.
    It raises RoleLost if another driver has taken over.
    """

    def __init__(self, sign: Callable[[Mapping[str, str]], dict[str, str]] = dict) -> None:
        self.sign = sign
        self._changed = threading.Condition()
        self._holders: dict[str, Turn] = {}
        self._waiting: list[Turn] = []
        self._worst: dict[str, float] = {}

    @contextmanager
    def writing(self, table: TableDefinition, writer: str) -> Iterator[None]:
        """Hold `table` for a comparison and its commit; waits for the writers before it."""
        waiting = Turn(table.name, writer, time.monotonic())
        with self._changed:
            self._waiting.append(waiting)
            try:
                self._changed.wait_for(lambda: self._is_turn_of(waiting))
            finally:
                self._waiting.remove(waiting)
                self._changed.notify_all()
            held = self._take(table.name, writer)
        _WAITS.labels(table.name, writer).observe(held.since - waiting.since)
        try:
            yield
        finally:
            self._free(held)

    @contextmanager
    def maintaining(self, table: TableDefinition, patience_seconds: float) -> Iterator[bool]:
        """Hold `table` for a commit of maintenance; False, with nothing held, if writers kept it for
        `patience_seconds`.
        """
        with self._changed:
            is_free = self._changed.wait_for(lambda: self._is_quiet(table.name), patience_seconds)
            held = self._take(table.name, MAINTENANCE) if is_free else None
        if held is None:
            yield False
            return
        try:
            yield True
        finally:
            self._free(held)
            seconds = time.monotonic() - held.since
            _HOLDS.labels(table.name).observe(seconds)
            self._worst[table.name] = max(seconds, self._worst.get(table.name, 0.0))
            _WORST_HOLD.labels(table.name).set(self._worst[table.name])

    def waiting(self, seconds: float = 0.0) -> list[Turn]:
        """Writers that have waited longer than `seconds`, the longest wait first."""
        with self._changed:
            limit = time.monotonic() - seconds
            return sorted((turn for turn in self._waiting if turn.since < limit), key=lambda turn: turn.since)

    def held_by_maintenance(self, seconds: float) -> list[Turn]:
        """Writers that have waited longer than `seconds` for a table that maintenance holds."""
        late = self.waiting(seconds)
        with self._changed:
            busy = {table for table, held in self._holders.items() if held.writer == MAINTENANCE}
        return [turn for turn in late if turn.table in busy]

    @property
    def worst_hold_seconds(self) -> dict[str, float]:
        """The longest that maintenance has held each table."""
        return dict(self._worst)

    def _is_turn_of(self, waiting: Turn) -> bool:
        first = next(turn for turn in self._waiting if turn.table == waiting.table)
        return waiting.table not in self._holders and first is waiting

    def _is_quiet(self, table: str) -> bool:
        return table not in self._holders and all(turn.table != table for turn in self._waiting)

    def _take(self, table: str, writer: str) -> Turn:
        held = self._holders[table] = Turn(table, writer, time.monotonic())
        return held

    def _free(self, held: Turn) -> None:
        with self._changed:
            del self._holders[held.table]
            self._changed.notify_all()
