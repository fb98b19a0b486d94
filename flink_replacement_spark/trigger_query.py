"""The two streaming queries of triggers: all of them over live data, and their events into the table."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bus import topics as bus_topics
from core.settings import Settings
from flink_replacement_spark.session import STREAMS_POOL
from flink_replacement_spark.trigger_rows import RESULT_SCHEMA, process
from flink_replacement_spark.trigger_source import SOURCE
from flink_replacement_spark.trigger_writer import TriggerWriter
from triggers.check import TriggerRules

__all__ = ["EVENTS_QUERY", "TRIGGERS_QUERY", "start_events_query", "start_trigger_query"]

TRIGGERS_QUERY = "triggers"
EVENTS_QUERY = "trigger-events"
#: Events in one commit at most, and how long they are gathered for one: each commit is a file and a snapshot.
_EVENTS = 50_000
_EVENTS_INTERVAL = "1 second"


def start_trigger_query(
    session: SparkSession, settings: Settings, writer: TriggerWriter, checkpoint: str, partitions: int
) -> StreamingQuery:
    """`partitions`: of the topics `ticks` and `ohlc`. Source `triggers` must be registered, and its topics made."""
    rules = TriggerRules.of(settings.triggers, partitions)

    def run_batch(frame: DataFrame, batch_id: int) -> None:
        query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId") or TRIGGERS_QUERY
        work = process(settings.bus.url, query_id, batch_id, rules)
        writer.count(frame.mapInArrow(work, RESULT_SCHEMA).toArrow())

    session.sparkContext.setLocalProperty("spark.scheduler.pool", STREAMS_POOL)
    plans = (
        session.readStream.format(SOURCE)
        .option("url", settings.bus.url)
        .option("reader", bus_topics.READER_TRIGGERS)
        .option("tasks", str(min(partitions + 1, session.sparkContext.defaultParallelism)))
        .load()
    )
    return (
        plans.writeStream.queryName(TRIGGERS_QUERY)
        .foreachBatch(run_batch)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{settings.spark.trigger_milliseconds} milliseconds")
        .start()
    )


def start_events_query(
    session: SparkSession, settings: Settings, writer: TriggerWriter, checkpoint: str
) -> StreamingQuery:
    """Apart from the query that makes them, so that no event waits for a commit."""

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId") or EVENTS_QUERY
        values = frame.select("value").toArrow()["value"].to_pylist()
        writer.write(query_id, batch_id, values)

    session.sparkContext.setLocalProperty("spark.scheduler.pool", STREAMS_POOL)
    events = (
        session.readStream.format("bus")
        .option("url", settings.bus.url)
        .option("topic", bus_topics.TRIGGER_EVENTS)
        .option("reader", bus_topics.READER_TRIGGER_TABLE)
        .option("max_records", str(_EVENTS))
        .load()
    )
    return (
        events.writeStream.queryName(EVENTS_QUERY)
        .foreachBatch(write_batch)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=_EVENTS_INTERVAL)
        .start()
    )
