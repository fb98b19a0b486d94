"""Stores the state of each partition of a streaming query between micro-batches, in a table on the bus.

The state after a batch is written together with the pointer to it, and the previous one is kept until the next batch,
so a micro-batch can run again after any kill. If a state follows from the previous one and from records on the bus, a
note of those records is enough (`append`); from time to time it is written whole.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from bus import Bus, KeyedTables
from bus.dead_letters import Letter, put_aside
from candlewright.wire.errors import CandlewrightError
from core.log import get_logger
from core.poison import is_poison, reason_of
from flink_replacement_spark.engine.writes import Direct, Outdated, Writes

__all__ = ["Pointer", "StateStore", "drop_outdated"]

log = get_logger()


@dataclass(frozen=True, slots=True)
class Pointer:
    """`batches`: the batches with stored data, ascending; `wholes`: those with a whole state, which include the first
    one.
    """

    batches: Sequence[int] = ()
    wholes: Sequence[int] = ()

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, found: bytes | None) -> "Pointer":
        if found is None:
            return cls()
        content = json.loads(found)
        if isinstance(content, list):
            # The format of versions that wrote only whole states: the newest batch and the previous one, -1 for none.
            batches = sorted(batch for batch in content if batch >= 0)
            return cls(batches, batches)
        return cls(content["batches"], content["wholes"])

    def packed(self) -> bytes:
        return json.dumps({"batches": list(self.batches), "wholes": list(self.wholes)}).encode()

    def base_of(self, batch_id: int) -> int:
        """The batch from whose state batch `batch_id` continues; -1 for none. Raises Outdated if that was dropped."""
        base = max((batch for batch in self.batches if batch < batch_id), default=-1)
        if base < 0 and self.newest > batch_id:
            raise Outdated(f"another process has already continued from batch {batch_id} to batch {self.newest}")
        return base

    @property
    def newest(self) -> int:
        """-1 for none."""
        return max(self.batches, default=-1)

    def to(self, base: int) -> list[int]:
        """The batch with the newest whole state up to `base`, and the batches after it up to `base`."""
        whole = max((batch for batch in self.wholes if batch <= base), default=-1)
        return [batch for batch in self.batches if whole <= batch <= base]

    def after(self, batch_id: int, *, is_whole: bool) -> "Pointer":
        """The pointer after `batch_id`, which keeps what the previous state needs."""
        kept = self.to(self.base_of(batch_id))
        wholes = [batch for batch in self.wholes if batch in kept]
        return Pointer([*kept, batch_id], [*wholes, batch_id] if is_whole else wholes)


@dataclass(frozen=True, slots=True)
class StateStore:
    """One per query; a new checkpoint is a new query and starts empty. `prefix`: the prefix of the table's name.
    `writes`: how a step writes; by default at once.
    """

    bus: Bus
    query_id: str
    prefix: str = "live_state"
    writes: Writes | None = None

    def base_of(self, partition: int, batch_id: int) -> int:
        """The batch from whose state batch `batch_id` continues; -1 for none."""
        return self.pointer(partition).base_of(batch_id)

    def load(self, partition: int, base: int) -> bytes | None:
        """The whole state after batch `base`; None if it never had one. Raises LookupError and Outdated."""
        return None if base < 0 else self.read(partition, [base])[0]

    def read(self, partition: int, batches: Sequence[int]) -> list[bytes]:
        """The data stored after these batches; raises LookupError if it is lost, and Outdated if it was dropped because
        another process has continued.
        """
        found = self._writes.get(self._table, [f"{partition}/{batch}" for batch in batches])
        for batch, content in zip(batches, found, strict=True):
            if content is None:
                self.check_kept(partition, batch)
                raise LookupError(f"the state of partition {partition} after batch {batch} is gone")
        return [content for content in found if content is not None]

    def save(
        self,
        partition: int,
        batch_id: int,
        state: bytes,
        *,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> None:
        """Store the whole state after `batch_id`, and keep the previous one. `put`, `delete`: further rows of the
        table, in the same step.
        """
        self._put(partition, batch_id, state, is_whole=True, put=put, delete=delete)

    def append(self, partition: int, batch_id: int, note: bytes) -> None:
        """Store the note from which the state after `batch_id` follows, and keep the previous state."""
        self._put(partition, batch_id, note, is_whole=False)

    def put_aside(self, partition: int, error: Exception) -> None:
        """Drop a partition's unreadable state; the query starts afresh with this partition. An error would recur at
        every attempt.
        """
        (pointer,) = self.bus.get(self._table, [str(partition)])
        try:
            batches = list(Pointer.of(pointer).batches)
        except Exception as unreadable:  # The content may be anything.
            if not is_poison(unreadable):
                raise
            batches = []
        keys = [f"{partition}/{batch}" for batch in batches]
        rows = zip([str(partition), *keys], [pointer, *self.bus.get(self._table, keys)], strict=True)
        reason = f"the state of partition {partition} cannot be read: {reason_of(error)}"
        letters = [Letter(self._table, value, reason, key.encode()) for key, value in rows if value is not None]
        put_aside(self.bus, "flink_replacement_spark", letters)
        log.error("state_unreadable", table=self._table, partition=partition, error=repr(error))
        self.bus.put(self._table, {str(partition): Pointer().packed()})
        self.bus.delete(self._table, keys)

    def check_kept(self, partition: int, batch: int) -> None:
        """Raises Outdated."""
        (found,) = self.bus.get(self._table, [str(partition)])
        if batch not in Pointer.of(found).batches:
            raise Outdated(
                f"another process has already continued from batch {batch} of {self._table}, partition {partition}"
            )

    def pointer(self, partition: int) -> Pointer:
        (found,) = self._writes.get(self._table, [str(partition)])
        return Pointer.of(found)

    def _put(
        self,
        partition: int,
        batch_id: int,
        content: bytes,
        *,
        is_whole: bool,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> None:
        """Raises Outdated."""
        (found,) = self._writes.get(self._table, [str(partition)])
        before = Pointer.of(found)
        pointer = before.after(batch_id, is_whole=is_whole)
        outdated = sorted(set(before.batches) - set(pointer.batches))
        if before.newest > batch_id or not self._writes.replace(
            self._table,
            str(partition),
            found,
            new=pointer.packed(),
            put={f"{partition}/{batch_id}": content, **(put or {})},
            delete=[*(f"{partition}/{batch}" for batch in outdated), *delete],
        ):
            raise Outdated(f"another process has already stored the state of {self._table}, partition {partition}")

    @property
    def _writes(self) -> Writes:
        return self.writes or Direct(self.bus)

    @property
    def _table(self) -> str:
        return f"{self.prefix}:{self.query_id}"


def drop_outdated(bus: KeyedTables, query_id: str, prefix: str = "live_state") -> None:
    """Drop the states of earlier queries with lost checkpoints, once only `query_id` runs.

    There is one live query per bus, so any other is obsolete. After a failure they stay until the next start.
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
        log.warning("state_drop_failed", prefix=prefix, error=str(error))
