"""The trades per second over the last ten seconds."""

from collections import deque

WINDOW_SECONDS = 10


class Rate:
    """Times are monotonic seconds and do not go back."""

    def __init__(self, at: float) -> None:
        self._since = at
        #: (second, trades in it), the oldest first.
        self._counts: deque[tuple[int, int]] = deque(maxlen=WINDOW_SECONDS + 1)

    def add(self, trades: int, at: float) -> None:
        second = int(at)
        if self._counts and self._counts[-1][0] == second:
            trades += self._counts.pop()[1]
        self._counts.append((second, trades))

    def per_second(self, at: float) -> float:
        oldest = int(at) - WINDOW_SECONDS
        total = sum(count for second, count in tuple(self._counts) if oldest <= second < int(at))
        return total / max(1.0, min(float(WINDOW_SECONDS), at - self._since))
