"""The broker's reader of the bus, on a real one."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from broker.journal import feed, journal
from bus import topics
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from core.metrics import REGISTRY
from tests.broker.harness import eventually
from tests.faults.link import Link


def failures() -> float:
    return REGISTRY.get_sample_value("candlewright_background_failures_total", {"name": "bus-reader"}) or 0.0


def test_a_broker_that_stops_while_the_bus_is_down_reports_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_CLOSE_SECONDS", 0.1)
    before = failures()
    with (
        EmbeddedRedis(tmp_path, fsync="no") as redis,
        Link(redis.url) as link,
        closing(RedisBus(link.url, retry_seconds=0.5)) as bus,
    ):
        for topic in (topics.REQUESTS, topics.NOTIFICATIONS, topics.PROOFS, topics.HISTORY, topics.HISTORY_OUTCOMES):
            bus.create_topic(topic, 1)
        reader = feed.Feed(bus, journal.replay(bus, 0.0), lambda: None)
        link.cut()
        eventually(lambda: bool(reader.problem), 20)
        reader.close()
        bus.close()
        eventually(lambda: all(thread.name != "bus-reader" for thread in threading.enumerate()), 20)
    assert reader.failure is None
    assert failures() == before
