"""Stored candles for clients that cannot reach the tables: one answer to a StoredQuery."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from candlewright.wire import candlewright_pb2 as cw
from core.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

#: Returns the answer to a query, with at most this many rows.
ReadStored = Callable[[cw.StoredQuery, int], cw.StoredRows]


def stored_in_iceberg(settings: Settings) -> ReadStored:
    """A reader that loads its libraries on first use."""

    def read(query: cw.StoredQuery, most: int) -> cw.StoredRows:
        from iceberg import read_as_of, read_ohlc
        from iceberg.coverage import read_holes, read_request

        what = (settings, query.ticker, query.period_seconds)
        wanted = min(query.limit, most) if query.HasField("limit") else most
        if query.HasField("as_of"):
            # One extra row shows whether more follow.
            return _answer(
                query,
                read_as_of(
                    *what, start_ns=query.start_time, end_ns=query.end_time, as_of_ns=query.as_of, limit=wanted + 1
                ),
                wanted,
            )
        answer = _answer(
            query, read_ohlc(*what, start_ns=query.start_time, end_ns=query.end_time, limit=wanted + 1), wanted
        )
        if answer.next_start:
            # The last answer also has the holes.
            return answer
        if query.covered_by:
            covered = read_request(settings, query.covered_by)
            holes = list(covered.holes)
            if covered.closed_until is not None:
                answer.closed_until = covered.closed_until
        else:
            holes = read_holes(settings, query.ticker, query.period_seconds)
        answer.holes.extend(cw.TimeRange(start_time=start, end_time=end) for start, end in sorted(holes))
        return answer

    return read


def _answer(query: cw.StoredQuery, table: "pa.Table", wanted: int) -> cw.StoredRows:
    import pyarrow as pa

    rows = table.slice(0, wanted)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    answer = cw.StoredRows(request_id=query.request_id, rows=sink.getvalue().to_pybytes())
    if table.num_rows > wanted and not (query.HasField("limit") and wanted == query.limit):
        answer.next_start = table["open_time"][wanted].cast("int64").as_py() * 1_000
    return answer
