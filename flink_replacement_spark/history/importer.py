"""Writes the candles that `candlewright import` has read from files, checked, and put into the data directory; for
trades, see `trade_importer`.

An import is one commit to `market.ohlc`: all of its new candles, or none. Stored candles are never replaced. It makes
no claim about candles missing in its files, and its candles prove no range complete; a request still fetches them from
the exchange.
"""

import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from bus import KeyedTables
from bus import topics as bus_topics
from candlewright.wire.errors import RoleLost
from core import metrics
from core.imports import KEEP_SECONDS, Import, differences_of, rows_of
from core.log import get_logger
from flink_replacement_spark.history.trade_importer import TradeImporter
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.revisions import RevisionTable
from iceberg import COVERAGE, OHLC, CoverageFiles, append_or_find, claims_of, is_committed, load_table, scan_range

__all__ = ["Importer"]

log = get_logger()

_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 5.0
#: Candles that are compared at a time.
_COMPARED_ROWS = 400_000
_SUMMARY = "candlewright.import"
_VALUES = ("open", "high", "low", "close", "volume")
#: Values that differ by less count as equal, since a file may round them.
_PRECISION = 1e-9
_MICRO = 1_000

_ROWS = metrics.Counter(
    "candlewright_spark_imported_total",
    "Candles and trades of imports, by outcome.",
    ["effect"],
    registry=metrics.REGISTRY,
)


class Importer:
    """`run` returns when `stopping` is set."""

    def __init__(
        self, bus: KeyedTables, catalog: Catalog, locks: TableLocks, *, data_dir: Path, stopping: threading.Event
    ) -> None:
        self._bus = bus
        self._catalog = catalog
        self._locks = locks
        self._data_dir = data_dir
        self._stopping = stopping
        self._has_looked = False
        self._revisions = RevisionTable(catalog, locks)
        self._trades = TradeImporter(catalog, locks, data_dir, show=self._show)

    def run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                self.step()
                pause = _LOOK_SECONDS
            except RoleLost:
                raise
            except Exception as error:  # Any other error of this thread is logged and retried.
                log.warning("import_retried", error=str(error), kind=type(error).__name__)
                pause = _RETRY_SECONDS

    def step(self) -> None:
        """Carry out the ordered imports; after a crash, a begun one starts again. A failed import does not delay
        others; its error is raised after all have had their turn.
        """
        failure: Exception | None = None
        for name, value in self._bus.items(bus_topics.TABLE_IMPORTS).items():
            try:
                ordered = Import.from_bytes(value)
            except (TypeError, ValueError) as error:
                log.error("import_unreadable", name=name, error=str(error))
                self._bus.delete(bus_topics.TABLE_IMPORTS, [name])
                continue
            if ordered.is_over:
                if not self._has_looked:
                    # Its predecessor was killed between the two.
                    rows_of(self._data_dir, ordered.import_id).unlink(missing_ok=True)
            else:
                try:
                    outcome = self._outcome(ordered)
                except RoleLost:
                    raise
                except Exception as error:
                    self._show(replace(ordered, error=str(error) or type(error).__name__))
                    failure = error
                    continue
                self._show(outcome)
                rows_of(self._data_dir, ordered.import_id).unlink(missing_ok=True)
        self._has_looked = True
        if failure is not None:
            raise failure

    def _outcome(self, ordered: Import) -> Import:
        file = rows_of(self._data_dir, ordered.import_id)
        try:
            stored = pq.read_metadata(file)
            is_of_trades = "trade_id" in stored.schema.names
            candles = None if is_of_trades else pq.read_table(file).select(_STAGED.names).cast(_STAGED)
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            return replace(ordered, state="failed", error=f"the driver cannot read {file}: {error}")
        if candles is None:
            return self._store_trades(replace(ordered, state="running", rows=stored.num_rows))
        return self._store(replace(ordered, state="running", rows=candles.num_rows), candles)

    def _store_trades(self, running: Import) -> Import:
        return self._counted(self._trades.store(running, {_SUMMARY: running.import_id}))

    def _store(self, running: Import, candles: pa.Table) -> Import:
        summary = {_SUMMARY: running.import_id}
        moment = pa.scalar(np.datetime64("now", "us").astype(np.int64).item(), pa.int64())
        updated_at = pa.repeat(moment, candles.num_rows).cast(pa.timestamp("us", "UTC"))
        candles = candles.append_column("updated_at", updated_at).select(OHLC.arrow_schema.names)
        news, owns, differences = [candles.slice(0, 0)], [candles.slice(0, 0)], [_DIFFERENCES.empty_table()]
        with self._locks.writing(OHLC, "import"):
            table = load_table(self._catalog, OHLC)
            for part in _parts(candles):
                found = self._compare(table, part)
                news.append(found[0])
                owns.append(found[1])
                differences.append(found[2])
                running = replace(running, compared=running.compared + part.num_rows)
                self._show(running)
            new, unlike = pa.concat_tables(news), pa.concat_tables(differences)
            if new.num_rows and not is_committed(table, summary):
                append_or_find(table, new, self._locks.sign(summary))
        # Candles of an attempt that was interrupted after its commit are already stored.
        self._revisions.correct(pa.concat_tables([new, *owns]), summary)
        if unlike.num_rows:
            pq.write_table(unlike, differences_of(self._data_dir, running.import_id))
        absent = int(pc.sum(pc.equal(unlike["why"], _ABSENT)).as_py() or 0)
        done = replace(
            running,
            state="done",
            new=new.num_rows,
            same=running.rows - new.num_rows - unlike.num_rows,
            different=unlike.num_rows - absent,
            absent=absent,
        )
        return self._counted(done)

    def _counted(self, done: Import) -> Import:
        for effect in ("new", "same", "different", "absent"):
            _ROWS.labels(effect).inc(getattr(done, effect))
        log.info("import_finished", import_id=done.import_id, new=done.new, same=done.same, different=done.different)
        return done

    def _compare(self, table: Table, part: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Of one series, ascending: the new candles, those that an import has stored before, and the differences."""
        ticker, period_seconds = part["ticker"][0].as_py(), part["period_seconds"][0].as_py()
        opens = _opens(part)
        start, end = int(opens[0]) * _MICRO, int(opens[-1] + 1) * _MICRO
        stored = scan_range(table, ticker, period_seconds, start_ns=start, end_ns=end)
        known = _opens(stored)
        place = np.minimum(np.searchsorted(known, opens), max(len(known) - 1, 0))
        is_known = known[place] == opens if len(known) else np.zeros(len(opens), dtype=bool)
        ours = part.filter(pa.array(is_known))
        theirs = stored.take(pa.array(place[is_known]))
        is_other = _differ(ours, theirs)
        is_own = ~is_other & pc.equal(theirs["source"], "archive").to_numpy(zero_copy_only=False)
        is_absent = ~is_known & self._are_absent(ticker, period_seconds, opens)
        unlike = pa.concat_tables(
            [
                _differences(ours.filter(pa.array(is_other)), theirs.filter(pa.array(is_other))),
                _differences(part.filter(pa.array(is_absent)), None),
            ]
        )
        return part.filter(pa.array(~is_known & ~is_absent)), ours.filter(pa.array(is_own)), unlike

    def _are_absent(self, ticker: str, period_seconds: int, opens: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """For each open time, whether the exchange has reported that it has no candle."""
        coverage = CoverageFiles().scan(load_table(self._catalog, COVERAGE), [ticker])
        claims = claims_of(coverage, ticker, period_seconds)
        found = np.zeros(len(opens), dtype=bool)
        for start, end in zip(claims.hole_start[claims.is_settled], claims.hole_end[claims.is_settled], strict=True):
            low, high = np.searchsorted(opens * _MICRO, (start, end))
            found[low:high] = True
        return found

    def _show(self, imported: Import) -> None:
        self._bus.put(bus_topics.TABLE_IMPORTS, {imported.import_id: imported.to_bytes()}, keep_seconds=KEEP_SECONDS)


_STAGED = pa.schema([field for field in OHLC.arrow_schema if field.name != "updated_at"])
_ABSENT = "the exchange has no candle"
_DIFFERENCES = pa.schema(
    [
        ("ticker", pa.string()),
        ("period_seconds", pa.int32()),
        ("open_time", pa.timestamp("us", "UTC")),
        ("why", pa.string()),
        ("stored_source", pa.string()),
        *((f"{side}_{name}", pa.float64()) for name in _VALUES for side in ("stored", "file")),
    ]
)


def _parts(candles: pa.Table) -> list[pa.Table]:
    """The candles by series, in pieces that are compared together."""
    periods = candles["period_seconds"].to_numpy()
    borders = [0, *(np.flatnonzero(np.diff(periods)) + 1).tolist(), candles.num_rows]
    return [
        candles.slice(at, min(_COMPARED_ROWS, high - at))
        for low, high in pairwise(borders)
        for at in range(low, high, _COMPARED_ROWS)
    ]


def _opens(candles: pa.Table) -> "NDArray[np.int64]":
    """Open times in microseconds."""
    found: NDArray[np.int64] = candles["open_time"].cast(pa.int64()).to_numpy()
    return found


def _differ(ours: pa.Table, theirs: pa.Table) -> "NDArray[np.bool_]":
    found = np.zeros(ours.num_rows, dtype=bool)
    for name in _VALUES:
        one, other = ours[name].to_numpy(), theirs[name].to_numpy()
        found |= ~np.isclose(one, other, rtol=_PRECISION, atol=0.0)
    return found


def _differences(ours: pa.Table, theirs: pa.Table | None) -> pa.Table:
    count = ours.num_rows
    nothing = pa.nulls(count, pa.float64())
    columns = [ours["ticker"], ours["period_seconds"], ours["open_time"]]
    if theirs is None:
        columns += [pa.repeat(pa.scalar(_ABSENT), count), pa.nulls(count, pa.string())]
    else:
        columns += [pa.repeat(pa.scalar("other values are stored"), count), theirs["source"]]
    for name in _VALUES:
        columns += [nothing if theirs is None else theirs[name], ours[name]]
    return pa.table(columns, names=_DIFFERENCES.names).cast(_DIFFERENCES)
