"""What the platform's user of Redis may do: every command that the bus sends, and the families of its keys.

Redis checks a command against its ACL when the command is queued in a transaction. So a transaction that is never
carried out shows what is permitted, and changes nothing.
"""

from collections.abc import Sequence

import redis

__all__ = ["CALLS", "describe"]

#: The rules that suffice, as in compose.yaml and docs/cluster.md.
NEEDED = "~cw:* +@all -@admin -@dangerous +info"
_SHOWN = 5
_OF_KEYS = "one of the keys"

#: One call of each command; `k` stands for a key.
_CALLS = """
PING
INFO server
TIME
EVAL return 0
EVALSHA 0000000000000000000000000000000000000000 0
EXISTS k
EXPIRE k 1
PEXPIRE k 1
PTTL k
RENAME k k
DEL k
GET k
MGET k
SET k v
INCR k
INCRBY k 1
DECRBY k 1
HDEL k f
HEXISTS k f
HGET k f
HGETALL k
HINCRBY k f 1
HKEYS k
HLEN k
HMGET k f
HSET k f v
HSETNX k f v
HSTRLEN k f
LPOP k
LTRIM k 0 0
RPUSH k v
XACK k g 0-1
XADD k * f v
XCLAIM k g c 1 0-1
XGROUP CREATE k g 0
XGROUP DELCONSUMER k g c
XGROUP DESTROY k g
XINFO CONSUMERS k g
XINFO GROUPS k
XLEN k
XPENDING k g
XRANGE k - +
XREAD STREAMS k 0-0
XREADGROUP GROUP g c STREAMS k >
XREVRANGE k + -
XTRIM k MAXLEN 1
ZADD k 1 m
ZCARD k
ZCOUNT k 0 1
ZMSCORE k m
ZPOPMIN k
ZRANGE k 0 1
ZRANGEBYSCORE k 0 1
ZREM k m
ZREMRANGEBYRANK k 0 1
ZREMRANGEBYSCORE k 0 1
ZREVRANGEBYSCORE k 1 0
"""
#: The word that follows `cw:` in each key.
_FAMILIES = (
    "budget", "due", "epoch", "evicted", "expiry", "given", "groups", "half", "holds", "kept", "later", "leases",
    "life", "log", "mail", "marks", "names", "once", "oom", "order", "parked", "probe", "reader", "resolved", "role",
    "roles", "seq", "seqids", "settled", "standbys", "table", "topic", "topics", "unpacked", "writer",
)  # fmt: skip

#: Commands to queue, as arguments.
CALLS: Sequence[Sequence[str]] = [
    *(["cw:probe" if word == "k" else word for word in call.split()] for call in _CALLS.split("\n") if call),
    *(call for family in _FAMILIES for call in (["SET", f"cw:{family}:probe", "v"], ["GET", f"cw:{family}:probe"])),
]


def describe(replies: Sequence[object]) -> str:
    """The permissions that the user lacks, from the replies to `CALLS`; empty if it has all."""
    names: list[str] = []
    for call, reply in zip(CALLS, replies, strict=True):
        if not isinstance(reply, redis.exceptions.NoPermissionError):
            continue
        key = next((word for word in call if word.startswith("cw:")), "")
        name = f"the key {key}" if key and _OF_KEYS in str(reply) else _command(call)
        if name not in names:
            names.append(name)
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"Redis does not permit its user {', '.join(names[:_SHOWN])}{more}; these rules suffice: {NEEDED}"


def _command(call: Sequence[str]) -> str:
    return " ".join(call[: 2 if call[0] in ("XGROUP", "XINFO", "INFO") else 1])
