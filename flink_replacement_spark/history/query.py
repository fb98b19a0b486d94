"""The one streaming query over the outcomes of historical requests."""

import threading

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bus import Bus
from bus import topics as bus_topics
from core.settings import Settings
from flink_replacement_spark.engine.micro_batches import start_query
from flink_replacement_spark.history.merger import SparkMerger
from flink_replacement_spark.history.outcomes import OutcomeRecord
from flink_replacement_spark.history.writer import HistoryWriter
from flink_replacement_spark.tables.locks import TableLocks

__all__ = ["HISTORY_QUERY", "make_writer", "start_history_query"]

HISTORY_QUERY = "history-writer"
#: The most outcomes in one micro-batch.
MAX_OUTCOMES = 1_000


def make_writer(
    settings: Settings,
    bus: Bus,
    catalog: Catalog,
    *,
    session: SparkSession,
    locks: TableLocks,
    stopping: threading.Event,
) -> HistoryWriter:
    return HistoryWriter(
        bus,
        catalog,
        SparkMerger(session, catalog, settings.bus.url),
        locks=locks,
        stopping=stopping,
        keep_finals_seconds=settings.relay.keep_notifications_hours * 3_600,
        is_distributed=not settings.spark.master.startswith("local"),
    )


def start_history_query(
    session: SparkSession, settings: Settings, writer: HistoryWriter, *, checkpoint: str
) -> StreamingQuery:
    """Start the query. Source `bus` must be registered, and its topic must exist."""

    def write(frame: DataFrame, query_id: str, batch_id: int) -> None:
        rows = (
            frame.select("partition", "offset", "value")
            .toArrow()
            .sort_by([("partition", "ascending"), ("offset", "ascending")])
        )
        partitions, offsets, values = (column.to_pylist() for column in rows.columns)
        writer.write(query_id, batch_id, [OutcomeRecord(*row) for row in zip(partitions, offsets, values, strict=True)])

    outcomes = (
        session.readStream.format("bus")
        .option("url", settings.bus.url)
        .option("topic", bus_topics.HISTORY_OUTCOMES)
        .option("reader", bus_topics.READER_HISTORY_WRITER)
        .option("max_records", str(MAX_OUTCOMES))
        .load()
    )
    return start_query(session, settings, outcomes, name=HISTORY_QUERY, checkpoint=checkpoint, write=write)
