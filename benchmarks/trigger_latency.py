"""A tick published to the event of a trigger at a ZeroMQ subscriber of `TRIGGER:{id}`, against a bare micro-batch.

    python -m benchmarks.trigger_latency [--rows 100] [--pause 0.2]

The path of an event: a tick on the bus, the streaming query of triggers (`price > 0`, registered through the relay,
which is a separate process), the topic `trigger_events`, the relay, a subscriber. The bare micro-batch is a query with
the same source, tasks, reads and state handling, but no trigger, event or relay: its timing runs from the publish until
the driver has the task's result. Both wait for the disk, as the platform does by default. The queries alternate, one
paused while the other is measured. Each tick is published after the last one's answer plus a pause, so that no queue is
measured. `--rows`: timed ticks of each; in the result `rows` are all ticks, each of which becomes an event
(`result_rows`). An event is published before its micro-batch saves its state and ends, so the ratio may be below 1.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
import zmq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.bench_relay import free_ports, relay_process
from benchmarks.gate import Gate
from benchmarks.spark_master import TWO_CORES, add_master
from benchmarks.trigger_floor import batches_of, plans_of
from benchmarks.trigger_stage import HeldQuery, events_on_topic, settings_of, start_over_plans, start_triggers
from bus import Bus, Record, SequenceStamp
from bus import topics as bus_topics
from bus.connect import connect
from bus.embedded import EmbeddedRedis
from candlewright.client import connect as connect_client
from candlewright.wire import tick_columns
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent, FieldValue
from core.log import configure_logging
from core.settings import Settings
from flink_replacement_spark.engine.bus_source import worker_bus
from flink_replacement_spark.engine.session import start_session
from flink_replacement_spark.live.state import StateStore
from flink_replacement_spark.server import prepare_topics
from flink_replacement_spark.triggers.source import TriggerSource

SQL = "SELECT price FROM ticks WHERE price > 0"
TRIGGER_ID = "latency"
TICKER = "BENCH/USDT.SIM"
TIMEOUT_SECONDS = 120.0
#: Warm-up ticks at the start of each query's turn.
WARM_ROWS = 5
TURNS = 4
_STATE = "bare_state"


def run(rows: int = 100, pause_seconds: float = 0.2, master: str = TWO_CORES) -> dict[str, Any]:
    """`rows`: timed ticks of each query. Times in milliseconds; `ratio` is of the medians, `p99_ratio` of the p99s."""
    ours: list[float] = []
    bare: list[float] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(EmbeddedRedis(folder / "redis"))
        settings = settings_of(folder, redis.url, master)
        bus = connect(settings.bus)
        stack.callback(bus.close)
        prepare_topics(bus)
        session = start_session(settings)
        stack.callback(session.stop)
        session.dataSource.register(TriggerSource)
        triggers = start_triggers(session, settings, bus, checkpoint=f"file://{folder}/checkpoints/triggers")
        stack.callback(triggers.stop)
        subscriber = _Subscriber(stack, redis.url, folder)
        answers = _Answers()
        bare_query = _start_bare(session, settings, bus, f"file://{folder}/checkpoints/bare", answers)
        stack.callback(bare_query.stop)
        feed = _Feed(bus)
        for query in (triggers, bare_query):
            query.read_all(bus)
            query.hold()
        started = time.perf_counter()
        for turn in range(TURNS):
            count = rows * (turn + 1) // TURNS - rows * turn // TURNS
            bare += _turn(bare_query, bus, feed, answers.wait_for, count, pause_seconds)
            ours += _turn(triggers, bus, feed, subscriber.wait_for, count, pause_seconds)
        seconds = time.perf_counter() - started
        events = events_on_topic(bus)
    return {
        "rows": feed.newest,
        "seconds": round(seconds, 3),
        "rows_per_second": round(feed.newest / seconds, 1),
        "result_rows": events,
        "timed": len(ours),
        **_figures("", ours),
        **_figures("bare_", bare),
        "ratio": round(statistics.median(ours) / statistics.median(bare), 3),
        "p99_ratio": round(_p99(ours) / _p99(bare), 3),
        "received_at": "ZeroMQ subscriber of the relay",
    }


class _Feed:
    """Ticks of one ticker, one second of event time apart; each tick's price is its number."""

    def __init__(self, bus: Bus) -> None:
        self.newest = 0
        self._bus = bus

    def publish(self) -> int:
        self.newest += 1
        number = np.array([self.newest])
        time_ns = (1_704_067_200 + number) * 1_000_000_000
        columns = tick_columns.TickColumns(
            TICKER, 0, time_ns, number.astype(float), np.ones(1), np.ones(1, np.uint8), number.astype("S"), time_ns
        )
        stamp = SequenceStamp(f"TICKS:{TICKER}", 1, b"\x10")
        self._bus.publish(bus_topics.TICKS, [Record(tick_columns.encode(columns), key=TICKER.encode(), sequence=stamp)])
        return self.newest


class _Subscriber:
    """Registers the trigger through its own relay and receives its events."""

    def __init__(self, stack: ExitStack, bus_url: str, folder: Path) -> None:
        requests, notifications = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
        stack.enter_context(relay_process(bus_url, requests, notifications, port_file=folder / "relay.http"))
        client = stack.enter_context(connect_client(requests, notifications, timeout=TIMEOUT_SECONDS))
        client.triggers.add(SQL, trigger_id=TRIGGER_ID, timeout=TIMEOUT_SECONDS).close()
        context = stack.enter_context(zmq.Context())
        self._socket = stack.enter_context(context.socket(zmq.SUB))
        self._socket.setsockopt(zmq.RCVTIMEO, round(TIMEOUT_SECONDS * 1_000))
        self._socket.subscribe(f"TRIGGER:{TRIGGER_ID}")
        self._socket.connect(notifications)

    def wait_for(self, number: int) -> None:
        """Skips events before that of tick `number`. Raises zmq.Again if it does not arrive."""
        while self._next_price() < number:
            pass

    def _next_price(self) -> float:
        _, _, body = self._socket.recv_multipart()
        event = CEPTriggerEvent.FromString(body[1:])
        return float(FieldValue.FromString(event.rows[0].values[0]).double_val)


class _Answers:
    """The number of ticks that the bare query's micro-batches have read so far."""

    def __init__(self) -> None:
        self._read: SimpleQueue[int] = SimpleQueue()
        self._total = 0

    def add(self, records_read: int) -> None:
        if records_read:
            self._read.put(records_read)

    def wait_for(self, number: int) -> None:
        """Wait until `number` ticks have been read. Raises queue.Empty if they do not arrive."""
        while self._total < number:
            self._total += self._read.get(timeout=TIMEOUT_SECONDS)


def _turn(
    query: HeldQuery, bus: Bus, feed: _Feed, wait_for: Callable[[int], None], count: int, pause_seconds: float
) -> list[float]:
    """Milliseconds for each of `count` ticks, from before its publish to its answer."""
    pauses = random.Random(7)
    query.gate.open()
    query.read_all(bus)
    found = []
    for place in range(WARM_ROWS + count):
        # At a random moment of the second at whose end both queries' clocks advance.
        time.sleep(pause_seconds * (0.5 + pauses.random()))
        started = time.perf_counter()
        wait_for(feed.publish())
        if place >= WARM_ROWS:
            found.append(1_000 * (time.perf_counter() - started))
    query.hold()
    return found


def _start_bare(session: SparkSession, settings: Settings, bus: Bus, checkpoint: str, answers: _Answers) -> HeldQuery:
    gate = Gate(is_open=True)
    partitions = bus.partitions(bus_topics.TICKS)

    def run_batch(frame: DataFrame, batch_id: int) -> None:
        query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId") or "bare"
        counts = frame.mapInArrow(_work(settings.bus.url, query_id, batch_id, partitions), "n bigint").toArrow()
        answers.add(sum(counts["n"].to_pylist()))
        gate.wait()

    return HeldQuery(gate, start_over_plans(session, settings, partitions, run_batch=run_batch, checkpoint=checkpoint))


def _work(
    url: str, query_id: str, batch_id: int, partitions: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Per partition: state in, records read, state out if there were any; returns the number of ticks."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bus = worker_bus(url)
        for plan in plans_of(batches):
            store = StateStore(bus, query_id, _STATE)
            base = store.base_of(plan.owner, batch_id)
            before = int(store.load(plan.owner, base) or b"0")
            ticks = 0
            if plan.owner < partitions:
                ticks = sum(batch.num_rows for batch in batches_of(url, plan.of(bus_topics.TICKS)))
            if ticks or base < 0:
                store.save(plan.owner, batch_id, str(before + ticks).encode())
            yield pa.RecordBatch.from_pydict({"n": [ticks]})

    return run


def _figures(name: str, latencies: list[float]) -> dict[str, float]:
    return {
        f"{name}median_ms": round(statistics.median(latencies), 1),
        f"{name}p99_ms": round(_p99(latencies), 1),
    }


def _p99(latencies: list[float]) -> float:
    return float(np.percentile(latencies, 99))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0.2, help="mean seconds between an answer and the next tick")
    add_master(parser)
    parser.add_argument("--output", choices=["json"], default="json")
    asked = parser.parse_args()
    configure_logging("bench", "warning")
    print(json.dumps(run(asked.rows, asked.pause, asked.master)))


if __name__ == "__main__":
    main()
