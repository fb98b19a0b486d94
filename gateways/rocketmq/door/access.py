"""Access keys: which clients may call, if `access_keys` is set."""

import hashlib
import hmac
import re
from collections.abc import Mapping

from gateways.rocketmq.door.status import UNAUTHENTICATED, Refused

_SCHEME = re.compile(r"MQv2-HMAC-SHA1 +Credential=([^/,]+)[^,]*, *SignedHeaders=([^,]+), *Signature=([0-9A-Fa-f]+)")


def signature(secret: str, date_time: str) -> str:
    return hmac.new(secret.encode(), date_time.encode(), hashlib.sha1).hexdigest().upper()


def check(metadata: Mapping[str, str], secrets: Mapping[str, str]) -> None:
    """Raises Refused UNAUTHENTICATED for a call not signed with one of `secrets`, by key."""
    found = _SCHEME.fullmatch(metadata.get("authorization", "").strip())
    if found is None:
        raise Refused(UNAUTHENTICATED, "the call names no access key")
    key, headers, given = found.groups()
    date_time = metadata.get("x-mq-date-time", "")
    secret = secrets.get(key)
    # Also compared for an unknown key, so that timing reveals nothing.
    expected = signature(secret if secret is not None else "unknown", date_time)
    is_right = hmac.compare_digest(expected, given.upper())
    if secret is None or not is_right or not date_time or headers.strip() != "x-mq-date-time":
        raise Refused(UNAUTHENTICATED, f"the access key {key[:64]} or its signature is wrong")
