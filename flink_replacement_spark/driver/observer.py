"""Observes the queries, the executors and the bars of live tickers, for the driver's vitals."""

import itertools

from pyspark.sql import SparkSession

from bus import Bus
from bus import topics as bus_topics
from core.settings import Settings
from flink_replacement_spark.driver.executors import WarmExecutors, executors_of, run_everywhere
from flink_replacement_spark.driver.live_tickers import live_numbers
from flink_replacement_spark.driver.metrics import export
from flink_replacement_spark.driver.queries import Queries
from flink_replacement_spark.driver.vitals import Vitals

__all__ = ["Observer"]

_TOPICS = (bus_topics.HISTORY_OUTCOMES, bus_topics.TICKS, bus_topics.OHLC)


class Observer:
    def __init__(
        self, vitals: Vitals, session: SparkSession, settings: Settings, *, bus: Bus, queries: Queries
    ) -> None:
        self._vitals = vitals
        self._session = session
        self._bus = bus
        self._queries = queries
        self._is_cluster = not settings.spark.master.startswith("local")
        self._warm = WarmExecutors(lambda: run_everywhere(session))
        self._looks = itertools.count()

    def observe(self, at: float) -> None:
        """Raises BusUnavailable, RoleLost, and Py4JError or PySparkException if the JVM is gone."""
        if self._is_cluster:
            names = executors_of(self._session)
            self._warm.look(names)
            self._vitals.observe_executors(len(names) - 1, at, warm=max(0, self._warm.count_of(names) - 1))
        ends = {topic: [state.end for state in states] for topic, states in self._bus.states(_TOPICS).items()}
        self._vitals.observe_bars(ends[bus_topics.TICKS], ends[bus_topics.OHLC], at)
        self._vitals.observe_tickers(*live_numbers(self._bus, next(self._looks)), at)
        for name, reading in self._queries.readings(self._bus, ends, at):
            self._vitals.observe_query(name, reading, at)
        export(self._vitals, at)
