"""Records of the topic `tick_rows`, in which the live query passes rows to `market.ticks` and `market.gaps`.

New trades of many tickers are one Arrow stream (TRADES) per record; a gap is the TickMark that reported it.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from bus import Record, StoredRecord
from candlewright.wire.errors import BadFrame
from candlewright.wire.tick_columns import TickColumns
from protobuf import records_pb2 as records
from venues import sound

__all__ = ["are_perhaps_stored", "records_of_rows", "rows_of_gaps", "rows_of_trades"]

TRADES = pa.schema(
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
_SIDES = pa.array(["unknown", "buy", "sell"])
#: The most trades in one record, about 4 MB.
_RECORD_ROWS = 50_000
_KIND, _GAP = "kind", "gap"
_PERHAPS_STORED = "perhaps_stored"


def records_of_rows(
    ticks: Iterable[TickColumns], gaps: Iterable[records.TickMark], partition: int, *, perhaps_stored: bool
) -> Iterator[Record]:
    """`perhaps_stored`: a query before this one may have stored some of the trades."""
    headers = {_PERHAPS_STORED: "1"} if perhaps_stored else {}
    for table in _tables(ticks):
        yield Record(_stream(table), partition=partition, headers=headers)
    for mark in gaps:
        yield Record(mark.SerializeToString(), partition=partition, headers={_KIND: _GAP})


def are_perhaps_stored(found: Sequence[StoredRecord]) -> bool:
    return any(_PERHAPS_STORED in record.headers for record in found)


def rows_of_trades(found: Sequence[StoredRecord]) -> pa.Table:
    """Rows of `market.ticks`; raises BadFrame for a record that cannot be read."""
    # Not for the tasks, which only write these records: pyiceberg is a third of all that a worker would load.
    from iceberg import TICKS

    ticks = pa.concat_tables([TRADES.empty_table(), *(_read(record) for record in found if not _is_gap(record))])
    time_ns = ticks["time_ns"]
    columns = {
        "ticker": ticks["ticker"],
        "trade_id": ticks["trade_id"],
        "ts": _microseconds(time_ns),
        "ts_ns": time_ns,
        "price": ticks["price"],
        "size": ticks["size"],
        "side": pc.take(_SIDES, ticks["side"]),
        "received_at": _microseconds(ticks["received_ns"]),
    }
    schema = TICKS.arrow_schema
    return pa.table([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema)


def rows_of_gaps(found: Sequence[StoredRecord]) -> pa.Table:
    """Rows of `market.gaps`, of each gap the newest; raises BadFrame for a record that cannot be read."""
    from iceberg import GAPS

    marks = [_gap(record) for record in found if _is_gap(record)]
    rows = {
        (mark.ticker, mark.gap.from_trade_id, mark.gap.to_trade_id, mark.gap.from_time // 1_000): {
            "ticker": mark.ticker,
            "from_trade_id": mark.gap.from_trade_id,
            "to_trade_id": mark.gap.to_trade_id,
            "from_ts": mark.gap.from_time // 1_000,
            "to_ts": mark.gap.to_time // 1_000,
            "missing": mark.gap.missing if mark.gap.HasField("missing") else None,
            "repaired": mark.gap.is_repaired,
            "reason": mark.gap.reason,
            "detected_at": mark.gap.detected_at // 1_000,
        }
        for mark in marks
    }
    return pa.Table.from_pylist(list(rows.values()), schema=GAPS.arrow_schema)


def _is_gap(record: StoredRecord) -> bool:
    return record.headers.get(_KIND) == _GAP


def _read(record: StoredRecord) -> pa.Table:
    try:
        table = pa.ipc.open_stream(record.value).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise BadFrame("BAD_RECORD", f"not an Arrow stream of trades: {error}") from error
    if table.schema != TRADES:
        raise BadFrame("BAD_RECORD", "the columns of the stream are not those of trades")
    return table


def _gap(record: StoredRecord) -> records.TickMark:
    try:
        mark = records.TickMark.FromString(record.value)
    except DecodeError as error:
        raise BadFrame("BAD_RECORD", "not a TickMark") from error
    if mark.WhichOneof("body") != "gap":
        raise BadFrame("BAD_RECORD", "the mark is not a gap")
    if problem := sound.problem_with_mark(mark):
        raise BadFrame("BAD_RECORD", problem)
    return mark


def _microseconds(time_ns: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.divide(time_ns, 1_000).cast(pa.timestamp("us", "UTC"))


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _tables(ticks: Iterable[TickColumns]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    count = 0
    for columns in ticks:
        if len(columns):
            waiting.append(_batch(columns))
            count += len(columns)
        if count >= _RECORD_ROWS:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, count = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _batch(ticks: TickColumns) -> pa.RecordBatch:
    arrays = [
        pa.repeat(ticks.ticker, len(ticks)),
        pc.cast(pa.array(ticks.trade_id.tolist(), pa.binary()), pa.string()),
        *map(pa.array, (ticks.timestamp, ticks.price, ticks.size)),
        pa.array(ticks.side.astype(np.int8)),
        # Publishers other than ingestors may omit when they received a trade.
        pa.array(ticks.received_at, mask=ticks.received_at <= 0),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=TRADES)
