"""How the driver's queries are stopped."""

import threading
from dataclasses import dataclass
from typing import cast
from unittest.mock import MagicMock

import pytest

from core.settings import Settings
from flink_replacement_spark.driver.queries import Queries
from flink_replacement_spark.engine.watched import WatchedQuery


@dataclass
class _Query:
    name: str
    is_idle: bool
    is_stopped: bool = False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_stop_does_not_wait_for_the_source_of_idle_history(is_idle: bool) -> None:
    queries = Queries(MagicMock(), Settings(), threading.Event())
    history, live = _Query("history", is_idle), _Query("live", is_idle)
    queries.watched = [cast("WatchedQuery", query) for query in (history, live)]
    queries.stop()
    assert live.is_stopped and history.is_stopped != is_idle
