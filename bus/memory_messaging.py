"""`MemoryMessaging`: see `bus.messaging`. It shares lock, groups and pending records with its `MemoryBus`."""

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bus.api import StoredRecord
from bus.memory_bus import MemoryBus, _GroupPart, _Pending
from bus.messaging import ORDER_HEADER, ORDERED_LOOK, Delivery, Half, Received, Settled

_MAX_LETTERS = 100

_Place = tuple[str, str, int]


@dataclass(slots=True)
class _Later:
    payload: bytes
    due: float


@dataclass(slots=True)
class _HalfMessage:
    payload: bytes
    due: float
    asked: int = 0


@dataclass(slots=True)
class _Queue:
    later: dict[str, _Later] = field(default_factory=dict)
    halves: dict[str, _HalfMessage] = field(default_factory=dict)
    resolved: dict[str, str] = field(default_factory=dict)


class MemoryMessaging:
    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self._changed = bus._changed
        self._due: dict[_Place, dict[int, float]] = {}
        self._settled: dict[tuple[str, str, int, int], int] = {}
        self._queues: dict[str, _Queue] = {}
        self._mail: dict[str, deque[bytes]] = {}

    # ---- deliveries
    def receive(
        self,
        topic: str,
        group: str,
        consumer: str,
        partition: int,
        *,
        max_records: int,
        hide_seconds: float,
        default_hide_seconds: float,
        in_order: bool = False,
    ) -> Received:
        with self._changed:
            place, parts = self._bus._use_group(topic, group)
            part, log = parts[partition], place.logs[partition]
            due = self._due.setdefault((topic, group, partition), {})
            now = time.monotonic()
            for offset in [offset for offset in due if offset not in part.pending]:
                del due[offset]
            for offset, entry in part.pending.items():
                due.setdefault(offset, entry.delivered_at + default_hide_seconds)

            def give(offset: int) -> Delivery:
                entry = part.pending[offset]
                entry.consumer, entry.delivered_at = consumer, now
                entry.deliveries += 1
                due[offset] = now + hide_seconds
                return Delivery(log.records[offset - log.first], entry.deliveries)

            def read_next() -> int | None:
                offset = max(part.next_offset, log.first)
                if offset >= log.end:
                    return None
                part.pending[offset] = _Pending(consumer, now, 0)
                part.next_offset = offset + 1
                due[offset] = 0.0
                return offset

            if in_order:
                chosen = self._in_order(part, log.first, log.records, due, now, max_records, read_next)
            else:
                ready = (offset for offset, at in due.items() if at <= now)
                chosen = sorted(ready, key=lambda o: (due[o], o))[:max_records]
                while len(chosen) < max_records and (new := read_next()) is not None:
                    chosen.append(new)
            found = tuple(map(give, chosen))
            hidden = [at for at in due.values() if at > now]
            return Received(found, min(hidden) - now if hidden else None)

    def _in_order(
        self,
        part: _GroupPart,
        first: int,
        records: Sequence[StoredRecord],
        due: dict[int, float],
        now: float,
        most: int,
        read_next: Callable[[], int | None],
    ) -> list[int]:
        chosen: list[int] = []
        blocked: set[bytes] = set()
        again: set[bytes] = set()
        for offset in sorted(part.pending)[:ORDERED_LOOK]:
            name = _message_group(records[offset - first])
            if name in blocked:
                continue
            if due[offset] > now and name not in again:
                blocked.add(name)
            elif len(chosen) == most:
                blocked.add(name)
                due[offset] = 0.0
            else:
                if part.pending[offset].deliveries:
                    again.add(name)
                chosen.append(offset)
        while len(chosen) < most and len(part.pending) < ORDERED_LOOK and (new := read_next()) is not None:
            if _message_group(records[new - first]) not in blocked:
                chosen.append(new)
        return chosen

    def acknowledge(self, topic: str, group: str, partition: int, offset: int, attempt: int) -> Settled:
        with self._changed:
            part, outcome = self._find(topic, group, partition, offset, attempt)
            if outcome is Settled.DONE and part is not None:
                del part.pending[offset]
                self._due.get((topic, group, partition), {}).pop(offset, None)
                self._settled[topic, group, partition, offset] = attempt
            return outcome

    def postpone(
        self, topic: str, group: str, partition: int, offset: int, attempt: int, delay_seconds: float
    ) -> Settled:
        with self._changed:
            _, outcome = self._find(topic, group, partition, offset, attempt)
            if outcome is Settled.DONE:
                self._due[topic, group, partition][offset] = time.monotonic() + max(0.0, delay_seconds)
            return outcome

    def give_back(self, topic: str, group: str, partition: int, offset: int, attempt: int) -> Settled:
        with self._changed:
            part, outcome = self._find(topic, group, partition, offset, attempt)
            if outcome is Settled.DONE and part is not None:
                part.pending[offset].deliveries -= 1
                self._due[topic, group, partition][offset] = 0.0
            return outcome

    def bury(
        self, topic: str, group: str, partition: int, offset: int, attempt: int, *, queue: str, id: str, payload: bytes
    ) -> Settled:
        with self._changed:
            outcome = self.acknowledge(topic, group, partition, offset, attempt)
            if outcome is Settled.DONE:
                self.add(queue, id, payload, 0.0)
            return outcome

    # ---- messages for later
    def add(self, queue: str, id: str, payload: bytes, delay_seconds: float) -> bool:
        with self._changed:
            items = self._queue(queue).later
            if id in items:
                return False
            items[id] = _Later(payload, time.monotonic() + max(0.0, delay_seconds))
            return True

    def claim_due(self, queue: str, *, max_items: int, lease_seconds: float) -> list[tuple[str, bytes]]:
        with self._changed:
            now = time.monotonic()
            items = self._queue(queue).later
            ready = sorted((item.due, id) for id, item in items.items() if item.due <= now)[:max_items]
            for _, id in ready:
                items[id].due = now + lease_seconds
            return [(id, items[id].payload) for _, id in ready]

    def defer(self, queue: str, id: str, delay_seconds: float) -> None:
        with self._changed:
            item = self._queue(queue).later.get(id)
            if item is not None:
                item.due = time.monotonic() + delay_seconds

    def remove(self, queue: str, id: str, *, registry: str) -> None:
        with self._changed:
            self._queue(queue).later.pop(id, None)

    def next_due(self, queue: str) -> float | None:
        with self._changed:
            items = self._queue(queue).later.values()
            return max(0.0, min(item.due for item in items) - time.monotonic()) if items else None

    # ---- half messages
    def prepare(self, queue: str, id: str, payload: bytes, ask_after_seconds: float) -> bool:
        with self._changed:
            halves = self._queue(queue).halves
            if id in halves:
                return False
            halves[id] = _HalfMessage(payload, time.monotonic() + ask_after_seconds)
            return True

    def half(self, queue: str, id: str) -> bytes | None:
        with self._changed:
            found = self._queue(queue).halves.get(id)
            return found.payload if found else None

    def claim_unresolved(self, queue: str, *, max_items: int, again_seconds: float) -> list[Half]:
        with self._changed:
            now = time.monotonic()
            halves = self._queue(queue).halves
            ready = sorted((half.due, id) for id, half in halves.items() if half.due <= now)[:max_items]
            for _, id in ready:
                halves[id].due = now + again_seconds
            return [Half(id, halves[id].payload, halves[id].asked) for _, id in ready]

    def count_asked(self, queue: str, id: str, again_seconds: float) -> int:
        with self._changed:
            half = self._queue(queue).halves.get(id)
            if half is None:
                return 0
            half.due = time.monotonic() + again_seconds
            half.asked += 1
            return half.asked

    def resolve(
        self, queue: str, id: str, outcome: str, *, payload: bytes = b"", delay_seconds: float | None = None
    ) -> str:
        with self._changed:
            place = self._queue(queue)
            if id in place.resolved:
                return place.resolved[id]
            half = place.halves.pop(id, None)
            if half is None:
                return ""
            place.resolved[id] = outcome
            if delay_seconds is not None:
                place.later[id] = _Later(payload or half.payload, time.monotonic() + max(0.0, delay_seconds))
            return outcome

    # ---- mail
    def post(self, address: str, payload: bytes, keep_seconds: float) -> None:
        with self._changed:
            self._mail.setdefault(address, deque(maxlen=_MAX_LETTERS)).append(payload)

    def collect(self, addresses: Sequence[str]) -> list[bytes | None]:
        with self._changed:
            boxes = [self._mail.get(address) for address in addresses]
            return [box.popleft() if box else None for box in boxes]

    def close(self) -> None:
        """Nothing to give back."""

    # ---- inside
    def _find(
        self, topic: str, group: str, partition: int, offset: int, attempt: int
    ) -> tuple[_GroupPart | None, Settled]:
        """DONE when it is this delivery's to settle."""
        place = self._bus._topics.get(topic)
        parts = place.groups.get(group) if place else None
        part = parts[partition] if parts and 0 <= partition < len(parts) else None
        entry = part.pending.get(offset) if part else None
        if entry is None:
            by = self._settled.get((topic, group, partition, offset), attempt)
            return part, Settled.BEFORE if by == attempt else Settled.STALE
        return part, Settled.DONE if entry.deliveries == attempt else Settled.STALE

    def _queue(self, name: str) -> _Queue:
        return self._queues.setdefault(name, _Queue())


def _message_group(record: StoredRecord) -> bytes:
    try:
        name = json.loads(record.headers.get(ORDER_HEADER, "{}")).get("group")
    except (AttributeError, ValueError):
        name = None
    if isinstance(name, str):
        return b"g" + name.encode()
    return b"" if record.key is None else b"k" + record.key
