"""Results of the live query into the tables: bars, new ticks, gaps.

Exactly once: bars are compared with the table before they are written; each snapshot names its query and batch and is
looked for before a commit and after one of unknown outcome.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_when_event_set, wait_exponential_jitter
from tenacity.nap import sleep_using_event

from core import metrics
from core.errors import CandlewrightError
from core.log import get_logger
from flink_replacement_spark.history_writer import Merger
from flink_replacement_spark.live_results import LiveResults
from iceberg import (
    GAPS,
    OHLC,
    TICKS,
    append_or_find,
    compare_candles,
    is_committed,
    load_table,
    scan_series,
    scan_trade_ids,
)
from protobuf import records_pb2 as records

__all__ = ["LiveHealth", "LiveWriter"]

log = get_logger()

#: Where a checkpoint was lost, these may take what the query before them has stored.
_FIRST_BATCHES = 8
_SIDES = pa.array(["unknown", "buy", "sell"])

_BARS = metrics.Counter("candlewright_spark_bars_total", "Bars published.", ["kind"], registry=metrics.REGISTRY)
_TICKS = metrics.Counter("candlewright_spark_ticks_total", "New trades stored.", registry=metrics.REGISTRY)
_GAPS = metrics.Counter("candlewright_spark_gaps_total", "Gaps reported.", registry=metrics.REGISTRY)
_DUPLICATES = metrics.Counter(
    "candlewright_spark_duplicate_trades_total", "Trades counted before.", registry=metrics.REGISTRY
)
_TOO_LATE = metrics.Counter(
    "candlewright_spark_too_late_trades_total", "Trades of bars that were let go of.", registry=metrics.REGISTRY
)
_BAD = metrics.Counter(
    "candlewright_spark_bad_ticks_total", "Records or trades that could not be read.", registry=metrics.REGISTRY
)


@dataclass
class LiveHealth:
    """What the status page says; a problem is gone with the next batch that works."""

    problem: str = ""
    batches: int = 0
    bars: int = 0
    ticks: int = 0
    gaps: int = 0
    duplicates: int = 0
    too_late: int = 0
    bad_records: int = 0
    last_batch_at: float = field(default_factory=time.time)


class LiveWriter:
    """`table_lock` is the one lock for writing tables in this driver; `stopping` ends retries."""

    def __init__(self, catalog: Catalog, merger: Merger, table_lock: threading.Lock, stopping: threading.Event) -> None:
        self.health = LiveHealth()
        self._catalog = catalog
        self._merger = merger
        self._table_lock = table_lock
        self._stopping = stopping

    def write(self, query_id: str, batch_id: int, results: LiveResults) -> None:
        """Carry out one micro-batch. When this returns all of it is visible and said."""
        retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_exponential_jitter(multiplier=0.1, max=5.0, jitter=0.2),
            stop=stop_when_event_set(self._stopping),
            sleep=sleep_using_event(self._stopping),
            before_sleep=self._note_retry,
            reraise=True,
        )
        retrying(self._carry_out, query_id, batch_id, results)
        self.health.problem = ""
        self.health.batches += 1
        self.health.last_batch_at = time.time()
        self._count(results)

    def _carry_out(self, query_id: str, batch_id: int, results: LiveResults) -> None:
        summary = {"candlewright.query-id": query_id, "candlewright.batch-id": str(batch_id)}
        if not (results.bars.num_rows or results.ticks.num_rows or results.gaps):
            return
        with self._table_lock:
            if results.bars.num_rows:
                self._upsert_bars(_table_rows(results.bars), summary)
            if results.ticks.num_rows:
                self._append_ticks(results.ticks, summary, may_repeat=batch_id < _FIRST_BATCHES)
            if results.gaps:
                self._upsert_gaps(results.gaps)

    def _upsert_bars(self, incoming: pa.Table, summary: dict[str, str]) -> None:
        table = load_table(self._catalog, OHLC)
        opens = incoming["open_time"].cast(pa.int64())
        known = scan_series(
            table,
            incoming["ticker"].unique().to_pylist(),
            pc.min(opens).as_py() * 1_000,
            pc.max(opens).as_py() * 1_000 + 1,
        )
        difference = compare_candles(incoming, known)
        if difference.changed.num_rows:
            if not is_committed(table, summary):
                self._merger.merge(pa.concat_tables([difference.new, difference.changed]), summary)
        elif difference.new.num_rows and not is_committed(table, summary):
            append_or_find(table, difference.new, summary)

    def _append_ticks(self, ticks: pa.Table, summary: dict[str, str], *, may_repeat: bool) -> None:
        table = load_table(self._catalog, TICKS)
        if is_committed(table, summary):
            return
        if may_repeat and not (ticks := _not_stored(table, ticks)).num_rows:
            return
        time_ns = ticks["time_ns"].to_numpy()
        columns = {
            "ticker": ticks["ticker"],
            "trade_id": ticks["trade_id"],
            "ts": _microseconds(time_ns),
            "ts_ns": ticks["time_ns"],
            "price": ticks["price"],
            "size": ticks["size"],
            "side": pc.take(_SIDES, ticks["side"]),
            "received_at": pc.divide(ticks["received_ns"], 1_000).cast(pa.timestamp("us", "UTC")),
        }
        append_or_find(table, _shaped(columns, TICKS.arrow_schema), summary)

    def _upsert_gaps(self, marks: Sequence[records.TickMark]) -> None:
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
        incoming = pa.Table.from_pylist(list(rows.values()), schema=GAPS.arrow_schema)
        load_table(self._catalog, GAPS).upsert(
            incoming, join_cols=["ticker", "from_trade_id", "to_trade_id", "from_ts"]
        )

    def _count(self, results: LiveResults) -> None:
        health, ticks, gaps = self.health, results.ticks.num_rows, len(results.gaps)
        health.bars += results.first_bars
        health.ticks += ticks
        health.gaps += gaps
        health.duplicates += results.duplicates
        health.too_late += results.too_late
        health.bad_records += results.bad_records
        _BARS.labels("first").inc(results.first_bars)
        _BARS.labels("revision").inc(results.revisions)
        _TICKS.inc(ticks)
        _GAPS.inc(gaps)
        _DUPLICATES.inc(results.duplicates)
        _TOO_LATE.inc(results.too_late)
        _BAD.inc(results.bad_records)
        if results.too_late or results.bad_records:
            log.warning("trades_not_counted", too_late=results.too_late, unreadable=results.bad_records)

    def _note_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self.health.problem = f"live bars cannot be written: {error}"
        log.warning("live_batch_retried", attempt=state.attempt_number, error=str(error), kind=type(error).__name__)


def _table_rows(bars: pa.Table) -> pa.Table:
    """Rows of `market.ohlc`."""
    rows = bars.num_rows
    columns = {name: bars[name] for name in OHLC.arrow_schema.names if name in bars.column_names}
    columns |= {
        "open_time": _microseconds(bars["time_ns"].to_numpy()),
        "updated_at": _microseconds(np.full(rows, time.time_ns())),
    }
    return _shaped(columns, OHLC.arrow_schema)


def _not_stored(table: Table, ticks: pa.Table) -> pa.Table:
    bounds = pc.min_max(ticks["time_ns"]).as_py()
    found = scan_trade_ids(table, ticks["ticker"].unique().to_pylist(), bounds["min"], bounds["max"] + 1)
    asked, known = (
        pc.binary_join_element_wise(rows["ticker"].cast(pa.string()), rows["trade_id"].cast(pa.string()), "\n")
        for rows in (ticks, found)
    )
    return ticks.filter(pc.invert(pc.is_in(asked, value_set=known.combine_chunks())))


def _shaped(columns: dict[str, pa.Array], schema: pa.Schema) -> pa.Table:
    return pa.table([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema)


def _microseconds(time_ns: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.Array:
    return pa.array((time_ns // 1_000).astype("datetime64[us]")).cast(pa.timestamp("us", "UTC"))


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, OSError) or (isinstance(error, CandlewrightError) and error.retryable)
