"""How many live topics each subscriber has: no connection, and no sender with all its connections, takes all. Pure.

A sender is a key where keys are on, else an address. libzmq shows an unsubscription only when the last subscriber of a
topic leaves, so that a connection counts as a subscriber of what others still read until it ends.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from relay.settings import RelayLimits


@dataclass(frozen=True, slots=True)
class Holder:
    """A connection that subscribes: its file descriptor, with the inode of the socket that it was then."""

    sender: str
    descriptor: int = -1
    inode: int = 0


#: All registered triggers together.
TRIGGERS = Holder("(triggers)")


class Shares:
    def __init__(self, limits: RelayLimits) -> None:
        self._limits = limits
        self._holders: dict[str, set[Holder]] = {}
        self._topics: dict[Holder, set[str]] = {}
        self._of_sender: Counter[str] = Counter()

    def take(self, topic: str, holder: Holder) -> str:
        """Count the topic as the holder's; why it may not have one more, otherwise."""
        topics = self._topics.get(holder, set())
        if topic in topics:
            return ""
        if holder is not TRIGGERS and len(topics) >= self._limits.max_topics_of_connection:
            return f"this connection has {len(topics)} live topics, and may have no more"
        if self._of_sender[holder.sender] >= self._limits.max_topics_of_sender:
            return f"{holder.sender} has {self._of_sender[holder.sender]} live topics, and may have no more"
        self._holders.setdefault(topic, set()).add(holder)
        self._topics.setdefault(holder, set()).add(topic)
        self._of_sender[holder.sender] += 1
        return ""

    def is_held(self, topic: str) -> bool:
        return topic in self._holders

    def give_back(self, topic: str, holders: Iterable[Holder] | None = None) -> None:
        """None of these (of all) has the topic any more."""
        for holder in list(self._holders.get(topic, ()) if holders is None else holders):
            self._remove(topic, holder)

    def others(self, topic: str) -> list[Holder]:
        """Those who have it, without the triggers."""
        return [holder for holder in self._holders.get(topic, ()) if holder is not TRIGGERS]

    def connections(self) -> list[Holder]:
        return [holder for holder in self._topics if holder is not TRIGGERS]

    def ended(self, holder: Holder) -> list[str]:
        """Its connection has ended; the topics that no other connection has."""
        topics = list(self._topics.get(holder, ()))
        for topic in topics:
            self._remove(topic, holder)
        return [topic for topic in topics if topic not in self._holders]

    def _remove(self, topic: str, holder: Holder) -> None:
        holders = self._holders.get(topic, set())
        if holder not in holders:
            return
        holders.discard(holder)
        self._topics[holder].discard(topic)
        self._of_sender[holder.sender] -= 1
        if not holders:
            del self._holders[topic]
        if not self._topics[holder]:
            del self._topics[holder]
        if not self._of_sender[holder.sender]:
            del self._of_sender[holder.sender]
