"""The cost of the state of live bars in a micro-batch: bytes written to the bus, and the time of a batch.

One bus partition, no Spark. Every ticker has an hour of trades; then each batch has one trade of each of `touched`
tickers. `bytes` is the mean over a cycle from one whole state to the next, `whole_bytes` the size of a whole state
(which every batch wrote before there were notes). `batch_ms` is the median of the batches with a note, `whole_ms` that
of the batch with the whole state.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

from bus import Record
from bus import topics as bus_topics
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire.candlewright_pb2 import Side, TickBatch
from candlewright.wire.grid import SECOND
from flink_replacement_spark.live import journal as live_journal
from flink_replacement_spark.live import rows as live_rows
from flink_replacement_spark.live.source import TOPICS, Range

HOUR = 3_600 * SECOND
T0 = 472_222 * HOUR
TRADES = 120
#: Tickers, and how many of them have a trade in a batch.
SIZES = ((10, 10), (1_000, 10), (1_000, 1_000), (10_000, 10), (10_000, 10_000))


class CountingBus(RedisBus):
    """`written`: bytes put into the table of states."""

    written = 0

    def put(self, table: str, values: Mapping[str, bytes], *, keep_seconds: float | None = None) -> None:
        if table.startswith("live_state:"):
            self.written += sum(len(key) + len(value) for key, value in values.items())
        super().put(table, values, keep_seconds=keep_seconds)


def run(tickers: int, touched: int, *, text_ids: bool = False) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(Path(folder), fsync="always").start() as redis:
        bus = CountingBus(redis.url, 1)
        with closing(bus), patch.object(live_rows, "worker_bus", lambda _: bus):
            return _measure(bus, redis.url, tickers, touched, text_ids=text_ids)


def _measure(bus: CountingBus, url: str, tickers: int, touched: int, *, text_ids: bool) -> dict[str, object]:
    names = [f"T{number}/USDT.BINANCE" for number in range(tickers)]
    for topic in TOPICS:
        bus.create_topic(topic, 1)
    bus.create_topic(bus_topics.OHLC, 1)
    sizes, seconds = [], []
    step = HOUR // TRADES
    _publish(bus, names, range(1, TRADES + 1), [T0 + n * step for n in range(TRADES)], text_ids=text_ids)
    for batch in range(live_journal.MAX_NOTES + 2):
        if batch:
            number = TRADES + batch
            _publish(bus, names[:touched], range(number, number + 1), [T0 + HOUR + batch * SECOND], text_ids=text_ids)
        before, started = bus.written, time.perf_counter()
        _take(bus, url, batch)
        sizes.append(bus.written - before)
        seconds.append(time.perf_counter() - started)
    cycle = sizes[1:]
    return {
        "tickers": tickers,
        "touched": touched,
        "ids": "text" if text_ids else "numbers",
        "bytes": round(statistics.mean(cycle)),
        "whole_bytes": max(cycle),
        "ratio": round(max(cycle) / statistics.mean(cycle), 1),
        "batch_ms": round(1e3 * statistics.median(seconds[1:-1]), 1),
        "whole_ms": round(1e3 * seconds[-1], 1),
    }


def _publish(bus: RedisBus, names: Sequence[str], ids: range, times: Sequence[int], *, text_ids: bool) -> None:
    own: list[Record] = []
    for name in names:
        count = len(times)
        batch = TickBatch(ticker=name, first_sequence=ids[0], received_at=times, timestamp=times)
        batch.price.extend(100.0 + number % 7 for number in ids)
        batch.size.extend([0.1] * count)
        batch.side.extend([Side.BUY] * count)
        batch.trade_id.extend(f"00000000-0000-0000-0000-{number:012}" if text_ids else str(number) for number in ids)
        own.append(Record(batch.SerializeToString(), name.encode()))
    for start in range(0, len(own), 1_000):
        bus.publish(bus_topics.TICKS, own[start : start + 1_000])


def _take(bus: RedisBus, url: str, batch: int) -> None:
    first, end = bus.holds(bus_topics.TICKS, bus_topics.READER_BAR_MAKER).get(0, 0), bus.state(bus_topics.TICKS)[0].end
    live_rows.run_step(
        url,
        "bench",
        batch,
        partition=0,
        lateness_ns=0,
        horizon_ns=HOUR,
        max_ahead_ns=5 * SECOND,
        ranges=[Range(0, first, end - 1)],
    )
    bus.hold(bus_topics.TICKS, bus_topics.READER_BAR_MAKER, {0: end})


def main() -> int:
    parser = argparse.ArgumentParser(prog="candlewright bench state", description=__doc__)
    parser.add_argument("--tickers", type=int, help="of this size alone")
    parser.add_argument("--output", choices=("json",), default="json")
    options = parser.parse_args()
    for tickers, touched in SIZES:
        if options.tickers in (None, tickers):
            print(json.dumps(run(tickers, touched)), flush=True)
    if options.tickers in (None, 10):
        print(json.dumps(run(10, 10, text_ids=True)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
