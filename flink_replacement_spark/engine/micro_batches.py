"""Starts a streaming query that runs in micro-batches."""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from core.settings import Settings
from flink_replacement_spark.engine.bus_source import worker_bus
from flink_replacement_spark.engine.checkpoints import SharedCheckpoint
from flink_replacement_spark.spark.conf import STREAMS_POOL

__all__ = ["start_query"]


def start_query(
    session: SparkSession,
    settings: Settings,
    rows: DataFrame,
    *,
    name: str,
    checkpoint: str,
    write: Callable[[DataFrame, str, int], None],
) -> StreamingQuery:
    """Start the query `name` over the stream `rows`, in the pool of streams and with its checkpoint on the bus.

    `write`: gets each micro-batch with the query's id and the batch's number.
    """
    shared = SharedCheckpoint(worker_bus(settings.bus.url), checkpoint)

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId") or name
        shared.keep(batch_id)
        write(frame, query_id, batch_id)

    session.sparkContext.setLocalProperty("spark.scheduler.pool", STREAMS_POOL)
    return (
        rows.writeStream.queryName(name)
        .foreachBatch(write_batch)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{settings.spark.trigger_milliseconds} milliseconds")
        .start()
    )
