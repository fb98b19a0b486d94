"""A redis-server for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from bus.redis.embedded import EmbeddedRedis


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(Path(tmp_path_factory.mktemp("redis")), fsync="no") as server:
        yield server


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis) -> str:
    """The URL of an empty server."""
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    return redis_server.url
