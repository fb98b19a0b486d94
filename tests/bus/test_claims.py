"""Two readers of a group that take over the records of a third one at the same moment."""

from collections.abc import Sequence
from typing import Any

import pytest
import redis

from bus.api import GroupRecord, Record
from bus.redis.redis_bus import RedisBus


def test_two_concurrent_claims_give_each_record_to_one_consumer(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = RedisBus(redis_url, partitions=1), RedisBus(redis_url, partitions=1)
    one.create_group("t", "g", at_end=True)
    one.publish("t", [Record(b"%d" % n) for n in range(3)])
    one.read_group("t", "g", "dead")
    with redis.Redis.from_url(redis_url) as server:
        server.xclaim("cw:log:t:0", "g", "dead", 0, ["0-1", "1-1", "2-1"], idle=5_000, justid=True)
    found: list[Sequence[GroupRecord]] = []
    claim = two._claim

    def slowly(*arguments: Any) -> list[GroupRecord]:
        found.append(one.claim_expired("t", "g", "one", min_idle_seconds=0, of_consumer="dead"))
        return claim(*arguments)

    monkeypatch.setattr(two, "_claim", slowly)
    found.append(two.claim_expired("t", "g", "two", min_idle_seconds=0, of_consumer="dead"))
    assert [[each.record.offset for each in offered] for offered in found] == [[0, 1, 2], []]
    assert one.pending_by_consumer("t", "g") == {0: {"one": 3}}
    one.close()
    two.close()
