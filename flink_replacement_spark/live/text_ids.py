"""Non-numeric trade ids of one ticker: recognises known ids, and numbers new ones in the order of arrival."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = ["TextIds"]

#: How many ids of the newest trades are kept, and how many more may accumulate before the oldest are dropped.
_KEPT, _SLACK = 20_000, 2_000


@dataclass(slots=True)
class TextIds:
    """`known`: id to time. The ids of the oldest trades, by the trades' own times, are dropped, and only the newest of
    these times is kept, as `floor`: a trade that is not newer counts neither as new nor as known.

    `since`: the largest numeric id before the first non-numeric one; `next_order`: the number of the next new trade.
    """

    known: dict[bytes, int] = field(default_factory=dict)
    floor: int = 0
    since: int = 0
    next_order: int = 1
    is_begun: bool = False

    def begin(self, newest: int) -> None:
        """Begin with the first non-numeric id, after numeric ids up to `newest`."""
        self.is_begun = True
        self.since = newest
        self.next_order = max(self.next_order, newest + 1)

    def add(self, ids: Sequence[bytes], times: Sequence[int]) -> None:
        """Add new trades, none of which is known."""
        self.known.update(zip(ids, times, strict=True))
        self.next_order += len(ids)
        excess = len(self.known) - _KEPT
        if excess <= _SLACK:
            return
        names = list(self.known)
        oldest = np.argsort(np.fromiter(self.known.values(), np.int64, len(names)), kind="stable")[:excess]
        for place in oldest.tolist():
            self.floor = max(self.floor, self.known.pop(names[place]))

    def forget(self) -> None:
        """Keep only the time of the newest trade."""
        self.floor = max([self.floor, *self.known.values()])
        self.known = {}
        self.is_begun = False
