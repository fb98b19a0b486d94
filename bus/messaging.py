"""What message queues need in addition to a log: deliveries with individual hidden times, timed messages, messages
whose sender has not decided yet, and mail to clients that may ask any of several servers.

`bus.redis.redis_messaging` implements it; `bus.connect.messaging_of` makes one for a bus. Groups are those of the bus:
delivered messages are pending there, and protected from retention.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bus.api import StoredRecord

#: In ordered mode, this many records of a partition may be delivered and unsettled, and this many are examined in one
#: call.
ORDERED_LOOK = 2_000
#: Bytes of the records of one call; the record that exceeds it, and a few read with it, are included.
MAX_BYTES = 4 << 20
#: The header with a JSON object whose "group" names the message group of a record.
ORDER_HEADER = "EXTEND_UNIQ_INFO"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivered record; `attempt` counts from 1 and distinguishes deliveries of the record, `life` records with the
    same offset (`GroupRecord.life`).
    """

    record: StoredRecord
    attempt: int
    life: str = ""


class Claim(NamedTuple):
    """The handle with which a consumer settles a record. `consumer`: the one that settles, if known; `life`: that of
    the delivery, if known.

    In ordered mode, a slow reader that received the record again may also settle it by the earlier delivery, because it
    would not continue otherwise.
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
    """`next_due_seconds`: until a hidden record is due again, None if none is hidden, 0 if not all records that may be
    due were examined. `lost`: records that have left the pending list.
    """

    deliveries: tuple[Delivery, ...]
    next_due_seconds: float | None
    lost: int = 0


class Settled(enum.Enum):
    DONE = "done"
    #: It was settled before, by this delivery or by an unknown one.
    BEFORE = "before"
    #: It was delivered again since: the call had no effect.
    STALE = "stale"
    #: The record does not exist, or the store lost it and now has another one in its place.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Half:
    """A message that waits for its sender's decision, and how often the sender was asked."""

    id: str
    payload: bytes
    asked: int


class Messaging(Protocol):
    """All methods raise BusUnavailable if the store cannot be reached in time. All are idempotent except `receive`,
    after which records stay hidden for their time, and `collect`.
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

        `default_hide_seconds`: for pending records delivered in other ways. `in_order`: no message of a message group
        (`ORDER_HEADER`, else the key, else all without one) is delivered while an earlier one is hidden, and delivery
        restarts from the first unsettled one; other message groups continue, however many records follow. Raises
        BusError for a
        group that does not exist.
        """
        ...

    def acknowledge(self, claims: Sequence[Claim]) -> list[Settled]:
        """The outcome for each."""
        ...

    def postpone(self, claim: Claim, delay_seconds: float) -> Settled:
        """Make it due again after `delay_seconds`, whatever its delivery specified."""
        ...

    def give_back(self, claims: Sequence[Claim]) -> list[Settled]:
        """Undo these deliveries: the records are due immediately, and the attempts do not count."""
        ...

    def bury(self, claim: Claim, *, queue: str, id: str, payload: bytes) -> Settled:
        """Acknowledge it, and in the same step put `payload` on `queue`, due now."""
        ...

    # ---- timed messages; `id` is unique in its queue
    def add(self, queue: str, id: str, payload: bytes, *, delay_seconds: float) -> bool:
        """False if the id exists, which stays unchanged. Raises BusFull if timed and half messages of the queue would
        exceed the bytes of a topic.
        """
        ...

    def claim_due(self, queue: str, *, max_items: int, lease_seconds: float) -> list[tuple[str, bytes]]:
        """Id and payload of due messages; they are offered again after `lease_seconds` unless removed."""
        ...

    def remove(self, queue: str, id: str, *, registry: str) -> None:
        """Also makes `publish_once` forget (registry, id) in ten minutes."""
        ...

    def next_due(self, queue: str) -> float | None:
        """Seconds until a message is due; None if there is none."""
        ...

    def kept_bytes(self, queue: str) -> int:
        """Bytes of timed and half messages."""
        ...

    # ---- half messages
    def prepare(self, queue: str, id: str, payload: bytes, *, ask_after_seconds: float) -> bool:
        """As `add`."""
        ...

    def half(self, queue: str, id: str) -> bytes | None: ...

    def claim_unresolved(self, queue: str, *, max_items: int, again_seconds: float) -> list[Half]:
        """Those whose sender must be asked; they are returned again after `again_seconds`."""
        ...

    def count_asked(self, queue: str, id: str, again_seconds: float) -> int:
        """Count a query, and do not repeat it before `again_seconds`; returns the total, 0 for a resolved one."""
        ...

    def resolve(
        self, queue: str, id: str, outcome: str, *, payload: bytes = b"", delay_seconds: float | None = None
    ) -> str:
        """The effective outcome: the first one decides, and is remembered for a day; empty for an unknown id.

        With `delay_seconds`, the message (or `payload` in its place) becomes a timed message in the same step.
        """
        ...

    # ---- mail
    def post(self, address: str, payload: bytes, keep_seconds: float) -> None:
        """The oldest of more than a hundred are dropped."""
        ...

    def posted(self) -> int:
        """How many letters were ever posted."""
        ...

    def collect(self, addresses: Sequence[str]) -> list[bytes | None]:
        """Removes and returns the oldest letter of each address; a lost answer loses it."""
        ...

    def close(self) -> None: ...
