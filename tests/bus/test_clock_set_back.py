"""The store's clock is set back: times that it gave must not delay anything for that long."""

import time

import redis

from bus.redis.redis_bus import RedisBus

HOUR = 3_600.0


def test_a_budget_refills_and_a_block_ends_on_time(redis_url: str) -> None:
    bus = RedisBus(redis_url)
    rate = {"capacity": 1.0, "per_second": 100.0}
    assert bus.take("b", 1.0, **rate) == 0.0
    bus.block_budget("b", 0.5)
    with redis.Redis.from_url(redis_url) as client:
        # As left by a clock that was an hour ahead.
        for field in ("at", "blocked"):
            then = float(client.hget("cw:budget:b", field) or 0)
            client.hset("cw:budget:b", field, repr(then + HOUR))
    until = time.monotonic() + 10
    while (wait := bus.take("b", 1.0, **rate)) > 0:
        assert wait < 1.0
        assert time.monotonic() < until
        time.sleep(min(wait, 0.05))
    bus.close()
