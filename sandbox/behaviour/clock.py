"""The exchange's clock, which can be set, run at any speed, and be driven by the readers of a replay."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate


class ExchangeClock:
    """Milliseconds since the epoch, from a start point and a speed (1 = real time, 0 = stopped)."""

    def __init__(
        self,
        start_ms: int | None = None,
        speed: float = 1.0,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._start_ms = wall() * 1000 if start_ms is None else float(start_ms)
        self._started = monotonic()
        self._speed = _checked(speed)
        self._listeners: list[Callable[[], None]] = []
        self.jumps = 0
        """How often the clock was set: streams then restart from the new time instead of catching up."""
        self.driven = False
        """Whether streams advance the clock to the next trade as fast as they are read."""

    @property
    def speed(self) -> float:
        return self._speed

    def now(self) -> int:
        """The exchange's time in ms."""
        return int(self._start_ms + (self._monotonic() - self._started) * 1000.0 * self._speed)

    def seconds_until(self, time_ms: int) -> float:
        """Real seconds until `now` is `time_ms`; the clock must not be stopped."""
        return (time_ms - self._start_ms) / 1000.0 / self._speed - (self._monotonic() - self._started)

    def set(self, now_ms: int | None = None, speed: float | None = None) -> None:
        """Jump to a time, change the speed, or both. Trades in the skipped time are not streamed."""
        self._rebase(self.now() if now_ms is None else now_ms)
        if speed is not None:
            self._speed = _checked(speed)
        if now_ms is not None:
            self.jumps += 1
        self._tell()

    def advance(self, milliseconds: int) -> None:
        """Advance the time at once; all events in between are streamed. Raises ValueError for a negative span."""
        if milliseconds < 0:
            raise ValueError("time only advances; set the clock to go back")
        self._rebase(self.now() + milliseconds)
        self._tell()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener after each change; returns a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _rebase(self, now_ms: int) -> None:
        self._start_ms = float(now_ms)
        self._started = self._monotonic()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()


def _checked(speed: float) -> float:
    if not 0 <= speed <= 1_000_000:
        raise ValueError(f"a clock's speed must be 0 to 1,000,000, not {speed}")
    return speed


def http_date(now_ms: int) -> str:
    """The text of a Date header."""
    return formatdate(now_ms / 1000, usegmt=True)
