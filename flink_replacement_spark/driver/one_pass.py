"""Live data in mode `continuous`: tasks (`engine.serving`) that make bars and evaluate triggers in one pass.

The owner of a partition's bars and that of its triggers form a chain. The joint owner, whose triggers combine rows of
several partitions, is alone.
"""

import threading

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from core.settings import Settings
from flink_replacement_spark.engine.bus_source import worker_bus
from flink_replacement_spark.engine.serving import Chain
from flink_replacement_spark.engine.serving_query import ServingQuery, query_id_of
from flink_replacement_spark.engine.steps import Done
from flink_replacement_spark.live.query import LIVE_QUERY, live_owners
from flink_replacement_spark.live.results import LiveCounts, LiveHealth
from flink_replacement_spark.live.store import drop_outdated
from flink_replacement_spark.triggers.query import TRIGGERS_QUERY, TriggerHealth, trigger_owners
from flink_replacement_spark.triggers.store import STATE_PREFIX

__all__ = ["begin_serving", "chains", "prepare_serving"]


def chains(settings: Settings, partitions: int) -> list[Chain]:
    *by_partition, joint = trigger_owners(settings, partitions)
    return [*zip(live_owners(settings, partitions), by_partition, strict=True), (joint,)]


def prepare_serving(session: SparkSession, settings: Settings, partitions: int) -> ServingQuery:
    """Start the query; its tasks wait for `begin_serving`."""
    return ServingQuery(session, settings, LIVE_QUERY, chains=chains(settings, partitions))


def begin_serving(
    prepared: ServingQuery,
    settings: Settings,
    *,
    live: LiveHealth,
    triggers: TriggerHealth,
    stopping: threading.Event,
) -> StreamingQuery:
    bus = worker_bus(settings.bus.url)
    ids = {name: query_id_of(bus, name) for name in (LIVE_QUERY, TRIGGERS_QUERY)}

    def add_live(steps: int, done: Done) -> None:
        live.add(LiveCounts(**done.counts), steps)

    def add_triggers(steps: int, done: Done) -> None:
        triggers.count(done.counts, done.suspended, steps)

    news = {LIVE_QUERY: add_live, TRIGGERS_QUERY: add_triggers}
    query = prepared.begin(settings.bus.url, ids, news, stopping=stopping)
    drop_outdated(bus, ids[LIVE_QUERY])
    drop_outdated(bus, ids[TRIGGERS_QUERY], STATE_PREFIX)
    return query
