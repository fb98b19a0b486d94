"""`RedisBus`: the bus on one Redis 6.2 or newer; see README.md for the layout of its keys."""

from bus.limits import DEFAULT_GROUP_EXPIRY_SECONDS, DEFAULT_MAX_BYTES, EVICTED, Limits
from bus.redis.groups import RedisGroups
from bus.redis.publishing import RedisPublishing
from bus.redis.reading import RedisReading
from bus.redis.store import Store
from bus.redis.topics import pairs

_LIMITS = Limits()


class RedisBus(RedisPublishing, RedisReading, RedisGroups):
    """See `bus.api.Bus`. Safe for threads; after a fork the child makes its own connections.

    `url`: redis://, rediss:// or unix://. `partitions`: for topics that this object creates without an explicit number.
    `max_bytes`: of one topic. `retry_seconds`: how long a call retries if the server is down, before it raises
    BusUnavailable. `timeout_seconds`: for one answer.
    """

    def __init__(
        self,
        url: str,
        partitions: int = 4,
        max_bytes: int = DEFAULT_MAX_BYTES,
        *,
        group_expiry_seconds: float = DEFAULT_GROUP_EXPIRY_SECONDS,
        retry_seconds: float = 15.0,
        timeout_seconds: float = 10.0,
        limits: Limits = _LIMITS,
    ) -> None:
        super().__init__(
            Store(url, retry_seconds=retry_seconds, timeout_seconds=timeout_seconds),
            partitions=partitions,
            max_bytes=max_bytes,
            group_expiry_seconds=group_expiry_seconds,
            limits=limits,
        )
        self.url = url
        self._evicted: dict[str, int] = {}

    def count_evicted(self) -> None:
        for name, total in pairs(self._store.call("HGETALL", "cw:evicted")):
            of, count = name.decode(), int(total)
            EVICTED.labels(of).inc(max(0, count - self._evicted.get(of, 0)))
            self._evicted[of] = count

    def forbids(self) -> str:
        return self._store.forbids()

    def refusal(self) -> str:
        return self._store.refusal()

    def close(self) -> None:
        self._store.close()
