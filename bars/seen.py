"""The trades of a ticker that are already counted.

Dense ids need one interval, however many there are; sparse ids need one each, and beyond `limit` intervals the oldest
ids are forgotten. A floor replaces them: an id at or below it may or may not have been counted, and the caller must not
count it.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["SeenIds"]


@dataclass(slots=True)
class SeenIds:
    """A set of int64 ids as sorted, disjoint, inclusive intervals."""

    limit: int = 10_000
    floor: int = -1
    first: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    last: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        """The number of ids held, excluding forgotten ones."""
        return int((self.last - self.first + 1).sum())

    def has_any(self, first: int, last: int) -> bool:
        """Whether an id of [first, last] is held or forgotten."""
        at = int(np.searchsorted(self.first, last, side="right")) - 1
        return first <= self.floor or (at >= 0 and int(self.last[at]) >= first)

    def extend(self, first: int, last: int) -> bool:
        """Add the dense run [first, last] if it directly follows the newest id; else return False, without effect."""
        if not len(self.last) or first != self.last[-1] + 1 or last < first:
            return False
        self.last[-1] = last
        return True

    def add(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.bool_], int]:
        """Add `ids`, in any order, with or without repetitions.

        Returns a mask of the new ones (the first among equals), and how many were at or below the floor.
        """
        if len(ids) and (len(self.last) == 0 or ids[0] > self.last[-1]) and np.all(ids[1:] > ids[:-1]):
            low, high = int(ids[0]), int(ids[-1])
            if low > self.floor and high - low == len(ids) - 1 and self.extend(low, high):
                return np.ones(len(ids), bool), 0
            fresh = ids > self.floor
            self._join(ids[fresh])
            return fresh, int(len(ids) - fresh.sum())
        below = ids <= self.floor
        at = np.searchsorted(self.first, ids, side="right") - 1
        known = (at >= 0) & (ids <= self.last[at]) if len(self.last) else np.zeros(len(ids), bool)
        _, index = np.unique(ids, return_index=True)
        fresh = np.zeros(len(ids), bool)
        fresh[index] = True
        fresh &= ~known & ~below
        self._join(np.sort(ids[fresh]))
        return fresh, int(below.sum())

    def _join(self, ids: NDArray[np.int64]) -> None:
        """Add sorted, unique ids that are not held."""
        if len(ids) == 0:
            return
        breaks = np.flatnonzero(np.diff(ids) != 1) + 1
        starts = ids[np.concatenate(([0], breaks))]
        ends = ids[np.concatenate((breaks - 1, [len(ids) - 1]))]
        first = np.concatenate((self.first, starts))
        last = np.concatenate((self.last, ends))
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
        separate = first[1:] != last[:-1] + 1
        self.first = first[np.concatenate(([True], separate))]
        self.last = last[np.concatenate((separate, [True]))]
        if len(self.first) > self.limit:
            self.floor = int(self.last[-self.limit - 1])
            self.first, self.last = self.first[-self.limit :], self.last[-self.limit :]
