"""Stores the state of each partition of the trigger query between micro-batches, as named parts on the bus.

Only changed parts are written, since most state of thousands of triggers does not change. A step may instead write a
note of what it and the unwritten steps before it took: the state follows from the last whole one, and from the records
of these steps. A micro-batch can run again after any kill, as with `live_state`, which keeps the lists of parts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bus import Bus
from core.poison import is_poison
from flink_replacement_spark.engine.writes import Writes
from flink_replacement_spark.live.store import StateStore
from flink_replacement_spark.triggers.source import Ends, TriggerPlan

__all__ = ["STATE_PREFIX", "PartStore", "Since", "Stored"]

STATE_PREFIX = "trigger_state"


@dataclass(frozen=True, slots=True)
class Since:
    """What was taken since a whole state: where the records `start` (empty for none), their `size` in bytes, and the
    numbers of `notes` and `steps`.
    """

    start: Ends = field(default_factory=dict)
    notes: int = 0
    steps: int = 0
    size: int = 0

    def and_then(self, start: Ends, *, steps: int, size: int) -> "Since":
        return Since(self.start or start, self.notes + 1, self.steps + steps, self.size + size)


@dataclass(frozen=True, slots=True)
class Stored:
    """The state after batch `base`; -1 for none. `parts`: of the last whole state, and `since`: what followed it.
    `written`: the batch that wrote each part. `replaced`: keys of parts that only the previous whole state needs.
    """

    base: int = -1
    parts: Mapping[str, bytes] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    since: Since = field(default_factory=Since)


class PartStore:
    """One per query; a new checkpoint is a new query and starts empty."""

    def __init__(self, bus: Bus, query_id: str, writes: Writes | None = None) -> None:
        self._bus = bus
        self._table = f"{STATE_PREFIX}:{query_id}"
        self._lists = StateStore(bus, query_id, STATE_PREFIX, writes)

    def newest(self, partition: int) -> int:
        """The last batch that changed the state; -1 for none."""
        return self._lists.pointer(partition).newest

    def base_of(self, partition: int, batch_id: int) -> int:
        """The batch from whose state batch `batch_id` continues; -1 for none."""
        try:
            return self._lists.base_of(partition, batch_id)
        except Exception as error:  # Whatever is in the state of one partition must not stop the others.
            if not is_poison(error):
                raise
            self.put_aside(partition, error)
            return -1

    def start(self, partition: int) -> Ends:
        """Where the records start that the newest state needs; empty if it is whole."""
        pointer = self._lists.pointer(partition)
        notes = pointer.to(pointer.newest)[1:]
        start: Ends = json.loads(self._lists.read(partition, notes[:1])[0])[0] if notes else {}
        return start

    def load(self, partition: int, base: int) -> tuple[Stored, list[TriggerPlan]]:
        """The state after batch `base`, and the steps since its whole state; raises LookupError if a part of it is
        lost.
        """
        if base < 0:
            return Stored(), []
        batches = self._lists.pointer(partition).to(base)
        if base not in batches:
            self._lists.check_kept(partition, base)
        found, *notes = self._lists.read(partition, batches)
        plans: list[TriggerPlan] = []
        since = Since()
        for start, size, steps in map(json.loads, notes):
            plans += [TriggerPlan.from_json(partition, step) for step in steps]
            since = Since(start, since.notes + 1, len(plans), size)
        listed = json.loads(found)
        written: dict[str, int] = listed["written"]
        keys = [_key(partition, batch, name) for name, batch in written.items()]
        parts = dict(zip(written, self._bus.get(self._table, keys) if keys else [], strict=True))
        kept = {name: part for name, part in parts.items() if part is not None}
        if len(kept) < len(parts):
            self._lists.check_kept(partition, base)
            raise LookupError(f"the state of partition {partition} after batch {base} is not whole")
        return Stored(base, kept, written, tuple(listed["replaced"]), since), plans

    def put_aside(self, partition: int, error: Exception) -> None:
        """See `StateStore.put_aside`."""
        self._lists.put_aside(partition, error)

    def save(self, partition: int, batch_id: int, before: Stored, *, parts: Mapping[str, bytes]) -> Stored:
        """Store the state after `batch_id`, and keep `before`, from which it continued."""
        changed = {name for name, part in parts.items() if before.parts.get(name) != part}
        written = {name: batch_id if name in changed else before.written[name] for name in parts}
        replaced = tuple(
            _key(partition, batch, name) for name, batch in before.written.items() if written.get(name) != batch
        )
        listed = json.dumps({"written": written, "replaced": replaced}).encode()
        self._lists.save(
            partition,
            batch_id,
            listed,
            put={_key(partition, batch_id, name): parts[name] for name in sorted(changed)},
            delete=before.replaced,
        )
        return Stored(batch_id, parts, written, replaced)

    def note(
        self, partition: int, batch_id: int, before: Stored, *, after: Since, plans: Sequence[TriggerPlan]
    ) -> Stored:
        """Store what the steps since `before` took, instead of the state after them. Readers must hold the records."""
        content = [after.start, after.size, [plan.to_json() for plan in plans]]
        self._lists.append(partition, batch_id, json.dumps(content).encode())
        return replace(before, base=batch_id, since=after)


def _key(partition: int, batch: int, name: str) -> str:
    return f"{partition}/{batch}/{name}"
