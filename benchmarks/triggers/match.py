"""A row pattern over ticks, from the bus through the streaming query of triggers to events and their table.

The trigger (a V shape, over all tickers) is registered, running and warmed up with other tickers before the input is
published. The query is then paused between two micro-batches until all ticks are on the bus. Timing starts when it
resumes, and stops when the last event is in the table; `seconds_to_topic` is when all events were on the topic, from
which subscribers get them. The floor is the same streaming read with one empty pass over Arrow batches. The ticks are
followed by a clock of the exchange, as an ingestor publishes it, so that the last ones do not wait. All matches are
compared with those that the library finds in the input.
"""

import argparse
import json
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.language.cep_match import ENDED, LOCAL, query
from benchmarks.measuring.process_tree import ProcessTree
from benchmarks.measuring.spark_master import TWO_CORES, add_master
from benchmarks.measuring.tick_feed import publish_apart
from benchmarks.triggers.trigger_stage import (
    HeldQuery,
    events_on_topic,
    register,
    settings_of,
    start_floor,
    start_triggers,
    wait_until,
)
from bus import Bus
from bus.connect import connect
from bus.redis.embedded import EmbeddedRedis
from candlewright_cep import evaluate
from core.log import configure_logging
from flink_replacement_spark.driver.topics import prepare_topics
from flink_replacement_spark.spark.session import start_session
from flink_replacement_spark.tables.appended import AppendedTable
from flink_replacement_spark.tables.follower import Follower
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.trigger_events import APPENDED_EVENTS
from flink_replacement_spark.triggers.source import TriggerSource
from iceberg import TRIGGER_EVENTS, create_tables, load_table, open_catalog
from protobuf import records_pb2 as records

SQL = query("S D{3,} U{3,} E", f"{LOCAL}, E AS price <= PREV(price)", ENDED, partition="ticker")
WARM = "WARM."
#: Published and evaluated before anything is timed.
WARM_ROWS = 100_000
COLUMNS = ("symbol", "t0", "t1", "first_price", "bottom", "top")
_SCHEMA = pa.schema(
    [("symbol", pa.string()), ("t0", pa.int64()), ("t1", pa.int64())] + [(name, pa.float64()) for name in COLUMNS[3:]]
)


def run(input_file: Path, rows_file: Path | None = None, master: str = TWO_CORES) -> dict[str, Any]:
    """`input_file`: parquet with ts_ns, symbol, price, size, side. `rows_file`: where to write the matches."""
    rows = pq.read_metadata(input_file).num_rows
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(EmbeddedRedis(folder / "redis", fsync="no"))
        settings = settings_of(folder, redis.url, master)
        bus = connect(settings.bus)
        stack.callback(bus.close)
        prepare_topics(bus)
        catalog = open_catalog(settings)
        create_tables(catalog)
        session = start_session(settings)
        stack.callback(session.stop)
        session.dataSource.register(TriggerSource)
        triggers = start_triggers(session, settings, bus, checkpoint=f"file://{folder}/checkpoints/triggers")
        stack.callback(triggers.stop)
        register(bus, [records.TriggerRegistration(trigger_id="match", version=1, sql=SQL)])
        floor = start_floor(session, settings, bus, checkpoint=f"file://{folder}/checkpoints/floor")
        stack.callback(floor.stop)
        stopping = threading.Event()
        store = AppendedTable(catalog, TableLocks(), APPENDED_EVENTS).store
        events = _EventTable(Follower(bus, APPENDED_EVENTS.followed, store, stopping=stopping), stopping)
        stack.callback(events.stop)
        publish_apart(redis.url, input_file, WARM, rows=min(rows, WARM_ROWS))
        for held in (triggers, floor):
            held.read_all(bus)
            held.hold()
        events.wait_for_all(bus)
        publish_apart(redis.url, input_file, "", rows=rows)
        floor_seconds = floor.timed(bus)
        floor.stop()
        with ProcessTree() as tree:
            to_topic, seconds = _timed(triggers, events, bus)
        stored = load_table(catalog, TRIGGER_EVENTS).scan().to_arrow()
        found = _rows(stored)
    if rows_file is not None:
        pq.write_table(found, rows_file)
    return {
        "rows": rows,
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / seconds),
        "result_rows": found.num_rows,
        "wrong_rows": wrong_rows(input_file, found),
        "seconds_to_topic": round(to_topic, 3),
        "floor_rows_per_second": round(rows / floor_seconds),
        "ratio": round(floor_seconds / seconds, 3),
        "cpu_seconds": {part: round(used, 2) for part, used in sorted(tree.cpu_seconds.items())},
        "peak_mib": {part: peak >> 20 for part, peak in sorted(tree.peak_bytes.items())},
    }


def expected_rows(input_file: Path) -> pa.Table:
    """The matches that the library finds in the input: columns and order of OUT."""
    ticks = pq.read_table(input_file)
    ticks = ticks.rename_columns(["ticker" if name == "symbol" else name for name in ticks.column_names])
    found = evaluate(SQL, ticks)
    table = found.rename_columns(["symbol" if name == "ticker" else name for name in found.column_names])
    return _in_order(table.select(COLUMNS).cast(_SCHEMA))


def wrong_rows(input_file: Path, found: pa.Table) -> int:
    """How many of `found` (columns and order of OUT) differ in any column, are missing or superfluous."""
    expected = expected_rows(input_file)
    if expected.num_rows != found.num_rows:
        return max(1, abs(int(expected.num_rows) - int(found.num_rows)))
    same = pa.array([True] * found.num_rows)
    for name in COLUMNS:
        same = pc.and_(same, pc.equal(found[name].combine_chunks(), expected[name].combine_chunks()))
    return int(pc.sum(pc.invert(same)).as_py() or 0)


class _EventTable:
    """The thread that copies events to the table, as the platform runs it."""

    def __init__(self, table: Follower, stopping: threading.Event) -> None:
        self._table = table
        self._stopping = stopping
        self._thread = threading.Thread(target=table.run, name="event-table", daemon=True)
        self._thread.start()

    def wait_for_all(self, bus: Bus) -> None:
        count = events_on_topic(bus)
        wait_until(lambda: self._table.stored_records >= count, "the events did not reach the table")

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def _timed(triggers: HeldQuery, events: _EventTable, bus: Bus) -> tuple[float, float]:
    """Seconds until all events are on the topic, and until they are in the table."""
    started = time.perf_counter()
    to_topic = triggers.timed(bus)
    events.wait_for_all(bus)
    return to_topic, time.perf_counter() - started


def _rows(stored: pa.Table) -> pa.Table:
    """OUT from rows of `trigger_events`, without the tickers that warmed the query."""
    found = [row for text in stored["columns"].to_pylist() if not (row := json.loads(text))["ticker"].startswith(WARM)]
    rows = [{**row, "symbol": row["ticker"]} for row in found]
    return _in_order(pa.Table.from_pylist([{name: row[name] for name in COLUMNS} for row in rows], schema=_SCHEMA))


def _in_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([("symbol", "ascending"), ("t0", "ascending")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, required=True, help="parquet: ts_ns, symbol, price, size, side")
    parser.add_argument("--rows", type=Path, help="write the matches to this parquet file")
    add_master(parser)
    parser.add_argument("--output", choices=["json"], default="json")
    arguments = parser.parse_args()
    configure_logging("bench", "warning")
    print(json.dumps(run(arguments.input, arguments.rows, arguments.master)))


if __name__ == "__main__":
    main()
