"""Stores the state of each partition of the trigger query between micro-batches, as named parts on the bus.

Only changed parts are written, since most state of thousands of triggers does not change. A micro-batch can run again
after any kill, as with `live_state`, which keeps the lists of parts.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from bus import Bus
from core.poison import is_poison
from flink_replacement_spark.engine.writes import Writes
from flink_replacement_spark.live.store import StateStore

__all__ = ["STATE_PREFIX", "PartStore", "Stored"]

STATE_PREFIX = "trigger_state"


@dataclass(frozen=True, slots=True)
class Stored:
    """The state after batch `base`; -1 for none. `written`: the batch that wrote each part. `replaced`: keys of parts
    that only the previous state needs.
    """

    base: int = -1
    parts: Mapping[str, bytes] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()


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

    def load(self, partition: int, base: int) -> Stored:
        """The state after batch `base`; raises LookupError if a part of it is lost."""
        found = self._lists.load(partition, base)
        if found is None:
            return Stored()
        listed = json.loads(found)
        written: dict[str, int] = listed["written"]
        keys = [_key(partition, batch, name) for name, batch in written.items()]
        parts = dict(zip(written, self._bus.get(self._table, keys) if keys else [], strict=True))
        kept = {name: part for name, part in parts.items() if part is not None}
        if len(kept) < len(parts):
            self._lists.check_kept(partition, base)
            raise LookupError(f"the state of partition {partition} after batch {base} is not whole")
        return Stored(base, kept, written, tuple(listed["replaced"]))

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


def _key(partition: int, batch: int, name: str) -> str:
    return f"{partition}/{batch}/{name}"
