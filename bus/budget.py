"""The arithmetic of a shared rate budget; `lua/budget.lua` is the same inside Redis."""

from dataclasses import dataclass


@dataclass(slots=True)
class TokenBucket:
    """A bucket that starts full. A cost above the capacity is let through when the bucket is full and then paid off,
    so that the long-run rate holds and no caller waits for ever.
    """

    tokens: float | None = None
    at: float = 0.0
    per_second: float = 0.0
    blocked_until: float = 0.0

    def take(self, cost: float, *, capacity: float, per_second: float, now: float) -> float:
        """0.0 when `cost` was taken, else seconds to wait."""
        self._refill(capacity, per_second, now)
        assert self.tokens is not None
        if now < self.blocked_until:
            return self.blocked_until - now
        missing = min(cost, capacity) - self.tokens
        if missing > 0:
            return missing / per_second
        self.tokens -= cost
        return 0.0

    def block(self, until: float) -> None:
        self.blocked_until = max(self.blocked_until, until)

    def correct(self, used: float, *, capacity: float, now: float) -> None:
        self._refill(capacity, self.per_second, now)
        assert self.tokens is not None
        self.tokens = min(self.tokens, capacity - used)

    def _refill(self, capacity: float, per_second: float, now: float) -> None:
        if self.tokens is None:
            self.tokens = capacity
        else:
            self.tokens = min(capacity, self.tokens + max(0.0, now - self.at) * self.per_second)
        self.at = now
        self.per_second = per_second
