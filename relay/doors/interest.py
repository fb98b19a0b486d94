"""Which live topics have subscribers; written by the notifications thread, read by the thread that reads the bus."""

import threading
from collections import Counter

from relay.topics import OHLC, TICKS

_MAX_REMEMBERED = 100_000


class Interest:
    """Subscriptions are prefixes. Only those that may match a live topic are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: set[bytes] = set()
        self._lengths: Counter[int] = Counter()
        #: How many subscriptions may match each kind of topic, and the bars of each ticker.
        self._kinds: Counter[bytes] = Counter()
        self._bar_heads: Counter[bytes] = Counter()
        self._remembered: dict[bytes, bool] = {}
        #: Set on every change.
        self.changed = threading.Event()

    def add(self, subscription: bytes) -> None:
        self._change(subscription, 1)

    def remove(self, subscription: bytes) -> None:
        self._change(subscription, -1)

    def _change(self, subscription: bytes, step: int) -> None:
        kinds = [kind for kind in (TICKS, OHLC) if subscription.startswith(kind) or kind.startswith(subscription)]
        if not kinds:
            return
        with self._lock:
            if (subscription in self._subscriptions) == (step > 0):
                return
            (self._subscriptions.add if step > 0 else self._subscriptions.discard)(subscription)
            _count(self._lengths, len(subscription), step)
            for kind in kinds:
                _count(self._kinds, kind, step)
            if subscription.startswith(OHLC) and subscription.count(b":") > 1:
                head = subscription[: subscription.index(b":", len(OHLC)) + 1]
                _count(self._bar_heads, head, step)
            self._remembered = {}
        self.changed.set()

    def follows(self, kind: bytes) -> bool:
        """Whether any topic of this kind has a subscriber."""
        return kind in self._kinds

    def wants(self, topic: bytes) -> bool:
        """Whether this complete topic has a subscriber."""
        found = self._remembered.get(topic)
        if found is None:
            with self._lock:
                found = any(topic[:length] in self._subscriptions for length in self._lengths)
                if len(self._remembered) >= _MAX_REMEMBERED:
                    self._remembered = {}
                self._remembered[topic] = found
        return found

    def wants_bars_of(self, ticker: bytes) -> bool:
        """Whether bars of this ticker, of any period, may have a subscriber."""
        head = OHLC + ticker + b":"
        return head in self._bar_heads or self.wants(head)


def _count(counter: Counter[bytes] | Counter[int], key: bytes | int, step: int) -> None:
    counts: Counter[bytes | int] = counter  # type: ignore[assignment]
    counts[key] += step
    if not counts[key]:
        del counts[key]
