"""Receipt handles identify the delivery of a record that a client settles.

They need no storage: Redis knows the newest attempt of each record, so a handle remains valid after a restart and at
another gateway. The checksum only detects malformed handles; a handle permits no more than any group member may do.
"""

import base64
import binascii
import json
import zlib

from bus.messaging import Claim
from gateways.rocketmq.door.status import INVALID_ARGUMENT, Refused

_MAX_NUMBER = 1 << 53


def text_of(claim: Claim, hidden_until_ms: int) -> str:
    """`hidden_until_ms`: wall clock, for human readers."""
    topic, group, partition, offset, attempt, _, life = claim
    fields = [topic, partition, offset, group, attempt, hidden_until_ms, life]
    body = json.dumps(fields, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(zlib.crc32(body).to_bytes(4, "big") + body).decode().rstrip("=")


def parse(text: str) -> Claim:
    """Raises Refused INVALID_ARGUMENT for an invalid handle."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        fields = json.loads(raw[4:]) if zlib.crc32(raw[4:]).to_bytes(4, "big") == raw[:4] else None
    except (binascii.Error, ValueError, RecursionError):
        fields = None
    match fields:
        case [str(topic), int(partition), int(offset), str(group), int(attempt), int(_), str(life)]:
            if all(0 <= number < _MAX_NUMBER for number in (partition, offset, attempt)):
                return Claim(topic, group, partition, offset, attempt, life=life)
    raise Refused(INVALID_ARGUMENT, "the receipt handle is malformed")
