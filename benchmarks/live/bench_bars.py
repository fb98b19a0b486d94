"""Latency of a live bar: from the publish of the trade that closes it to its record on topic `ohlc`.

The floor is a bare micro-batch of the same source: from the publish of a trade to the end of one empty pass over it.
Both queries run warm in one session, one after the other; the results are medians of many rounds.
"""

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame

from benchmarks.live import live_floor
from benchmarks.measuring.spark_master import TWO_CORES, add_master, spark_of
from bus import Bus, Record, SequenceStamp
from bus import topics as bus_topics
from bus.connect import connect
from bus.redis.embedded import EmbeddedRedis
from candlewright.wire import streams, tick_columns
from core.log import configure_logging
from core.settings import Settings
from flink_replacement_spark.driver.topics import prepare_topics
from flink_replacement_spark.live.query import start_live_query
from flink_replacement_spark.live.results import LiveHealth
from flink_replacement_spark.live.source import LiveSource
from flink_replacement_spark.spark.session import start_session

MINUTE_NS = 60_000_000_000
TICKER = "BTC/USDT.BENCH"


def run(rounds: int = 30, master: str = TWO_CORES) -> dict[str, Any]:
    """`rows`: bars; `ratio`: median latency of a bar over that of a bare micro-batch (lower is better)."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(Path(folder) / "redis", fsync="always") as redis:
        settings = Settings.model_validate(
            {
                "data_dir": folder,
                "bus": {"url": redis.url},
                "spark": spark_of(master),
            }
        )
        bus = connect(settings.bus)
        prepare_topics(bus)
        bus.create_topic(bus_topics.OHLC)
        session = start_session(settings)
        session.dataSource.register(LiveSource)
        passed = threading.Event()

        def pass_over(frame: DataFrame, _: int) -> None:
            if frame.mapInArrow(live_floor.pass_over(redis.url), live_floor.RESULT_SCHEMA).toArrow().num_rows:
                passed.set()

        try:
            started = time.perf_counter()
            query = (
                session.readStream.format("live")
                .option("url", redis.url)
                .option("reader", "floor")
                .load()
                .writeStream.foreachBatch(pass_over)
                .option("checkpointLocation", f"file://{folder}/checkpoints/floor")
                .start()
            )
            trades = _Trades(bus)
            floor = []
            for _ in range(rounds + 3):
                passed.clear()
                begun = time.perf_counter()
                trades.next()
                passed.wait(120)
                floor.append(time.perf_counter() - begun)
            query.stop()
            query = start_live_query(session, settings, LiveHealth(), checkpoint=f"file://{folder}/checkpoints/live")
            seen = trades.wait_for_bar(0)
            latencies = []
            for _ in range(rounds + 3):
                begun = time.perf_counter()
                trades.next()
                seen = trades.wait_for_bar(seen)
                latencies.append(time.perf_counter() - begun)
            query.stop()
            # The first rounds of each are warm-up.
            ours, bare = statistics.median(latencies[3:]), statistics.median(floor[3:])
            seconds = time.perf_counter() - started
            return {
                "rows": rounds,
                "seconds": round(seconds, 3),
                "rows_per_second": round(rounds / sum(latencies[3:]), 3),
                "result_rows": seen,
                "median_seconds": round(ours, 4),
                "p90_seconds": round(statistics.quantiles(latencies[3:], n=10)[-1], 4),
                "floor_median_seconds": round(bare, 4),
                "ratio": round(ours / bare, 3),
            }
        finally:
            session.stop()
            bus.close()


class _Trades:
    """Each trade opens a new minute, and so closes the previous bar."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._count = 0
        self._key = TICKER.encode()

    def next(self) -> None:
        self._count += 1
        at = np.array([1_700_000_040_000_000_000 + self._count * MINUTE_NS])
        one = np.ones(1)
        ids = np.array([self._count]).astype("S")
        columns = tick_columns.TickColumns(
            ticker=TICKER,
            first_sequence=0,
            timestamp=at,
            price=one,
            size=one,
            side=one.astype(np.uint8),
            trade_id=ids,
            received_at=at,
        )
        stamp = SequenceStamp(streams.ticks(TICKER), 1, streams.TICKS.tag)
        self._bus.publish(bus_topics.TICKS, [Record(tick_columns.encode(columns), key=self._key, sequence=stamp)])

    def wait_for_bar(self, seen: int) -> int:
        """The bars on the topic, once there are more than `seen` and as many as the trades closed."""
        while True:
            ends = [state.end for state in self._bus.state(bus_topics.OHLC)]
            if sum(ends) > seen and sum(ends) >= self._count - 1:
                return sum(ends)
            self._bus.wait({(bus_topics.OHLC, p): end for p, end in enumerate(ends)}, 120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    add_master(parser)
    parser.add_argument("--output", choices=["json"], default="json")
    arguments = parser.parse_args()
    configure_logging("bench", "warning")
    print(json.dumps(run(arguments.rounds, arguments.master)))


if __name__ == "__main__":
    main()
