import pytest

from bus.connect import connect
from core.errors import ConfigurationError
from core.settings import BusSettings


def test_settings_reach_the_bus(redis_url: str) -> None:
    bus = connect(BusSettings(url=redis_url, partitions=7))
    assert bus.create_topic("t") == 7
    bus.close()


@pytest.mark.parametrize("url", ["", "127.0.0.1:6379", "http://localhost"])
def test_a_missing_or_foreign_url_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError):
        connect(BusSettings(url=url))
