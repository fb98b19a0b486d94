"""The rate budget of one exchange, shared through the bus by all ingestors with the same outgoing IP address."""

import time
from collections.abc import Callable
from typing import Any

from bus import Budgets
from candlewright.wire.errors import RateLimited
from ingestor import metrics
from ingestor.exchange.errors import Reply
from ingestor.progress import Progress
from ingestor.threads import BusThreads
from ingestor.venues.limits import Allowance, Call, Limits

#: A wait this long means that the exchange itself ordered a stop, so no slots are offered meanwhile.
BLOCK_SECONDS = 2.0


class Budget:
    """`on_blocked(until)` receives the wall-clock time (s) until which the exchange must not be called."""

    def __init__(
        self,
        bus: Budgets,
        threads: BusThreads,
        *,
        venue: str,
        limits: Limits,
        exchange: Any,
        egress: str,
        share: float,
        background_share: float = 1.0,
        is_limited: bool,
        patience: float,
        on_blocked: Callable[[float], None],
    ) -> None:
        self._bus = bus
        self._threads = threads
        self._venue = venue
        self._limits = limits
        self._exchange = exchange
        self._egress = egress
        self._share = share
        self._background_share = background_share
        self._is_limited = is_limited
        self._patience = patience
        self._on_blocked = on_blocked
        #: Monotonic seconds; a wall clock that is set back would keep every caller waiting.
        self._blocked_until = 0.0
        self._pauses = 0

    async def take(self, call: Call, progress: Progress) -> None:
        """Wait until `call` may be made; raises RateLimited if that would take longer than a job's patience."""
        waited = await self._until_unblocked(progress)
        if not self._is_limited:
            return
        allowance = self._limits.allowance_of(call, self._exchange)
        cost = self._limits.cost_of(call)
        capacity, per_second = allowance.shared(self._share, cost)
        name = self._name(allowance)
        if progress.is_background:
            waited += await self._take_background(name, cost, per_second, progress)
        while True:
            wait = await self._threads.run(
                lambda: self._bus.take(name, cost, capacity=capacity, per_second=per_second), progress
            )
            if wait <= 0:
                break
            self._refuse_long(wait)
            # Only one of many waiters wins each time; short naps keep the others from oversleeping.
            nap = min(wait, 1.0)
            await progress.sleep(nap)
            waited += nap
        metrics.BUDGET_WAIT.labels(self._venue).observe(waited)

    async def _take_background(self, name: str, cost: float, per_second: float, progress: Progress) -> float:
        """Wait for a turn within the share of background jobs; returns the seconds. Background jobs take no bursts, so
        the saved-up budget is left for clients.
        """
        waited, name = 0.0, f"{name}:background"
        per_second *= self._background_share
        while True:
            wait = await self._threads.run(
                lambda: self._bus.take(name, cost, capacity=cost, per_second=per_second), progress
            )
            if wait <= 0:
                return waited
            await progress.sleep(min(wait, 1.0))
            waited += min(wait, 1.0)

    async def _until_unblocked(self, progress: Progress) -> float:
        wait = self._blocked_until - time.monotonic()
        if wait <= 0:
            return 0.0
        self._refuse_long(wait)
        await progress.sleep(wait)
        return wait

    def _refuse_long(self, wait: float) -> None:
        if wait >= BLOCK_SECONDS:
            self._on_blocked(time.time() + wait)
        if wait > self._patience:
            until = time.time() + wait
            raise RateLimited(f"{self._venue} allows no calls until {_clock(until)}", until)

    async def block(self, error: RateLimited, progress: Progress, *, has_said_when: bool) -> RateLimited:
        """Stop all calls until `error.retry_at`, in every process, because the exchange said so. If it repeatedly does
        so without naming a time, the pause grows. Returns the error with the time that applies.
        """
        metrics.RATE_LIMITS.labels(self._venue).inc()
        seconds = max(error.retry_at - time.time(), 0.1)
        if not has_said_when:
            seconds = min(seconds * 2**self._pauses, max(seconds, 60.0))
            self._pauses += 1
        until = time.time() + seconds
        self._blocked_until = max(self._blocked_until, time.monotonic() + seconds)
        self._on_blocked(until)
        if self._is_limited:
            for allowance in self._allowances():
                name = self._name(allowance)
                await self._threads.run(lambda name=name: self._bus.block_budget(name, seconds), progress)  # type: ignore[misc]
        return RateLimited(f"{error} (no calls until {_clock(until)})", until)

    async def learn(self, reply: Reply | None, progress: Progress) -> None:
        """After a reply, adopt the exchange's own count of used units if the reply has one."""
        self._pauses = 0
        if reply is None or not self._is_limited or not self._limits.used_header:
            return
        used = reply.headers.get(self._limits.used_header, "")
        if not used.isdigit():
            return
        allowance = self._limits.allowance_of(Call.CANDLES, self._exchange)
        left = allowance.limit * self._share - int(used)
        capacity, _ = allowance.shared(self._share, self._limits.cost_of(Call.CANDLES))
        if left < capacity:
            name = self._name(allowance)
            await self._threads.run(
                lambda: self._bus.correct_budget(name, capacity - left, capacity=capacity), progress
            )

    def _allowances(self) -> set[Allowance]:
        return {self._limits.allowance_of(call, self._exchange) for call in Call}

    def _name(self, allowance: Allowance) -> str:
        return f"{self._venue}:{allowance.bucket}@{self._egress}"


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
