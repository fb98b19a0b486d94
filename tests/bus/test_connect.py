from urllib.parse import urlsplit

import pytest
import redis

from bus.api import Record
from bus.connect import check_access, connect
from candlewright.wire.errors import BusLimit, ConfigurationError
from core.settings import BusSettings


def test_settings_reach_the_bus(redis_url: str) -> None:
    bus = connect(BusSettings(url=redis_url, partitions=7))
    assert bus.create_topic("t") == 7
    bus.close()


def test_limits_of_settings_are_those_that_the_bus_keeps(redis_url: str) -> None:
    bus = connect(
        BusSettings(url=redis_url, partitions=1, max_topics=100, max_groups=2, max_names=1_000, max_rows=1_000)
    )
    for number in range(100):
        bus.create_topic(f"t{number}")
    with pytest.raises(BusLimit, match="the bus has 100 topics, and takes 100"):
        bus.create_topic("more")
    bus.create_group("t0", "a", at_end=False)
    bus.create_group("t0", "b", at_end=False)
    with pytest.raises(BusLimit, match="the bus has 2 groups of topic t0, and takes 2"):
        bus.create_group("t0", "c", at_end=False)
    bus.put("rows", {f"r{number}": b"" for number in range(1_200)}, keep_seconds=60)
    assert len(bus.items("rows")) == 1_000
    names = [f"n{number}" for number in range(1_200)]
    bus.publish_new("t0", [Record(b"")] * 1_200, registry="ids", names=names, keep_seconds=60)
    assert sum(content is not None for content in bus.recall("ids", names)) == 1_000
    bus.close()


@pytest.mark.parametrize("url", ["", "127.0.0.1:6379", "http://localhost"])
def test_a_missing_or_foreign_url_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError):
        connect(BusSettings(url=url))


def test_access_is_checked_with_the_first_words_of_a_part(redis_url: str) -> None:
    """A relay with a wrong password ended with a traceback, and an ingestor ran on."""
    address = urlsplit(redis_url)
    with redis.Redis.from_url(redis_url) as admin:
        admin.acl_setuser("guest", enabled=True, passwords=["+p"], keys=["cw:*"], commands=["+ping"])
    for user, reason in (
        (":wrong@", "invalid username-password pair"),
        ("stranger:p@", "invalid username-password pair"),
        ("", "Authentication required"),
        ("guest:p@", "this user has no permissions to run the 'info' command"),
    ):
        with pytest.raises(ConfigurationError, match=rf"^bus\.url: Redis refuses its user or password: .*{reason}"):
            check_access(BusSettings(url=f"redis://{user}127.0.0.1:{address.port}/0"))
    check_access(BusSettings(url=redis_url))


def test_a_server_that_is_down_does_not_refuse_anyone() -> None:
    check_access(BusSettings(url="redis://:p@127.0.0.1:1/0"))
