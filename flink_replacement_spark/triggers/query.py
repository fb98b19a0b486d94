"""The one streaming query over live data for all registered triggers."""

import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bus import topics as bus_topics
from bus.connect import connect
from core import metrics
from core.log import get_logger
from core.settings import Settings
from flink_replacement_spark.engine.bus_source import worker_bus
from flink_replacement_spark.engine.checkpoints import SharedCheckpoint
from flink_replacement_spark.engine.session import STREAMS_POOL
from flink_replacement_spark.live.state import drop_outdated
from flink_replacement_spark.triggers.functions import (
    FUNCTION_STATE_PREFIX,
    FunctionOutcome,
    TriggerFunctions,
    carry_out,
)
from flink_replacement_spark.triggers.rows import RESULT_SCHEMA, process
from flink_replacement_spark.triggers.source import SOURCE
from flink_replacement_spark.triggers.state import STATE_PREFIX
from triggers.check import TriggerRules

__all__ = ["TRIGGERS_QUERY", "TriggerHealth", "start_trigger_query"]

TRIGGERS_QUERY = "triggers"
_RETRY_SECONDS = 2.0

log = get_logger()

_EVENTS = metrics.Counter("candlewright_spark_trigger_events_total", "Events of triggers.", registry=metrics.REGISTRY)
_SUSPENDED = metrics.Counter(
    "candlewright_spark_triggers_suspended_total", "Triggers that failed and were stopped.", registry=metrics.REGISTRY
)
_INPUT = metrics.Counter(
    "candlewright_spark_trigger_input_total",
    "Records that were read for triggers, and trades among them that no trigger saw.",
    ["kind"],
    registry=metrics.REGISTRY,
)


@dataclass
class TriggerHealth:
    """What the status page says. `late_rows`, `duplicates`: trades that no trigger saw. `functions`: what was counted
    of those of other queries, in all.
    """

    batches: int = 0
    records: int = 0
    events: int = 0
    late_rows: int = 0
    duplicates: int = 0
    bad_records: int = 0
    suspended: int = 0
    functions: Mapping[str, int] = field(default_factory=dict)
    last_batch_at: float = field(default_factory=time.time)

    def count(self, results: pa.Table) -> None:
        """After a micro-batch: rows of `trigger_rows.RESULT`."""
        self.batches += 1
        self.last_batch_at = time.time()
        for row in results.filter(pc.is_null(results["content"])).to_pylist():
            name, value = row["name"], row["value"]
            if row["reason"] is not None:
                self._count_suspended(name, row["reason"])
            elif name == "events":
                self._count_events(value)
            else:
                setattr(self, name, getattr(self, name) + value)
                _INPUT.labels(name).inc(value)

    def count_functions(self, outcome: FunctionOutcome, functions: TriggerFunctions) -> None:
        self._count_events(len(outcome.fired))
        for report in outcome.reports:
            self._count_suspended(report.trigger_id, report.reason)
        self.functions = dict(functions.totals)

    def _count_suspended(self, trigger_id: str, reason: str) -> None:
        self.suspended += 1
        _SUSPENDED.inc()
        log.warning("trigger_suspended", trigger_id=trigger_id, reason=reason)

    def _count_events(self, count: int) -> None:
        self.events += count
        _EVENTS.inc(count)


def start_trigger_query(
    session: SparkSession,
    settings: Settings,
    health: TriggerHealth,
    checkpoint: str,
    partitions: int,
    published: threading.Event | None = None,
    functions: TriggerFunctions | None = None,
) -> StreamingQuery:
    """`partitions`: of the topics `ticks` and `ohlc`. Source `triggers` must be registered, and its topics made.

    `published` is set after each micro-batch with events. `functions`: those of a query of the same checkpoint that has
    ended.
    """
    rules = TriggerRules.of(settings.triggers, partitions)
    functions = functions or TriggerFunctions(settings.gateways.kapacitor.udf)

    shared = SharedCheckpoint(worker_bus(settings.bus.url), checkpoint)

    def run_batch(frame: DataFrame, batch_id: int) -> None:
        query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId") or TRIGGERS_QUERY
        shared.keep(batch_id)
        work = process(settings.bus.url, query_id, batch_id, rules, settings)
        results = frame.mapInArrow(work, RESULT_SCHEMA).toArrow()
        outcome = carry_out(worker_bus(settings.bus.url), functions, query_id, batch_id, results, partitions + 1)
        health.count(results)
        health.count_functions(outcome, functions)
        if published is not None and (outcome.fired or "events" in results["name"].to_pylist()):
            published.set()

    session.sparkContext.setLocalProperty("spark.scheduler.pool", STREAMS_POOL)
    plans = (
        session.readStream.format(SOURCE)
        .option("url", settings.bus.url)
        .option("reader", bus_topics.READER_TRIGGERS)
        .option("tasks", str(min(partitions + 1, session.sparkContext.defaultParallelism)))
        .load()
    )
    query = (
        plans.writeStream.queryName(TRIGGERS_QUERY)
        .foreachBatch(run_batch)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{settings.spark.trigger_milliseconds} milliseconds")
        .start()
    )
    with closing(connect(settings.bus, retry_seconds=_RETRY_SECONDS)) as bus:
        for prefix in (STATE_PREFIX, FUNCTION_STATE_PREFIX):
            drop_outdated(bus, str(query.id), prefix)
    return query
