"""How long compaction keeps writers from a table of many small files while bars are committed to it.

First with the platform's method: pieces are rewritten without a lock, and each is committed in a moment without
writers. Then with the previous method: Spark's `rewrite_data_files` over the same files, with the table locked from
beginning to end. `worst_hold_seconds` is the longest time for which maintenance held the table, `worst_wait_seconds`
the longest that the writer of bars waited for it. All rows are counted afterwards.
"""

import argparse
import json
import tempfile
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog

from benchmarks.measuring.process_tree import ProcessTree
from benchmarks.measuring.spark_master import TWO_CORES, add_master, spark_of
from core.log import configure_logging
from core.settings import Settings
from flink_replacement_spark.spark.session import start_session
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.maintenance import Maintenance
from iceberg import OHLC, append_or_find, create_tables, load_table, open_catalog

APPENDS = 200
TICKERS = 64
PAUSE_SECONDS = 0.25
MINUTE_US = 60_000_000


def run(rows: int, master: str = TWO_CORES) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.model_validate({"data_dir": folder, "spark": spark_of(master)})
        catalog = open_catalog(settings)
        create_tables(catalog)
        each = rows // APPENDS // TICKERS
        for number in range(APPENDS):
            append_or_find(load_table(catalog, OHLC), _bars(number * each, each), {"candlewright.jobs": str(number)})
        table = load_table(catalog, OHLC)
        small = table.current_snapshot()
        assert small is not None
        files = len(list(table.scan().plan_files()))

        session = start_session(settings)
        try:
            session.sql("SELECT 1").toArrow()
            locks = TableLocks()
            maintenance = Maintenance(session=session, catalog=catalog, locks=locks, minutes=1)
            with _Writer(catalog, locks) as writer, ProcessTree() as tree:
                started = time.perf_counter()
                maintenance.compact(OHLC)
                seconds = time.perf_counter() - started
            left = len(list(load_table(catalog, OHLC).scan().plan_files()))
            wrong = abs(_count(catalog) - each * APPENDS * TICKERS - writer.rows)

            load_table(catalog, OHLC).manage_snapshots().set_current_snapshot(small.snapshot_id).commit()
            before_locks = TableLocks()
            with _Writer(catalog, before_locks) as before:
                started = time.perf_counter()
                with before_locks.writing(OHLC, "maintenance"):
                    session.sql(
                        "CALL lake.system.rewrite_data_files(table => 'market.ohlc', strategy => 'sort', "
                        "options => map('min-input-files', '5'))"
                    )
                    before_hold = time.perf_counter() - started
        finally:
            session.stop()
        hold = locks.worst_hold_seconds[OHLC.name]
        return {
            "rows": each * APPENDS * TICKERS,
            "seconds": round(seconds, 3),
            "rows_per_second": round(rows / seconds),
            "result_rows": left,
            "files": files,
            "wrong_rows": wrong,
            "worst_hold_seconds": round(hold, 3),
            "worst_wait_seconds": round(writer.worst, 3),
            "commits_meanwhile": writer.commits,
            "before_hold_seconds": round(before_hold, 3),
            "before_wait_seconds": round(before.worst, 3),
            "ratio": round(before_hold / hold, 1),
            "peak_mib": {part: peak >> 20 for part, peak in sorted(tree.peak_bytes.items())},
        }


class _Writer:
    """Commits a bar of each ticker four times a second, until its context ends."""

    def __init__(self, catalog: Catalog, locks: TableLocks) -> None:
        self.worst, self.rows, self.commits = 0.0, 0, 0
        self._catalog, self._locks = catalog, locks
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> "_Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stopping.wait(PAUSE_SECONDS):
            bars = _bars(100_000_000 + self.commits, 1)
            asked = time.perf_counter()
            with self._locks.writing(OHLC, "live bars"):
                self.worst = max(self.worst, time.perf_counter() - asked)
                append_or_find(load_table(self._catalog, OHLC), bars, {"candlewright.live-bars": str(self.commits)})
            self.commits += 1
            self.rows += bars.num_rows


def _bars(first: int, count: int) -> pa.Table:
    minutes = np.tile(np.arange(first, first + count), TICKERS)
    numbers = np.random.default_rng(first).random((6, len(minutes)))
    times = pa.array(minutes * MINUTE_US).cast(pa.timestamp("us", "UTC"))
    columns = {
        "ticker": np.repeat([f"T{number}/USDT.BENCH" for number in range(TICKERS)], count),
        "period_seconds": np.full(len(minutes), 60, np.int32),
        "open_time": times,
        **dict(zip(("open", "high", "low", "close", "volume", "quote_volume"), numbers, strict=True)),
        "trade_count": minutes,
        "source": np.repeat(["ticks"], len(minutes)),
        "complete": np.ones(len(minutes), np.bool_),
        "updated_at": times,
    }
    schema = OHLC.arrow_schema
    arrays = [pa.array(columns[name]).cast(schema.field(name).type) for name in schema.names]
    return pa.Table.from_arrays(arrays, schema=schema)


def _count(catalog: Catalog) -> int:
    return int(load_table(catalog, OHLC).scan().count())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table before; 10000000 for the full form")
    add_master(parser)
    parser.add_argument("--output", choices=["json"], default="json")
    arguments = parser.parse_args()
    configure_logging("bench", "warning")
    print(json.dumps(run(arguments.rows, arguments.master)))


if __name__ == "__main__":
    main()
