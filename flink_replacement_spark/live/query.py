"""The one streaming query over live trades: bars, ticks to store and gaps of all tickers, on topics; no table."""

from contextlib import closing

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bus import topics as bus_topics
from bus.connect import connect
from candlewright.wire.grid import SECOND
from core.settings import Settings
from flink_replacement_spark.engine.bus_source import worker_bus
from flink_replacement_spark.engine.checkpoints import SharedCheckpoint
from flink_replacement_spark.engine.session import STREAMS_POOL
from flink_replacement_spark.live.journal import MAX_BYTES
from flink_replacement_spark.live.results import RESULT_SCHEMA, LiveCounts, LiveHealth
from flink_replacement_spark.live.rows import process
from flink_replacement_spark.live.state import drop_outdated

__all__ = ["LIVE_QUERY", "start_live_query"]

LIVE_QUERY = "live"
_RETRY_SECONDS = 2.0


def start_live_query(session: SparkSession, settings: Settings, health: LiveHealth, checkpoint: str) -> StreamingQuery:
    """Source `live` must be registered, and its topics made."""
    lateness_ns = round(settings.bars.lateness_seconds * SECOND)
    horizon_ns = round(settings.bars.revision_seconds * SECOND)
    max_ahead_ns = settings.ticks.max_ahead_ns
    journal_bytes = min(MAX_BYTES, settings.bus.max_bytes // 64)

    shared = SharedCheckpoint(worker_bus(settings.bus.url), checkpoint)

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId") or LIVE_QUERY
        shared.keep(batch_id)
        work = process(settings.bus.url, query_id, batch_id, lateness_ns, horizon_ns, max_ahead_ns, journal_bytes)
        health.add(LiveCounts.of(frame.mapInArrow(work, RESULT_SCHEMA).toArrow()))
        # What was freed is kept, in pieces of which the next large batch finds few that fit.
        pa.default_memory_pool().release_unused()

    session.sparkContext.setLocalProperty("spark.scheduler.pool", STREAMS_POOL)
    trades = (
        session.readStream.format("live")
        .option("url", settings.bus.url)
        .option("reader", bus_topics.READER_BAR_MAKER)
        .load()
    )
    query = (
        trades.writeStream.queryName(LIVE_QUERY)
        .foreachBatch(write_batch)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{settings.spark.trigger_milliseconds} milliseconds")
        .start()
    )
    with closing(connect(settings.bus, retry_seconds=_RETRY_SECONDS)) as bus:
        drop_outdated(bus, str(query.id))
    return query
