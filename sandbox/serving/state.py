"""Decides which requests are served: request weights, limits and bans as on the exchange, faults, counters. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sandbox.behaviour.faults import Fault, FaultRules
from sandbox.venues.binance import WEIGHT_LIMIT

_BAN_AFTER = 30  # requests while limited


@dataclass(frozen=True, slots=True)
class RequestArrived:
    """A REST request arrived, at a monotonic time in seconds."""

    path: str
    symbol: str | None
    weight: int
    at: float


@dataclass(frozen=True, slots=True)
class Serve:
    """Answer the request, with `fault` if there is one; `used_weight` goes in the header."""

    used_weight: int
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer 429, or 418 while banned; the client may come back after `retry_after_seconds`."""

    status: int
    used_weight: int
    retry_after_seconds: int


Command = Serve | Refuse


class ExchangeState:
    """Counts weight per minute. All clients of a loopback server share one address, and so one budget."""

    def __init__(
        self, *, rate_limit: bool = True, weight_limit: int = WEIGHT_LIMIT, ban_seconds: int = 120, seed: int = 0
    ) -> None:
        self.faults = FaultRules(seed)
        self.rate_limit = rate_limit
        self.requests: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()
        self.struck: Counter[str] = Counter()
        self._weight_limit = weight_limit
        self._ban_seconds = ban_seconds
        self._window = -1
        self._used = 0
        self._while_limited = 0
        self._banned_until = 0.0

    def handle(self, event: RequestArrived) -> list[Command]:
        """The one command that decides the request."""
        self.requests[event.path] += 1
        refusal = self._count_weight(event)
        if refusal is not None:
            self.refused[refusal.status] += 1
            return [refusal]
        fault = self.faults.for_request(event.path, event.symbol)
        if fault is not None:
            self.struck[fault.kind] += 1
        return [Serve(self._used, fault)]

    def _count_weight(self, event: RequestArrived) -> Refuse | None:
        window = int(event.at // 60)
        if window != self._window:
            self._window, self._used, self._while_limited = window, 0, 0
        self._used += event.weight
        if not self.rate_limit:
            return None
        if event.at < self._banned_until:
            return Refuse(418, self._used, _seconds_until(self._banned_until, event.at))
        if self._used <= self._weight_limit:
            return None
        self._while_limited += 1
        if self._while_limited > _BAN_AFTER:
            self._banned_until = event.at + self._ban_seconds
            return Refuse(418, self._used, self._ban_seconds)
        return Refuse(429, self._used, _seconds_until((window + 1) * 60.0, event.at))


def _seconds_until(then: float, now: float) -> int:
    return max(1, int(then - now) + 1)
