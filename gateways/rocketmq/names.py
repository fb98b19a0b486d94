"""Names of topics and groups: `namespace%name` where there is a namespace."""

import re

from bus import topics
from gateways.records import MAX_TOPIC_BYTES, is_visible
from gateways.rocketmq.status import INVALID_ARGUMENT, NOT_FOUND, Refused
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition

#: Of the one broker that routes name.
BROKER = "candlewright"
#: Where messages go whose sender never said what is to become of them.
HOLDING_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"

_LEGAL = re.compile(r"[A-Za-z0-9%|_.-]+")


def topic_of(resource: definition.Resource) -> str:
    """The topic's name on the bus. Raises Refused: INVALID_ARGUMENT for one that cannot be, NOT_FOUND for the
    platform's inner topics.
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
    return f"%DLQ%{group}"


def resource_of(name: str) -> definition.Resource:
    return definition.Resource(name=name)


def full_name(resource: definition.Resource) -> str:
    """Unchecked."""
    return f"{resource.resource_namespace}%{resource.name}" if resource.resource_namespace else resource.name


def _full(resource: definition.Resource, kind: str) -> str:
    name = full_name(resource)
    if not resource.name:
        raise Refused(INVALID_ARGUMENT, f"the {kind} has no name")
    if not _LEGAL.fullmatch(name) or len(name) > MAX_TOPIC_BYTES:
        raise Refused(
            INVALID_ARGUMENT,
            f"the {kind} {name[:80]!r} is not made of letters, digits, %, |, -, _ and ., {MAX_TOPIC_BYTES} at most",
        )
    return name
