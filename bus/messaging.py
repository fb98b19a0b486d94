"""What message queues need beside a log: deliveries that are hidden for a time of their own, messages for later,
messages whose sender has not decided yet, and mail to clients that may ask any of several servers.

`bus.redis_messaging` implements it; `bus.connect.messaging_of` makes one for a bus. Groups are those of the bus: what
is delivered here is pending there, and protected from retention.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bus.api import StoredRecord

#: In order of message groups, so many records of a partition may be given out and unsettled, and so many are looked at
#: in one call.
ORDERED_LOOK = 2_000
#: Of the records of one call; the one that passes it, and a few read with it, come as well.
MAX_BYTES = 4 << 20
#: The header with a JSON object whose "group" names the message group of a record.
ORDER_HEADER = "EXTEND_UNIQ_INFO"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record given out; `attempt` counts from 1 and tells this delivery from others of the record, `life` the record
    from others of its offset (`GroupRecord.life`).
    """

    record: StoredRecord
    attempt: int
    life: str = ""


class Claim(NamedTuple):
    """The handle by which a consumer answers for a record. `consumer`: the one that answers, if known; `life`: that of
    the delivery, if known.

    In order, a reader that was too slow and received the record again may answer to the earlier delivery as well: it
    would not continue before that answer counts.
    """

    topic: str
    group: str
    partition: int
    offset: int
    attempt: int
    consumer: str = ""
    life: str = ""


@dataclass(frozen=True, slots=True)
class Received:
    """`next_due_seconds`: until a hidden record is due again, None when none is hidden, 0 when not all that may be due
    was looked at. `lost`: records that were pending and no longer are.
    """

    deliveries: tuple[Delivery, ...]
    next_due_seconds: float | None
    lost: int = 0


class Settled(enum.Enum):
    DONE = "done"
    #: It was settled before, by this delivery or by one that nothing is known of any more.
    BEFORE = "before"
    #: It was given out again since: what was asked is not done.
    STALE = "stale"
    #: The record does not exist, or the store lost it and now has another one in its place.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Half:
    """A message that waits for its sender's word, and how often its sender was asked."""

    id: str
    payload: bytes
    asked: int


class Messaging(Protocol):
    """All methods raise BusUnavailable when the store cannot be reached in time. Repeating any of them is harmless,
    but for `receive`, after which records stay hidden for their time, and `collect`.
    """

    # ---- deliveries
    def receive(
        self,
        topic: str,
        group: str,
        consumer: str,
        *,
        partition: int,
        max_records: int,
        hide_seconds: float,
        default_hide_seconds: float,
        in_order: bool = False,
    ) -> Received:
        """Records that are due again, then new ones; each is hidden from the group for `hide_seconds`.

        `default_hide_seconds`: for pending records that were given out otherwise. `in_order`: nothing of a message
        group (`ORDER_HEADER`, else the key, else all without) while an earlier one of it is hidden, and again from the
        first unsettled one on; other message groups continue, however many records follow it. Raises BusError for a
        group that does not exist.
        """
        ...

    def acknowledge(self, claims: Sequence[Claim]) -> list[Settled]:
        """What became of each."""
        ...

    def postpone(self, claim: Claim, delay_seconds: float) -> Settled:
        """Due again after `delay_seconds`, whatever was said when it was given out."""
        ...

    def give_back(self, claims: Sequence[Claim]) -> list[Settled]:
        """As if these deliveries had not been: they are due at once, and the attempts do not count."""
        ...

    def bury(self, claim: Claim, *, queue: str, id: str, payload: bytes) -> Settled:
        """Acknowledge it, and in the same step put `payload` on `queue`, due now."""
        ...

    # ---- messages for later; `id` is unique in its queue
    def add(self, queue: str, id: str, payload: bytes, *, delay_seconds: float) -> bool:
        """False when there is one of that id: it stays as it is. Raises BusFull when messages for later and half
        messages of the queue would have more bytes than a topic may.
        """
        ...

    def claim_due(self, queue: str, *, max_items: int, lease_seconds: float) -> list[tuple[str, bytes]]:
        """Id and payload of what is due; it is offered again after `lease_seconds` unless removed."""
        ...

    def defer(self, queue: str, id: str, delay_seconds: float) -> None: ...

    def remove(self, queue: str, id: str, *, registry: str) -> None:
        """Also lets `publish_once` forget (registry, id) in ten minutes."""
        ...

    def next_due(self, queue: str) -> float | None:
        """Seconds until something is due; None when there is nothing."""
        ...

    def kept_bytes(self, queue: str) -> int:
        """Of messages for later and half messages."""
        ...

    # ---- half messages
    def prepare(self, queue: str, id: str, payload: bytes, *, ask_after_seconds: float) -> bool:
        """As `add`."""
        ...

    def half(self, queue: str, id: str) -> bytes | None: ...

    def claim_unresolved(self, queue: str, *, max_items: int, again_seconds: float) -> list[Half]:
        """Those whose sender is to be asked; they come again after `again_seconds`."""
        ...

    def count_asked(self, queue: str, id: str, again_seconds: float) -> int:
        """One more time, and not again before `again_seconds`; how often in all, 0 for one that is resolved."""
        ...

    def resolve(
        self, queue: str, id: str, outcome: str, *, payload: bytes = b"", delay_seconds: float | None = None
    ) -> str:
        """The outcome that holds: the first one decides, and is known for a day; empty for an unknown id.

        With `delay_seconds` the message (or `payload` in its place) becomes one for later in the same step.
        """
        ...

    # ---- mail
    def post(self, address: str, payload: bytes, keep_seconds: float) -> None:
        """The oldest of more than a hundred are dropped."""
        ...

    def posted(self) -> int:
        """How many letters were posted to anybody, ever."""
        ...

    def collect(self, addresses: Sequence[str]) -> list[bytes | None]:
        """The oldest letter of each address, which is taken out; a lost answer loses it."""
        ...

    def close(self) -> None: ...
