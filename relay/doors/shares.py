"""Limits the live topics of each connection, and of each sender over all its connections. Pure.

A sender is a key if keys are on, else an address. libzmq reports an unsubscription only when the last subscriber of a
topic leaves, so a connection counts as a subscriber of topics that others still read until it ends.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from relay.settings import RelayLimits


@dataclass(frozen=True, slots=True)
class Holder:
    """A subscribed connection: its file descriptor, with the inode of its socket at that time."""

    sender: str
    descriptor: int = -1
    inode: int = 0


#: The holder that represents all registered triggers.
TRIGGERS = Holder("(triggers)")


class Shares:
    def __init__(self, limits: RelayLimits) -> None:
        self._limits = limits
        self._holders: dict[str, set[Holder]] = {}
        self._topics: dict[Holder, set[str]] = {}
        self._of_sender: Counter[str] = Counter()

    def take(self, topic: str, holder: Holder) -> str:
        """Count the topic for the holder; returns an empty string, or the reason why it may not have another topic."""
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
        """Remove the topic from these holders (None: from all)."""
        for holder in list(self._holders.get(topic, ()) if holders is None else holders):
            self._remove(topic, holder)

    def others(self, topic: str) -> list[Holder]:
        """The holders of the topic, without the triggers."""
        return [holder for holder in self._holders.get(topic, ()) if holder is not TRIGGERS]

    def connections(self) -> list[Holder]:
        return [holder for holder in self._topics if holder is not TRIGGERS]

    def ended(self, holder: Holder) -> list[str]:
        """Remove a holder whose connection has ended; returns the topics that no other connection has."""
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
