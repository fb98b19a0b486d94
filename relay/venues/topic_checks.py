"""Decides which subscribed topics are to be judged, and when. Pure: no bus, clock or thread.

`at` is monotonic seconds.
"""

from itertools import islice

from relay.settings import RelayLimits
from relay.venues.ticker_judge import Verdict


class TopicChecks:
    """Each subscription to a topic is a reason to judge it: late subscribers are notified as well."""

    def __init__(self, limits: RelayLimits) -> None:
        self._limits = limits
        self._due: dict[str, float] = {}
        #: Topics whose venue was unknown when they were first judged.
        self._doubted: set[str] = set()

    def __len__(self) -> int:
        return len(self._due)

    def subscribed(self, name: str, at: float) -> bool:
        """Note a subscription; False if too many wait."""
        if name not in self._due and len(self._due) >= self._limits.max_live_topics:
            return False
        self._due[name] = at
        return True

    def left(self, name: str) -> None:
        """Forget a topic whose last subscriber has left."""
        self._due.pop(name, None)
        self._doubted.discard(name)

    def due(self, at: float, most: int) -> list[str]:
        return list(islice((name for name, when in self._due.items() if when <= at), most))

    def judged(self, name: str, verdict: Verdict, at: float) -> bool:
        """Note a verdict; returns whether to notify the topic's subscribers now."""
        is_early = verdict is Verdict.UNKNOWN_VENUE and name not in self._doubted
        if is_early:
            self._doubted.add(name)
        if verdict is Verdict.OPEN or is_early:
            # To the end of the line, so that topics that cannot be judged do not delay later ones.
            del self._due[name]
            self._due[name] = at + self._limits.unserved_retry_seconds
            return False
        self._due.pop(name, None)
        self._doubted.discard(name)
        return verdict is not Verdict.FINE
