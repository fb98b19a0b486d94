"""Changes of triggers on their way through the pipeline, and the clients that wait for them. Pure.

A change has an offset once its control is published, and is done once every partition concerned has read past it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from relay.asked import Peer

#: How often (s) to look for clients that have waited too long.
_EXPIRY_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Waiter:
    """`version`: the version of the registration that it waits for; 0 = a removal."""

    peer: Peer
    trigger_id: str
    version: int
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Change:
    """`offset`: None until published. The time limit of waiting clients begins with the publish."""

    needs_joint: bool
    offset: int | None = None
    waiters: list[tuple[Waiter, float]] = field(default_factory=list)


class Changes:
    """Changes by number, from 1. `timeout_seconds`: how long a client waits after the publish. Times are monotonic
    seconds.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._changes: dict[int, _Change] = {}
        self._next_number = 1
        self._now = 0.0
        self._next_expiry = 0.0
        #: The end of the controls that each partition has carried out; the joint partition's number is the count of the
        #: others.
        self._progress: dict[int, int] = {}
        self._partitions = 0
        #: The number of waiting clients.
        self.waiting = 0

    def __len__(self) -> int:
        return len(self._changes)

    def begin(self, *, needs_joint: bool, offset: int | None = None) -> int:
        """Begin a change; returns its number. `needs_joint`: the joint partition must pass it, too."""
        number = self._next_number
        self._next_number += 1
        self._changes[number] = _Change(needs_joint, offset)
        return number

    def is_published(self, number: int) -> bool:
        return self._changes[number].offset is not None

    def publish(self, number: int, offset: int, at: float) -> None:
        self._now = max(self._now, at)
        change = self._changes[number]
        change.offset = offset
        change.waiters = [(waiter, self._now + self._timeout_seconds) for waiter, _ in change.waiters]

    def wait(self, number: int, waiter: Waiter) -> None:
        self._changes[number].waiters.append((waiter, self._now + self._timeout_seconds))
        self.waiting += 1

    def dismiss(self, number: int) -> list[Waiter]:
        """Remove and return the clients that wait for a change, which continues; empty if it is done."""
        change = self._changes.get(number)
        if change is None:
            return []
        told, change.waiters = change.waiters, []
        self.waiting -= len(told)
        return [waiter for waiter, _ in told]

    def end(self, number: int) -> list[Waiter]:
        """Forget the change; returns the clients that waited for it."""
        told = self.dismiss(number)
        del self._changes[number]
        return told

    def end_late(self, at: float) -> list[Waiter]:
        """Remove and return the clients that have waited too long for a published change."""
        self._now = at
        if at < self._next_expiry:
            return []
        self._next_expiry = at + _EXPIRY_SECONDS
        found: list[Waiter] = []
        for change in self._changes.values():
            late = [waiter for waiter, until in change.waiters if until <= at]
            if late and change.offset is not None:
                change.waiters = [entry for entry in change.waiters if entry[1] > at]
                found += late
        self.waiting -= len(found)
        return found

    # ---- progress of the pipeline

    def load_progress(self, progress: Mapping[int, int], partitions: int) -> None:
        self._progress, self._partitions = dict(progress), partitions

    def note_progress(self, partition: int, controls_end: int) -> bool:
        """Note a partition's progress; returns whether it is new."""
        is_news = self._progress.get(partition) != controls_end
        self._progress[partition] = controls_end
        return is_news

    def end_passed(self, numbers: Iterable[int] | None = None) -> list[tuple[int, list[Waiter]]]:
        """Forget the changes in `numbers` (None: all) that every partition has passed; returns them with the clients
        that waited.
        """
        ordinary = min((self._progress.get(partition, 0) for partition in range(self._partitions)), default=0)
        joint = min(ordinary, self._progress.get(self._partitions, 0))
        passed = []
        for number in list(self._changes if numbers is None else numbers):
            change = self._changes[number]
            if change.offset is not None and change.offset < (joint if change.needs_joint else ordinary):
                passed.append((number, self.end(number)))
        return passed

    @property
    def oldest_needed(self) -> int:
        """The offset of the first control that a partition has not carried out yet."""
        ends = [self._progress.get(partition, 0) for partition in range(self._partitions)]
        joint = self._progress.get(self._partitions)
        return min([*ends, *([] if joint is None else [joint])], default=0)
