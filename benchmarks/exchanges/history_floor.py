"""The history writer's cost on top of Spark and Iceberg: latency of 1,000 candles, and cost per candle; no exchanges.

Pages and outcomes are put on a real Redis as ingestors and broker would do. Timing runs from the last outcome on the
bus to the final notification. The floor is a bare micro-batch of the same source (publish to an emptied batch) plus a
bare pyiceberg append of 1,000 rows, both warm, in the same session.
"""

import argparse
import json
import queue
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.measuring.spark_master import ALL_CORES, add_master, spark_of
from bus import Bus, Record
from bus import topics as bus_topics
from bus.connect import connect
from bus.redis.embedded import EmbeddedRedis
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from core.log import configure_logging
from core.settings import Settings
from flink_replacement_spark.history.pages import candles, decode_page
from flink_replacement_spark.server import Driver
from iceberg import OHLC, append, load_table, open_catalog
from protobuf import records_pb2 as records

MINUTE = 60_000_000_000
START = 1_577_836_800_000_000_000 // MINUTE * MINUTE
PAGE = 1_000
FLOOR_TOPIC = "floor"


def run(
    sizes: Sequence[int] = (10_000, 100_000, 1_000_000),
    rounds: int = 15,
    piece: int = 10_000,
    *,
    master: str = ALL_CORES,
) -> dict[str, Any]:
    """`latency_ratio`: 1,000 candles over the floor; `cost_ratio`: cost per candle, largest size over smallest."""
    with _driver(master) as (driver, settings):
        bus = connect(settings.bus)
        request = _Requests(bus)
        for _ in range(3):
            request.seconds(1_000, 1_000)
        latency = statistics.median(request.seconds(1_000, 1_000) for _ in range(rounds))
        micro_batch = _bare_micro_batch(driver, settings, bus, rounds)
        commit = _bare_commit(settings, rounds)
        seconds = {size: request.seconds(size, piece) for size in sizes}
        bus.close()
    cost = {size: value / size for size, value in seconds.items()}
    largest, smallest = max(sizes), min(sizes)
    return {
        "rows": largest,
        "seconds": round(seconds[largest], 4),
        "rows_per_second": round(largest / seconds[largest]),
        "result_rows": largest,
        "latency_seconds": round(latency, 4),
        "micro_batch_seconds": round(micro_batch, 4),
        "commit_seconds": round(commit, 4),
        "latency_ratio": round(latency / (micro_batch + commit), 3),
        "microseconds_per_candle": {str(size): round(value * 1e6, 2) for size, value in cost.items()},
        "cost_ratio": round(cost[largest] / cost[smallest], 3),
    }


@contextmanager
def _driver(master: str) -> Iterator[tuple[Driver, Settings]]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(Path(folder) / "redis") as redis:
        settings = Settings.model_validate({"data_dir": folder, "bus": {"url": redis.url}, "spark": spark_of(master)})
        driver = Driver(settings)
        driver.start()
        loop = threading.Thread(target=driver.run)
        loop.start()
        try:
            yield driver, settings
        finally:
            driver.stop()
            loop.join()
            driver.close()


class _Requests:
    """Whole requests of fresh tickers."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._count = 0

    def seconds(self, rows: int, piece_rows: int) -> float:
        """From the last outcome on the bus to the final; raises RuntimeError if the final is wrong."""
        self._count += 1
        name, ticker = f"request-{self._count}", f"T{self._count}/USDT.BINANCE"
        key = ticker.encode()
        outcomes = []
        for number, first in enumerate(range(0, rows, piece_rows)):
            count = min(piece_rows, rows - first)
            job_id = f"{name}-{number}"
            pages = [make_page(job_id, ticker, first + at, rows=min(PAGE, count - at)) for at in range(0, count, PAGE)]
            places = self._bus.publish(bus_topics.HISTORY, [Record(value=page, partition_key=key) for page in pages])
            done = records.PieceDone(
                request_id=name,
                piece=number,
                job_id=job_id,
                ticker=ticker,
                period_seconds=60,
                start_time=START + first * MINUTE,
                end_time=START + (first + count) * MINUTE,
                partition=places[0].partition,
                spans=[cw.Span(first_offset=places[0].offset, last_offset=places[-1].offset)],
                rows=count,
                expected=count,
            )
            outcomes.append(records.HistoryOutcome(piece=done))
        end = records.RequestDone(
            request_id=name,
            ticker=ticker,
            period_seconds=60,
            start_time=START,
            end_time=START + rows * MINUTE,
            status=ing.HistoryReadyNotification.OK,
            rows=rows,
            expected=rows,
        )
        outcomes.append(records.HistoryOutcome(request=end))
        values = [Record(value=outcome.SerializeToString(), partition_key=key) for outcome in outcomes]
        started = time.perf_counter()
        self._bus.publish(bus_topics.HISTORY_OUTCOMES, values)
        while (content := self._bus.recall(bus_topics.REGISTRY_FINALS, [name])[0]) is None:
            time.sleep(0.002)
        elapsed = time.perf_counter() - started
        final = ing.HistoryReadyNotification.FromString(content)
        if (final.status, final.row_count) != (ing.HistoryReadyNotification.OK, rows):
            raise RuntimeError(f"wrong final: {final}")
        return elapsed


def make_page(job_id: str, ticker: str, first: int, *, rows: int) -> bytes:
    """A serialised page of `rows` candles from minute `first` on."""
    numbers = np.arange(first, first + rows)
    prices = (100.0 + np.sin(numbers / 50.0)).tolist()
    page = records.HistoryPage(
        job_id=job_id,
        ticker=ticker,
        period_seconds=60,
        source="exchange",
        open_time=(START + numbers * MINUTE).tolist(),
        open=prices,
        high=prices,
        low=prices,
        close=prices,
        volume=prices,
        quote_volume=prices,
        trade_count=numbers.tolist(),
    )
    return page.SerializeToString()


def _bare_micro_batch(driver: Driver, settings: Settings, bus: Bus, rounds: int) -> float:
    """Median seconds from a publish to the end of a batch that only reads the record."""
    done: queue.Queue[int] = queue.Queue()

    def read(frame: DataFrame, batch_id: int) -> None:
        done.put(frame.toArrow().num_rows)

    bus.create_topic(FLOOR_TOPIC)
    source = driver.session.readStream.format("bus").option("url", settings.bus.url).option("topic", FLOOR_TOPIC)
    checkpoint = f"file://{settings.data_dir}/checkpoints/{FLOOR_TOPIC}"
    stream = source.option("reader", FLOOR_TOPIC).load().writeStream.foreachBatch(read)
    bare = stream.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start()
    times = []
    for _ in range(rounds + 3):
        started = time.perf_counter()
        bus.publish(FLOOR_TOPIC, [Record(value=b"x", partition_key=b"x")] * 2)
        done.get(timeout=60)
        times.append(time.perf_counter() - started)
    bare.stop()
    return statistics.median(times[3:])


def _bare_commit(settings: Settings, rounds: int) -> float:
    """Median seconds of loading the table and appending 1,000 rows."""
    catalog = open_catalog(settings)
    page = decode_page(make_page("job", "FLOOR/USDT.BINANCE", 0, rows=1_000))
    rows: pa.Table = candles([page], START, START + 1_000 * MINUTE, updated_at_us=0)
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        append(load_table(catalog, OHLC), rows, {})
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    add_master(parser, ALL_CORES)
    parser.add_argument("--output", choices=["json"], default="json")
    arguments = parser.parse_args()
    configure_logging("bench", "warning")
    sizes = sorted({10_000, min(100_000, arguments.rows), arguments.rows})
    print(json.dumps(run(sizes, arguments.rounds, master=arguments.master)))


if __name__ == "__main__":
    main()
