"""The floor of the trigger query's benchmarks: the same read in the same tasks, with one empty pass over the records.

It is separate from `trigger_stage`, which needs tables and Spark: a task's imports stay in the worker measured next.
"""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from flink_replacement_spark.engine.bus_source import read_range, worker_bus
from flink_replacement_spark.triggers.source import Span, TriggerPlan

__all__ = ["pass_over"]


def pass_over(url: str, partitions: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`; the joint owner has no trigger here, and reads nothing, as in the real query."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for plan in _plans_of(batches):
            own = plan.spans if plan.owner < partitions else ()
            yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in _batches_of(url, own))]})

    return run


def _plans_of(batches: Iterable[pa.RecordBatch]) -> list[TriggerPlan]:
    """The rows of source `triggers`."""
    return [TriggerPlan.from_json(row["owner"], row["plan"]) for batch in batches for row in batch.to_pylist()]


def _batches_of(url: str, spans: Iterable[Span]) -> Iterator[pa.RecordBatch]:
    """Records of the bus as column `value`."""
    for span in spans:
        for found in read_range(worker_bus(url), span.topic, span.partition, first=span.first, last=span.end - 1):
            values = pa.array([record.value for record in found], pa.binary())
            yield pa.RecordBatch.from_arrays([values], names=["value"])
