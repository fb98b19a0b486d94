"""The one streaming query over the outcomes of historical requests."""

import threading

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bus import Bus
from bus import topics as bus_topics
from core.settings import Settings
from flink_replacement_spark.engine.bus_source import Positions, read_range, worker_bus
from flink_replacement_spark.engine.checkpoints import CheckpointFolder, PlannedBatches
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

    batches = PlannedBatches(CheckpointFolder(session, checkpoint))
    bus = worker_bus(settings.bus.url)

    def write(frame: DataFrame, query_id: str, batch_id: int) -> None:
        bounds = batches.bounds(batch_id)
        found = _of_frame(frame) if bounds is None else _of_bus(bus, *bounds)
        writer.write(query_id, batch_id, found)

    outcomes = (
        session.readStream.format("bus")
        .option("url", settings.bus.url)
        .option("topic", bus_topics.HISTORY_OUTCOMES)
        .option("reader", bus_topics.READER_HISTORY_WRITER)
        .option("max_records", str(MAX_OUTCOMES))
        .load()
    )
    return start_query(session, settings, outcomes, name=HISTORY_QUERY, checkpoint=checkpoint, write=write)


def _of_frame(frame: DataFrame) -> list[OutcomeRecord]:
    rows = (
        frame.select("partition", "offset", "value")
        .toArrow()
        .sort_by([("partition", "ascending"), ("offset", "ascending")])
    )
    columns = (column.to_pylist() for column in rows.columns)
    return [OutcomeRecord(*row) for row in zip(*columns, strict=True)]


def _of_bus(bus: Bus, start: Positions, end: Positions) -> list[OutcomeRecord]:
    """The same records, which all come to the driver: a Spark job only for reading them takes 90 ms."""
    return [
        OutcomeRecord(record.partition, record.offset, record.value)
        for partition, stop in sorted(end.items(), key=lambda item: int(item[0]))
        for part in read_range(
            bus, bus_topics.HISTORY_OUTCOMES, int(partition), first=start.get(partition, 0), last=stop - 1
        )
        for record in part
    ]
