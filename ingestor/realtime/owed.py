"""Gaps that were given up because the exchange did not answer: decides which to request again, and when. Pure.

Times `at` are monotonic seconds. A gap that is not answered within `GIVEN_UP_SECONDS` remains.
"""

from collections import deque
from dataclasses import dataclass, field

from ingestor.realtime.stream import Lost, Repair

#: The first pause; it doubles each time, up to the longest.
AGAIN_SECONDS = 30.0
LONGEST_SECONDS = 600.0
GIVEN_UP_SECONDS = 6 * 3_600.0
MAX_OWED = 100


@dataclass(slots=True)
class OwedGap:
    """The trades that one unanswered repair gave up."""

    repair: Repair
    lost: tuple[Lost, ...]
    since: float
    pause: float
    due: float


@dataclass(slots=True)
class OwedGaps:
    """Drops the oldest gap once there are more than `MAX_OWED`."""

    _waiting: deque[OwedGap] = field(default_factory=lambda: deque(maxlen=MAX_OWED))
    _asking: OwedGap | None = None

    def __len__(self) -> int:
        return len(self._waiting) + (self._asking is not None)

    def add(self, repair: Repair, lost: tuple[Lost, ...], at: float) -> None:
        self._waiting.append(OwedGap(repair, lost, at, AGAIN_SECONDS, at + AGAIN_SECONDS))

    def next_due(self, at: float) -> OwedGap | None:
        """A gap to request now; the next one follows after `answered` or `unanswered`."""
        if self._asking is not None:
            return None
        for place, gap in enumerate(self._waiting):
            if gap.due <= at:
                del self._waiting[place]
                self._asking = gap
                return gap
        return None

    def answered(self) -> None:
        self._asking = None

    def unanswered(self, at: float) -> None:
        gap, self._asking = self._asking, None
        if gap is not None and at - gap.since < GIVEN_UP_SECONDS:
            gap.pause = min(2 * gap.pause, LONGEST_SECONDS)
            gap.due = at + gap.pause
            self._waiting.append(gap)
