"""The gateway's decisions, without a clock, socket or store: which clients are alive, which partitions each reads, how
long a failed message waits, and which partition holds a message group.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from candlewright.wire.errors import BadFrame

#: Delays of delay_level 1, 2, ...
DELAY_LEVEL_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
#: The attempts if the dead letter policy is 0 or missing.
DEFAULT_MAX_ATTEMPTS = 16

Subscription = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Client:
    """A live member of a group, from its last heartbeat. `subscriptions`: filter type and text by topic;
    `max_attempts`: deliveries after which a message becomes a dead letter.
    """

    client_id: str
    group: str
    is_consumer: bool
    is_fifo: bool = False
    is_broadcasting: bool = False
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    policy: int = 0
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Unique among all clients."""
        return json.dumps([self.is_consumer, self.group, self.client_id])

    def to_bytes(self) -> bytes:
        return json.dumps(
            {
                "client_id": self.client_id,
                "group": self.group,
                "is_consumer": self.is_consumer,
                "is_fifo": self.is_fifo,
                "is_broadcasting": self.is_broadcasting,
                "max_attempts": self.max_attempts,
                "policy": self.policy,
                "subscriptions": dict(self.subscriptions),
            }
        ).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Client":
        """Raises BadFrame."""
        try:
            fields = json.loads(raw)
            fields["subscriptions"] = {topic: (kind, text) for topic, (kind, text) in fields["subscriptions"].items()}
            return cls(**fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadFrame("BAD_CLIENT", f"not a client of this gateway: {error!r}") from error


def assigned(clients: Iterable[Client], group: str, topic: str, client_id: str, partitions: int) -> list[int]:
    """The partitions of `topic` that a member of `group` reads.

    Unordered members share all of them: a message delivered to one is hidden from the others. In ordered mode each
    partition has one reader, and so does each message group: every member gets a contiguous range, by client id. A
    client whose heartbeat has not arrived yet counts as a member.
    """
    everything = list(range(partitions))
    members = {c.client_id: c for c in clients if c.is_consumer and c.group == group and topic in c.subscriptions}
    if not any(member.is_fifo and not member.is_broadcasting for member in members.values()):
        return everything
    ids = sorted({*members, client_id})
    index, count = ids.index(client_id), len(ids)
    return everything[index * partitions // count : (index + 1) * partitions // count]


def conflicting(clients: Iterable[Client], client: Client) -> list[str]:
    """Topics to which another member of the client's group subscribes with a different filter."""
    others = [c for c in clients if c.is_consumer and c.group == client.group and c.client_id != client.client_id]
    return sorted(
        topic
        for topic, wanted in client.subscriptions.items()
        if any(topic in other.subscriptions and other.subscriptions[topic] != wanted for other in others)
    )


def max_attempts(clients: Iterable[Client], group: str) -> int | None:
    """The limit of the group's members; None if no member is known."""
    return max((c.max_attempts for c in clients if c.is_consumer and c.group == group), default=None)


def producers(clients: Iterable[Client], group: str) -> list[str]:
    """Client ids of the live producers of `group`, in order."""
    return sorted(c.client_id for c in clients if not c.is_consumer and c.group == group)


def nack_delay(delays: Sequence[float], attempt: int) -> float:
    """Seconds until the delivery after `attempt` (from 1); the last delay applies to all later ones."""
    return delays[min(max(attempt, 1), len(delays)) - 1] if delays else 0.0


def check_delay(base_seconds: float, asked: int) -> float:
    """Seconds until a sender queried `asked` times is queried again: doubling, up to ten times the base."""
    return min(base_seconds * 2.0 ** min(asked, 4), base_seconds * 10)


def message_group_partition(group: str, partitions: int) -> int:
    """The partition of a message group: Java's String.hashCode, non-negative remainder, as in stock producers."""
    value = 0
    units = group.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (value * 31 + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return signed % partitions
