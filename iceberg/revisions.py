"""`market.ohlc_revisions`: which bars were known at which time.

`market.ohlc` has the newest revision of each bar; this table keeps every revision with the time of its publication. As
in `market.ohlc`, an exchange's candle outranks all bars made from trades, including those published after it.

`known_at` is exact to the millisecond. Its microseconds order revisions within a millisecond: published bars count up
to `PUBLISHED_LAST`, and candles that history commits come after them (`COMMITTED`).
"""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.table import Table

from core.settings import Settings
from iceberg.append import candle_keys, compare_candles, load_table
from iceberg.catalog import open_catalog
from iceberg.filters import any_of, at_least, below, equal, one_of
from iceberg.read import iso, range_filter
from iceberg.scan import read_rows
from iceberg.tables import OHLC_REVISIONS
from venues.sound import MAX_REVISION

__all__ = [
    "COMMITTED",
    "PUBLISHED_LAST",
    "corrections",
    "effective",
    "new_revisions",
    "newest_of_each",
    "read_as_of",
    "read_corrected",
    "read_published",
    "scan_revisions",
]

_SCHEMA = OHLC_REVISIONS.arrow_schema
_NUMBERED = ("ticker", "period_seconds", "open_time", "revision", "known_at")
_MICRO = 1_000
PUBLISHED_LAST, COMMITTED = 998, 999
#: With more series, a filter that names each costs more than reading the rows that it excludes.
_MAX_SERIES = 50
#: Bars with at most `_MAX_GAP` periods between them are read as one range, up to `_MAX_RANGES` ranges per scan.
_MAX_GAP, _MAX_RANGES = 1_000, 20
#: Between the largest revision that a bar may have and the largest that the column holds; counting up from the former
#: never gets this far.
_NEVER_REACHED = MAX_REVISION + (1 << 29)
#: More than any revision.
_GROUP = 1 << 32


# ---- finding the rows to append
def new_revisions(published: pa.Table, known: pa.Table) -> pa.Table:
    """The rows to append for `published` bars, which are in the order of publication and have the table's columns.
    `known` has the columns `_NUMBERED` of the stored rows of the same bars.

    Empty if the bars are already stored, since bars that are published together are stored together. A revision keeps
    its number unless that number is taken. Stored numbers that no bar can have (written by an earlier release) are
    ignored.
    """
    keys, known_keys = candle_keys(published, known)
    if _are_stored(keys, _times(published), known_keys, _times(known)):
        return _SCHEMA.empty_table()
    wanted = published["revision"].to_numpy().astype(np.int64)
    known_numbers = known["revision"].to_numpy().astype(np.int64)
    is_sound = known_numbers < _NEVER_REACHED
    numbers = _numbers(keys, wanted, known_keys[is_sound], known_numbers[is_sound])
    place = _SCHEMA.get_field_index("revision")
    return published.set_column(place, "revision", pa.array(numbers, pa.int32())).select(_SCHEMA.names).cast(_SCHEMA)


def corrections(candles: pa.Table, known: pa.Table, now_ms: int) -> pa.Table:
    """The rows to append for those `candles` (rows of `market.ohlc` that history committed) that differ from what is
    known. `known` has all columns of their stored rows.
    """
    difference = compare_candles(candles, effective(known))
    rows = pa.concat_tables([difference.new, difference.changed])
    count = rows.num_rows
    columns = {name: rows[name] for name in _SCHEMA.names if name in rows.column_names} | {
        "revision": pa.array(np.zeros(count, np.int32)),
        "known_at": pa.array(np.full(count, now_ms * 1_000 + COMMITTED)).cast(pa.timestamp("us", "UTC")),
    }
    return new_revisions(pa.table([columns[name] for name in _SCHEMA.names], schema=_SCHEMA), known)


def newest_of_each(published: pa.Table) -> pa.Table:
    """The last row of each bar in `published`; keeps the order of publication."""
    keys, _ = candle_keys(published, published.slice(0, 0))
    _, from_the_end = np.unique(keys[::-1], return_index=True)
    if len(from_the_end) == len(keys):
        return published
    return published.take(pa.array(np.sort(len(keys) - 1 - from_the_end)))


def effective(revisions: pa.Table) -> pa.Table:
    """The revision of each bar that is in effect once all of these are known."""
    if revisions.num_rows == 0:
        return revisions
    keys, _ = candle_keys(revisions, revisions.slice(0, 0))
    is_exchange = pc.equal(revisions["source"], "exchange").to_numpy()
    order = np.lexsort((revisions["revision"].to_numpy(), _times(revisions), is_exchange, keys))
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = keys[order][1:] != keys[order][:-1]
    return revisions.take(pa.array(order[is_last]))


def _times(rows: pa.Table) -> NDArray[np.int64]:
    found: NDArray[np.int64] = rows["known_at"].cast(pa.int64()).to_numpy()
    return found


def _are_stored(
    keys: NDArray[Any], times: NDArray[np.int64], known_keys: NDArray[Any], known_times: NDArray[np.int64]
) -> bool:
    if len(keys) and not ((known_keys == keys[0]) & (known_times == times[0])).any():
        return False
    _, key = np.unique(np.concatenate((keys, known_keys)), return_inverse=True)
    moments, moment = np.unique(np.concatenate((times, known_times)), return_inverse=True)
    pairs = key * len(moments) + moment
    return bool(np.isin(pairs[: len(keys)], pairs[len(keys) :]).all())


def _numbers(
    keys: NDArray[Any], wanted: NDArray[np.int64], known_keys: NDArray[Any], known: NDArray[np.int64]
) -> NDArray[np.int64]:
    """A revision number for each row: ascending among the rows of one key, at least the wanted number, and above every
    known one.
    """
    order = np.argsort(keys, kind="stable")
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = keys[order][1:] != keys[order][:-1]
    group = np.cumsum(is_first) - 1
    within = np.arange(len(order)) - np.flatnonzero(is_first)[group]
    distinct = keys[order][is_first]
    least = np.zeros(len(distinct), np.int64)
    if len(distinct):
        place = np.minimum(np.searchsorted(distinct, known_keys), len(distinct) - 1)
        is_known = distinct[place] == known_keys
        np.maximum.at(least, place[is_known], known[is_known] + 1)
    start = np.maximum(wanted[order] - within, least[group]) + group * _GROUP
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.maximum.accumulate(start) - group * _GROUP + within
    return numbers


# ---- reading
def scan_revisions(table: Table, candles: pa.Table, *, numbers_only: bool = False) -> pa.Table:
    """The stored revisions of these bars (and of some neighbouring bars), in no order."""
    names = _NUMBERED if numbers_only else tuple(_SCHEMA.names)
    schema = pa.schema([_SCHEMA.field(name) for name in names])
    parts = [schema.empty_table()]
    near = _near(candles)
    for first in range(0, len(near), _MAX_RANGES):
        wanted = any_of(near[first : first + _MAX_RANGES])
        parts.append(read_rows(table, OHLC_REVISIONS, wanted, columns=names))
    return pa.concat_tables(parts)


def _near(candles: pa.Table) -> list[BooleanExpression]:
    """Filters for the ranges in which these candles are close together: per series, or across all series if there are
    many.
    """
    is_listed = candles.group_by(["ticker", "period_seconds"]).aggregate([]).num_rows <= _MAX_SERIES
    keys = ["ticker", "period_seconds", "open_time"] if is_listed else ["period_seconds", "open_time"]
    rows = candles.select(keys).group_by(keys).aggregate([]).sort_by([(key, "ascending") for key in keys])
    periods, times = rows["period_seconds"].to_numpy(), rows["open_time"].cast(pa.int64()).to_numpy()
    is_first = np.ones(len(times), np.bool_)
    is_first[1:] = (np.diff(periods) != 0) | (np.diff(times) > _MAX_GAP * periods[1:].astype(np.int64) * 1_000_000)
    if is_listed:
        ticker = rows["ticker"].combine_chunks().dictionary_encode().indices.to_numpy()
        is_first[1:] |= np.diff(ticker) != 0
    firsts = np.flatnonzero(is_first)
    # The tickers of each range: many close a bar at the same time.
    ranges: dict[tuple[int, int, int], list[str]] = defaultdict(list)
    for first, last in zip(firsts.tolist(), [*(firsts[1:] - 1).tolist(), len(times) - 1], strict=True):
        tickers = ranges[int(periods[first]), int(times[first]), int(times[last]) + 1]
        if is_listed:
            tickers.append(rows["ticker"][first].as_py())
    found: list[BooleanExpression] = []
    for (period, start, end), tickers in ranges.items():
        near = And(equal("period_seconds", period), at_least("open_time", iso(start)), below("open_time", iso(end)))
        found.append(And(one_of("ticker", tickers), near) if is_listed else near)
    return found


def read_as_of(
    settings: Settings,
    ticker: str,
    period_seconds: int,
    *,
    start_ns: int,
    end_ns: int,
    as_of_ns: int,
    limit: int | None = None,
) -> pa.Table:
    """The bars of [start_ns, end_ns) as they were known at `as_of_ns` (inclusive), ordered by open_time; `limit` = the
    first N. Columns as in `market.ohlc_revisions`.
    """
    table = load_table(open_catalog(settings), OHLC_REVISIONS)
    wanted = And(
        range_filter(ticker, period_seconds, start_ns=start_ns, end_ns=end_ns),
        below("known_at", iso(as_of_ns // _MICRO + 1)),
    )
    rows = effective(read_rows(table, OHLC_REVISIONS, wanted))
    found = rows.take(pc.sort_indices(rows["open_time"]))
    return found if limit is None else found.slice(0, limit)


def read_corrected(table: Table, ticker: str, period_seconds: int, *, limit: int) -> pa.Table:
    """`open_time` and newest `revision` of bars published more than once, in time order; the last `limit`."""
    names = ("open_time", "revision")
    wanted = And(equal("ticker", ticker), equal("period_seconds", period_seconds), at_least("revision", 1))
    found = read_rows(table, OHLC_REVISIONS, wanted, columns=names)
    newest = found.group_by("open_time").aggregate([("revision", "max")]).rename_columns(names)
    return newest.sort_by("open_time").slice(max(0, newest.num_rows - limit))


def read_published(settings: Settings, ticker: str, period_seconds: int, *, since_ns: int) -> tuple[pa.Table, pa.Table]:
    """The ticker's bars in the order of their publication, as two tables: those published up to `since_ns`, from the
    first open time of the second table on, and those published after it. `revision` counts the publications of a bar
    from 0 and ignores what history stored.

    `period_seconds` = 0 means every period.
    """
    table = load_table(open_catalog(settings), OHLC_REVISIONS)
    wanted: BooleanExpression = equal("ticker", ticker)
    if period_seconds:
        wanted = And(equal("period_seconds", period_seconds), wanted)
    boundary = iso(since_ns // _MICRO + 1)
    after = _published(table, And(wanted, at_least("known_at", boundary)))
    before = after.slice(0, 0)
    if after.num_rows:
        oldest = pc.min(after["open_time"]).cast(pa.int64()).as_py()
        before = _published(table, And(And(wanted, below("known_at", boundary)), at_least("open_time", iso(oldest))))
    found = pa.concat_tables([before, after])
    found = found.set_column(_SCHEMA.get_field_index("revision"), "revision", _publications(found))
    return found.slice(0, before.num_rows), found.slice(before.num_rows)


def _published(table: Table, wanted: BooleanExpression) -> pa.Table:
    found = read_rows(table, OHLC_REVISIONS, wanted)
    is_committed = pc.equal(found["source"], "exchange").to_numpy() | (_times(found) % _MICRO == COMMITTED)
    found = found.filter(pa.array(~is_committed))
    keys = [(name, "ascending") for name in ("known_at", "period_seconds", "open_time", "revision")]
    return found.take(pc.sort_indices(found, sort_keys=keys))


def _publications(rows: pa.Table) -> pa.Array:
    """For each row, how many earlier rows publish the same bar."""
    keys, _ = candle_keys(rows, rows.slice(0, 0))
    order = np.argsort(keys, kind="stable")
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = keys[order][1:] != keys[order][:-1]
    counts = np.empty(len(order), np.int32)
    counts[order] = np.arange(len(order)) - np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    return pa.array(counts)
