"""Decides who may see what when keys are on: an id belongs to the client whose name it begins with. Pure.

No name is a prefix of another, so an id has at most one owner, and every topic that begins with an owned topic belongs
to the same client, which makes ZeroMQ's prefix matching safe. An empty name means that keys are off; then every client
may see everything.
"""

from collections.abc import Iterable

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.keys import RESERVED
from candlewright.wire.streams import TOPICS
from protobuf import records_pb2 as rec

_PUBLIC = tuple(topic.prefix for topic in TOPICS if not topic.is_private)
_PRIVATE = tuple(topic.prefix for topic in TOPICS if topic.is_private)


def is_own(name: str, identity: str) -> bool:
    return identity.startswith(name)


def may_subscribe(name: str, subscription: bytes) -> bool:
    """Whether every topic that this prefix matches is public, or private and owned."""
    try:
        topic = subscription.decode()
    except UnicodeDecodeError:
        return False
    if not name:
        return True
    if any(topic.startswith(prefix + name) for prefix in _PRIVATE):
        return True
    if any(prefix.startswith(topic) or topic.startswith(prefix) for prefix in _PRIVATE):
        return False
    return any(topic.startswith(prefix) or prefix.startswith(topic) for prefix in _PUBLIC)


def may_publish(owner: str, identity: str) -> bool:
    """Whether news about a request of `owner` may go to the topic of this id, which the id's owner reads."""
    return identity.startswith(owner)


def owns_request(name: str, request_id: str, request: rec.Request | None) -> bool:
    """Whether a request belongs to client `name`. It belongs to its sender, whatever its id; if it was sent before keys
    were on, to the owner of its id.
    """
    owner = request.owner if request is not None else ""
    return not name or (owner == name if owner else is_own(name, request_id))


def check_own(name: str, field: str, identity: str) -> None:
    """Raises InvalidRequest for an id that is not the client's own."""
    if not is_own(name, identity):
        raise InvalidRequest(f"With keys on, the {field} begins with the name of its client's key, {name!r}.")


def check_foreign(name: str, field: str, identity: str, *, names: Iterable[str]) -> None:
    """Raises InvalidRequest for an id that belongs to another client or the platform."""
    if name and not is_own(name, identity):
        for other in (*RESERVED, *names):
            if identity.startswith(other):
                raise InvalidRequest(f"The {field} belongs to another client: it begins with {other!r}.")


def client_of(request: rec.Request) -> str:
    return request.data.client_id if request.HasField("data") else request.historical.client_id
