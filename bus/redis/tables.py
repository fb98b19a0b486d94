"""Leases, keyed tables and rate budgets of a bus on Redis."""

from collections.abc import Mapping, Sequence

from bus.redis.pending import PendingNumber
from bus.redis.store import Argument, bulks
from bus.redis.topics import RedisTopics, milliseconds, pairs

__all__ = ["RedisTables"]

#: The maximum number of arguments that a script can pass to one command.
_DELETED_AT_ONCE = 4_000


class RedisTables(RedisTopics):
    """`bus.api.Leases`, `bus.api.KeyedTables` and `bus.api.Budgets`."""

    # ---- leases
    def grant(self, leases: Mapping[str, bytes], *, revoking: Sequence[str] = ()) -> None:
        if leases or revoking:
            self._store.run("grant", *_grant(leases, revoking))

    def begin_grant(self, leases: Mapping[str, bytes], *, revoking: Sequence[str] = ()) -> PendingNumber | None:
        if not leases and not revoking:
            return None
        pending, arguments = PendingNumber(), _grant(leases, revoking)
        packed = bulks(*arguments)
        return pending if self._store.begin_script(pending, "grant", len(arguments), arguments=packed) else None

    def revoke(self, names: Sequence[str]) -> None:
        if names:
            self._store.write([("HDEL", "cw:leases", *names)])

    def leases(self) -> dict[str, bytes]:
        return {name.decode(): note for name, note in pairs(self._store.call("HGETALL", "cw:leases"))}

    # ---- keyed tables
    def put(self, table: str, values: Mapping[str, bytes], *, keep_seconds: float | None = None) -> None:
        if values:
            keep = "" if keep_seconds is None else milliseconds(keep_seconds)
            rows = self._limits.rows
            self._store.run("table_put", table, keep, rows, *(part for pair in values.items() for part in pair))

    def put_new(self, table: str, key: str, value: bytes) -> bytes:
        name = f"cw:table:{table}"
        return bytes(self._store.write([("HSETNX", name, key, value), ("HGET", name, key)])[1])

    def replace(
        self,
        table: str,
        key: str,
        old: bytes | None,
        *,
        new: bytes,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> bool:
        rows = put or {}
        expected = b"" if old is None else b"=" + old
        pairs = [part for pair in rows.items() for part in pair]
        return bool(self._store.run("table_replace", table, key, expected, new, len(rows), *pairs, *delete))

    def get(self, table: str, keys: Sequence[str]) -> list[bytes | None]:
        if not keys:
            return []
        found = dict(pairs(self._store.run("table_get", table, *keys)))
        return [found.get(key.encode()) for key in keys]

    def items(self, table: str) -> dict[str, bytes]:
        return {key.decode(): value for key, value in pairs(self._store.run("table_get", table))}

    def delete(self, table: str, keys: Sequence[str]) -> None:
        for at in range(0, len(keys), _DELETED_AT_ONCE):
            some = keys[at : at + _DELETED_AT_ONCE]
            self._store.write([("HDEL", f"cw:table:{table}", *some), ("ZREM", f"cw:expiry:{table}", *some)])

    # ---- shared rate budgets
    def take(self, budget: str, cost: float, *, capacity: float, per_second: float) -> float:
        return float(self._store.run("budget", budget, "take", repr(cost), repr(capacity), repr(per_second)))

    def block_budget(self, budget: str, seconds: float) -> None:
        self._store.run("budget", budget, "block", repr(seconds))

    def correct_budget(self, budget: str, used: float, *, capacity: float) -> None:
        self._store.run("budget", budget, "correct", repr(used), repr(capacity))


def _grant(leases: Mapping[str, bytes], revoking: Sequence[str]) -> list[Argument]:
    """The arguments of `lua/grant.lua`."""
    return [len(revoking), *revoking, *(part for pair in leases.items() for part in pair)]
