"""Finds ranges that need not be fetched because the tables prove that every candle that the exchange has is stored.

An open time is proven if finished requests covered it and the table still agrees with what they found: a row where one
of them got a candle, no row where all of them found a hole. So a row that has been deleted since is not proven, nor is
a hole of a request that failed or stopped at a limit.

The exchange's own candles had closed when they were stored, whether or not their request succeeded. So a long run of
them without a gap is proof in itself, and after a failed request only the candles that it did not get are fetched.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import Table

from candlewright.wire import grid
from iceberg.filters import one_of
from iceberg.read import range_filter
from iceberg.scan import read_rows, scan_table
from iceberg.tables import OHLC

#: Open times examined together; this needs about 20 MB of memory.
WINDOW = 1_000_000
#: Open times examined in one range; those after them count as not proven.
MAX_OPENS = 8_000_000
#: Parts in one answer, and holes in them; whatever follows counts as not proven.
MAX_PARTS = 1_000
MAX_HOLES = 20_000
#: The shortest gapless run of exchange candles that counts as proof without a successful request. Shorter runs are
#: fetched again: one call returns about this many candles, so skipping a shorter run saves no call.
LONG_RUN = 2_000
_MICRO = 1_000
#: Sources of candles that requests store.
_FETCHED = ("exchange", "derived")
_FINISHED = ("OK", "NOT_FOUND")
#: Columns of `market.coverage` that `claims_of` reads.
_CLAIMED = ("ticker", "period_seconds", "start", "end", "expected", "got", "holes", "status", "closed_until")

Range = tuple[int, int]
Array = np.ndarray[Any, np.dtype[Any]]


class Stored(NamedTuple):
    """Ascending open times (ns) of stored candles, and whether each is the exchange's own."""

    opens: Array
    is_own: "np.ndarray[Any, np.dtype[np.bool_]]"

    def between(self, start: int, end: int) -> "Stored":
        low, high = np.searchsorted(self.opens, (start, end))
        return Stored(self.opens[low:high], self.is_own[low:high])


Look = Callable[[int, int], Stored]


class Proven(NamedTuple):
    """Of the `expected` candles of [start, end) (ns), `rows` are stored; the others are in `holes`."""

    start: int
    end: int
    rows: int
    expected: int
    holes: tuple[Range, ...]


class Claims(NamedTuple):
    """The ranges that finished requests of one ticker and period covered, and all holes that they found, in ns.

    A hole is not `is_settled` if it reaches the end of its request's range: no later candle had been seen, so the
    exchange may only have been late.
    """

    start: Array
    end: Array
    hole_start: Array
    hole_end: Array
    is_settled: Array


class CoverageFiles:
    """Reads `market.coverage`, and each of its data files only once: many small requests add hundreds of files, and a
    data file never changes. Keeps up to `max_bytes` of rows, those of the most recently used files.
    """

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._rows: LRUCache[str, pa.Table] = LRUCache(max_bytes, getsizeof=lambda rows: rows.nbytes)

    def scan(self, table: Table, tickers: Sequence[str]) -> pa.Table:
        """The coverage rows of these tickers."""
        wanted = one_of("ticker", tickers)
        found = scan_table(table, wanted, selected_fields=_CLAIMED)
        schema = found.projection()
        parts = [schema_to_pyarrow(schema, include_field_ids=False).empty_table()]
        for task in found.plan_files():
            # This project writes no delete files; one from another writer is applied, and its rows are not kept.
            row_filter = wanted if task.delete_files else AlwaysTrue()
            path = task.file.file_path
            rows = None if task.delete_files else self._rows.get(path)
            if rows is None:
                rows = ArrowScan(table.metadata, table.io, schema, row_filter).to_table([task])
                if not task.delete_files and rows.nbytes <= self._rows.maxsize:
                    self._rows[path] = rows
            parts.append(rows)
        # Hundreds of small chunks would make each of the next steps ten times slower.
        rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
        return rows.filter(pc.is_in(rows["ticker"], pa.array(tickers, rows["ticker"].type)))


def claims_of(coverage: pa.Table, ticker: str, period_seconds: int) -> Claims:
    """The claims of successful requests whose counts show that their whole range was covered, which excludes, for
    example, a request that stopped at its limit.
    """
    is_own = pc.and_(pc.equal(coverage["ticker"], ticker), pc.equal(coverage["period_seconds"], period_seconds))
    ended_well = pc.is_in(coverage["status"], pa.array(_FINISHED))
    own = coverage.filter(pc.and_(is_own, ended_well)).combine_chunks()
    start = _nanoseconds(own["start"])
    end = _nanoseconds(pc.coalesce(own["closed_until"], own["end"]))
    holes = own["holes"].combine_chunks()
    flat = holes.flatten()
    parent = pc.list_parent_indices(holes).to_numpy(zero_copy_only=False).astype(np.int64)
    hole_start, hole_end = _nanoseconds(flat.field("start")), _nanoseconds(flat.field("end"))
    missing = np.bincount(parent, _opens(hole_start, hole_end, period_seconds), minlength=own.num_rows)
    expected, got = own["expected"].to_numpy(), own["got"].to_numpy()
    is_whole = (expected == _opens(start, end, period_seconds)) & (got + missing == expected)
    is_settled = _index(hole_end, period_seconds) < _index(end[parent], period_seconds)
    kept = is_whole[parent]
    return Claims(start[is_whole], end[is_whole], hole_start[kept], hole_end[kept], is_settled[kept])


def scan_stored(table: Table, ticker: str, period_seconds: int, *, start: int, end: int) -> Stored:
    """The complete stored candles in [start, end) (ns) that a fetch can have stored. Excludes bars made from live
    trades where the exchange has no candle of its own, and candles of imported files, since neither is proof.
    """
    wanted = range_filter(ticker, period_seconds, start_ns=start, end_ns=end)
    rows = read_rows(table, OHLC, wanted, columns=("open_time", "source", "complete"))
    fetched = rows.filter(pc.and_(rows["complete"], pc.is_in(rows["source"], pa.array(_FETCHED))))
    opens, first = np.unique(_nanoseconds(fetched["open_time"]), return_index=True)
    return Stored(opens, pc.equal(fetched["source"], "exchange").to_numpy(zero_copy_only=False)[first])


def proven_parts(
    claims: Claims, period_seconds: int, ranges: Sequence[Range], *, stored: Look, limit: int | None = None
) -> list[Proven]:
    """The proven parts of ascending `ranges` (ns). `stored` returns what `scan_stored` finds in a range of this series.

    With `limit`, only the parts that the first `limit` candles need, contiguous from the start of the first range.
    """
    found: list[Proven] = []
    if limit == 0:
        return found
    opens, holes = MAX_OPENS, MAX_HOLES
    for start, end in ranges:
        for low, high in grid.split(start, end, period_seconds, candles_per_piece=WINDOW):
            at = low
            for part in _parts(claims, period_seconds, low, high, stored, limit):
                holes -= len(part.holes)
                if holes < 0 or len(found) == MAX_PARTS:
                    return found
                found.append(part)
                at = part.end
                limit = None if limit is None else limit - part.rows
            opens -= WINDOW
            if opens <= 0 or (limit is not None and (limit == 0 or at < high)):
                return found
        if limit is not None:
            # Candles may exist between two ranges.
            return found
    return found


def _runs(flags: Array) -> list[tuple[int, int]]:
    """The half-open index ranges in which `flags` are true."""
    borders = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(low, high) for low, high in borders.reshape(-1, 2).tolist()]


def _parts(claims: Claims, period_seconds: int, start: int, end: int, stored: Look, limit: int | None) -> list[Proven]:
    period = period_seconds * grid.SECOND
    first = grid.first_open_from(start, period_seconds)
    opens = grid.count_opens(start, end, period_seconds)
    is_near = (claims.start < end) & (claims.end > start)
    if not opens or not (is_near.any() or opens >= LONG_RUN):
        return []

    def cover(starts: Array, ends: Array) -> Array:
        """For each open time, the number of these ranges that contain it."""
        low = np.clip(-((first - starts) // period), 0, opens)
        high = np.clip(-((first - ends) // period), 0, opens)
        return np.cumsum(np.bincount(low, minlength=opens + 1) - np.bincount(high, minlength=opens + 1))[:opens]

    holes = cover(claims.hole_start, claims.hole_end)
    settled = cover(claims.hole_start[claims.is_settled], claims.hole_end[claims.is_settled])
    candles = cover(claims.start, claims.end) - holes
    is_stored = np.zeros(opens, dtype=bool)
    is_own = np.zeros(opens, dtype=bool)
    known = stored(start, end)
    places = (known.opens - first) // period
    is_stored[places], is_own[places] = True, known.is_own
    is_proven = np.where(is_stored, candles > 0, (candles == 0) & (settled > 0))
    for low, high in _runs(is_proven | is_own):
        if high - low >= LONG_RUN:
            is_proven[low:high] = True
    parts = []
    for low, high in _runs(is_proven):
        if limit is not None and low > 0:
            break
        part_start = start if low == 0 else first + low * period
        part_end = end if high == opens else first + high * period
        own = is_stored[low:high]
        if limit is not None and own.sum() >= limit:
            own = own[: int(np.flatnonzero(own)[limit - 1]) + 1]
            part_end = first + (low + len(own)) * period
        parts.append(Proven(part_start, part_end, int(own.sum()), len(own), _holes(own, first, low, period)))
    return parts


def _holes(stored: Array, first: int, low: int, period: int) -> tuple[Range, ...]:
    borders = np.flatnonzero(np.diff(np.concatenate([[True], stored, [True]]).astype(np.int8)))
    times = first + (low + borders.astype(np.int64)) * period
    return tuple((start, end) for start, end in times.reshape(-1, 2).tolist())


def _opens(start: Array, end: Array, period_seconds: int) -> Array:
    opens: Array = np.maximum(_index(end, period_seconds) - _index(start, period_seconds), 0)
    return opens


def _index(time: Array, period_seconds: int) -> Array:
    """The number of the first open time that is not before `time`."""
    origin, period = grid.origin_of(period_seconds), period_seconds * grid.SECOND
    return -((origin - time) // period)


def _nanoseconds(times: pa.ChunkedArray | pa.Array) -> Array:
    return np.asarray(pc.cast(times, pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64) * _MICRO
