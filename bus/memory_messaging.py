"""`MemoryMessaging`: see `bus.messaging`. It shares lock, groups and pending records with its `MemoryBus`."""

import json
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from bus.api import StoredRecord
from bus.memory_bus import MemoryBus, _GroupPart, _Pending
from bus.messaging import MAX_BYTES, ORDER_HEADER, ORDERED_LOOK, Claim, Delivery, Half, Received, Settled
from core.errors import BusFull

_MAX_LETTERS = 100

#: Topic, group, partition.
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
        #: What was given out in order.
        self._ordered: dict[_Place, set[int]] = {}
        self._settled: dict[tuple[str, str, int, int], int] = {}
        self._queues: dict[str, _Queue] = {}
        self._mail: dict[str, deque[bytes]] = {}
        self._posted = 0

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

            found: list[Delivery] = []
            size = 0

            def is_full() -> bool:
                return len(found) >= max_records or size >= MAX_BYTES

            def give(offset: int) -> None:
                nonlocal size
                entry = part.pending.setdefault(offset, _Pending(consumer, now, 0))
                entry.consumer, entry.delivered_at = consumer, now
                entry.deliveries += 1
                due[offset] = now + hide_seconds
                if in_order:
                    self._ordered.setdefault((topic, group, partition), set()).add(offset)
                found.append(Delivery(log.records[offset - log.first], entry.deliveries))
                size += len(found[-1].record.value)

            def name_of(offset: int) -> bytes:
                return _message_group(log.records[offset - log.first]) if in_order else b""

            blocked: set[bytes] = set()
            again: set[bytes] = set()
            if not in_order:
                ready = (offset for offset, at in due.items() if at <= now)
                for offset in sorted(ready, key=lambda o: (due[o], o)):
                    if not is_full():
                        give(offset)
            for offset in sorted(part.pending)[:ORDERED_LOOK] if in_order else ():
                name = name_of(offset)
                if name in blocked:
                    continue
                if due[offset] > now and name not in again:
                    blocked.add(name)
                elif is_full():
                    blocked.add(name)
                    due[offset] = 0.0
                else:
                    if part.pending[offset].deliveries:
                        again.add(name)
                    give(offset)
            was_parked, part.parked = part.parked, []
            for offset in was_parked:
                if is_full() or name_of(offset) in blocked:
                    blocked.add(name_of(offset))
                    part.parked.append(offset)
                else:
                    give(offset)
            part.next_offset = max(part.next_offset, log.first)
            while part.next_offset < log.end and not is_full() and not (in_order and len(part.pending) >= ORDERED_LOOK):
                offset, part.next_offset = part.next_offset, part.next_offset + 1
                if name_of(offset) in blocked:
                    part.parked.append(offset)
                else:
                    give(offset)
            hidden = [at for at in due.values() if at > now]
            return Received(tuple(found), min(hidden) - now if hidden else None)

    def acknowledge(self, claims: Sequence[Claim]) -> list[Settled]:
        with self._changed:
            return [self._acknowledge(claim) for claim in claims]

    def postpone(self, claim: Claim, delay_seconds: float) -> Settled:
        with self._changed:
            _, outcome = self._find(claim)
            if outcome is Settled.DONE:
                self._due[claim[:3]][claim.offset] = time.monotonic() + max(0.0, delay_seconds)
            return outcome

    def give_back(self, claims: Sequence[Claim]) -> list[Settled]:
        with self._changed:
            return [self._give_back(claim) for claim in claims]

    def bury(self, claim: Claim, *, queue: str, id: str, payload: bytes) -> Settled:
        with self._changed:
            outcome = self._acknowledge(claim)
            if outcome is Settled.DONE:
                self._queue(queue).later.setdefault(id, _Later(payload, time.monotonic()))
            return outcome

    # ---- messages for later
    def add(self, queue: str, id: str, payload: bytes, delay_seconds: float) -> bool:
        with self._changed:
            items = self._queue(queue).later
            self._check_room(queue, payload)
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

    def kept_bytes(self, queue: str) -> int:
        with self._changed:
            place = self._queue(queue)
            kept: list[_Later | _HalfMessage] = [*place.later.values(), *place.halves.values()]
            return sum(len(message.payload) for message in kept)

    # ---- half messages
    def prepare(self, queue: str, id: str, payload: bytes, ask_after_seconds: float) -> bool:
        with self._changed:
            halves = self._queue(queue).halves
            self._check_room(queue, payload)
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
            self._posted += 1

    def posted(self) -> int:
        return self._posted

    def collect(self, addresses: Sequence[str]) -> list[bytes | None]:
        with self._changed:
            boxes = [self._mail.get(address) for address in addresses]
            return [box.popleft() if box else None for box in boxes]

    def close(self) -> None:
        """Nothing to give back."""

    # ---- inside
    def _acknowledge(self, claim: Claim) -> Settled:
        part, outcome = self._find(claim)
        if outcome is Settled.DONE and part is not None:
            del part.pending[claim.offset]
            self._due.get(claim[:3], {}).pop(claim.offset, None)
            if not self._is_ordered(claim):
                self._settled[claim[:4]] = claim.attempt
            self._ordered.get(claim[:3], set()).discard(claim.offset)
        return outcome

    def _give_back(self, claim: Claim) -> Settled:
        part, outcome = self._find(claim)
        if outcome is Settled.DONE and part is not None:
            part.pending[claim.offset].deliveries -= 1
            self._due[claim[:3]][claim.offset] = 0.0
        return outcome

    def _find(self, claim: Claim) -> tuple[_GroupPart | None, Settled]:
        """DONE when it is this delivery's to settle."""
        place = self._bus._topics.get(claim.topic)
        parts = place.groups.get(claim.group) if place else None
        part = parts[claim.partition] if parts and 0 <= claim.partition < len(parts) else None
        entry = part.pending.get(claim.offset) if part else None
        if entry is not None:
            is_own = self._is_ordered(claim) and entry.consumer == claim.consumer
            return part, Settled.DONE if is_own or entry.deliveries == claim.attempt else Settled.STALE
        if self._settled.get(claim[:4], claim.attempt) != claim.attempt:
            return part, Settled.STALE
        is_known = place and 0 <= claim.partition < len(place.logs) and claim.offset < place.logs[claim.partition].end
        return part, Settled.BEFORE if is_known else Settled.UNKNOWN

    def _check_room(self, queue: str, payload: bytes) -> None:
        kept, limit = self.kept_bytes(queue), self._bus._max_bytes
        if kept + len(payload) > limit:
            raise BusFull(f"{queue}, beside the log,", kept, limit)

    def _is_ordered(self, claim: Claim) -> bool:
        return claim.offset in self._ordered.get(claim[:3], ())

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
