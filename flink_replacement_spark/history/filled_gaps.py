"""Marks gaps of live trades in `market.gaps` as repaired if imported trades have filled them.

A gap is filled once every missing id is stored. A gap without ids, or with non-numeric ids, stays, since nothing shows
how many trades it lacks.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.catalog import Catalog

from candlewright.wire.grid import SECOND
from flink_replacement_spark.tables.locks import TableLocks
from iceberg import GAPS, TICKS, load_table, rows_of, scan_trades

__all__ = ["NEAR_NS", "ids_of", "mark_filled"]

#: A trade may have other fractions of a second in a file than when it was received live.
NEAR_NS = 60 * SECOND
_ID = r"^(?P<first>[0-9]{1,18})(?P<rest>-(?P<last>[0-9]{1,18}))?$"
_KEYS = ["ticker", "from_trade_id", "to_trade_id", "from_ts"]
_REASON = "imported from files"


def ids_of(trades: pa.Table) -> tuple["NDArray[np.bool_]", "NDArray[np.int64]", "NDArray[np.int64]"]:
    """Whether each id is numeric, and the first and last id that the row represents (an aggregate has several)."""
    parts = pc.extract_regex(trades["trade_id"].combine_chunks(), _ID)
    is_numbered = parts.is_valid()
    first = pc.if_else(is_numbered, pc.struct_field(parts, "first"), "0")
    last = pc.struct_field(parts, "last")
    last = pc.if_else(pc.greater(pc.utf8_length(last), 0).fill_null(False), last, first)
    return is_numbered.to_numpy(zero_copy_only=False), *(each.cast(pa.int64()).to_numpy() for each in (first, last))


def mark_filled(catalog: Catalog, locks: TableLocks, ticker: str, *, start_ns: int, end_ns: int) -> int:
    """Mark filled gaps between these times, and return how many were newly marked. May be repeated."""
    gaps = rows_of(load_table(catalog, GAPS), GAPS, ticker)
    begins, ends = (gaps[name].cast(pa.int64()).to_numpy() * 1_000 for name in ("from_ts", "to_ts"))
    is_near = pa.array((begins < end_ns) & (ends >= start_ns))
    numbered = [pc.match_substring_regex(gaps[name], "^[0-9]{1,18}$") for name in ("from_trade_id", "to_trade_id")]
    gaps = gaps.filter(pc.and_(pc.and_(*numbered), pc.and_(pc.invert(gaps["repaired"]), is_near)))
    if not gaps.num_rows:
        return 0
    trades = load_table(catalog, TICKS)
    columns = ("from_ts", "to_ts", "from_trade_id", "to_trade_id")
    known = zip(*(gaps[name].cast(pa.int64()).to_pylist() for name in columns), strict=True)
    is_filled = [
        _is_stored(
            scan_trades(trades, ticker, start_ns=begin * 1_000 - NEAR_NS, end_ns=end * 1_000 + NEAR_NS), first, last
        )
        for begin, end, first, last in known
    ]
    rows = [
        {**row, "repaired": True, "reason": _REASON} for row in gaps.filter(pa.array(is_filled, pa.bool_())).to_pylist()
    ]
    if rows:
        with locks.writing(GAPS, "filled gaps"):
            load_table(catalog, GAPS).upsert(
                pa.Table.from_pylist(rows, GAPS.arrow_schema), join_cols=_KEYS, snapshot_properties=locks.sign({})
            )
    return len(rows)


def _is_stored(trades: pa.Table, first: int, last: int) -> bool:
    """Whether the trades have every id from first to last; no id may be in two of them."""
    is_numbered, begins, ends = ids_of(trades)
    counts = np.minimum(ends, last) - np.maximum(begins, first) + 1
    return int(counts[is_numbered & (counts > 0)].sum()) == last - first + 1
