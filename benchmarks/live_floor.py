"""The floor of the live query's benchmarks: the same read in the same tasks, and one empty pass over what was read."""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from flink_replacement_spark.live_source import TOPICS, records_of

__all__ = ["RESULT_SCHEMA", "pass_over"]

RESULT_SCHEMA = "n bigint"


def pass_over(url: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` over source `live`: reads the records as Arrow batches, and counts their rows."""

    def run(ranges: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named = list(ranges)
        batches = (batch for tag in range(len(TOPICS)) for batch in _batches(url, named, tag))
        yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})

    return run


def _batches(url: str, ranges: Iterable[pa.RecordBatch], tag: int) -> Iterator[pa.RecordBatch]:
    for found in records_of(url, ranges, tag):
        values = pa.array([record.value for record in found], pa.binary())
        yield pa.RecordBatch.from_arrays([values], names=["value"])
