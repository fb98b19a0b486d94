"""Which clients are alive, and what follows for a group: who reads which partition, and its limits. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from candlewright.wire.errors import BadFrame

#: The attempts if the dead letter policy is 0 or missing.
DEFAULT_MAX_ATTEMPTS = 16

Subscription = tuple[int, str]


@dataclass(kw_only=True, frozen=True, slots=True)
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


def assigned(clients: Iterable[Client], group: str, topic: str, *, client_id: str, partitions: int) -> list[int]:
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
