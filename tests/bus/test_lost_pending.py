"""Records that another program took out of a stream while a group had not acknowledged them."""

import redis

from bus.api import Record
from bus.redis.redis_bus import RedisBus
from core.metrics import REGISTRY


def test_records_that_are_gone_are_counted_once_and_never_offered(redis_url: str) -> None:
    bus = RedisBus(redis_url, partitions=1)
    bus.create_group("gone", "g", at_end=True)
    bus.publish("gone", [Record(b"%d" % n) for n in range(5)])
    assert len(bus.read_group("gone", "g", "c")) == 5
    with redis.Redis.from_url(redis_url) as other:
        other.xdel("cw:log:gone:0", "1-1", "3-1")
    found = [bus.claim_expired("gone", "g", "c", min_idle_seconds=0) for _ in range(2)]
    assert [[each.record.value for each in offered] for offered in found] == [[b"0", b"2", b"4"]] * 2
    assert bus.pending("gone", "g") == {0: 3}
    assert REGISTRY.get_sample_value("candlewright_bus_lost_pending_total", {"topic": "gone"}) == 2
    bus.close()
