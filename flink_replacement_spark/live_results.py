"""Results of the live query's tasks on their way to the driver: whole tables, each in one value.

On that way Spark turns the columns of a table into rows and back, which takes longer than making the bars does. Of one
binary value there is nothing to turn.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bars import exact
from bars.aggregate import NO_QUOTE_VOLUME, NO_TRADE_COUNT
from bars.maker import MadeBars
from flink_replacement_spark.live_partition import LiveOutput
from protobuf import records_pb2 as records
from protobuf.tick_columns import TickColumns

__all__ = ["BARS", "RESULT_SCHEMA", "SOURCES", "TICKS", "LiveResults", "results_of"]

#: `bars`, `ticks`: an Arrow stream; `gap`: a serialised TickMark; `counts`: int64 numbers.
RESULT_SCHEMA = "kind string, content binary"
_RESULT = pa.schema([("kind", pa.string()), ("content", pa.binary())])

#: Of each bar the newest revision of the micro-batch.
BARS = pa.schema(
    [
        ("ticker", pa.string()),
        ("period_seconds", pa.int32()),
        ("time_ns", pa.int64()),
        ("open", pa.float64()),
        ("high", pa.float64()),
        ("low", pa.float64()),
        ("close", pa.float64()),
        ("volume", pa.float64()),
        ("quote_volume", pa.float64()),
        ("trade_count", pa.int64()),
        ("complete", pa.bool_()),
        ("revision", pa.int32()),
        ("source", pa.string()),
    ]
)
TICKS = pa.schema(
    [
        ("ticker", pa.string()),
        ("trade_id", pa.string()),
        ("time_ns", pa.int64()),
        ("price", pa.float64()),
        ("size", pa.float64()),
        ("side", pa.int8()),
        ("received_ns", pa.int64()),
    ]
)
#: Of bars made of trades alone, and of those in which an exchange's aggregates stand for some.
SOURCES = ("ticks", "derived")
#: Trades that travel in one value, about 8 MB.
_TICK_ROWS = 100_000


@dataclass(slots=True)
class LiveResults:
    """Of a whole micro-batch: `bars` (BARS), `ticks` (TICKS), gaps as they came, and what was counted."""

    bars: pa.Table = field(default_factory=BARS.empty_table)
    ticks: pa.Table = field(default_factory=TICKS.empty_table)
    gaps: list[records.TickMark] = field(default_factory=list)
    first_bars: int = 0
    revisions: int = 0
    duplicates: int = 0
    too_late: int = 0
    bad_records: int = 0

    @classmethod
    def of(cls, rows: pa.Table) -> "LiveResults":
        """Of the rows that all tasks gave."""
        bars, ticks, gaps = [], [], []
        counted = np.zeros(5, np.int64)
        for kind, content in zip(rows["kind"].to_pylist(), rows["content"], strict=True):
            data = content.as_buffer()
            match kind:
                case "bars":
                    bars.append(pa.ipc.open_stream(data).read_all())
                case "ticks":
                    ticks.append(pa.ipc.open_stream(data).read_all())
                case "gap":
                    gaps.append(records.TickMark.FromString(data.to_pybytes()))
                case _:
                    counted += np.frombuffer(data, np.int64)
        return cls(
            pa.concat_tables([BARS.empty_table(), *bars]),
            pa.concat_tables([TICKS.empty_table(), *ticks]),
            gaps,
            *counted.tolist(),
        )


def results_of(output: LiveOutput, duplicates: int, too_late: int) -> Iterator[pa.RecordBatch]:
    """A task's rows of RESULT_SCHEMA."""
    contents: list[tuple[str, pa.Buffer]] = []
    if output.bars:
        contents.append(("bars", _stream(_newest(output))))
    contents += [("ticks", _stream(ticks)) for ticks in _tick_tables(output.ticks)]
    contents += [("gap", pa.py_buffer(mark.SerializeToString())) for mark in output.gaps]
    published = sum(len(made.revision) for _, made in output.bars)
    first = sum(int((made.revision == 0).sum()) for _, made in output.bars)
    counted = np.array([first, published - first, duplicates, too_late, output.bad_records])
    if counted.any():
        contents.append(("counts", pa.py_buffer(counted.tobytes())))
    for kind, content in contents:
        # One value a batch: Spark never holds two large ones together.
        ends = pa.py_buffer(np.array([0, content.size], np.int32).tobytes())
        value = pa.Array.from_buffers(pa.binary(), 1, [None, ends, content])
        yield pa.RecordBatch.from_arrays([pa.array([kind]), value], schema=_RESULT)


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _newest(output: LiveOutput) -> pa.Table:
    bars = pa.Table.from_batches([_bar_rows(tickers, made) for tickers, made in output.bars])
    if len({made.bars.period_seconds for _, made in output.bars}) == len(output.bars):
        return bars
    # Several takes within the batch: a bar may be there more than once, the newest revision last.
    keys = ["ticker", "period_seconds", "time_ns"]
    bars = bars.sort_by([(key, "ascending") for key in (*keys, "revision")])
    columns = [bars[key].to_numpy() for key in keys]
    is_last = np.ones(bars.num_rows, dtype=bool)
    is_last[:-1] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return bars.filter(pa.array(is_last))


def _bar_rows(tickers: list[str], made: MadeBars) -> pa.RecordBatch:
    bars = made.bars
    names = pa.DictionaryArray.from_arrays(pa.array(bars.group.astype(np.int32)), pa.array(tickers))
    arrays = [
        names.dictionary_decode(),
        pa.repeat(pa.scalar(bars.period_seconds, pa.int32()), len(bars)),
        *map(pa.array, (bars.open_time, bars.open, bars.high, bars.low, bars.close)),
        pa.array(exact.to_doubles(bars.volume)),
        pa.array(exact.to_doubles(bars.quote_volume), mask=bars.unknown & NO_QUOTE_VOLUME > 0),
        pa.array(bars.trade_count, mask=bars.unknown & NO_TRADE_COUNT > 0),
        pa.array(made.complete),
        pa.array(made.revision.astype(np.int32)),
        pa.DictionaryArray.from_arrays(
            pa.array(bars.is_derived.astype(np.int8)), pa.array(SOURCES)
        ).dictionary_decode(),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=BARS)


def _tick_tables(ticks: Iterable[TickColumns]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for columns in ticks:
        if len(columns):
            waiting.append(_tick_rows(columns))
        if sum(batch.num_rows for batch in waiting) >= _TICK_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _tick_rows(ticks: TickColumns) -> pa.RecordBatch:
    arrays = [
        pa.repeat(ticks.ticker, len(ticks)),
        pc.cast(pa.array(ticks.trade_id.tolist(), pa.binary()), pa.string()),
        *map(pa.array, (ticks.timestamp, ticks.price, ticks.size)),
        pa.array(ticks.side.astype(np.int8)),
        # Publishers other than ingestors may not say when they heard of a trade.
        pa.array(ticks.received_at, mask=ticks.received_at <= 0),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=TICKS)
