"""Writes the trades of imported files: one commit to `market.ticks`, of any size, in bounded memory.

A trade is identified by its id, an aggregate by its first and last ids, and is stored once. Files without ids add
nothing to minutes for which trades with the exchange's ids are stored. Afterwards, filled gaps of live trades are
marked as repaired.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from candlewright.wire.grid import SECOND
from core.imports import Import, differences_of, rows_of
from flink_replacement_spark.history.filled_gaps import NEAR_NS, ids_of, mark_filled
from flink_replacement_spark.tables.locks import TableLocks
from iceberg import TICKS, LongAppend, is_committed, load_table, scan_trades, trade_files

__all__ = ["TradeImporter"]

#: Trades that are compared and written at a time.
_PART_ROWS = 250_000
_MINUTE_NS = 60 * SECOND
_SAME_NS = 1_000_000
_PRECISION = 1e-9
#: Comparisons that another writer may invalidate before one that excludes other writers.
_FREE_ATTEMPTS = 3

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class TradeImporter:
    """`store` carries out an import, and may be repeated; `show` is called with its progress."""

    def __init__(self, catalog: Catalog, locks: TableLocks, data_dir: Path, *, show: Callable[[Import], None]) -> None:
        self._catalog = catalog
        self._locks = locks
        self._data_dir = data_dir
        self._show = show

    def store(self, running: Import, summary: dict[str, str]) -> Import:
        for attempt in range(_FREE_ATTEMPTS + 1):
            writing = self._locks.writing(TICKS, "import") if attempt == _FREE_ATTEMPTS else nullcontext()
            with writing:
                done = self._attempt(running, summary, is_alone=attempt == _FREE_ATTEMPTS)
            if done is not None:
                ticker, start, end = _bounds(rows_of(self._data_dir, running.import_id))
                filled = mark_filled(self._catalog, self._locks, ticker, start_ns=start, end_ns=end)
                return replace(done, filled_gaps=filled)
        raise AssertionError("the last attempt lets no other writer in between")

    def _attempt(self, running: Import, summary: dict[str, str], *, is_alone: bool) -> Import | None:
        """One attempt; None if another writer changed the compared rows."""
        table = load_table(self._catalog, TICKS)
        file = rows_of(self._data_dir, running.import_id)
        ticker, start, end = _bounds(file)
        found = trade_files(table, ticker, start_ns=start, end_ns=end)
        appended = LongAppend(table)
        new = unlike = compared = 0
        with _Differences(differences_of(self._data_dir, running.import_id)) as differences:
            for part in _parts(file):
                judged = _judge(part, _stored_near(table, ticker, part))
                added = part.filter(pa.array(judged.is_new))
                if added.num_rows:
                    appended.add(_rows(added))
                differences.add(part, judged)
                new, unlike = new + added.num_rows, unlike + int(judged.is_other.sum())
                compared += part.num_rows
                self._show(replace(running, compared=compared))
            with nullcontext() if is_alone else self._locks.writing(TICKS, "import"):
                newest = load_table(self._catalog, TICKS)
                if trade_files(newest, ticker, start_ns=start, end_ns=end) != found:
                    return None
                if new and not is_committed(newest, summary):
                    appended.commit(newest, self._locks.sign(summary))
            differences.keep()
        same = running.rows - new - unlike
        return replace(running, state="done", compared=compared, new=new, same=same, different=unlike)


@dataclass(frozen=True, slots=True)
class _Judged:
    """The verdict on each trade of a file; `stored`: the row of `known` that it matches or differs from, -1 for
    none.
    """

    known: pa.Table
    is_new: Flags
    is_other: Flags
    stored: Numbers


def _judge(part: pa.Table, known: pa.Table) -> _Judged:
    own, theirs = _ids(part), _ids(known)
    if own.is_numbered.all():
        return _by_ids(part, own, known.filter(pa.array(theirs.is_numbered)))
    return _by_minutes(part, known, theirs)


@dataclass(frozen=True, slots=True)
class _Ids:
    is_numbered: Flags
    first: Numbers
    last: Numbers


def _ids(trades: pa.Table) -> _Ids:
    return _Ids(*ids_of(trades))


def _by_ids(part: pa.Table, own: _Ids, known: pa.Table) -> _Judged:
    theirs = _ids(known)
    order = np.argsort(theirs.first, kind="stable")
    known, first, last = known.take(pa.array(order)), theirs.first[order], theirs.last[order]
    low = np.searchsorted(np.maximum.accumulate(last) if len(last) else last, own.first)
    high = np.searchsorted(first, own.last, side="right")
    is_known = high > low
    place = np.where(is_known, np.minimum(low, max(len(first) - 1, 0)), -1)
    is_other = np.zeros(part.num_rows, dtype=bool)
    rows = np.flatnonzero(is_known)
    is_other[rows] = ~_agree(
        part.take(pa.array(rows)), own, rows, known=known, first=first, last=last, low=low[rows], high=high[rows]
    )
    return _Judged(known, ~is_known, is_other, place)


def _agree(
    part: pa.Table,
    own: _Ids,
    rows: Numbers,
    *,
    known: pa.Table,
    first: Numbers,
    last: Numbers,
    low: Numbers,
    high: Numbers,
) -> Flags:
    """Which of these trades equal the stored rows from `low` to `high`: the same trade, the trades of an aggregate, or
    a part of one.
    """
    if not len(rows):
        return np.zeros(0, dtype=bool)
    prices, sizes, times = (known[name].to_numpy() for name in ("price", "size", "ts_ns"))
    at = low
    sums = np.concatenate([[0.0], np.cumsum(sizes)])
    bounds = np.column_stack([low, np.minimum(high, len(prices) - 1)]).ravel()
    highest = np.maximum(np.maximum.reduceat(prices, bounds)[::2], prices[high - 1])
    lowest = np.minimum(np.minimum.reduceat(prices, bounds)[::2], prices[high - 1])
    price, size = part["price"].to_numpy(), part["size"].to_numpy()
    same = np.isclose(highest, price, rtol=_PRECISION, atol=0) & np.isclose(lowest, price, rtol=_PRECISION, atol=0)
    same &= np.abs(part["ts_ns"].to_numpy() - times[at]) < _SAME_NS
    sides = known["side"].take(pa.array(at)).to_numpy(zero_copy_only=False)
    ours = part["side"].to_numpy(zero_copy_only=False)
    same &= (ours == sides) | (ours == "unknown") | (sides == "unknown")
    counts = np.concatenate([[0], np.cumsum(last - first + 1)])
    begin, end = own.first[rows], own.last[rows]
    is_whole = (first[at] == begin) & (last[high - 1] == end) & (counts[high] - counts[low] == end - begin + 1)
    is_part = (high - low == 1) & (first[at] <= begin) & (last[at] >= end)
    total = np.where(high - low == 1, sizes[at], sums[high] - sums[low])
    # A sum of many sizes is only as exact as their running total.
    near = np.isclose(total, size, rtol=_PRECISION, atol=_PRECISION * 1e-6 * sums[-1])
    result: Flags = same & ((is_whole & near) | (is_part & ~is_whole & (size <= sizes[at] * (1 + _PRECISION))))
    return result


def _by_minutes(part: pa.Table, known: pa.Table, theirs: _Ids) -> _Judged:
    own_ids = pc.index_in(part["trade_id"], value_set=known["trade_id"].combine_chunks())
    place = own_ids.fill_null(-1).to_numpy().astype(np.int64)
    is_known = place >= 0
    alike = known.take(pa.array(np.maximum(place, 0))) if known.num_rows else part
    same = np.ones(part.num_rows, dtype=bool)
    for name in ("price", "size"):
        same &= np.isclose(part[name].to_numpy(), alike[name].to_numpy(), rtol=_PRECISION, atol=0)
    # A second more on each side: files give whole seconds.
    received = known["ts_ns"].to_numpy()[theirs.is_numbered]
    minutes = np.unique(np.concatenate([(received + shift) // _MINUTE_NS for shift in (-SECOND, 0, SECOND)]))
    is_covered = np.isin(part["ts_ns"].to_numpy() // _MINUTE_NS, minutes) & ~is_known
    return _Judged(known, ~is_known & ~is_covered, (is_known & ~same) | is_covered, place)


def _stored_near(table: Table, ticker: str, part: pa.Table) -> pa.Table:
    moments = part["ts_ns"].to_numpy()
    start, end = int(moments.min()) - NEAR_NS, int(moments.max()) + NEAR_NS
    return scan_trades(table, ticker, start_ns=start, end_ns=end)


def _bounds(file: Path) -> tuple[str, int, int]:
    """The ticker, and the times between which stored trades are compared."""
    first, last, ticker = (1 << 63) - 1, 0, ""
    for part in _parts(file, ["ticker", "ts_ns"]):
        bounds = pc.min_max(part["ts_ns"]).as_py()
        first, last, ticker = min(first, bounds["min"]), max(last, bounds["max"]), part["ticker"][0].as_py()
    return ticker, first - NEAR_NS, last + NEAR_NS


def _parts(file: Path, columns: list[str] | None = None) -> Iterator[pa.Table]:
    with pq.ParquetFile(file) as stored:
        for batch in stored.iter_batches(_PART_ROWS, columns=columns):
            yield pa.Table.from_batches([batch])


def _rows(trades: pa.Table) -> pa.Table:
    """Rows of `market.ticks`, without `received_at`, since the trades were not received live."""
    moments = pa.array(trades["ts_ns"].to_numpy() // 1_000).cast(pa.timestamp("us", "UTC"))
    received = pa.nulls(trades.num_rows, pa.timestamp("us", "UTC"))
    whole = trades.append_column("ts", moments).append_column("received_at", received)
    return whole.select(TICKS.arrow_schema.names).cast(TICKS.arrow_schema)


_VALUES = ("price", "size", "side")
_DIFFERENCES = pa.schema(
    [
        ("ticker", pa.string()),
        ("trade_id", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("why", pa.string()),
        ("stored_trade_id", pa.string()),
        *((f"{whose}_{name}", TICKS.arrow_schema.field(name).type) for name in _VALUES for whose in ("stored", "file")),
    ]
)


class _Differences:
    """A file of the trades that were not written; it stays if `keep` is called and there are any."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._draft = file.with_suffix(".draft")
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> "_Differences":
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
        self._draft.unlink(missing_ok=True)

    def add(self, part: pa.Table, judged: _Judged) -> None:
        rows = np.flatnonzero(judged.is_other)
        if not len(rows):
            return
        ours, place = part.take(pa.array(rows)), judged.stored[rows]
        has = place >= 0
        theirs = judged.known.take(pa.array(np.where(has, place, 0), mask=~has))
        why = pc.if_else(pa.array(has), "other values are stored", "trades with ids are stored for its minute")
        moments = pa.array(ours["ts_ns"].to_numpy() // 1_000).cast(pa.timestamp("us", "UTC"))
        columns = [ours["ticker"], ours["trade_id"], moments, why, theirs["trade_id"]]
        columns += [side[name] for name in _VALUES for side in (theirs, ours)]
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._draft, _DIFFERENCES, compression="zstd")
        self._writer.write_table(pa.table(columns, names=_DIFFERENCES.names).cast(_DIFFERENCES))

    def keep(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._draft.replace(self._file)
