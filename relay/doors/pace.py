"""Decides how long the relay rests after a round, so that one client's flood of requests leaves time for others. Pure.

Every accepted request also causes work for the broker and the bus. On a machine with few cores, a flood accepted at
full speed slows down the parts that finish other clients' requests. If no other client waits, it is not slowed.
"""

from collections import OrderedDict
from collections.abc import Iterable

#: After this many messages without a pause of a second, a client's messages count as a flood.
FLOOD_MESSAGES = 2_000
_PAUSE_SECONDS = 1.0
#: A client counts as waiting for this long (s) after its last message, which its request may take on a busy machine.
_WAITING_SECONDS = 30.0
#: The rest as a multiple of the round's duration, and its upper bound (s), which no client notices.
_SHARE, MAX_REST_SECONDS = 2.0, 0.2


class Pace:
    """Times are monotonic seconds."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        self._messages = 0
        self._at = float("-inf")

    def rest(self, senders: Iterable[bytes], seconds: float, now: float) -> float:
        """Seconds to rest after a round that took `seconds`, with a message from each of `senders` (connections)."""
        if now - self._at > _PAUSE_SECONDS:
            self._messages = 0
        for sender in senders:
            self._at = now
            self._messages += 1
            self._seen[sender] = now
            self._seen.move_to_end(sender)
        while self._seen and next(iter(self._seen.values())) < now - _WAITING_SECONDS:
            self._seen.popitem(last=False)
        is_shared = len(self._seen) > 1
        return min(_SHARE * seconds, MAX_REST_SECONDS) if is_shared and self._messages > FLOOD_MESSAGES else 0.0
