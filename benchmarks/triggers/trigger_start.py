"""Registering triggers on a running platform, and starting the platform with many of them.

    ./run bench trigger-start [--count 10000] [--registered 300] [--at-once 32]

Starts a platform without ingestors, stops it, and starts it again with triggers on four tickers, one in each partition
of the bus. `register` is the time of a registration through the client, one after another, and the number in a second
with `--at-once` of them under way. Then one line for each kind of `--count` further triggers over 1,000 tickers:
`none`; `numbers`, conditions, patterns and windows that differ only in a number; `texts`, those and as many with a
column name of its own in each. They are put on the bus as the relay does, and the platform is stopped and started.
`ready_seconds`: until `ready`; `event_seconds`: until trades published from then on have caused events of all four
tickers. `cpu_seconds`: processor time of all processes until `ready`.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from benchmarks.measuring.process_tree import ProcessTree
from benchmarks.measuring.spark_master import ALL_CORES, add_master
from benchmarks.system.latency import SECOND_NS, TIMEOUT_SECONDS, Trades, subscriber_of
from benchmarks.triggers.trigger_stage import register
from bus import Bus, partition_of
from bus.connect import connect
from bus.redis.embedded import EmbeddedRedis
from candlewright.client import connect as connect_client
from candlewright.client.triggers.trigger_events import TriggerEvent
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire import streams
from candlewright.wire.frames import ON_TOPIC, decode_body
from candlewright_platform.supervisor.private import PrivatePlatform
from core.log import configure_logging
from core.settings import Settings
from protobuf import records_pb2 as records

TICKERS = 1_000
#: Each with a number and the name of a column.
_SQL = (
    "SELECT price AS {name} FROM ticks WHERE price > {number}",
    """SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES B.price AS {name}
    PATTERN (A B) DEFINE B AS price > A.price * {number}) AS m""",
    """SELECT window_start, COUNT(*) AS {name} FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
    GROUP BY ticker, window_start, window_end HAVING COUNT(*) > {number}""",
)
_FIRST = 1_000_000
_PAUSE_SECONDS = 0.02


def texts(kind: str, count: int) -> Iterator[tuple[str, str]]:
    """SQL and ticker of each."""
    for place in range(count):
        number, name = (_FIRST, f"c{place}") if kind == "texts" else (_FIRST + place, "found")
        yield _SQL[place % len(_SQL)].format(name=name, number=number), f"T{place % TICKERS}/USDT.BINANCE"


def run(
    count: int, registered: int, at_once: int, kinds: Sequence[str] = ("numbers", "texts"), *, master: str = ALL_CORES
) -> Iterator[Any]:
    with tempfile.TemporaryDirectory(prefix="candlewright-bench-") as folder, ExitStack() as stack:
        redis = stack.enter_context(EmbeddedRedis(Path(folder) / "redis", fsync="always"))
        platform = PrivatePlatform(
            Path(folder) / "data",
            ("--ingestors", "0"),
            {"BUS__URL": redis.url, "SPARK__MASTER": master},
            hear=lambda line: None,
        )
        stack.callback(platform.stop)
        bus = stack.enter_context(closing(connect(Settings.model_validate({"bus": {"url": redis.url}}).bus)))
        platform.start()
        feeds = _feeds(bus)
        yield {"name": "register", **_registrations(platform, feeds, registered, at_once)}
        yield {"name": "none", "triggers": len(feeds) + registered, **_start(platform, feeds)}
        for kind in kinds:
            asked = [
                records.TriggerRegistration(
                    trigger_id=f"{kind}-{place}", sql=sql, tickers=[ticker],
                    version=time.time_ns(), registered_at=time.time_ns(),
                )
                for place, (sql, ticker) in enumerate(texts(kind, count))
            ]  # fmt: skip
            register(bus, asked)
            yield {"name": kind, "triggers": count, **_start(platform, feeds)}


def _feeds(bus: Bus) -> list[Trades]:
    """A ticker for each partition that trades are put in."""
    found: dict[int, Trades] = {}
    count, place = Settings().bus.partitions, 0
    while len(found) < count:
        ticker = f"START{place}/USDT.BINANCE"
        found.setdefault(partition_of(ticker.encode(), count), Trades(bus, ticker, SECOND_NS))
        place += 1
    return list(found.values())


def _registrations(platform: PrivatePlatform, feeds: Sequence[Trades], count: int, at_once: int) -> dict[str, Any]:
    relay = platform.settings.relay
    with connect_client(relay.requests_bind, relay.notifications_bind, timeout=TIMEOUT_SECONDS) as client:

        def add(trigger_id: str, sql: str, ticker: str) -> float:
            began = time.perf_counter()
            client.triggers.add(sql, tickers=[ticker], trigger_id=trigger_id, timeout=TIMEOUT_SECONDS).close()
            return 1_000 * (time.perf_counter() - began)

        for feed in feeds:
            add(feed.ticker.partition("/")[0], "price > 0", feed.ticker)
        asked = [(f"register-{place}", *each) for place, each in enumerate(texts("numbers", count))]
        alone, together = asked[: count // 3], asked[count // 3 :]
        times = [add(*each) for each in alone]
        began = time.perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda each: add(*each), together))
        seconds = time.perf_counter() - began
    return {"p50_ms": round(float(np.percentile(times, 50)), 1), "a_second": round(len(together) / seconds, 1)}


def _start(platform: PrivatePlatform, feeds: Sequence[Trades]) -> dict[str, float]:
    platform.stop()
    began = time.perf_counter()
    with ProcessTree() as tree:
        platform.start()
        ready = time.perf_counter() - began
    with ExitStack() as stack:
        for feed in feeds:
            subscriber = subscriber_of(stack, platform, streams.trigger(feed.ticker.partition("/")[0]))
            _await_event(subscriber, feed)
    event = time.perf_counter() - began
    cpu = sum(tree.cpu_seconds.values())
    return {"ready_seconds": round(ready, 2), "event_seconds": round(event, 2), "cpu_seconds": round(cpu, 1)}


def _await_event(subscriber: "zmq.Socket[bytes]", feed: Trades) -> None:
    """Publish trades until one of them has caused an event; the relay may still send those of earlier ones."""
    subscriber.setsockopt(zmq.RCVTIMEO, round(1_000 * _PAUSE_SECONDS))
    newest = feed.newest
    while True:
        feed.publish()
        try:
            message = decode_body(subscriber.recv_multipart()[-1], ON_TOPIC)
        except zmq.Again:
            continue
        price = TriggerEvent.from_message(message).row["price"] if isinstance(message, ing.CEPTriggerEvent) else None
        if isinstance(price, float) and price > newest:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--registered", type=int, default=300)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--kinds", nargs="+", choices=["numbers", "texts"], default=["numbers", "texts"])
    add_master(parser, ALL_CORES)
    parser.add_argument("--output", choices=["json"], default="json")
    asked = parser.parse_args()
    configure_logging("bench", "error")
    for line in run(asked.count, asked.registered, asked.at_once, asked.kinds, master=asked.master):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
