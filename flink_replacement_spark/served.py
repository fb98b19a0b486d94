"""Live data in mode `continuous`: the query whose tasks make bars and run triggers, in one pass where they can."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from core.settings import Settings
from flink_replacement_spark.engine.bus_source import worker_bus
from flink_replacement_spark.engine.handover import Handover
from flink_replacement_spark.engine.serving import Done, Owner, Seat
from flink_replacement_spark.engine.serving_query import query_id_of, start_serving
from flink_replacement_spark.live.query import LIVE_QUERY, live_owners
from flink_replacement_spark.live.results import LiveCounts, LiveHealth
from flink_replacement_spark.live.served import LiveOwner
from flink_replacement_spark.live.state import drop_outdated
from flink_replacement_spark.triggers.query import TRIGGERS_QUERY, TriggerHealth, is_served, trigger_owners
from flink_replacement_spark.triggers.served import TriggerOwner
from flink_replacement_spark.triggers.state import STATE_PREFIX

__all__ = ["paired", "serve"]


def serve(
    session: SparkSession,
    settings: Settings,
    live: LiveHealth,
    triggers: TriggerHealth,
    partitions: int,
    *,
    stopping: threading.Event,
) -> StreamingQuery:
    """Triggers too, unless they run in micro-batches."""
    bus = worker_bus(settings.bus.url)
    live_id = query_id_of(bus, LIVE_QUERY)
    prefixes = {live_id: "live_state"}
    leaders = live_owners(settings, live_id, partitions)
    seats: list[Seat] = [partial(_alone, leader) for leader in leaders]
    on_news: dict[str, Callable[[int, Done], object]] = {
        live_id: lambda steps, done: live.add(LiveCounts(**done.counts), steps)
    }
    if is_served(settings):
        triggers_id = query_id_of(bus, TRIGGERS_QUERY)
        prefixes[triggers_id] = STATE_PREFIX
        *followers, joint = trigger_owners(settings, triggers_id, partitions)
        seats = [partial(paired, *both) for both in zip(leaders, followers, strict=True)]
        seats.append(partial(_alone, joint))
        on_news[triggers_id] = lambda steps, done: triggers.count(done.counts, done.suspended, steps)
    query = start_serving(session, settings, LIVE_QUERY, seats, on_news, stopping=stopping)
    for query_id, prefix in prefixes.items():
        drop_outdated(bus, query_id, prefix)
    return query


def paired(leader: LiveOwner, follower: TriggerOwner) -> Sequence[Owner]:
    handover = Handover()
    return [replace(leader, handover=handover), replace(follower, handover=handover)]


def _alone(owner: Owner) -> Sequence[Owner]:
    return [owner]
