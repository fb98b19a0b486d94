"""A term finds the queries that its driver prepared as a standby, or starts them."""

import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast
from unittest.mock import MagicMock, patch

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from bus.roles import DRIVER, Roles
from core.settings import Settings
from flink_replacement_spark import server
from flink_replacement_spark.driver.standby import Prepared
from flink_replacement_spark.driver.topics import prepare_topics
from flink_replacement_spark.engine.serving_query import ServingQuery
from tests.fresh_bus import FreshBus


@dataclass
class _Query:
    name: str
    partitions: int
    is_active: bool = True

    @property
    def has_tasks(self) -> bool:
        return self.is_active

    def stop(self) -> None:
        self.is_active = False


class _Started:
    """Starts queries that do nothing, and keeps them."""

    def __init__(self) -> None:
        self.queries: list[_Query] = []
        self.prepared = Prepared({name: partial(self.start, name) for name in ("a", "b")})

    def start(self, name: str, partitions: int) -> ServingQuery:
        assert all(query.name != name for query in self.queries if query.is_active), "Spark refuses a second one"
        self.queries.append(_Query(name, partitions))
        return cast("ServingQuery", self.queries[-1])

    def take(self, name: str, partitions: int) -> _Query:
        return cast("_Query", self.prepared.take(name, partitions))


def never() -> bool:
    return False


def test_a_prepared_query_is_taken_once() -> None:
    started = _Started()
    started.prepared.prepare(4, never)
    first = started.take("a", 4)
    assert [first, started.take("b", 4)] == started.queries
    first.stop()
    assert started.take("a", 4) is started.queries[2] is not first


def test_a_query_that_ended_or_has_other_partitions_is_replaced() -> None:
    started = _Started()
    started.prepared.prepare(4, never)
    started.queries[0].stop()
    assert started.take("a", 4) is started.queries[2]
    assert started.take("b", 8) is started.queries[3]
    assert [query.partitions for query in started.queries if query.is_active] == [4, 8]


def test_a_query_that_ended_while_it_waited_is_prepared_again() -> None:
    started = _Started()
    assert not started.prepared.is_complete
    started.prepared.prepare(4, never)
    assert started.prepared.is_complete
    started.queries[0].stop()
    assert not started.prepared.is_complete
    started.prepared.prepare(4, never)
    assert [query.name for query in started.queries] == ["a", "b", "a"] and started.prepared.is_complete
    assert started.take("a", 4) is started.queries[2]


def test_a_term_waits_for_the_query_that_is_just_being_started() -> None:
    starting, may_go_on = threading.Event(), threading.Event()
    started = _Started()

    def slow(partitions: int) -> ServingQuery:
        starting.set()
        assert may_go_on.wait(10)
        return started.start("slow", partitions)

    prepared = Prepared({"slow": slow, "later": partial(started.start, "later")})
    is_over = [False]
    preparing = threading.Thread(target=lambda: prepared.prepare(4, lambda: is_over[0]))
    preparing.start()
    assert starting.wait(10)
    is_over[0] = True
    taken: list[ServingQuery] = []
    taking = threading.Thread(target=lambda: taken.append(prepared.take("slow", 4)))
    taking.start()
    may_go_on.set()
    taking.join(10)
    preparing.join(10)
    assert [query.name for query in started.queries] == ["slow"], "the other one is not prepared any more"
    assert taken == started.queries


def test_queries_that_no_term_took_are_stopped() -> None:
    started = _Started()
    started.prepared.prepare(4, never)
    started.take("a", 4)
    started.prepared.stop()
    assert [query.is_active for query in started.queries] == [True, False]


@pytest.mark.parametrize("error", [Py4JNetworkError("no answer"), ConnectionRefusedError()])
def test_a_standby_whose_jvm_died_ends(tmp_path: Path, error: Exception) -> None:
    bus, lake = FreshBus(), {"uri": str(tmp_path / "lake.db"), "warehouse": f"file://{tmp_path / 'lake'}"}
    prepare_topics(bus)
    with_role = Roles(bus.url)
    with_role.acquire(DRIVER, "another", 60)
    driver = server.Driver(Settings.model_validate({"data_dir": tmp_path, "bus": {"url": bus.url}, "iceberg": lake}))
    with patch.object(server, "Starting", MagicMock()), patch.object(Prepared, "prepare", side_effect=error):
        with pytest.raises(server.DriverBroke):
            driver.start()
        driver.close()
    with_role.close()
