"""Executors that join are warmed, so that they can take over tasks at once."""

from collections.abc import Callable

from pyspark.errors import PySparkException

from flink_replacement_spark.driver.executors import WarmExecutors
from tests.flink_replacement_spark.harness import wait_for


def looks(warm: WarmExecutors, *executors: str, until: Callable[[], bool]) -> None:
    def look() -> bool | None:
        warm.look(executors)
        return until() or None

    wait_for(look)


def test_each_executor_that_joins_is_warmed_once() -> None:
    calls: list[str] = []
    warm = WarmExecutors(lambda: calls.append("run"))
    looks(warm, "a:1", until=lambda: len(calls) == 1)
    warm.look(["a:1"])
    assert len(calls) == 1
    # The new executor replaces a lost one.
    looks(warm, "b:1", until=lambda: len(calls) == 2)


def test_a_failed_attempt_is_repeated() -> None:
    results = iter([PySparkException("no core"), None])
    calls: list[object] = []

    def run() -> None:
        calls.append(result := next(results))
        if result is not None:
            raise result

    looks(WarmExecutors(run), "a:1", until=lambda: len(calls) == 2)
