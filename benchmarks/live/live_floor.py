"""The floor of the live query's benchmarks: the same read in the same tasks, with one empty pass over the records."""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from candlewright.wire import tick_columns
from flink_replacement_spark.live.source import ranges_of, records_of

__all__ = ["RESULT_SCHEMA", "pass_over"]

RESULT_SCHEMA = "trades bigint, marks bigint"


def pass_over(url: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` over source `live`: reads trades as Arrow batches, marks unparsed, and counts."""

    def run(ranges: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition, named = ranges_of(ranges)
        trades, marks = (
            (record.value for found in records_of(url, partition, named, tag=tag) for record in found) for tag in (0, 1)
        )
        counts = sum(batch.num_rows for batch in map(_batch, trades)), sum(1 for _ in marks)
        yield pa.RecordBatch.from_arrays([pa.array([count]) for count in counts], names=["trades", "marks"])

    return run


def _batch(value: bytes) -> pa.RecordBatch:
    """The trades of one record, in the columns that `market.ticks` has."""
    ticks = tick_columns.decode(value)
    columns = {
        "ticker": pa.repeat(ticks.ticker, len(ticks)),
        "trade_id": pa.array(ticks.trade_id),
        "ts_ns": pa.array(ticks.timestamp),
        "price": pa.array(ticks.price),
        "size": pa.array(ticks.size),
        "side": pa.array(ticks.side),
        "received_ns": pa.array(ticks.received_at),
    }
    return pa.RecordBatch.from_pydict(columns)
