"""The line of consume calls of one group on one topic: which call gets which message. Pure.

`Call` is any value by which the server identifies a call. Times are monotonic seconds, passed as arguments.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from bus.api import GroupRecord

Call = TypeVar("Call")

#: Records are read ahead for as many calls as arrived within this time, and wait this long for a call.
READ_AHEAD_SECONDS = 0.1
_READ_AHEAD_RECORDS = 64


@dataclass(frozen=True, slots=True)
class HandOut(Generic[Call]):
    call: Call
    offered: GroupRecord


@dataclass(frozen=True, slots=True)
class Want:
    """Read `count` records, from these partitions only."""

    records: int
    partitions: tuple[int, ...]


@dataclass(kw_only=True, slots=True)
class Line(Generic[Call]):
    """`capacity`: how many calls may wait. `max_pending`: how many unacknowledged records a partition may have before
    it hands out no new ones. `max_retries`: how often a record is offered again, -1 without limit. `reads_ahead`: read
    for calls that have not arrived yet, which is wrong while calls of another gateway are waiting.
    """

    capacity: int
    max_pending: int
    max_retries: int
    partitions: int = 0
    reads_ahead: bool = False
    _calls: dict[Call, float] = field(default_factory=dict)
    _again: deque[GroupRecord] = field(default_factory=deque)
    _fresh: deque[GroupRecord] = field(default_factory=deque)
    _offered_at: float = 0.0
    _pending: dict[int, int] = field(default_factory=dict)
    _served: deque[float] = field(default_factory=deque)

    def __len__(self) -> int:
        """The number of waiting calls."""
        return len(self._calls)

    @property
    def calls(self) -> list[Call]:
        """The waiting calls, in order of arrival."""
        return list(self._calls)

    @property
    def buffered(self) -> int:
        return len(self._again) + len(self._fresh)

    # ---- calls
    def join(self, call: Call, deadline: float) -> bool:
        """False when the line is full."""
        if len(self._calls) >= self.capacity:
            return False
        self._calls[call] = deadline
        return True

    def leave(self, call: Call) -> bool:
        """Whether the call was still waiting."""
        return self._calls.pop(call, None) is not None

    # ---- records
    def offer(self, records: Iterable[GroupRecord], now: float) -> None:
        """Take new records from the bus."""
        self._fresh.extend(records)
        self._offered_at = now

    def offer_again(self, records: Sequence[GroupRecord], now: float) -> list[GroupRecord]:
        """Take records that others had before; they go ahead of new ones, in offset order.

        Records that have used up their retries are returned instead.
        """
        spent: list[GroupRecord] = []
        for offered in records:
            if 0 <= self.max_retries < offered.deliveries - 1:
                spent.append(offered)
            else:
                insort(self._again, offered, key=_place)
        self._offered_at = now
        return spent

    def take_back(self, offered: GroupRecord) -> None:
        """Return a record whose call was cancelled before seeing it; a later call gets it, ahead of new records."""
        insort(self._again, offered, key=_place)

    def hand_out(self, now: float) -> list[HandOut[Call]]:
        """Give the available records to the earliest calls, skipping those whose time is up."""
        in_time = (call for call, deadline in self._calls.items() if deadline > now)
        found = [HandOut(call, (self._again or self._fresh).popleft()) for call in list(islice(in_time, self.buffered))]
        for given in found:
            del self._calls[given.call]
            self._served.append(now)
        return found

    def acknowledged(self, acks: Sequence[tuple[int, int]]) -> None:
        """Stop offering these (partition, offset) pairs if they are waiting here."""
        if self.buffered:
            gone = set(acks)
            self._again = deque(offered for offered in self._again if _place(offered) not in gone)
            self._fresh = deque(offered for offered in self._fresh if _place(offered) not in gone)

    def give_up(self, now: float) -> list[GroupRecord]:
        """Records that no call came for in time, to be given back to the bus."""
        if not self.buffered or self._calls or now - self._offered_at < READ_AHEAD_SECONDS:
            return []
        return self.clear()

    def clear(self) -> list[GroupRecord]:
        """All records waiting here, to be given back."""
        found = [*self._again, *self._fresh]
        self._again.clear()
        self._fresh.clear()
        return found

    # ---- what to read
    def set_pending(self, pending: Mapping[int, int]) -> None:
        """Set the unacknowledged records by partition, as the bus counts them."""
        self._pending = dict(pending)

    def add_pending(self, partition: int, records: int) -> None:
        self._pending[partition] = max(0, self._pending.get(partition, 0) + records)

    @property
    def has_pending(self) -> bool:
        return any(self._pending.values())

    @property
    def is_held_back(self) -> bool:
        """Whether some partition has too many unacknowledged records to hand out new ones."""
        return any(count >= self.max_pending for count in self._pending.values())

    def missing(self, now: float) -> int:
        """How many more records the calls could take; 0 if no call waits."""
        while self._served and self._served[0] < now - READ_AHEAD_SECONDS:
            self._served.popleft()
        if len(self._calls) <= self.buffered:
            return 0
        ahead = min(len(self._served), _READ_AHEAD_RECORDS) if self.reads_ahead else 0
        return len(self._calls) - self.buffered + ahead

    def want(self, now: float) -> Want | None:
        """New records to read; None if no call waits for one, or acknowledgements must come first."""
        missing = self.missing(now)
        room = {p: self.max_pending - self._pending.get(p, 0) for p in range(self.partitions)}
        open_partitions = tuple(p for p, left in room.items() if left > 0)
        if not missing or not open_partitions:
            return None
        # All records read may come from one partition.
        return Want(min(missing, *(room[p] for p in open_partitions)), open_partitions)


def _place(offered: GroupRecord) -> tuple[int, int]:
    return offered.record.partition, offered.record.offset
