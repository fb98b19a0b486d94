"""Names of topics and groups: `namespace%name` if there is a namespace."""

import re

from bus import topics
from gateways.records import is_visible
from gateways.rocketmq.door.status import INVALID_ARGUMENT, NOT_FOUND, Refused
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition

#: The name of the one broker in routes.
BROKER = "candlewright"
#: The topic for messages whose sender never decided their transaction.
HOLDING_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"

#: Length limit of a name, and of a namespace.
MAX_CHARACTERS = 255
_DEAD_LETTERS = "%DLQ%"
#: The longest names include a group and its namespace.
MAX_TOPIC_CHARACTERS = len(_DEAD_LETTERS) + 2 * MAX_CHARACTERS + 1
_LEGAL = re.compile(r"[A-Za-z0-9%|_.-]*")


def topic_of(resource: definition.Resource) -> str:
    """The topic's name on the bus. Raises Refused: INVALID_ARGUMENT for an invalid name, NOT_FOUND for the platform's
    internal topics.
    """
    name = _full(resource, "topic")
    if not is_visible(name):
        raise Refused(NOT_FOUND, f"there is no topic {name}")
    return name


def group_of(resource: definition.Resource) -> str:
    """Raises Refused INVALID_ARGUMENT."""
    return _full(resource, "group")


def is_writable(topic: str) -> bool:
    return topic != topics.NOTIFICATIONS


def dead_letter_topic(group: str) -> str:
    return _DEAD_LETTERS + group


def full_name(resource: definition.Resource) -> str:
    """Unchecked."""
    return f"{resource.resource_namespace}%{resource.name}" if resource.resource_namespace else resource.name


def _full(resource: definition.Resource, kind: str) -> str:
    name, namespace = resource.name, resource.resource_namespace
    if not name:
        raise Refused(INVALID_ARGUMENT, f"the {kind} has no name")
    most = MAX_TOPIC_CHARACTERS if name.startswith(_DEAD_LETTERS) else MAX_CHARACTERS
    if len(name) > most or len(namespace) > MAX_CHARACTERS or not _LEGAL.fullmatch(namespace + name):
        raise Refused(
            INVALID_ARGUMENT,
            f"the {kind} {name[:80]!r} must be at most {MAX_CHARACTERS} letters, digits, %, |, -, _ and .",
        )
    return full_name(resource)
