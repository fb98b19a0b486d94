"""Ticks from the bus through the streaming query to one-minute bars, on the topic and in the table.

All ticks are on the bus before timing starts; it stops when the last bar is in the table, and `seconds_to_topic` when
it is on the topic. The query is the platform's, in tasks that do not end; their processes are stopped by a signal while
the input is published. The floor is the same read in a micro-batch, with one empty pass over the Arrow batches. Both
have read other tickers before they are timed, so the benchmark measures a running platform, not its start. `ratio` and
`topic_ratio` are those of the rates to the table and to the topic, `cpu_ratio` that of the CPU time of all their
processes, which is independent of other load on the machine. All columns of the bars are compared with bars computed
directly from the input.

`--sizes` runs the first N rows of the input for each given N, on a separate platform and with a separate result line,
to show that neither the CPU time of a row nor the memory of a part grows with the rows. `peak_mib` is the peak of
anonymous memory, sampled four times a second; pages shared by forked workers count once. Redis holds the input and the
bars on their topic, and does grow.
"""

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from ast import literal_eval
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import redis as redis_client
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.live import live_floor
from benchmarks.live.ohlc_check import wrong_rows
from benchmarks.measuring.gate import Gate
from benchmarks.measuring.process_tree import ProcessTree, spark_workers
from benchmarks.measuring.spark_master import TWO_CORES, add_master, spark_of
from benchmarks.measuring.tick_feed import MAX_BYTES, WINDOW, publish_apart
from bus import Bus
from bus import topics as bus_topics
from bus.connect import connect
from bus.redis.embedded import EmbeddedRedis
from candlewright_platform.supervisor.processes import LIBRARIES
from core.background import spare_startup
from core.log import configure_logging
from core.settings import Settings
from flink_replacement_spark.driver.one_pass import begin_serving, prepare_serving
from flink_replacement_spark.driver.topics import prepare_topics
from flink_replacement_spark.engine.serving_query import query_id_of
from flink_replacement_spark.engine.steps import NO_STEP, Steps
from flink_replacement_spark.history.merger import SparkMerger
from flink_replacement_spark.live.query import LIVE_QUERY
from flink_replacement_spark.live.results import LiveHealth
from flink_replacement_spark.live.source import LiveSource
from flink_replacement_spark.live.store import StateStore
from flink_replacement_spark.live.tables import FOLLOWED_BARS, BarTable
from flink_replacement_spark.spark.session import start_session
from flink_replacement_spark.tables.follower import Follower
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.triggers.query import TriggerHealth
from iceberg import OHLC, create_tables, load_table, open_catalog

#: Published and turned into bars before anything is timed.
WARM_ROWS = 100_000
TIMEOUT_SECONDS = 1_800.0
#: How often to look whether the query has read everything.
_LOOK_SECONDS = 0.005


def run(
    input_file: Path,
    rows_file: Path | None = None,
    first: int | None = None,
    *,
    master: str = TWO_CORES,
    window: int = WINDOW,
) -> dict[str, Any]:
    """`input_file`: parquet with ts_ns, symbol, price, size, side. `rows_file`: where to write the bars. `first`: how
    many of the input's rows to use, all by default. `window`: rows that travel together, in a record for each ticker.
    """
    rows = min(pq.read_metadata(input_file).num_rows, first or sys.maxsize)
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(Path(folder) / "redis", fsync="no") as redis:
        settings = Settings.model_validate(
            {
                "data_dir": folder,
                "bus": {"url": redis.url, "max_bytes": MAX_BYTES},
                # The driver must not give up the tasks while their processes are stopped.
                "spark": spark_of(master) | {"interval_seconds": 60},
            }
        )
        bus = connect(settings.bus)
        prepare_topics(bus)
        catalog = open_catalog(settings)
        create_tables(catalog)
        session = start_session(settings)
        live = None
        try:
            session.dataSource.register(LiveSource)
            publish_apart(redis.url, input_file, "WARM.", rows=WARM_ROWS)
            live = _Served(session, settings)
            gate = _CountedGate()
            floor = _Paused(gate, _start_floor(session, settings, gate, f"file://{folder}/checkpoints/floor"))
            merger = SparkMerger(session, catalog, redis.url)
            stopping = threading.Event()
            table = Follower(bus, FOLLOWED_BARS, BarTable(catalog, merger, TableLocks()).store, stopping=stopping)
            while table.step():
                pass
            thread = threading.Thread(target=table.run, daemon=True)
            publish_apart(redis.url, input_file, "", rows=rows, window=window)
            _rewrite_log(redis.url)
            # As the driver does once it has started.
            spare_startup()
            with ProcessTree() as floor_tree:
                floor_seconds = floor.timed(bus)
            with ProcessTree() as tree:
                started = time.perf_counter()
                thread.start()
                to_topic = live.timed()
                stopping.set()
                thread.join(TIMEOUT_SECONDS)
                table.flush()
                seconds = time.perf_counter() - started
            bars = load_table(catalog, OHLC).scan().to_arrow()
            bars = bars.filter(pc.invert(pc.starts_with(bars["ticker"], "WARM.")))
            bars = bars.filter(pc.equal(bars["period_seconds"], 60))
            found = _rows(bars)
            if rows_file is not None:
                pq.write_table(found, rows_file)
            return {
                "rows": rows,
                "seconds": round(seconds, 3),
                "rows_per_second": round(rows / seconds),
                "result_rows": bars.num_rows,
                "wrong_rows": wrong_rows(input_file, found, rows),
                "floor_rows_per_second": round(rows / floor_seconds),
                "ratio": round(floor_seconds / seconds, 3),
                "seconds_to_topic": round(to_topic, 3),
                "topic_ratio": round(floor_seconds / to_topic, 3),
                "cpu_ratio": round(sum(floor_tree.cpu_seconds.values()) / sum(tree.cpu_seconds.values()), 3),
                "cpu_seconds": _rounded(tree.cpu_seconds),
                "floor_cpu_seconds": _rounded(floor_tree.cpu_seconds),
                "cpu_microseconds_per_row": {
                    part: round(1e6 * used / rows, 3) for part, used in sorted(tree.cpu_seconds.items())
                },
                "peak_mib": {part: peak >> 20 for part, peak in sorted(tree.peak_bytes.items())},
                "steps": live.steps,
            }
        finally:
            if live is not None:
                live.stop()
            session.stop()
            bus.close()


class _Served:
    """The live query, which has read what is on the bus; the processes of its tasks are stopped until `timed`."""

    def __init__(self, session: SparkSession, settings: Settings) -> None:
        self._bus = connect(settings.bus)
        self._partitions = self._bus.partitions(bus_topics.TICKS)
        self._ending = threading.Event()
        self._prepared = prepare_serving(session, settings, self._partitions)
        begin_serving(self._prepared, settings, live=LiveHealth(), triggers=TriggerHealth(), stopping=self._ending)
        self._query_id = query_id_of(self._bus, LIVE_QUERY)
        self._read_all()
        self._steps_before = self._steps_done()
        self._workers = spark_workers()
        self._signal(signal.SIGSTOP)

    def timed(self) -> float:
        """Seconds from resuming the tasks until they have read everything and their results are on the bus."""
        started = time.perf_counter()
        self._signal(signal.SIGCONT)
        self._read_all()
        return time.perf_counter() - started

    @property
    def steps(self) -> int:
        """How many steps were timed."""
        return self._steps_done() - self._steps_before

    def stop(self) -> None:
        self._signal(signal.SIGCONT)
        self._ending.set()
        self._prepared.stop()
        self._bus.close()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._workers:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _read_all(self) -> None:
        topics = (bus_topics.TICKS, bus_topics.TICK_MARKS)
        ends = {topic: self._bus.state(topic) for topic in topics}
        store, steps = StateStore(self._bus, self._query_id), Steps(self._bus, self._query_id)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        left = set(range(self._partitions))
        while left:
            if not self._prepared.is_active or time.monotonic() > deadline:
                raise TimeoutError("the query ended, or did not read everything in time")
            time.sleep(_LOOK_SECONDS)
            done = steps.all()
            for partition in list(left):
                step = done.get(str(partition), NO_STEP)
                is_whole = all(
                    step.end.get(topic, {}).get(str(partition), 0) == ends[topic][partition].end for topic in topics
                )
                # Storing the state is the last part of a step.
                if is_whole and store.pointer(partition).newest >= step.number:
                    left.remove(partition)

    def _steps_done(self) -> int:
        return sum(step.number + 1 for step in Steps(self._bus, self._query_id).all().values())


class _Paused:
    """A query that has run a first micro-batch over the warm-up rows, and waits before the next."""

    def __init__(self, gate: "_CountedGate", query: StreamingQuery) -> None:
        self._gate = gate
        self._query = query
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not self._gate.reached.wait(1.0):
            if (error := query.exception()) is not None:
                raise error
            if time.monotonic() > deadline:
                raise TimeoutError("the query did not start in time")

    def timed(self, bus: Bus) -> float:
        """Seconds from resuming the query until it has read everything and its results are visible."""
        started = time.perf_counter()
        self._gate.open()
        _wait_for(self._query, bus, self._gate.passed)
        seconds = time.perf_counter() - started
        self._query.stop()
        return seconds


class _CountedGate(Gate):
    """`passed` is set by each micro-batch that passes."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = threading.Event()

    def wait(self) -> None:
        super().wait()
        self.passed.set()


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {part: round(used, 2) for part, used in sorted(seconds.items())}


def _start_floor(session: SparkSession, settings: Settings, gate: Gate, checkpoint: str) -> StreamingQuery:
    """The same read as the live query's, with an empty pass over its batches."""

    def pass_over(frame: DataFrame, _: int) -> None:
        frame.mapInArrow(live_floor.pass_over(settings.bus.url), live_floor.RESULT_SCHEMA).toArrow()
        gate.wait()

    source = session.readStream.format("live").option("url", settings.bus.url).option("reader", "floor").load()
    return source.writeStream.foreachBatch(pass_over).option("checkpointLocation", checkpoint).start()


def _rewrite_log(url: str) -> None:
    """A large input makes Redis rewrite its log at some point, in a separate process: do it before timing starts."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with redis_client.Redis.from_url(url) as client:
        with suppress(redis_client.ResponseError):
            client.bgrewriteaof()
        while time.monotonic() < deadline:
            found = client.info("persistence")
            if not found["aof_rewrite_in_progress"] and not found["aof_rewrite_scheduled"]:
                return
            time.sleep(0.1)
    raise TimeoutError("Redis did not rewrite its log in time")


def _wait_for(query: StreamingQuery, bus: Bus, passed: threading.Event) -> None:
    """Wait until a finished micro-batch of `query` ends where the topics end: its results are then visible.

    Spark is queried only after a micro-batch, because a query costs it as much as planning.
    """
    topics = (bus_topics.TICKS, bus_topics.TICK_MARKS)
    ends = {topic: {str(p): state.end for p, state in enumerate(bus.state(topic))} for topic in topics}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    known = None
    while time.monotonic() < deadline:
        if (error := query.exception()) is not None:
            raise error
        has_passed = passed.wait(1.0)
        passed.clear()
        while True:
            progress = query.lastProgress
            batch_id = None if progress is None else progress["batchId"]
            if progress is not None:
                # Offsets name the lives of the store as well.
                offsets = literal_eval(str(progress["sources"][0]["endOffset"]))
                if all(offsets.get(topic) == end for topic, end in ends.items()):
                    return
            if batch_id != known or not has_passed or passed.is_set():
                known = batch_id
                break
            time.sleep(0.02)
    raise TimeoutError("the query did not read everything in time")


def _rows(bars: pa.Table) -> pa.Table:
    table = pa.table(
        {
            "symbol": bars["ticker"],
            "open_time": pc.multiply(bars["open_time"].cast(pa.int64()), 1_000),
            **{name: bars[name] for name in ("open", "high", "low", "close", "volume", "trade_count")},
        }
    )
    return table.sort_by([("symbol", "ascending"), ("open_time", "ascending")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, required=True, help="parquet: ts_ns, symbol, price, size, side")
    parser.add_argument("--rows", type=Path, help="write the bars to this parquet file")
    parser.add_argument("--first", type=int, help="use only this many of the input's rows (default: all)")
    parser.add_argument("--sizes", type=int, nargs="+", help="one run for each of these numbers of rows")
    add_master(parser)
    parser.add_argument("--output", choices=["json"], default="json")
    arguments = parser.parse_args()
    # One process per run: Spark's memory and this process's do not shrink again. It allocates like a part.
    os.environ.update({**LIBRARIES, **os.environ})
    for first in arguments.sizes or [arguments.first]:
        run_apart = multiprocessing.get_context("spawn").Process(
            target=_print_run, args=(arguments.input, arguments.rows, first, arguments.master)
        )
        run_apart.start()
        run_apart.join()
        if run_apart.exitcode != 0:
            sys.exit(1)


def _print_run(input_file: Path, rows_file: Path | None, first: int | None, master: str) -> None:
    configure_logging("bench", "warning")
    print(json.dumps(run(input_file, rows_file, first, master=master)), flush=True)


if __name__ == "__main__":
    main()
