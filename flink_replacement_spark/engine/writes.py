"""How a step writes: each call at once, or all together in one call to the bus at the end."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from bus import Bus, Record, Swap
from candlewright.wire.errors import BusError

__all__ = ["Direct", "Outdated", "Together", "Writes"]

#: Larger results are written call by call, because one call blocks the bus for all others until it ends.
_MOST_BYTES = 1 << 20
#: Longer rows are not cached.
_ROW_BYTES = 1_024


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
        self._bus = bus
        self._known: dict[tuple[str, str], bytes] = {}
        self._published: list[tuple[str, Sequence[Record], str, int]] = []
        self._swaps: list[Swap] = []
        self._afterwards: list[Callable[[], object]] = []
        self._may_wait = self._follows_unwritten = False

    def begin(self, *, may_wait: bool = False, follows_unwritten: bool = False) -> None:
        """Drop requested writes that were not carried out."""
        self._published, self._swaps, self._afterwards = [], [], []
        self._may_wait, self._follows_unwritten = may_wait, follows_unwritten

    def forget(self) -> None:
        """Drop the cache, because another process may have written."""
        self.begin()
        self._known.clear()

    @property
    def may_wait(self) -> bool:
        return self._may_wait and not self._published

    @property
    def follows_unwritten(self) -> bool:
        return self._follows_unwritten

    @property
    def is_empty(self) -> bool:
        return not self._published and not self._swaps

    def get(self, table: str, keys: Sequence[str]) -> list[bytes | None]:
        if all((table, key) in self._known for key in keys):
            return [self._known[table, key] for key in keys]
        return self._bus.get(table, keys)

    def publish_as(self, topic: str, records: Sequence[Record], *, writer: str, number: int) -> None:
        if records:
            self._published.append((topic, records, writer, number))

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
        self._swaps.append(Swap(table, key, old, new, put or {}, delete))
        return True

    def afterwards(self, call: Callable[[], object]) -> None:
        self._afterwards.append(call)

    def commit(self, plans: Sequence[Swap]) -> bool:
        """Write everything at once. `plans`: the rows that record this work. False, with nothing written, if another
        process has written them. Raises BusError.
        """
        try:
            is_done = self._write(plans)
        except BaseException:
            self.forget()
            raise
        if not is_done:
            self.forget()
            return False
        for swap in (*plans, *self._swaps):
            self._remember(swap)
        self.pass_over()
        return True

    def pass_over(self) -> None:
        """Skip the commit, because nothing must be written."""
        calls = self._afterwards
        self.begin()
        for call in calls:
            call()

    def _write(self, plans: Sequence[Swap]) -> bool:
        size = sum(len(record.value) for _, records, _, _ in self._published for record in records)
        size += sum(len(value) for swap in self._swaps for value in (swap.new, *swap.put.values()))
        if size <= _MOST_BYTES:
            records: dict[str, list[Record]] = {}
            for topic, own, _, _ in self._published:
                records.setdefault(topic, []).extend(own)
            return self._bus.commit([*plans, *self._swaps], records)
        if not self._bus.commit(plans, {}):
            return False
        for topic, own, writer, number in self._published:
            self._bus.publish_as(topic, own, writer=writer, number=number)
        for swap in self._swaps:
            if not self._bus.replace(swap.table, swap.key, swap.old, new=swap.new, put=swap.put, delete=swap.delete):
                raise Outdated(f"another process has written row {swap.key} of {swap.table}")
        return True

    def _remember(self, swap: Swap) -> None:
        for key, value in (*swap.put.items(), (swap.key, swap.new)):
            if len(value) <= _ROW_BYTES:
                self._known[swap.table, key] = value
            else:
                self._known.pop((swap.table, key), None)
        for key in swap.delete:
            self._known.pop((swap.table, key), None)
