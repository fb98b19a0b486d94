"""Exact reads without Spark. Ranges are half-open, in nanoseconds since the epoch, UTC."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.table import Table

from core.settings import Settings
from iceberg.catalog import open_catalog
from iceberg.filters import any_of, at_least, below, equal, none_of, one_of
from iceberg.scan import read_rows, scan_table
from iceberg.tables import COVERAGE, GAPS, OHLC, TICKS, TRIGGER_EVENTS

_MICRO = 1_000
_SECOND = 1_000_000_000
#: With more tickers, evaluating the filter costs more than reading the rows that it excludes.
_MAX_LISTED = 200
_RANGES_PER_SCAN = 20
_LOWEST, _HIGHEST = 0, (1 << 63) - 1
#: Microseconds. The newest events are searched for in the last hour, then in a span 16 times as long, and so on.
_EVENTS_REACH = 3_600_000_000


def read_ohlc(
    settings: Settings, ticker: str, period_seconds: int, *, start_ns: int, end_ns: int, limit: int | None = None
) -> pa.Table:
    """Candles of `market.ohlc` with start_ns <= open_time < end_ns, ordered by open_time; `limit` = the first N."""
    table = open_catalog(settings).load_table(OHLC.identifier)
    if limit is not None:
        # Candles are on a grid: without holes, the first N are in the first N periods.
        near_ns = start_ns + (limit + 1) * period_seconds * _SECOND
        if near_ns < end_ns:
            near = scan_range(table, ticker, period_seconds, start_ns=start_ns, end_ns=near_ns)
            if near.num_rows >= limit:
                return near.slice(0, limit)
    found = scan_range(table, ticker, period_seconds, start_ns=start_ns, end_ns=end_ns)
    return found if limit is None else found.slice(0, limit)


def read_ohlc_of(
    settings: Settings, tickers: Sequence[str], period_seconds: int, *, start_ns: int, end_ns: int
) -> dict[str, pa.Table]:
    """The result of `read_ohlc` for each ticker, with one scan for every 200 tickers."""
    table = open_catalog(settings).load_table(OHLC.identifier)
    of_period = And(equal("period_seconds", period_seconds), _opening_in(start_ns, end_ns))
    found: dict[str, pa.Table] = {}
    for first in range(0, len(tickers), _MAX_LISTED):
        listed = tickers[first : first + _MAX_LISTED]
        rows = read_rows(table, OHLC, And(one_of("ticker", listed), of_period))
        rows = rows.take(pc.sort_indices(rows, sort_keys=[("ticker", "ascending"), ("open_time", "ascending")]))
        counts = {each["values"]: each["counts"] for each in pc.value_counts(rows["ticker"]).to_pylist()}
        begin = 0
        # Arrow sorts strings by their bytes.
        for ticker in sorted(listed, key=str.encode):
            found[ticker] = rows.slice(begin, counts.get(ticker, 0))
            begin += counts.get(ticker, 0)
    return found


def read_ticks(settings: Settings, ticker: str, *, start_ns: int, end_ns: int, limit: int | None = None) -> pa.Table:
    """Trades of `market.ticks` with start_ns <= ts_ns < end_ns, ordered by ts_ns; `limit` = the first N."""
    table = open_catalog(settings).load_table(TICKS.identifier)
    found = scan_trades(table, ticker, start_ns=start_ns, end_ns=end_ns)
    in_order = found.take(pc.sort_indices(found, sort_keys=[("ts_ns", "ascending")]))
    return in_order if limit is None else in_order.slice(0, limit)


def read_past_ticks(settings: Settings, tickers: Sequence[str], start_ns: int, *, limit: int) -> pa.Table:
    """Up to `limit` trades of these tickers from `market.ticks` with ts_ns >= start_ns, in no order."""
    table = open_catalog(settings).load_table(TICKS.identifier)
    wanted = And(at_least("ts", iso(start_ns // _MICRO)), at_least("ts_ns", start_ns))
    return _collect_of(table, tickers, wanted, TICKS.arrow_schema, limit)


def read_past_bars(
    settings: Settings, tickers: Sequence[str], period_seconds: int, *, start_ns: int, limit: int
) -> pa.Table:
    """Up to `limit` candles of these tickers from `market.ohlc` with open_time >= start_ns, in no order.
    `period_seconds` = 0 means every period.
    """
    table = open_catalog(settings).load_table(OHLC.identifier)
    wanted: BooleanExpression = at_least("open_time", iso(-(-start_ns // _MICRO)))
    if period_seconds:
        wanted = And(equal("period_seconds", period_seconds), wanted)
    return _collect_of(table, tickers, wanted, OHLC.arrow_schema, limit)


def _collect_of(
    table: Table, tickers: Sequence[str], wanted: BooleanExpression, schema: pa.Schema, limit: int
) -> pa.Table:
    parts = [schema.empty_table()]
    for first in range(0, len(tickers), _MAX_LISTED):
        left = limit - sum(part.num_rows for part in parts)
        if left <= 0:
            break
        own = And(one_of("ticker", tickers[first : first + _MAX_LISTED]), wanted)
        parts.append(scan_table(table, own, limit=left).to_arrow().select(schema.names).cast(schema))
    return pa.concat_tables(parts)


def tick_bounds(settings: Settings, ticker: str, *, start_ns: int, end_ns: int) -> tuple[int, int] | None:
    """A half-open time range (ns) that contains all trades of the given range. It comes from the statistics of the data
    files, without reading any, so it may be wider than necessary. None if no file can have such a trade.
    """
    table = open_catalog(settings).load_table(TICKS.identifier)
    bounds = file_bounds(table, _ticks_filter(ticker, start_ns, end_ns), "ts_ns")
    found = max(bounds[0], start_ns), min(bounds[1] + 1, end_ns)
    return found if found[0] < found[1] else None


def read_newest_events(
    settings: Settings, *, tickers: Sequence[str], trigger_ids: Sequence[str], end_ns: int, least: int
) -> pa.Table:
    """The newest rows of `market.trigger_events` with fired_at < end_ns, ordered by fired_at: at least `least` of them,
    or all if there are fewer. Empty `tickers` or `trigger_ids` select all.
    """
    table = open_catalog(settings).load_table(TRIGGER_EVENTS.identifier)
    wanted = below("fired_at", iso(-(-end_ns // _MICRO)))
    for column, names in (("ticker", tickers), ("trigger_id", trigger_ids)):
        if names:
            wanted = And(one_of(column, names), wanted)
    first, last = file_bounds(table, wanted, "fired_at")
    found, reach = TRIGGER_EVENTS.arrow_schema.empty_table(), _EVENTS_REACH
    while first <= last and found.num_rows < least:
        # Statistics describe whole files, so `last` may be after the end.
        start = min(last, end_ns // _MICRO) - reach
        found = read_rows(table, TRIGGER_EVENTS, And(wanted, at_least("fired_at", iso(max(first, start)))))
        if start <= first:
            break
        reach *= 16
    return found.take(pc.sort_indices(found, sort_keys=[("fired_at", "ascending"), ("event_id", "ascending")]))


def read_last_events(
    table: Table,
    *,
    start_ns: int,
    end_ns: int,
    limit: int,
    ticker: str | None = None,
    trigger_id: str | None = None,
    without: Sequence[str] = (),
) -> pa.Table:
    """The last `limit` rows of `market.trigger_events` with start_ns <= fired_at < end_ns, ordered by fired_at, except
    those of the triggers `without`.
    """
    wanted = And(at_least("fired_at", iso(-(-start_ns // _MICRO))), below("fired_at", iso(-(-end_ns // _MICRO))))
    for column, value in (("ticker", ticker), ("trigger_id", trigger_id)):
        if value is not None:
            wanted = And(wanted, equal(column, value))
    if without:
        wanted = And(wanted, none_of("trigger_id", without))
    # Times are read first, since the other columns are long and mostly of other events.
    times = read_rows(table, TRIGGER_EVENTS, wanted, columns=["fired_at"])["fired_at"].cast(pa.int64()).to_numpy()
    if len(times) > limit:
        wanted = And(wanted, at_least("fired_at", iso(int(np.partition(times, -limit)[-limit]))))
    found = read_rows(table, TRIGGER_EVENTS, wanted)
    order = pc.sort_indices(found, sort_keys=[("fired_at", "ascending"), ("event_id", "ascending")])
    return found.take(order[max(0, len(order) - limit) :])


def file_bounds(table: Table, wanted: BooleanExpression, column: str) -> tuple[int, int]:
    """The smallest and the largest value of a column by the statistics of the data files; (_HIGHEST, _LOWEST) if no
    file has any.
    """
    field = table.schema().find_field(column).field_id
    first, last = _HIGHEST, _LOWEST
    for file in scan_table(table, wanted).files():
        lower = file.lower_bounds.get(field)
        upper = file.upper_bounds.get(field)
        if lower is None or upper is None:
            return _LOWEST, _HIGHEST
        first, last = min(first, _long(lower)), max(last, _long(upper))
    return first, last


def _long(bound: bytes) -> int:
    return int.from_bytes(bound, "little", signed=True)


def _ticks_filter(ticker: str, start_ns: int, end_ns: int) -> BooleanExpression:
    return And(
        equal("ticker", ticker),
        at_least("ts", iso(start_ns // _MICRO)),
        below("ts", iso(-(-end_ns // _MICRO))),
        at_least("ts_ns", start_ns),
        below("ts_ns", end_ns),
    )


def read_gaps(settings: Settings, ticker: str) -> pa.Table:
    """A ticker's rows in `market.gaps`, repaired or not, ordered by from_ts."""
    table = open_catalog(settings).load_table(GAPS.identifier)
    found = read_rows(table, GAPS, equal("ticker", ticker))
    keys = [("from_ts", "ascending"), ("detected_at", "ascending")]
    return found.take(pc.sort_indices(found, sort_keys=keys))


def stored_tickers(settings: Settings) -> list[str]:
    """Tickers for which history was requested or whose streams had gaps; quick to read, but not every stored ticker."""
    catalog = open_catalog(settings)
    found = {
        ticker
        for each in (COVERAGE, GAPS)
        for ticker in scan_table(catalog.load_table(each.identifier), selected_fields=("ticker",))
        .to_arrow()["ticker"]
        .to_pylist()
    }
    return sorted(found)


def is_stored(settings: Settings, ticker: str) -> bool:
    """Whether a table has a trade or a candle of this ticker."""
    catalog = open_catalog(settings)
    return any(
        scan_table(catalog.load_table(each.identifier), equal("ticker", ticker), selected_fields=("ticker",), limit=1)
        .to_arrow()
        .num_rows
        for each in (OHLC, TICKS)
    )


def scan_range(table: Table, ticker: str, period_seconds: int, *, start_ns: int, end_ns: int) -> pa.Table:
    """All columns of the candles in [start_ns, end_ns), ordered by open_time."""
    found = read_rows(table, OHLC, range_filter(ticker, period_seconds, start_ns=start_ns, end_ns=end_ns))
    return found.take(pc.sort_indices(found["open_time"]))


def first_open(table: Table, ticker: str, period_seconds: int, *, start_ns: int, end_ns: int) -> int | None:
    """The open time (ns) of the first candle in the range; None if it has none."""
    wanted = range_filter(ticker, period_seconds, start_ns=start_ns, end_ns=end_ns)
    batches = scan_table(table, wanted, selected_fields=("open_time",)).to_arrow_batch_reader()
    firsts = (pc.min(batch["open_time"].cast(pa.int64())).as_py() for batch in batches if batch.num_rows)
    first = min(firsts, default=None)
    return None if first is None else first * _MICRO


def scan_ranges(table: Table, ranges: Sequence[tuple[str, int, int, int]]) -> pa.Table:
    """All columns of the candles in any of these ranges (ticker, period_seconds, start_ns, end_ns), in no order."""
    parts = [OHLC.arrow_schema.empty_table()]
    for first in range(0, len(ranges), _RANGES_PER_SCAN):
        wanted = any_of(
            [
                range_filter(ticker, period_seconds, start_ns=start_ns, end_ns=end_ns)
                for ticker, period_seconds, start_ns, end_ns in ranges[first : first + _RANGES_PER_SCAN]
            ]
        )
        parts.append(read_rows(table, OHLC, wanted))
    return pa.concat_tables(parts)


def scan_series(
    table: Table, tickers: Sequence[str], *, start_ns: int, end_ns: int, columns: Sequence[str] = ()
) -> pa.Table:
    """These tickers' bars, of any period, that open in the range, in no order; all columns if empty."""
    wanted = And(at_least("open_time", iso(start_ns // _MICRO)), below("open_time", iso(-(-end_ns // _MICRO))))
    if len(tickers) <= _MAX_LISTED:
        wanted = And(one_of("ticker", tickers), wanted)
    return read_rows(table, OHLC, wanted, columns=columns)


def scan_trade_ids(table: Table, tickers: Sequence[str], *, start_ns: int, end_ns: int) -> pa.Table:
    """`ticker` and `trade_id` of the trades of these tickers with start_ns <= ts_ns < end_ns, in no order."""
    wanted = And(at_least("ts", iso(start_ns // _MICRO)), at_least("ts_ns", start_ns), below("ts_ns", end_ns))
    if len(tickers) <= _MAX_LISTED:
        wanted = And(one_of("ticker", tickers), wanted)
    return read_rows(table, TICKS, wanted, columns=("ticker", "trade_id"))


def scan_trades(table: Table, ticker: str, *, start_ns: int, end_ns: int) -> pa.Table:
    """All columns of the trades with start_ns <= ts_ns < end_ns, in no order."""
    return read_rows(table, TICKS, _ticks_filter(ticker, start_ns, end_ns))


def trade_files(table: Table, ticker: str, *, start_ns: int, end_ns: int) -> frozenset[str]:
    """Paths of the data files that may hold trades of the range, by their statistics."""
    scan = table.scan(row_filter=_ticks_filter(ticker, start_ns, end_ns))
    return frozenset(task.file.file_path for task in scan.plan_files())


def range_filter(ticker: str, period_seconds: int, *, start_ns: int, end_ns: int) -> BooleanExpression:
    return And(equal("ticker", ticker), equal("period_seconds", period_seconds), _opening_in(start_ns, end_ns))


def _opening_in(start_ns: int, end_ns: int) -> BooleanExpression:
    return And(at_least("open_time", iso(-(-start_ns // _MICRO))), below("open_time", iso(-(-end_ns // _MICRO))))


def iso(microseconds: int) -> str:
    return f"{np.datetime64(microseconds, 'us')}+00:00"


def has_files_in(table: Table, ticker: str, period_seconds: int, *, start_ns: int, end_ns: int) -> bool:
    """False only if the statistics of the data files exclude any row in the range; reads no data file."""
    wanted = range_filter(ticker, period_seconds, start_ns=start_ns, end_ns=end_ns)
    return bool(scan_table(table, wanted).files())
