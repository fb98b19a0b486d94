"""How a step writes: each call at once, or all together in one call to the bus at the end."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from bus import Bus, Record, Swap, TopicPartition
from candlewright.wire.errors import BusError

__all__ = ["MOST_BYTES", "NO_ENDS", "Direct", "Outdated", "Together", "Writes", "commit_together"]

#: Larger results are written call by call, because one call blocks the bus for all others until it ends.
MOST_BYTES = 1 << 20
#: Longer rows are not cached.
_ROW_BYTES = 1_024


NO_ENDS: Mapping[TopicPartition, int] = {}


class Outdated(BusError):
    """Another process has continued the same work; its rows must stay."""


class Writes(Protocol):
    @property
    def may_wait(self) -> bool:
        """Whether the state after this step may be written with that of a later one; not if it has published."""
        ...

    @property
    def may_note(self) -> bool:
        """Whether a note of the step's records may take the place of its state."""
        ...

    @property
    def follows_unwritten(self) -> bool:
        """Whether the step follows others that were not written; only the state in memory contains those."""
        ...

    def get(self, table: str, keys: Sequence[str]) -> list[bytes | None]: ...

    def publish_as(self, topic: str, records: Sequence[Record], *, writer: str, number: int) -> object: ...

    def replace(
        self,
        table: str,
        key: str,
        old: bytes | None,
        *,
        new: bytes,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> bool: ...

    def afterwards(self, call: Callable[[], object]) -> None:
        """Call `call` once everything requested before is written."""
        ...


class Direct:
    may_wait = may_note = follows_unwritten = False

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def get(self, table: str, keys: Sequence[str]) -> list[bytes | None]:
        return self._bus.get(table, keys)

    def publish_as(self, topic: str, records: Sequence[Record], *, writer: str, number: int) -> object:
        return self._bus.publish_as(topic, records, writer=writer, number=number)

    def replace(
        self,
        table: str,
        key: str,
        old: bytes | None,
        *,
        new: bytes,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> bool:
        return self._bus.replace(table, key, old, new=new, put=put, delete=delete)

    def afterwards(self, call: Callable[[], object]) -> None:
        call()


class Together:
    """For the only writer of these rows: caches the rows that it has written, and `commit` detects whether another
    process has written them meanwhile.
    """

    may_note = True

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self._known: dict[tuple[str, str], bytes] = {}
        self.published: list[tuple[str, Sequence[Record], str, int]] = []
        self.swaps: list[Swap] = []
        self._afterwards: list[Callable[[], object]] = []
        self._may_wait = self._follows_unwritten = False

    def begin(self, *, may_wait: bool = False, follows_unwritten: bool = False) -> None:
        """Drop requested writes that were not carried out."""
        self.published, self.swaps, self._afterwards = [], [], []
        self._may_wait, self._follows_unwritten = may_wait, follows_unwritten

    def forget(self) -> None:
        """Drop the cache, because another process may have written."""
        self.begin()
        self._known.clear()

    @property
    def may_wait(self) -> bool:
        return self._may_wait and not self.published

    @property
    def follows_unwritten(self) -> bool:
        return self._follows_unwritten

    @property
    def is_empty(self) -> bool:
        return not self.published and not self.swaps

    def get(self, table: str, keys: Sequence[str]) -> list[bytes | None]:
        if all((table, key) in self._known for key in keys):
            return [self._known[table, key] for key in keys]
        return self.bus.get(table, keys)

    def publish_as(self, topic: str, records: Sequence[Record], *, writer: str, number: int) -> None:
        if records:
            self.published.append((topic, records, writer, number))

    def replace(
        self,
        table: str,
        key: str,
        old: bytes | None,
        *,
        new: bytes,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> bool:
        self.swaps.append(Swap(table, key, old, new, put or {}, delete))
        return True

    def afterwards(self, call: Callable[[], object]) -> None:
        self._afterwards.append(call)

    def results(self, topic: str) -> list[Record]:
        """What was published to the topic."""
        return [record for name, own, _, _ in self.published for record in own if name == topic]

    @property
    def has_results(self) -> bool:
        """Whether anything was published."""
        return bool(self.published)

    @property
    def size(self) -> int:
        size = sum(len(record.value) for _, records, _, _ in self.published for record in records)
        return size + sum(len(value) for swap in self.swaps for value in (swap.new, *swap.put.values()))

    def pass_over(self) -> None:
        """Skip the commit, because nothing must be written."""
        calls = self._afterwards
        self.begin()
        for call in calls:
            call()

    def write_each(self) -> None:
        for topic, own, writer, number in self.published:
            self.bus.publish_as(topic, own, writer=writer, number=number)
        for swap in self.swaps:
            if not self.bus.replace(swap.table, swap.key, swap.old, new=swap.new, put=swap.put, delete=swap.delete):
                raise Outdated(f"another process has written row {swap.key} of {swap.table}")

    def remember(self, plans: Sequence[Swap]) -> None:
        for swap in (*plans, *self.swaps):
            self._remember(swap)

    def _remember(self, swap: Swap) -> None:
        for key, value in (*swap.put.items(), (swap.key, swap.new)):
            if len(value) <= _ROW_BYTES:
                self._known[swap.table, key] = value
            else:
                self._known.pop((swap.table, key), None)
        for key in swap.delete:
            self._known.pop((swap.table, key), None)


def commit_together(
    writes: Sequence[Together], plans: Sequence[Swap], ends: Mapping[TopicPartition, int] = NO_ENDS
) -> bool:
    """Write everything at once. `plans`: the rows that record this work. False, with nothing written, if another
    process has written them, or a partition does not end where `ends` says. Raises BusError.
    """
    try:
        is_done = _write(writes, plans, ends)
    except BaseException:
        for each in writes:
            each.forget()
        raise
    for each in writes:
        if is_done:
            each.remember(plans)
            each.pass_over()
        else:
            each.forget()
    return is_done


def _write(writes: Sequence[Together], plans: Sequence[Swap], ends: Mapping[TopicPartition, int]) -> bool:
    bus = writes[0].bus
    if sum(each.size for each in writes) <= MOST_BYTES:
        records: dict[str, list[Record]] = {}
        for each in writes:
            for topic, own, _, _ in each.published:
                records.setdefault(topic, []).extend(own)
        return bus.commit([*plans, *(swap for each in writes for swap in each.swaps)], records, ends=ends)
    if not bus.commit(plans, {}, ends=ends):
        return False
    for each in writes:
        each.write_each()
    return True
