"""Keeps on the bus what clients gave back, so that neither a kill nor another replica offers a record too early, or
forgets how often it was delivered.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bus.api import KeyedTables
from gateways.numaflow.partitions import RecordId, wire_offset

#: How long a given-back record is remembered after its delay.
_KEEP_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """`due_at`: wall clock seconds; `deliveries`: before the refusal; `consumer`: the replica that offers it again."""

    due_at: float
    deliveries: int
    consumer: str

    @property
    def wait_seconds(self) -> float:
        return max(0.0, self.due_at - time.time())


class Refusals:
    """The refusals of one group. All calls block and raise BusError."""

    def __init__(self, bus: KeyedTables, group: str, consumer: str) -> None:
        self._bus = bus
        self._table = f"numaflow_refused/{group}"
        self._consumer = consumer
        self._known: set[RecordId] = set()

    def note(self, deliveries: Mapping[RecordId, int], delay_seconds: float) -> None:
        due_at = time.time() + delay_seconds
        self._put(
            {record: Refusal(due_at, count, self._consumer) for record, count in deliveries.items()}, delay_seconds
        )

    def own(self, records: Sequence[RecordId]) -> set[RecordId]:
        """The refusals that this replica still has to offer again."""
        found = self._get(records)
        own = {record for record, refusal in found.items() if refusal.consumer == self._consumer}
        self._known.difference_update(set(records) - own)
        return own

    def taken_over(self, records: Sequence[RecordId]) -> dict[RecordId, Refusal]:
        """The known refusals of `records`, which the store has given to this replica."""
        found = self._get(records)
        for record, refusal in found.items():
            if refusal.consumer != self._consumer:
                mine = Refusal(refusal.due_at, refusal.deliveries, self._consumer)
                self._put({record: mine}, refusal.wait_seconds)
        self._known.update(found)
        return found

    def forget(self, records: Iterable[RecordId]) -> None:
        """Forget acknowledged records."""
        gone = self._known.intersection(records)
        if gone:
            self._bus.delete(self._table, [_row(record) for record in gone])
            self._known -= gone

    def _put(self, refusals: Mapping[RecordId, Refusal], delay_seconds: float) -> None:
        rows = {
            _row(record): f"{each.due_at!r} {each.deliveries} {each.consumer}".encode()
            for record, each in refusals.items()
        }
        self._bus.put(self._table, rows, keep_seconds=delay_seconds + _KEEP_SECONDS)
        self._known.update(refusals)

    def _get(self, records: Sequence[RecordId]) -> dict[RecordId, Refusal]:
        rows = self._bus.get(self._table, [_row(record) for record in records])
        found = {record: _refusal(row) for record, row in zip(records, rows, strict=True) if row is not None}
        return {record: refusal for record, refusal in found.items() if refusal is not None}


def _row(record: RecordId) -> str:
    return wire_offset(record).decode()


def _refusal(row: bytes) -> Refusal | None:
    """None for a row that no gateway wrote: the record then returns as if it had not been refused."""
    try:
        due_at, deliveries, consumer = row.decode().split(" ", 2)
        refusal = Refusal(float(due_at), int(deliveries), consumer)
    except ValueError:
        return None
    return refusal if math.isfinite(refusal.due_at) else None
