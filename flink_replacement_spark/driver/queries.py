"""The driver's streaming queries: history, live data and, in mode `batch`, triggers."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bus import Bus
from bus import topics as bus_topics
from core.settings import Settings
from flink_replacement_spark.driver.one_pass import begin_serving, prepare_serving
from flink_replacement_spark.driver.standby import Prepared
from flink_replacement_spark.driver.vitals import Reading
from flink_replacement_spark.engine.checkpoints import SharedCheckpoint, forget_lost
from flink_replacement_spark.engine.serving_query import ServingQuery
from flink_replacement_spark.engine.watched import WatchedQuery
from flink_replacement_spark.history.query import HISTORY_QUERY, make_writer, start_history_query
from flink_replacement_spark.history.writer import Health
from flink_replacement_spark.live.query import LIVE_QUERY, settle_live_mode, start_live_query
from flink_replacement_spark.live.results import LiveHealth
from flink_replacement_spark.spark.conf import checkpoint_of
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.triggers.query import (
    TRIGGERS_QUERY,
    TriggerHealth,
    held_for_triggers,
    settle_trigger_mode,
    start_trigger_query,
)

__all__ = ["Queries"]

#: How long (s) history waits for the other queries to serve, and once they do, for the driver to be seen ready.
_WAIT_SECONDS, _SEEN_SECONDS = 10.0, 0.5
#: The name of the query that runs in micro-batches in any mode.
HISTORY = "history"
#: The topic whose records show how far each query is behind.
TOPICS = (bus_topics.HISTORY_OUTCOMES, bus_topics.TICKS, bus_topics.TICKS)


class Queries:
    """`watched`, once started: history, live and, in mode `batch`, triggers. `prepared`: what a standby can start ahead
    of its term.
    """

    def __init__(self, session: SparkSession, settings: Settings, stopping: threading.Event) -> None:
        self._session = session
        self._settings = settings
        self._stopping = stopping
        self._partitions = 0
        self._history_at = 0.0
        self._serving: ServingQuery | None = None
        self.watched: Sequence[WatchedQuery] = ()
        self.history: Health | None = None
        self.live = LiveHealth()
        self.triggers = TriggerHealth()
        self.prepared = Prepared({LIVE_QUERY: self._prepare} if settings.spark.mode == "continuous" else {})

    @property
    def are_running(self) -> bool:
        return bool(self.watched) and all(query.is_running or query.is_waiting for query in self.watched)

    @property
    def are_waiting(self) -> bool:
        """Whether a query has not been started yet."""
        return any(query.is_waiting for query in self.watched)

    @property
    def are_serving(self) -> bool:
        """Whether every task that serves has begun."""
        return self._serving is None or self._serving.is_serving

    @property
    def problems(self) -> list[str]:
        found = [query.problem for query in self.watched]
        found += [own.problem for own in (self._serving, self.history) if own is not None]
        return found

    def start(self, settings: Settings, bus: Bus, catalog: Catalog, *, locks: TableLocks) -> None:
        """`settings`: those of the driver's term, whose `bus.url` names it."""
        self._settings = settings
        session = self._session
        writer = make_writer(settings, bus, catalog, session=session, locks=locks, stopping=self._stopping)
        health = self.history = writer.health
        checkpoints = {query: checkpoint_of(settings, query) for query in (HISTORY_QUERY, LIVE_QUERY, TRIGGERS_QUERY)}
        restore_checkpoints(session, bus, checkpoints)
        partitions = self._partitions = bus.partitions(bus_topics.TICKS)
        settle_live_mode(session, settings, checkpoints[LIVE_QUERY], partitions=partitions)
        settle_trigger_mode(session, settings, checkpoints[TRIGGERS_QUERY], partitions=partitions)
        self._history_at = time.monotonic() + _WAIT_SECONDS
        history = WatchedQuery(
            HISTORY,
            lambda: start_history_query(session, settings, writer, checkpoint=checkpoints[HISTORY_QUERY]),
            lambda: health.batches,
            waits=self._history_waits,
        )
        live = WatchedQuery(LIVE_QUERY, lambda: self._start_live(checkpoints[LIVE_QUERY]), lambda: self.live.batches)
        triggers = WatchedQuery(
            TRIGGERS_QUERY, lambda: self._start_triggers(checkpoints[TRIGGERS_QUERY]), lambda: self.triggers.batches
        )
        self.watched = (history, live) if settings.spark.mode == "continuous" else (history, live, triggers)
        for query in self.watched[1:]:
            query.start()

    def check(self, *, may_start: bool) -> None:
        """Restart ended queries; call often. Raises Py4JError if the JVM is gone."""
        for query in self.watched:
            query.check(may_start=may_start)

    def stop(self) -> None:
        for query in self.watched:
            # Nothing interrupts the source of history while it waits for news; it ends with the JVM.
            if query.name != HISTORY or not query.is_idle:
                query.stop()
        self.prepared.stop()

    def readings(self, bus: Bus, ends: Mapping[str, Sequence[int]], at: float) -> Iterator[tuple[str, Reading]]:
        """How far each query is, by name. `ends`: of the partitions of `TOPICS`."""
        if self.history is None:
            return
        healths: tuple[Health | LiveHealth | TriggerHealth, ...] = (self.history, self.live, self.triggers)
        holds = (
            bus.holds(bus_topics.HISTORY_OUTCOMES, bus_topics.READER_HISTORY_WRITER),
            bus.holds(bus_topics.TICKS, bus_topics.READER_BAR_MAKER),
            held_for_triggers(self._settings, bus, len(ends[bus_topics.TICKS])),
        )
        names = (HISTORY, LIVE_QUERY, TRIGGERS_QUERY)
        # In mode `continuous`, the query of live data serves triggers as well.
        watched = (*self.watched, self.watched[-1])[: len(names)]
        for name, query, health, topic, held in zip(names, watched, healths, TOPICS, holds, strict=True):
            # Without a trigger, no batch runs, and only holds move.
            marker = (health.batches, tuple(sorted(held.items())))
            stepped_at = at - max(0.0, time.time() - health.last_batch_at)
            yield name, Reading(marker, stepped_at, ends[topic], held, query.is_idle)

    def status(self) -> dict[str, Any]:
        healths = {} if self.history is None else {"history": vars(self.history)}
        return {**healths, "live": vars(self.live), "triggers": dict(vars(self.triggers))}

    def _history_waits(self) -> bool:
        """Users wait for bars and events; history starts Python processes, which take the processor from them."""
        now = time.monotonic()
        if self.are_serving:
            self._history_at = min(self._history_at, now + _SEEN_SECONDS)
        return now < self._history_at

    def _start_live(self, checkpoint: str) -> StreamingQuery:
        settings = self._settings
        if settings.spark.mode != "continuous":
            return start_live_query(self._session, settings, self.live, checkpoint=checkpoint)
        self._serving = self.prepared.take(LIVE_QUERY, self._partitions)
        return begin_serving(self._serving, settings, live=self.live, triggers=self.triggers, stopping=self._stopping)

    def _start_triggers(self, checkpoint: str) -> StreamingQuery:
        return start_trigger_query(
            self._session, self._settings, self.triggers, checkpoint=checkpoint, partitions=self._partitions
        )

    def _prepare(self, partitions: int) -> ServingQuery:
        return prepare_serving(self._session, self._settings, partitions)


def restore_checkpoints(session: SparkSession, bus: Bus, checkpoints: Mapping[str, str]) -> None:
    """Bring the checkpoints of the queries, by their names, to what the bus has: removed if it has lost their records,
    else with the files that another driver has copied to it.
    """
    for query, reader, topic in (
        (HISTORY_QUERY, bus_topics.READER_HISTORY_WRITER, bus_topics.HISTORY_OUTCOMES),
        (LIVE_QUERY, bus_topics.READER_BAR_MAKER, ""),
        (TRIGGERS_QUERY, bus_topics.READER_TRIGGERS, ""),
    ):
        shared = SharedCheckpoint(bus, checkpoints[query])
        if not forget_lost(session, bus, checkpoints[query], reader=reader, topic=topic):
            shared.restore()
            continue
        shared.forget()
        if topic:
            # The broker would count records written again as already read.
            held = bus.holds(topic, reader)
            bus.put(bus_topics.TABLE_HISTORY_WRITTEN, {str(p): b"%d" % end for p, end in held.items()})
