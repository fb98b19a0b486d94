"""Receipt handles: which delivery of which record a client answers to.

Nothing is kept for them: Redis knows the newest attempt of each record, so that a handle holds after a restart and at
another gateway. The check sum tells a handle from text; what it allows is no more than what a member may do anyway.
"""

import base64
import binascii
import json
import zlib
from typing import NamedTuple

from gateways.rocketmq.status import INVALID_ARGUMENT, Refused


class Handle(NamedTuple):
    """`hidden_until_ms`: wall clock, for people who look at it."""

    topic: str
    partition: int
    offset: int
    group: str
    attempt: int
    hidden_until_ms: int

    def text(self) -> str:
        body = json.dumps(list(self), separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(zlib.crc32(body).to_bytes(4, "big") + body).decode().rstrip("=")


def parse(text: str) -> Handle:
    """Raises Refused INVALID_ARGUMENT for what is no handle."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        fields = json.loads(raw[4:]) if zlib.crc32(raw[4:]).to_bytes(4, "big") == raw[:4] else None
    except (binascii.Error, ValueError):
        fields = None
    match fields:
        case [str(topic), int(partition), int(offset), str(group), int(attempt), int(until)]:
            return Handle(topic, partition, offset, group, attempt, until)
    raise Refused(INVALID_ARGUMENT, "the receipt handle is malformed")
