"""The state of live bars between micro-batches: rarely written whole, otherwise as a note of each batch's records.

The result of a batch depends only on its records and the state before it. So a state can be rebuilt from the last whole
one and the records of the batches since, which this reader holds on the bus. A batch writes a note of about a hundred
bytes, regardless of the number of tickers and the size of their state.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from bars.saved import OtherVersion
from bus import Bus
from bus import topics as bus_topics
from core.poison import is_poison
from flink_replacement_spark.engine.checked_records import Place
from flink_replacement_spark.engine.writes import Writes
from flink_replacement_spark.live.partition import LivePartition
from flink_replacement_spark.live.source import TOPICS, Range
from flink_replacement_spark.live.store import StateStore

__all__ = ["Journal", "Note"]

#: The most batches between two whole states, which a task that takes over a partition may have to replay.
MAX_NOTES = 64
#: The most bytes of their records, which the bus keeps for this.
MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Note:
    """What a batch took, without the records that are `excluded`; `steps`: what each of its steps took, in order.

    Since the last whole state: `size`, bytes of records; `held`, places in TOPICS of which any were taken.
    """

    steps: Sequence[Sequence[Range]]
    max_ahead_ns: int
    excluded: Sequence[Place] = ()
    size: int = 0
    held: Sequence[int] = ()

    @classmethod
    def of(cls, steps: Sequence[Sequence[Range]], max_ahead_ns: int, excluded: Iterable[Place], *, size: int) -> "Note":
        return cls(steps, max_ahead_ns, sorted(excluded), size, sorted({tag for own in steps for tag, _, _ in own}))

    @classmethod
    def unpacked(cls, content: bytes) -> "Note":
        ranges, max_ahead_ns, excluded, size, held, *before = json.loads(content)
        steps = [[Range(*row) for row in own] for own in (*before, ranges)]
        return cls(steps, max_ahead_ns, [tuple(place) for place in excluded], size, held)

    def packed(self) -> bytes:
        # The last step comes first: versions whose batches have one step wrote nothing more.
        *before, ranges = self.steps
        return json.dumps([ranges, self.max_ahead_ns, self.excluded, self.size, self.held, *before]).encode()

    def after(self, before: "Note") -> "Note":
        return replace(self, size=self.size + before.size, held=sorted({*self.held, *before.held}))


#: Applies the records that a note names to a state.
Replay = Callable[[LivePartition, Note], None]


class Journal:
    """Call `resume` before a batch, and `keep` after it. `max_bytes`: the size of records between two whole states."""

    def __init__(
        self, bus: Bus, query_id: str, partition: int, *, max_bytes: int = MAX_BYTES, writes: Writes | None = None
    ) -> None:
        self._bus = bus
        self._store = StateStore(bus, query_id, writes=writes)
        self._partition = partition
        self._max_bytes = max_bytes

    def resume(
        self, batch_id: int, cached: tuple[int, LivePartition] | None, replay: Replay
    ) -> tuple[int, LivePartition | None]:
        """As `_resume`; also returns -1 and None if the stored state cannot be read, which is then put aside."""
        try:
            return self._resume(batch_id, cached, replay)
        except Exception as error:  # The state of one partition must not stop the others.
            if isinstance(error, OtherVersion) or not is_poison(error):
                raise
            self._store.put_aside(self._partition, error)
            return -1, None

    def _resume(
        self, batch_id: int, cached: tuple[int, LivePartition] | None, replay: Replay
    ) -> tuple[int, LivePartition | None]:
        """The batch that `batch_id` continues from, with the state after it; -1 and None for a partition without one.
        `cached`: a state and its batch; it is used, and modified, if possible.
        """
        pointer = self._store.pointer(self._partition)
        base = pointer.base_of(batch_id)
        if base < 0:
            return base, None
        if cached is not None and cached[0] in pointer.batches and cached[0] <= base:
            live = cached[1]
            missing = [batch for batch in pointer.batches if cached[0] < batch <= base]
            notes = [batch for batch in missing if batch not in pointer.wholes]
            if len(notes) == len(missing):
                for note in self._notes(notes):
                    replay(live, note)
                return base, live
        whole, *rest = pointer.to(base)
        live = LivePartition.load(self._store.read(self._partition, [whole])[0])
        for note in self._notes(rest):
            replay(live, note)
        return base, live

    def base_of(self, batch_id: int) -> int:
        """The batch that `batch_id` continues from; -1 without one."""
        return self._store.base_of(self._partition, batch_id)

    def keep(self, batch_id: int, live: LivePartition, note: Note) -> int:
        """Make the state after `batch_id` durable, with the previous one; returns the bytes of what was written."""
        pointer = self._store.pointer(self._partition)
        base = pointer.to(pointer.base_of(batch_id))
        since = base[1:]
        last = self._notes(since[-1:])
        total = note.after(last[0]) if last else note
        if not base or len(since) >= MAX_NOTES or total.size > self._max_bytes:
            content = live.save()
            self._store.save(self._partition, batch_id, content)
            return len(content)
        self._hold(note, last[0].held if last else ())
        content = total.packed()
        self._store.append(self._partition, batch_id, content)
        return len(content)

    def _notes(self, batches: Sequence[int]) -> list[Note]:
        return [Note.unpacked(content) for content in self._store.read(self._partition, batches)] if batches else []

    def _hold(self, note: Note, held: Sequence[int]) -> None:
        """Move the hold past the records before the first note after a whole state."""
        first: dict[int, int] = {}
        for tag, start, _ in chain.from_iterable(note.steps):
            first[tag] = min(start, first.get(tag, start))
        for tag in first.keys() - set(held):
            self._bus.hold(TOPICS[tag], bus_topics.READER_BAR_STATE, {self._partition: first[tag]})
