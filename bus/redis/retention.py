"""Holds on the topics of a bus on Redis, and the trimming of records that no hold or group needs."""

from collections.abc import Mapping

from bus.limits import count_trimmed, group_expired
from bus.redis.topics import RedisTopics, milliseconds, pairs

__all__ = ["RedisRetention"]

_TRIM_CHUNK = 2_000


class RedisRetention(RedisTopics):
    """`bus.api.Holds`."""

    def hold(self, topic: str, reader: str, positions: Mapping[int, int]) -> None:
        if positions:
            pairs = [argument for p, offset in positions.items() for argument in (f"{p}:{reader}", offset)]
            self._store.run("hold", topic, *pairs)

    def release(self, topic: str, reader: str) -> None:
        held = self.holds(topic, reader)
        if held:
            self._store.write([("HDEL", f"cw:holds:{topic}", *(f"{p}:{reader}" for p in held))])

    def holds(self, topic: str, reader: str) -> dict[int, int]:
        found = {}
        for name, offset in pairs(self._store.call("HGETALL", f"cw:holds:{topic}")):
            partition, _, holder = name.decode().partition(":")
            if holder == reader:
                found[int(partition)] = int(offset)
        return found

    def trim(self, topic: str, *, keep_seconds: float, keep_bytes: int | None = None) -> int:
        dropped = 0
        more = True
        while more:
            reply = self._store.run(
                "trim",
                topic,
                milliseconds(keep_seconds),
                "inf" if keep_bytes is None else keep_bytes,
                milliseconds(self._group_expiry_seconds),
                _TRIM_CHUNK,
            )
            dropped += reply[0]
            more = bool(reply[1])
            for group in reply[2:]:
                self._touched.pop((topic, group.decode()), None)
                group_expired(topic, group.decode())
        count_trimmed(topic, dropped)
        return dropped
