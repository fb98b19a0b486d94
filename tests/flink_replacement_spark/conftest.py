"""One driver for all tests of this folder that need real Spark: a start takes many seconds."""

import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bus.redis.embedded import EmbeddedRedis
from core.settings import Settings
from flink_replacement_spark.server import Driver
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.running import Platform

#: Py4J and Spark Connect leave their sockets to the collector, which may run in any later test.
_LEFT_SOCKETS = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


#: Leaves hostile records on the driver's bus, so the other tests of the driver run before it.
_LAST = "test_hostile_topics.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    own = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in own:
        for ignored in _LEFT_SOCKETS:
            item.add_marker(pytest.mark.filterwarnings(ignored))
    if own:
        place = items.index(own[0])
        others = [item for item in items if item not in own]
        items[:] = [*others[:place], *sorted(own, key=lambda item: item.path.name == _LAST), *others[place:]]


_running = ExitStack()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The driver ends with the last test of this folder, because its queries run for as long as it lives."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _running.close()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("redis"), fsync="no") as server:
        yield server


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    return _running.enter_context(_started(tmp_path_factory.mktemp("spark")))


@contextmanager
def _started(folder: Path) -> Iterator[Platform]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with EmbeddedRedis(folder / "redis", fsync="no") as redis:
        settings = Settings.model_validate(
            {
                "data_dir": folder,
                "bus": {"url": redis.url},
                "spark": {
                    "connect_bind": f"127.0.0.1:{port}",
                    "master": "local[2]",
                    "mode": "continuous",
                    "interval_seconds": 0.25,
                },
                "iceberg": {"maintenance_minutes": 0},
            }
        )
        driver = Driver(settings)
        driver.start()
        loop = threading.Thread(target=driver.run)
        loop.start()
        found = Platform(settings, driver)
        # History starts once the other queries serve.
        wait_for(lambda: all(query.is_running for query in driver.queries) or None, 60)
        try:
            yield found
        finally:
            driver.stop()
            loop.join(30)
            driver.close()
            found.bus.close()
            gc.collect()
