"""One wait and one read for two owners of a process: the follower gets in memory what its leader reads and publishes.

Without a handover all of it comes over the bus: wake up, ask where the topics end, read. Here the leader waits on the
bus for both. It hands over what it has read before it evaluates it, and what it has published once that is on the bus,
so the follower sees nothing that might not have happened, and neither waits for the other one.

A follower that is elsewhere than what it is handed looks at the bus itself, as it does without a leader.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bus import StoredRecord
from bus.api import TopicPartition
from flink_replacement_spark.engine.bus_source import Positions

__all__ = ["Handover", "News"]

#: Of what waits for a follower; one that is further behind reads from the bus.
_MOST_RECORDS = 1_000

Places = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class News:
    """All records of some topics from `start` to before `end`."""

    start: Mapping[str, Positions]
    end: Mapping[str, Positions]
    records: Sequence[StoredRecord]


class Handover:
    """Between two threads: the leader calls `watched`, `tell` and `nudge`, the follower `take` and `leave`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._places: Places | None = None
        self._is_led = False
        self._is_nudged = False
        self._news: News | None = None

    # ---- the leader
    def watched(self) -> Places:
        """What the follower waits for, and from now on the leader for it."""
        with self._changed:
            self._is_led = self._places is not None
            return self._places or {}

    def tell(self, news: News) -> None:
        """If `news` continues what was handed over before, the follower gets both; otherwise it looks at the bus."""
        with self._changed:
            before = self._news
            if before is None:
                self._news = news
            elif before.end == news.start and len(before.records) + len(news.records) <= _MOST_RECORDS:
                self._news = News(before.start, news.end, [*before.records, *news.records])
            else:
                self._news, self._is_nudged = None, True
            self._changed.notify()

    def nudge(self) -> None:
        """Something may have come that was not handed over."""
        with self._changed:
            self._is_nudged = True
            self._changed.notify()

    # ---- the follower
    @property
    def is_led(self) -> bool:
        return self._is_led

    def take(self, places: Places, longest_seconds: float) -> News | None:
        """What was handed over since the last call; None after a nudge, after `longest_seconds`, or at once without a
        leader. `places`: where the next records are that the follower takes, of what the leader does not read.
        """
        with self._changed:
            self._places = places
            if self._is_led:
                self._changed.wait_for(lambda: self._news is not None or self._is_nudged, longest_seconds)
            found, self._news = self._news, None
            if found is None:
                self._is_nudged = False
            return found if self._is_led else None

    def leave(self) -> None:
        """The follower waits on the bus by itself."""
        with self._changed:
            self._places, self._news, self._is_led = None, None, False
