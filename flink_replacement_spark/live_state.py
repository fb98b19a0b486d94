"""Where a streaming query keeps the state of each partition between micro-batches: a table on the bus.

The state after a batch is written under a new key before the pointer to it moves, and the one before it is kept until
the next batch, so that a micro-batch can run again whatever was killed when.
"""

import json

from bus import Bus
from core.errors import CandlewrightError
from core.log import get_logger

__all__ = ["StateStore", "drop_outdated"]

log = get_logger()


class StateStore:
    """One per query; a new checkpoint is a new query and starts with nothing. `prefix`: of the table's name."""

    def __init__(self, bus: Bus, query_id: str, prefix: str = "live_state") -> None:
        self._bus = bus
        self._table = f"{prefix}:{query_id}"

    def base_of(self, partition: int, batch_id: int) -> int:
        """The batch whose state batch `batch_id` goes on from; -1 for none."""
        return self._base(self._pointer(partition), batch_id)

    def load(self, partition: int, base: int) -> bytes | None:
        """The state after batch `base`; None for a partition that never had one."""
        if base < 0:
            return None
        (found,) = self._bus.get(self._table, [f"{partition}/{base}"])
        if found is None:
            raise LookupError(f"the state of partition {partition} after batch {base} is gone")
        return found

    def save(self, partition: int, batch_id: int, state: bytes) -> None:
        """Keep the state after `batch_id`, and that of the batch that it came from."""
        pointer = self._pointer(partition)
        base = self._base(pointer, batch_id)
        self._bus.put(self._table, {f"{partition}/{batch_id}": state})
        self._bus.put(self._table, {str(partition): json.dumps([batch_id, base]).encode()})
        outdated = {kept for kept in pointer if kept >= 0} - {batch_id, base}
        if outdated:
            self._bus.delete(self._table, [f"{partition}/{batch}" for batch in outdated])

    def _pointer(self, partition: int) -> list[int]:
        """The newest batch with a state and the one before it."""
        (found,) = self._bus.get(self._table, [str(partition)])
        return [-1, -1] if found is None else list(json.loads(found))

    @staticmethod
    def _base(pointer: list[int], batch_id: int) -> int:
        newest, before = pointer
        return newest if newest < batch_id else before


def drop_outdated(bus: Bus, query_id: str, prefix: str = "live_state") -> None:
    """Drop the states of earlier queries, whose checkpoints were lost, once `query_id` is the only one that runs.

    There is one live query a bus, so that any other is of the past. A failure leaves them to the next start.
    """
    registry = f"{prefix}_queries"
    try:
        outdated = bus.items(registry).keys() - {query_id}
        bus.put(registry, {query_id: b""})
        for old in outdated:
            table = f"{prefix}:{old}"
            bus.delete(table, list(bus.items(table)))
            bus.delete(registry, [old])
            log.info("state_dropped", query_id=old, table=table)
    except CandlewrightError as error:
        log.warning("state_not_dropped", prefix=prefix, error=str(error))
