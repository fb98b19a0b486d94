"""Ticks from the bus through the streaming query into one-minute bars, on the topic and in the table.

All ticks are on the bus before the clock starts; it stops when the last bar is in the table. The floor is the same
streaming read with one empty pass over the Arrow batches. Both run once before they are timed, on other tickers, so
that Spark is warm.
"""

import argparse
import json
import tempfile
import threading
import time
from ast import literal_eval
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bus import Bus, Record, SequenceStamp
from bus import topics as bus_topics
from bus.connect import connect
from bus.embedded import EmbeddedRedis
from candlewright.supervisor.ports import free_port
from core.log import configure_logging
from core.settings import Settings
from flink_replacement_spark.live_query import start_live_query
from flink_replacement_spark.live_source import LiveSource
from flink_replacement_spark.live_writer import LiveWriter
from flink_replacement_spark.merger import SparkMerger
from flink_replacement_spark.server import prepare_topics
from flink_replacement_spark.session import start_session
from iceberg import OHLC, create_tables, load_table, open_catalog
from protobuf import records_pb2 as records
from protobuf import tick_columns

MINUTE_NS = 60_000_000_000
#: Rows of the input that travel together: a TickBatch holds those of one ticker.
WINDOW = 50_000


def run(input_file: Path, rows_file: Path | None = None) -> dict[str, Any]:
    """`input_file`: parquet with ts_ns, symbol, price, size, side. `rows_file`: where to write the bars."""
    ticks = pq.read_table(input_file, columns=["ts_ns", "symbol", "price", "size", "side"])
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(Path(folder) / "redis", fsync="no") as redis:
        settings = Settings.model_validate(
            {
                "data_dir": folder,
                "bus": {"url": redis.url, "max_bytes": 16 << 30},
                "spark": {"connect_bind": f"127.0.0.1:{free_port()}", "master": "local[2]"},
            }
        )
        bus = connect(settings.bus)
        prepare_topics(bus)
        catalog = open_catalog(settings)
        create_tables(catalog)
        session = start_session(settings)
        try:
            session.dataSource.register(LiveSource)
            _publish(bus, ticks.slice(0, min(ticks.num_rows, 100_000)), "WARM.")
            writer = LiveWriter(catalog, SparkMerger(session, catalog, redis.url), threading.Lock(), _never())
            checkpoint = f"file://{folder}/checkpoints"
            _timed_floor(session, settings, bus, f"{checkpoint}/floor-warm")
            query = start_live_query(session, settings, writer, f"{checkpoint}/live-warm")
            _wait_for(query, bus)
            query.stop()
            known = load_table(catalog, OHLC).scan().to_arrow().num_rows
            _publish(bus, ticks, "")
            floor_seconds = _timed_floor(session, settings, bus, f"{checkpoint}/floor")
            started = time.perf_counter()
            # The checkpoint of the warm run: what is left to read is the input.
            query = start_live_query(session, settings, writer, f"{checkpoint}/live-warm")
            _wait_for(query, bus)
            seconds = time.perf_counter() - started
            query.stop()
            bars = load_table(catalog, OHLC).scan().to_arrow()
            bars = bars.filter(pc.invert(pc.starts_with(bars["ticker"], "WARM.")))
            bars = bars.filter(pc.equal(bars["period_seconds"], 60))
            if rows_file is not None:
                pq.write_table(_rows(bars), rows_file)
            return {
                "rows": ticks.num_rows,
                "seconds": round(seconds, 3),
                "rows_per_second": round(ticks.num_rows / seconds),
                "result_rows": bars.num_rows,
                "floor_rows_per_second": round(ticks.num_rows / floor_seconds),
                "ratio": round(floor_seconds / seconds, 3),
                "batches": writer.health.batches,
                "warm_rows": known,
                "duplicates": writer.health.duplicates,
            }
        finally:
            session.stop()
            bus.close()


def _publish(bus: Bus, ticks: pa.Table, prefix: str) -> None:
    """In the order of the input, and marks that close every bar at the end."""
    symbols = ticks["symbol"].combine_chunks().dictionary_encode()
    names = [f"{prefix}{name}" for name in symbols.dictionary.to_pylist()]
    code = symbols.indices.to_numpy()
    time_ns, price, size = (ticks[name].to_numpy() for name in ("ts_ns", "price", "size"))
    side = np.where(ticks["side"].to_numpy(zero_copy_only=False) == "buy", 1, 2).astype(np.uint8)
    counts = np.zeros(len(names), np.int64)
    marks = [_mark(name, covered=records.Covered(job_id="bench", from_time=0)) for name in names]
    bus.publish(bus_topics.TICK_MARKS, marks)
    for start in range(0, ticks.num_rows, WINDOW):
        stop = min(start + WINDOW, ticks.num_rows)
        order = start + np.argsort(code[start:stop], kind="stable")
        batch = []
        for part in np.split(order, np.flatnonzero(np.diff(code[order])) + 1):
            number = int(code[part[0]])
            ids = np.arange(counts[number], counts[number] + len(part)).astype("S")
            counts[number] += len(part)
            columns = tick_columns.TickColumns(
                names[number], 0, time_ns[part], price[part], size[part], side[part], ids, time_ns[part]
            )
            stamp = SequenceStamp(f"TICKS:{names[number]}", len(part), b"\x10")
            batch.append(Record(tick_columns.encode(columns), key=names[number].encode(), sequence=stamp))
        bus.publish(bus_topics.TICKS, batch)
    end = int(time_ns.max()) // MINUTE_NS * MINUTE_NS + MINUTE_NS
    clocks = [
        _mark(name, clock=records.Clock(exchange_time=end, sequence=bus.last_sequence(f"TICKS:{name}")))
        for name in names
    ]
    bus.publish(bus_topics.TICK_MARKS, clocks)


def _mark(ticker: str, **body: Any) -> Record:
    return Record(records.TickMark(ticker=ticker, **body).SerializeToString(), key=ticker.encode())


def _timed_floor(session: SparkSession, settings: Settings, bus: Bus, checkpoint: str) -> float:
    """Seconds of one streaming read of what the live query has not read yet, its batches passed over."""
    reader = checkpoint.rsplit("/", 1)[-1]
    for topic in (bus_topics.TICKS, bus_topics.TICK_MARKS):
        bus.hold(topic, reader, bus.holds(topic, bus_topics.READER_BAR_MAKER) or {})

    def pass_over(frame: DataFrame, _: int) -> None:
        frame.mapInArrow(_nothing, "n bigint").toArrow()

    started = time.perf_counter()
    query = (
        session.readStream.format("live")
        .option("url", settings.bus.url)
        .option("reader", reader)
        .load()
        .writeStream.foreachBatch(pass_over)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    _wait_for(query, bus)
    seconds = time.perf_counter() - started
    query.stop()
    return seconds


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"n": [rows]})


def _wait_for(query: StreamingQuery, bus: Bus, timeout_seconds: float = 1_800.0) -> None:
    """Until a finished micro-batch of `query` ends where the topics end: its results are visible then."""
    topics = (bus_topics.TICKS, bus_topics.TICK_MARKS)
    ends = {topic: {str(p): state.end for p, state in enumerate(bus.state(topic))} for topic in topics}
    deadline = time.monotonic() + timeout_seconds
    while True:
        if (error := query.exception()) is not None:
            raise error
        progress = query.lastProgress
        if progress is not None and literal_eval(str(progress["sources"][0]["endOffset"])) == ends:
            return
        if time.monotonic() > deadline:
            raise TimeoutError("the query did not read everything in time")
        time.sleep(0.02)


def _rows(bars: pa.Table) -> pa.Table:
    table = pa.table(
        {
            "symbol": bars["ticker"],
            "open_time": pc.multiply(bars["open_time"].cast(pa.int64()), 1_000),
            **{name: bars[name] for name in ("open", "high", "low", "close", "volume", "trade_count")},
        }
    )
    return table.sort_by([("symbol", "ascending"), ("open_time", "ascending")])


def _never() -> threading.Event:
    return threading.Event()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, required=True, help="parquet: ts_ns, symbol, price, size, side")
    parser.add_argument("--rows", type=Path, help="write the bars to this parquet file")
    parser.add_argument("--output", choices=["json"], default="json")
    arguments = parser.parse_args()
    configure_logging("bench", "warning")
    print(json.dumps(run(arguments.input, arguments.rows)))


if __name__ == "__main__":
    main()
