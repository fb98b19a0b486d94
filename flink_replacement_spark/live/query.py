"""The one streaming query over live trades: bars, ticks to store and gaps of all tickers, on topics; no table."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bus import topics as bus_topics
from bus.connect import connect
from candlewright.wire.grid import SECOND
from core.settings import Settings
from flink_replacement_spark.engine.bus_source import lives_at, worker_bus, written_lives
from flink_replacement_spark.engine.micro_batches import start_query
from flink_replacement_spark.engine.modes import begin_anew, finish, merged, to_batches, to_serving
from flink_replacement_spark.engine.steps import Step, Steps
from flink_replacement_spark.live.journal import MAX_BYTES
from flink_replacement_spark.live.results import RESULT_SCHEMA, LiveCounts, LiveHealth
from flink_replacement_spark.live.rows import process
from flink_replacement_spark.live.served import LIVE_QUERY, LiveOwner, LiveTimes
from flink_replacement_spark.live.store import drop_outdated

__all__ = ["LIVE_QUERY", "live_owners", "settle_live_mode", "start_live_query"]

_RETRY_SECONDS = 2.0


def start_live_query(
    session: SparkSession, settings: Settings, health: LiveHealth, *, checkpoint: str
) -> StreamingQuery:
    """Start the query. Source `live` must be registered, and its topics must exist."""
    times = _times(settings)

    def write(frame: DataFrame, query_id: str, batch_id: int) -> None:
        work = process(
            settings.bus.url,
            query_id,
            batch_id,
            lateness_ns=times.lateness_ns,
            horizon_ns=times.horizon_ns,
            max_ahead_ns=times.max_ahead_ns,
            journal_bytes=times.journal_bytes,
        )
        health.add(LiveCounts.of(frame.mapInArrow(work, RESULT_SCHEMA).toArrow()))
        # Otherwise freed memory would be kept in pieces too small for the next large batch.
        pa.default_memory_pool().release_unused()

    trades = (
        session.readStream.format("live")
        .option("url", settings.bus.url)
        .option("reader", bus_topics.READER_BAR_MAKER)
        .load()
    )
    query = start_query(session, settings, trades, name=LIVE_QUERY, checkpoint=checkpoint, write=write)
    with closing(connect(settings.bus, retry_seconds=_RETRY_SECONDS)) as bus:
        drop_outdated(bus, str(query.id))
    return query


def settle_live_mode(session: SparkSession, settings: Settings, checkpoint: str, *, partitions: int) -> None:
    """Have the query continue from its position in the other mode; call before it starts."""
    bus = worker_bus(settings.bus.url)

    def split(number: int, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> dict[str, Step]:
        return {owner.name: owner.of_batch(number, start, end) for owner in live_owners(settings, partitions)}

    def complete(query_id: str, steps: Steps) -> tuple[int, Mapping[str, Any]] | None:
        done = [finish(owner, steps) for owner in live_owners(settings, partitions, query_id)]
        number = max(step.number for step in done)
        if number < 0:
            return None
        owners = live_owners(settings, partitions, query_id)
        at = merged(
            [step if step.end else replace(step, end=owner.first()) for owner, step in zip(owners, done, strict=True)]
        )
        return number, at | written_lives(lives_at(bus, at))

    begin_anew(session, bus, LIVE_QUERY, checkpoint=checkpoint, reader=bus_topics.READER_BAR_MAKER)
    if settings.spark.mode == "continuous":
        to_serving(session, bus, LIVE_QUERY, checkpoint=checkpoint, reader=bus_topics.READER_BAR_MAKER, split=split)
    else:
        to_batches(
            session, bus, LIVE_QUERY, checkpoint=checkpoint, reader=bus_topics.READER_BAR_MAKER, complete=complete
        )


def live_owners(settings: Settings, partitions: int, query_id: str = "") -> list[LiveOwner]:
    """One for each partition; `query_id` may be given later, by `LiveOwner.of`."""
    times = _times(settings)
    return [LiveOwner(settings.bus.url, query_id, partition, times) for partition in range(partitions)]


def _times(settings: Settings) -> LiveTimes:
    return LiveTimes(
        round(settings.bars.lateness_seconds * SECOND),
        round(settings.bars.revision_seconds * SECOND),
        settings.ticks.max_ahead_ns,
        min(MAX_BYTES, settings.bus.max_bytes // 64),
    )
