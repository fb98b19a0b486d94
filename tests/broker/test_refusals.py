"""A broker over a Redis that takes no new records."""

from pathlib import Path

import redis

from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire import ingestor_pb2 as ing
from tests.broker.harness import MINUTE, START, Client, Peer, RunningBroker, eventually, minutes


def test_a_redis_at_maxmemory_is_named_in_the_status_and_work_continues_when_there_is_room(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis", fsync="no") as server, redis.Redis.from_url(server.url) as admin:
        bus = RedisBus(server.url, retry_seconds=0.2)
        broker = RunningBroker(bus)
        client, peer = Client(bus), Peer(broker.address)
        try:
            request_id = client.submit(rows=3)
            admin.config_set("maxmemory", 1)
            eventually(lambda: any("maxmemory (OOM)" in text for text in broker.server.status().problems))
            peer.offer()
            # Its lease cannot be stored, so it is not dispatched.
            assert peer.receive(0.5) is None
            admin.config_set("maxmemory", 0)
            peer.answer(peer.job(), minutes(START, START + 3 * MINUTE))
            assert client.end(request_id).status == ing.HistoryReadyNotification.OK
            eventually(lambda: not broker.server.status().problems)
        finally:
            peer.close()
            broker.stop()
            bus.close()
