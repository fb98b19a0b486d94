"""The one streaming query over live data for all registered triggers."""

import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bus import Bus
from bus import topics as bus_topics
from bus.connect import connect
from core import metrics
from core.log import get_logger
from core.settings import Settings
from flink_replacement_spark.engine.bus_source import ends_of, lives_at, worker_bus, written_lives
from flink_replacement_spark.engine.micro_batches import start_query
from flink_replacement_spark.engine.modes import begin_anew, finish, to_batches, to_serving
from flink_replacement_spark.engine.serving_query import TABLE_SERVING
from flink_replacement_spark.engine.steps import NO_STEP, Step, Steps
from flink_replacement_spark.live.store import drop_outdated
from flink_replacement_spark.triggers.functions import FunctionOutcome
from flink_replacement_spark.triggers.rows import RESULT_SCHEMA, counted, process
from flink_replacement_spark.triggers.served import TRIGGERS_QUERY, TriggerOwner, reader_of
from flink_replacement_spark.triggers.source import BEHIND, ROWS, SOURCE, Barrier
from flink_replacement_spark.triggers.store import STATE_PREFIX
from triggers.texts.check import TriggerRules

__all__ = [
    "TRIGGERS_QUERY",
    "TriggerHealth",
    "held_for_triggers",
    "settle_trigger_mode",
    "start_trigger_query",
    "trigger_owners",
]

_RETRY_SECONDS = 2.0
#: The processor time that a trigger may use per step before it is processed separately.
_SHARE_NS = 4_000_000

log = get_logger()
#: Tasks' reports and external functions are counted on different threads.
_COUNTING = threading.Lock()

_EVENTS = metrics.Counter("candlewright_spark_trigger_events_total", "Events of triggers.", registry=metrics.REGISTRY)
_SUSPENDED = metrics.Counter(
    "candlewright_spark_triggers_suspended_total", "Triggers that failed and were stopped.", registry=metrics.REGISTRY
)
_DEGRADED = metrics.Counter(
    "candlewright_spark_trigger_degraded_skips_total",
    "Matches after which AFTER MATCH SKIP could not go to the row that it names.",
    registry=metrics.REGISTRY,
)
_INPUT = metrics.Counter(
    "candlewright_spark_trigger_input_total",
    "Records that were read for triggers, and trades among them that no trigger saw.",
    ["kind"],
    registry=metrics.REGISTRY,
)


@dataclass(kw_only=True)
class TriggerHealth:
    """The trigger query's state for the status page. `late_rows`, `duplicates`: trades that no trigger saw.
    `functions`: total counts of external functions.
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

    def count(self, counts: Mapping[str, int], suspended: Mapping[str, str], batches: int = 1) -> None:
        """Count the results of micro-batches or steps."""
        with _COUNTING:
            self.batches += batches
            self.last_batch_at = time.time()
            for name, value in counts.items():
                if name == "events":
                    self._count_events(value)
                elif name == "degraded_skips":
                    _DEGRADED.inc(value)
                else:
                    setattr(self, name, getattr(self, name) + value)
                    _INPUT.labels(name).inc(value)
            for trigger_id, reason in suspended.items():
                self._count_suspended(trigger_id, reason)

    def count_functions(self, outcome: FunctionOutcome, totals: Mapping[str, int]) -> None:
        """Count the results of external functions."""
        with _COUNTING:
            self.functions = dict(totals)
            self._count_events(len(outcome.fired))
            for report in outcome.reports:
                self._count_suspended(report.trigger_id, report.reason)

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
    *,
    checkpoint: str,
    partitions: int,
) -> StreamingQuery:
    """`partitions`: of the topics `ticks` and `ohlc`. Source `triggers` must be registered, and its topics made."""
    rules = TriggerRules.of(settings.triggers, partitions)

    def write(frame: DataFrame, query_id: str, batch_id: int) -> None:
        work = process(settings.bus.url, query_id, batch_id, rules=rules, settings=settings)
        health.count(*counted(frame.mapInArrow(work, RESULT_SCHEMA).toArrow()))

    plans = (
        session.readStream.format(SOURCE)
        .option("url", settings.bus.url)
        .option("reader", bus_topics.READER_TRIGGERS)
        .option("tasks", str(min(partitions + 1, session.sparkContext.defaultParallelism)))
        .load()
    )
    query = start_query(session, settings, plans, name=TRIGGERS_QUERY, checkpoint=checkpoint, write=write)
    with closing(connect(settings.bus, retry_seconds=_RETRY_SECONDS)) as bus:
        drop_outdated(bus, str(query.id), STATE_PREFIX)
    return query


def held_for_triggers(settings: Settings, bus: Bus, partitions: int) -> dict[int, int]:
    """By partition, the first trade that is not evaluated yet."""
    if settings.spark.mode != "continuous":
        return bus.holds(bus_topics.TICKS, bus_topics.READER_TRIGGERS)
    (query_id,) = bus.get(TABLE_SERVING, [TRIGGERS_QUERY])
    steps = Steps(bus, query_id.decode()).all() if query_id else {}
    found: dict[int, int] = {}
    for partition in range(partitions):
        # A hold also keeps evaluated trades that the stored state needs. Without triggers, only the hold moves.
        taken = steps.get(str(partition), NO_STEP).end.get(bus_topics.TICKS, {}).get(str(partition), 0)
        held = bus.holds(bus_topics.TICKS, reader_of(partition))
        found |= {p: max(offset, taken) for p, offset in held.items()}
    return found


def settle_trigger_mode(session: SparkSession, settings: Settings, checkpoint: str, *, partitions: int) -> None:
    """Have the query continue from its position in the other mode; call before it starts."""
    bus = worker_bus(settings.bus.url)

    def split(number: int, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> dict[str, Step]:
        return {owner.name: owner.of_batch(number, start, end) for owner in trigger_owners(settings, partitions)}

    def complete(query_id: str, steps: Steps) -> tuple[int, Mapping[str, Any]] | None:
        owners = trigger_owners(settings, partitions, query_id)
        if all(step.number < 0 for step in (finish(owner, steps) for owner in owners)):
            return None
        behind = {topic: ends_of(bus.state(topic)) for topic in BEHIND}
        barrier = Barrier(behind, {topic: ends_of(bus.state(topic)) for topic in ROWS})
        now_ns = time.time_ns()
        done = [finish(owner, steps, partial(owner.towards, barrier=barrier, now_ns=now_ns)) for owner in owners]
        for topic, ends in (*barrier.behind.items(), *barrier.rows.items()):
            bus.hold(topic, bus_topics.READER_TRIGGERS, {int(p): offset for p, offset in ends.items()})
            for owner in owners:
                bus.release(topic, reader_of(owner.owner))
        at = {**barrier.behind, **barrier.rows}
        return max(step.number for step in done), at | {"now_ns": now_ns} | written_lives(lives_at(bus, at))

    begin_anew(session, bus, TRIGGERS_QUERY, checkpoint=checkpoint, reader=bus_topics.READER_TRIGGERS)
    if settings.spark.mode == "continuous":
        to_serving(session, bus, TRIGGERS_QUERY, checkpoint=checkpoint, reader=bus_topics.READER_TRIGGERS, split=split)
        for topic in ROWS + BEHIND:
            bus.release(topic, bus_topics.READER_TRIGGERS)
    else:
        to_batches(
            session, bus, TRIGGERS_QUERY, checkpoint=checkpoint, reader=bus_topics.READER_TRIGGERS, complete=complete
        )


def trigger_owners(settings: Settings, partitions: int, query_id: str = "") -> list[TriggerOwner]:
    """One for each partition, and the joint one; `query_id` may be given later, by `TriggerOwner.of`."""
    rules = replace(
        TriggerRules.of(settings.triggers, partitions), share_ns=_SHARE_NS if settings.spark.mode == "continuous" else 0
    )
    return [
        TriggerOwner(url=settings.bus.url, query_id=query_id, owner=owner, rules=rules, settings=settings)
        for owner in range(partitions + 1)
    ]
