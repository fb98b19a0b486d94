"""Deliveries to one destination: a queue for each trigger, a rate, a cooldown, quiet hours. Pure."""

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from alerts.alert import Alert, Delivery
from alerts.quiet import QuietHours
from core.settings_alerts import DestinationSettings

__all__ = ["MAX_WAITING", "Counts", "Destination"]

#: Messages to one webhook that are in flight, or whose end is not durable yet: a kill repeats at most these.
MAX_IN_FLIGHT = 16
#: The most deliveries waiting at one destination. Beyond that, the oldest is given up; the table and the status show
#: it.
MAX_WAITING = 100_000
#: The most deliveries in one digest.
MAX_DIGEST = 1_000
#: The most pairs of trigger and ticker whose last alert is remembered for the cooldown.
_MAX_COOLDOWNS = 100_000


@dataclass(slots=True)
class Counts:
    """Counts since the start. `failures`: failed attempts by kind; `recovered`: how often an attempt succeeded after
    one.
    """

    delivered: int = 0
    abandoned: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    recovered: int = 0
    suppressed: int = 0


@dataclass(slots=True)
class _Queue:
    """The first `flying` deliveries are in flight; `due` is when the next message may go."""

    waiting: deque[Delivery] = field(default_factory=deque)
    flying: int = 0
    due: float = 0.0


class _Bucket:
    """A token bucket with a minute's messages as its capacity; 0 = no limit."""

    def __init__(self, per_minute: float) -> None:
        self._capacity = max(1.0, per_minute)
        self._per_second = per_minute / 60
        self._tokens = self._capacity
        self._at = 0.0

    def wait(self, at: float) -> float:
        """Seconds until a message may be sent."""
        if not self._per_second:
            return 0.0
        self._tokens = min(self._capacity, self._tokens + max(0.0, at - self._at) * self._per_second)
        self._at = at
        # A wait of less than a microsecond is a rounding error.
        missing = 1.0 - self._tokens
        return missing / self._per_second if missing > 1e-6 * self._per_second else 0.0

    def take(self) -> None:
        self._tokens -= 1.0


class Destination:
    def __init__(self, name: str, settings: DestinationSettings) -> None:
        self.name = name
        self.settings = settings
        self.counts = Counts()
        self.last_error = ""
        #: The keys of all deliveries that wait or are in flight.
        self.keys: set[str] = set()
        self._quiet = QuietHours.of(settings.quiet, settings.time_zone)
        self._queues: dict[str, _Queue] = {}
        #: (due, queue); may include outdated entries.
        self._ready: list[tuple[float, str]] = []
        self._bucket = _Bucket(settings.rate_per_minute)
        self._in_flight = 0
        self._closed_until = 0.0
        #: Whether the rate has held something back, so that the next message is a digest.
        self._is_behind = False
        self._last: OrderedDict[tuple[str, str], float] = OrderedDict()

    # ---- taking
    def lets_through(self, alert: Alert, at: float) -> bool:
        """Whether quiet hours and the cooldown allow the alert. An allowed alert starts a new cooldown; one that
        resolves another alert ignores it.
        """
        if self._quiet is not None and self._quiet.contains(at):
            return False
        cooldown = self.settings.cooldown_seconds
        if not cooldown or alert.resolves:
            return True
        pair = (alert.trigger_id or alert.kind, alert.ticker)
        if at < self._last.get(pair, float("-inf")) + cooldown:
            return False
        self._last[pair] = at
        self._last.move_to_end(pair)
        if len(self._last) > _MAX_COOLDOWNS:
            self._last.popitem(last=False)
        return True

    def add(self, delivery: Delivery, at: float) -> None:
        self.keys.add(delivery.key)
        queue = self._queues.setdefault(delivery.queue, _Queue())
        queue.waiting.append(delivery)
        if len(queue.waiting) == 1:
            self._wait(delivery.queue, at)

    def excess(self) -> Iterable[Delivery]:
        """Removes and returns the oldest deliveries above the limit."""
        while len(self.keys) > MAX_WAITING:
            name, queue = min(
                (item for item in self._queues.items() if len(item[1].waiting) > item[1].flying),
                key=lambda item: item[1].waiting[item[1].flying].order,
            )
            oldest = queue.waiting[queue.flying]
            del queue.waiting[queue.flying]
            self.keys.discard(oldest.key)
            if not queue.waiting:
                del self._queues[name]
            yield replace(oldest, error=f"more than {MAX_WAITING} alerts were waiting")

    # ---- sending
    def next_message(self, at: float) -> Sequence[Delivery]:
        """The deliveries that go out now as one message: one, several as a digest, or none."""
        limit = MAX_IN_FLIGHT if self.settings.is_webhook else 1
        if self._in_flight >= limit or at < self._closed_until or (first := self._first()) is None or first[0] > at:
            return ()
        if self._bucket.wait(at):
            self._is_behind = not self.settings.is_webhook
            return ()
        self._bucket.take()
        self._in_flight += 1
        if not self._is_behind:
            return self._fly(self._queues[first[1]], 1)
        self._is_behind = False
        taken: list[Delivery] = []
        for queue in self._queues.values():
            taken += self._fly(queue, MAX_DIGEST - len(taken))
        return taken

    def landed(self, done: Sequence[Delivery], failed: Sequence[Delivery], at: float, *, due: float) -> None:
        """A message has ended: remove the `done` deliveries; the `failed` ones stay, updated, and wait until `due`."""
        for name, count in Counter(delivery.queue for delivery in done).items():
            queue = self._queues[name]
            for _ in range(count):
                self.keys.discard(queue.waiting.popleft().key)
        for name in dict.fromkeys(delivery.queue for delivery in (*done, *failed)):
            queue = self._queues[name]
            own = [delivery for delivery in failed if delivery.queue == name]
            for place, delivery in enumerate(own):
                queue.waiting[place] = delivery
            queue.flying = 0
            if queue.waiting:
                self._wait(name, due if own else at)
            else:
                del self._queues[name]

    def finished(self) -> None:
        """The end of one message is durable, which makes room for another."""
        self._in_flight -= 1

    def close_until(self, at: float) -> None:
        """The destination asked for a pause."""
        self._closed_until = max(self._closed_until, at)

    def due(self, at: float) -> float | None:
        """When to call `next_message` again; None: only after something else has happened."""
        limit = MAX_IN_FLIGHT if self.settings.is_webhook else 1
        if self._in_flight >= limit or (first := self._first()) is None:
            return None
        return max(first[0], self._closed_until, at + self._bucket.wait(at))

    def _wait(self, name: str, due: float) -> None:
        self._queues[name].due = due
        heapq.heappush(self._ready, (due, name))

    def _first(self) -> tuple[float, str] | None:
        while self._ready:
            due, name = self._ready[0]
            queue = self._queues.get(name)
            if queue is not None and not queue.flying and queue.due == due:
                return due, name
            heapq.heappop(self._ready)
        return None

    @staticmethod
    def _fly(queue: _Queue, most: int) -> list[Delivery]:
        taken = [queue.waiting[place] for place in range(min(most, len(queue.waiting)))]
        queue.flying = len(taken)
        return taken
