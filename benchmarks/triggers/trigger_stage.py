"""The real trigger query over its own bus, paused between two micro-batches until the input is ready for timing."""

import time
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.measuring.gate import Gate
from benchmarks.measuring.spark_master import TWO_CORES, spark_of
from benchmarks.measuring.tick_feed import MAX_BYTES
from benchmarks.triggers.trigger_floor import pass_over
from bus import Bus, Record
from bus import topics as bus_topics
from core.settings import Settings
from flink_replacement_spark.triggers.query import TriggerHealth, start_trigger_query
from flink_replacement_spark.triggers.source import SOURCE
from protobuf import records_pb2 as records

__all__ = [
    "HeldQuery",
    "events_on_topic",
    "register",
    "settings_of",
    "start_floor",
    "start_triggers",
    "wait_until",
]

TIMEOUT_SECONDS = 1_800.0
_PAUSE_SECONDS = 0.02
_READ = (bus_topics.TICKS, bus_topics.OHLC, bus_topics.TICK_MARKS, bus_topics.TRIGGER_CONTROLS)


def settings_of(folder: Path, bus_url: str, master: str = TWO_CORES) -> Settings:
    """With all files below `folder`."""
    return Settings.model_validate(
        {
            "data_dir": folder,
            "bus": {"url": bus_url, "max_bytes": MAX_BYTES},
            "spark": spark_of(master),
        }
    )


@dataclass
class GatedHealth(TriggerHealth):
    """The object to which the trigger query reports after each micro-batch."""

    gate: Gate | None = None

    def count(self, counts: Mapping[str, int], suspended: Mapping[str, str], batches: int = 1) -> None:
        super().count(counts, suspended, batches)
        if self.gate is not None:
            self.gate.wait()


class HeldQuery:
    """A streaming query whose micro-batches end at `gate`."""

    def __init__(self, gate: Gate, query: StreamingQuery) -> None:
        self.gate = gate
        self.query = query

    def read_all(self, bus: Bus) -> None:
        """Wait until a finished micro-batch ends where the topics end now."""
        ends = {topic: {str(p): state.end for p, state in enumerate(bus.state(topic))} for topic in _READ}
        wait_until(lambda: self._has_read(ends), "the query did not read everything")

    def hold(self) -> None:
        """Returns once the query waits between two micro-batches; the wall clock moves it there without new records."""
        self.gate.close()
        wait_until(self._is_held, "the query did not reach its gate")

    def timed(self, bus: Bus) -> float:
        """Seconds from resuming the query until it has read everything."""
        started = time.perf_counter()
        self.gate.open()
        self.read_all(bus)
        return time.perf_counter() - started

    def stop(self) -> None:
        self.gate.open()
        self.query.stop()

    def _is_held(self) -> bool:
        self._check()
        return self.gate.reached.is_set()

    def _has_read(self, ends: Mapping[str, Mapping[str, int]]) -> bool:
        self._check()
        progress = self.query.lastProgress
        if progress is None:
            return False
        end: Mapping[str, Any] = literal_eval(str(progress["sources"][0]["endOffset"]))
        return all(end.get(topic) == found for topic, found in ends.items())

    def _check(self) -> None:
        if (error := self.query.exception()) is not None:
            raise error


def start_triggers(session: SparkSession, settings: Settings, bus: Bus, *, checkpoint: str) -> HeldQuery:
    """The platform's query, with its gate open."""
    gate = Gate(is_open=True)
    health, partitions = GatedHealth(gate=gate), bus.partitions(bus_topics.TICKS)
    return HeldQuery(
        gate,
        start_trigger_query(session, settings, health, checkpoint=checkpoint, partitions=partitions),
    )


def start_floor(session: SparkSession, settings: Settings, bus: Bus, *, checkpoint: str) -> HeldQuery:
    """The same plan, and the same reads in as many tasks, with one empty pass over the records; its gate is open."""
    gate = Gate(is_open=True)
    partitions = bus.partitions(bus_topics.TICKS)
    work = pass_over(settings.bus.url, partitions)
    tasks = min(partitions + 1, session.sparkContext.defaultParallelism)

    def run_batch(frame: DataFrame, _: int) -> None:
        frame.mapInArrow(work, "n bigint").toArrow()
        gate.wait()

    options = {"url": settings.bus.url, "reader": "floor", "tasks": str(tasks)}
    source = session.readStream.format(SOURCE).options(**options).load()
    return HeldQuery(gate, source.writeStream.foreachBatch(run_batch).option("checkpointLocation", checkpoint).start())


def register(bus: Bus, registrations: Sequence[records.TriggerRegistration]) -> None:
    """Publish what the relay does for valid triggers; returns when all partitions run them."""
    controls = [records.TriggerControl(register=each) for each in registrations]
    placed = bus.publish(bus_topics.TRIGGER_CONTROLS, [Record(c.SerializeToString(), partition=0) for c in controls])
    entries = {
        each.trigger_id: records.TriggerEntry(registration=each, control_offset=place.offset).SerializeToString()
        for each, place in zip(registrations, placed, strict=True)
    }
    bus.put(bus_topics.TABLE_TRIGGERS, entries)
    owners = set(range(bus.partitions(bus_topics.TICKS) + 1))
    last = max(place.offset for place in placed)
    wait_until(lambda: _carried_out(bus, last) == owners, "the triggers did not become active")


def events_on_topic(bus: Bus) -> int:
    return sum(state.end for state in bus.state(bus_topics.TRIGGER_EVENTS))


def wait_until(is_so: Callable[[], bool], complaint: str) -> None:
    """Raises TimeoutError with `complaint`."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{complaint} in {TIMEOUT_SECONDS:.0f} s")
        time.sleep(_PAUSE_SECONDS)


def _carried_out(bus: Bus, offset: int) -> set[int]:
    """Owners that have passed the control at `offset`. Raises RuntimeError if one suspended a trigger."""
    first = bus.state(bus_topics.TRIGGER_PROGRESS)[0].first
    found = bus.read(bus_topics.TRIGGER_PROGRESS, 0, first, max_records=100_000)
    said = [records.TriggerProgress.FromString(record.value) for record in found]
    for progress in said:
        for suspended in progress.suspended:
            raise RuntimeError(f"trigger {suspended.trigger_id} was suspended: {suspended.reason}")
    return {progress.partition for progress in said if progress.controls_end > offset}
