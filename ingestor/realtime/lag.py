"""How long after its time a trade may still arrive, while the exchange sends others and its clock continues."""

__all__ = ["MOST_NS", "WINDOW_SECONDS", "Lag"]

#: How long (s) a delay counts, at least; it counts for less than twice that.
WINDOW_SECONDS = 60.0
#: A later trade is not a delayed one, but one of before the connection, which some exchanges send at its start.
MOST_NS = 5_000_000_000


class Lag:
    """The largest delay of the last minutes, and at least `floor_ns`. Times `at` are monotonic seconds."""

    def __init__(self, floor_ns: int) -> None:
        self._floor_ns = floor_ns
        self._since = float("-inf")
        self._recent_ns = self._earlier_ns = floor_ns

    def saw(self, delay_ns: int, at: float) -> None:
        """A trade came so long after its time, by the exchange's clock."""
        self._turn(at)
        if self._recent_ns < delay_ns <= MOST_NS:
            self._recent_ns = delay_ns

    def ns(self, at: float) -> int:
        self._turn(at)
        return max(self._recent_ns, self._earlier_ns)

    def _turn(self, at: float) -> None:
        if at - self._since < WINDOW_SECONDS:
            return
        is_next = at - self._since < 2 * WINDOW_SECONDS
        self._earlier_ns = self._recent_ns if is_next else self._floor_ns
        self._since, self._recent_ns = at, self._floor_ns
