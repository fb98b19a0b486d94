"""Latencies of a running platform, each compared with its floor, and the cost of a nearly idle platform.

    candlewright bench latency [--rows 60] [--hops] [--load-rate 20000] [--load-triggers 100] [--mode batch]

Starts a whole platform without ingestors, publishes trades on its bus as an ingestor does, and listens to the relay's
notifications. One line each, with `p50_ms`, `p99_ms` and `max_ms` (`--rows 300` times a minute of each, with a dozen of
the engine's intervals):

- `trigger`: from a trade on the bus to the event of a row pattern that it decides.
- `bars`: from the trade that closes a minute to its bar.
- `bar_trigger`: from the trade that closes a minute to the event of a trigger over its bar.
- `load`: as `trigger`, while `--load-rate` further trades a second arrive over 100 tickers, for which `--load-triggers`
  further row patterns wait for a price that does not come.
- `slow`: as `trigger`, beside a trigger of the same bus partition that makes an array of 20,000 prices for each of 50
  trades a second.
- `threshold`: as `trigger`, beside a ticker of the same partition with 1,000 trades a second and a pattern that waits
  for a price above its start's (`A B*? C WITHIN INTERVAL '60' SECOND`) over 60,000 rows.
- `idle`: cores and memory (PSS) of all of the platform's processes, with five trades a second of one ticker that has a
  trigger.
- `sandbox_condition`, `sandbox_pattern`: on a second platform, from the time of a trade at the sandbox exchange (whole
  milliseconds) through its websocket and an ingestor to the event of a condition and of a row pattern.

`floor_…`: a hand-written consumer of the same bus, in a separate process, that waits for a trade, decodes it and sends
it to a ZeroMQ subscriber. With `--hops` there are further lines for the parts of the first three: `publish` (until the
bus has the trade on disk), `engine` (until the result is on the bus, by the bus's clock, which has milliseconds;
`bar_trigger` has `bar` and then `event` instead) and `relay` (until the subscriber has it). Two more lines time a
publish alone, alternately: `disk` waits for the disk as `--fsync` says, `memory` does not. Their difference is the
disk's share of each call that writes.
"""

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import redis as redis_client
import zmq

from benchmarks.measuring.process_tree import family
from benchmarks.measuring.spark_master import ALL_CORES, add_master
from bus import Bus, Record, SequenceStamp, partition_of
from bus import topics as bus_topics
from bus.connect import connect
from bus.redis.embedded import EmbeddedRedis
from candlewright.client import Client
from candlewright.client import connect as connect_client
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire import streams, tick_columns
from candlewright_platform.supervisor.private import PrivatePlatform
from core.log import configure_logging
from core.settings import Settings, SparkSettings

#: The trades of each measured ticker are one second of event time apart, or one minute if each closes a bar.
PATTERN_TICKER, BARS_TICKER = "PATTERN/USDT.BENCH", "BARS/USDT.BENCH"
TRIGGER_ID, BAR_TRIGGER_ID = "latency", "bar-latency"
#: Each trade but the first has a higher price than the previous one, and decides a match.
SQL = """SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY ts MEASURES B.price AS price AFTER MATCH SKIP TO LAST B
  PATTERN (A B) DEFINE B AS price > A.price) AS m"""
#: A rise that no trade shows, to more than ten times the previous price; each trigger has a factor of its own.
LOAD_SQL = """SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY ts MEASURES B.price AS price AFTER MATCH SKIP TO LAST B
  PATTERN (A B) DEFINE B AS price > A.price * (10 + 0.01 * %d)) AS m"""
SLOW_SQL = """SELECT price FROM (
  SELECT price, ARRAY_AGG(price) OVER (
    PARTITION BY ticker ORDER BY ts ROWS BETWEEN %d PRECEDING AND CURRENT ROW) AS prices
  FROM ticks)
WHERE CARDINALITY(prices) < 0"""
#: More than doubles within 60 seconds, which no price does.
THRESHOLD_SQL = """SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY ts MEASURES A.price AS start, C.price AS price
  PATTERN (A B*? C) WITHIN INTERVAL '60' SECOND DEFINE C AS C.price > A.price * 2) AS m"""
#: The number, and so the price, of the first trade of that ticker.
_THRESHOLD_FIRST = 1_000_000
_BATCH = 500
SANDBOX_TICKER = "BTC/USDT.BINANCE"
#: Each is decided by every trade.
SANDBOX_SQL = {
    "sandbox_condition": "price > 0",
    "sandbox_pattern": SQL.replace("price > A.price", "price > 0"),
}
TIMEOUT_SECONDS = 120.0
WARM_ROWS = 5
LOAD_TICKERS = 100
_BASE_NS, SECOND_NS, _MINUTE_NS = 1_704_067_200_000_000_000, 1_000_000_000, 60_000_000_000
_LOAD_STEP_SECONDS = 0.02
#: Seconds between two publishes that are timed alone.
_BETWEEN_SECONDS = 0.01
_PERCENTILES = (50, 99)
MODE = SparkSettings().mode


@dataclass(slots=True)
class Way:
    """Milliseconds of one kind of latency, one per timed trade; `hops` by name."""

    whole: list[float] = field(default_factory=list)
    hops: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


class Trades:
    """Trades of one ticker; the price of each is its number."""

    def __init__(self, bus: Bus, ticker: str, step_ns: int) -> None:
        self.newest = 0
        self._bus = bus
        self.ticker = ticker
        self._step_ns = step_ns

    def record(self, count: int = 1) -> Record:
        numbers = np.arange(self.newest + 1, self.newest + 1 + count)
        self.newest += count
        time_ns, ones = _BASE_NS + numbers * self._step_ns, np.ones(count)
        columns = tick_columns.TickColumns(
            ticker=self.ticker,
            first_sequence=0,
            timestamp=time_ns,
            price=numbers.astype(float),
            size=ones,
            side=ones.astype(np.uint8),
            trade_id=numbers.astype("S"),
            received_at=time_ns,
        )
        stamp = SequenceStamp(streams.ticks(self.ticker), count, streams.TICKS.tag)
        return Record(tick_columns.encode(columns), key=self.ticker.encode(), sequence=stamp)

    def publish(self) -> int:
        self._bus.publish(bus_topics.TICKS, [self.record()])
        return self.newest


class Results:
    """What the engine has published to one topic, as far as this has read."""

    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus = bus
        self._topic = topic
        self._places = {partition: state.end for partition, state in enumerate(bus.state(topic))}

    def newest_ms(self) -> int:
        """When the newest record was published, by the bus's clock; 0 if none has arrived since the last call."""
        newest = 0
        for partition, place in self._places.items():
            for record in self._bus.read(self._topic, partition, place):
                newest = max(newest, record.timestamp_ms)
                self._places[partition] = record.offset + 1
        return newest


def measured(
    subscriber: "zmq.Socket[bytes]", trades: Trades, results: Mapping[str, Results], *, rows: int, pause: float
) -> Way:
    """`rows` trades, each published after the previous one's result and a pause of random length. `results`: what the
    engine publishes for each trade, in this order, by hop.
    """
    pauses, way = random.Random(7), Way()
    for place in range(WARM_ROWS + rows):
        time.sleep(pause * (0.5 + pauses.random()))
        for own in results.values():
            own.newest_ms()
        began = time.time()
        trades.publish()
        published = time.time()
        subscriber.recv_multipart()
        received = time.time()
        if place < WARM_ROWS:
            continue
        way.whole.append(1_000 * (received - began))
        way.hops["publish"].append(1_000 * (published - began))
        reached = published
        for hop, own in results.items():
            made = max(reached, own.newest_ms() / 1_000)
            way.hops[hop].append(1_000 * (made - reached))
            reached = made
        way.hops["relay"].append(1_000 * max(0.0, received - reached))
    return way


def figures(values: Sequence[float], prefix: str = "") -> dict[str, float]:
    found = {f"p{p}_ms": float(np.percentile(values, p)) for p in _PERCENTILES} | {"max_ms": max(values)}
    return {f"{prefix}{name}": round(value, 1) for name, value in found.items()}


# ---- the floor


def _consume(url: str, address: str) -> None:
    """A hand-written consumer: waits for trades, decodes them, and sends its results on."""
    settings = Settings.model_validate({"bus": {"url": url}})
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUB)
    socket.connect(address)
    bus = connect(settings.bus)
    places = {(bus_topics.TICKS, p): state.end for p, state in enumerate(bus.state(bus_topics.TICKS))}
    while True:
        for topic, partition in bus.wait(places, 1.0):
            for record in bus.read(topic, partition, places[topic, partition]):
                places[topic, partition] = record.offset + 1
                if tick_columns.decode(record.value).price[-1] > 0:
                    socket.send(record.value)
        socket.send(b"")


def floor(url: str, rows: int, pause: float) -> list[float]:
    """Milliseconds from before the publish of a trade until the subscriber of the hand-written consumer has it."""
    with ExitStack() as stack:
        subscriber: zmq.Socket[bytes] = stack.enter_context(zmq.Context.instance().socket(zmq.SUB))
        subscriber.setsockopt(zmq.RCVTIMEO, round(TIMEOUT_SECONDS * 1_000))
        subscriber.subscribe(b"")
        port = subscriber.bind_to_random_port("tcp://127.0.0.1")
        bus = connect(Settings.model_validate({"bus": {"url": url}}).bus)
        stack.callback(bus.close)
        trades = Trades(bus, "FLOOR/USDT.BENCH", SECOND_NS)
        bus.publish(bus_topics.TICKS, [trades.record()])
        address = f"tcp://127.0.0.1:{port}"
        consumer = multiprocessing.get_context("spawn").Process(target=_consume, args=(url, address), daemon=True)
        consumer.start()
        stack.callback(consumer.terminate)
        # An empty message means that it is connected and waits.
        subscriber.recv()
        pauses, found = random.Random(7), []
        for _ in range(WARM_ROWS + rows):
            time.sleep(pause * (0.5 + pauses.random()))
            began = time.perf_counter()
            trades.publish()
            while not subscriber.recv():
                continue
            found.append(1_000 * (time.perf_counter() - began))
    return found[WARM_ROWS:]


def publishes(url: str, fsync: str, rows: int) -> Iterator[dict[str, Any]]:
    """Lines for a publish with and without waiting for the disk."""
    bus = connect(Settings.model_validate({"bus": {"url": url}}).bus)
    trades, found = Trades(bus, "DISK/USDT.BENCH", SECOND_NS), defaultdict[str, list[float]](list)
    with closing(bus), redis_client.Redis.from_url(url) as client:
        for _ in range(WARM_ROWS + rows):
            for name, setting in (("disk", fsync), ("memory", "no")):
                client.config_set("appendfsync", setting)
                time.sleep(_BETWEEN_SECONDS)
                began = time.perf_counter()
                trades.publish()
                found[name].append(1_000 * (time.perf_counter() - began))
        client.config_set("appendfsync", fsync)
    for name, values in found.items():
        yield {"name": name, **figures(values[WARM_ROWS:]), "rows": rows}


# ---- the platform


def without_ingestors(
    stack: ExitStack, *, fsync: str, mode: str, master: str
) -> tuple[EmbeddedRedis, PrivatePlatform, Client, Bus]:
    """A running platform, its Redis, and a client and a bus connected to them."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="candlewright-bench-")))
    redis = stack.enter_context(EmbeddedRedis(folder / "redis", fsync=fsync))  # type: ignore[arg-type]
    platform = stack.enter_context(
        PrivatePlatform(
            folder / "data",
            ("--ingestors", "0"),
            {"BUS__URL": redis.url, "SPARK__MODE": mode, "SPARK__MASTER": master},
            hear=lambda line: print(line, file=sys.stderr),
        )
    )
    relay = platform.settings.relay
    client = stack.enter_context(connect_client(relay.requests_bind, relay.notifications_bind, timeout=TIMEOUT_SECONDS))
    bus = connect(Settings.model_validate({"bus": {"url": redis.url}}).bus)
    stack.callback(bus.close)
    return redis, platform, client, bus


@contextmanager
def load(bus: Bus, rate: int) -> Iterator[None]:
    """`rate` further trades a second over LOAD_TICKERS tickers, whose times advance as fast as they are published."""
    step_ns = max(1, LOAD_TICKERS * SECOND_NS // rate)
    feeds = [Trades(bus, _load_ticker(number), step_ns) for number in range(LOAD_TICKERS)]
    began, sent = time.monotonic(), 0

    def publish() -> None:
        nonlocal sent
        due = int((time.monotonic() - began) * rate) - sent
        each, rest = divmod(due, LOAD_TICKERS)
        counts = [each + (place < rest) for place in range(LOAD_TICKERS)]
        batch = [feed.record(count) for feed, count in zip(feeds, counts, strict=True) if count]
        if batch:
            bus.publish(bus_topics.TICKS, batch)
        sent += due

    with repeated(publish, _LOAD_STEP_SECONDS):
        yield


@contextmanager
def repeated(step: Callable[[], object], seconds: float) -> Iterator[None]:
    """Calls `step` on a thread, after each pause of `seconds`."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            step()

    feeder = threading.Thread(target=run, name="feeder")
    feeder.start()
    try:
        yield
    finally:
        over.set()
        feeder.join()


def idle(seconds: float, pids: Sequence[int]) -> dict[str, float]:
    """Cores and memory of these processes and their helpers."""
    before, began = _cpu_seconds(family(pids)), time.monotonic()
    time.sleep(seconds)
    now = family(pids)
    used = {pid: spent - before.get(pid, 0.0) for pid, spent in _cpu_seconds(now).items()}
    cores = sum(used.values()) / (time.monotonic() - began)
    return {"cores": round(cores, 3), "pss_mib": round(sum(map(_pss_bytes, now)) / (1 << 20))}


def _stat(pid: int) -> list[str]:
    """The fields of a process after its name; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    ticks = os.sysconf("SC_CLK_TCK")
    return {pid: (int(fields[11]) + int(fields[12])) / ticks for pid in pids if (fields := _stat(pid))}


def _pss_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))


def subscriber_of(stack: ExitStack, platform: PrivatePlatform, topic: str) -> "zmq.Socket[bytes]":
    socket: zmq.Socket[bytes] = stack.enter_context(zmq.Context.instance().socket(zmq.SUB))
    socket.setsockopt(zmq.RCVTIMEO, round(TIMEOUT_SECONDS * 1_000))
    socket.subscribe(topic)
    socket.connect(platform.settings.relay.notifications_bind)
    return socket


def warm_up(subscriber: "zmq.Socket[bytes]", trades: Trades, quiet_seconds: float) -> None:
    """Publish trades until results arrive, because the first trades may precede the subscription, and then until no
    result has arrived for this long.
    """
    subscriber.setsockopt(zmq.RCVTIMEO, 2_000)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        trades.publish()
        try:
            subscriber.recv_multipart()
        except zmq.Again:
            continue
        subscriber.setsockopt(zmq.RCVTIMEO, round(quiet_seconds * 1_000))
        while True:
            try:
                subscriber.recv_multipart()
            except zmq.Again:
                break
        subscriber.setsockopt(zmq.RCVTIMEO, round(TIMEOUT_SECONDS * 1_000))
        return
    raise TimeoutError("no result came")


def run(
    rows: int = 60,
    pause_seconds: float = 0.2,
    load_rate: int = 20_000,
    *,
    load_triggers: int = 100,
    idle_seconds: float = 30.0,
    fsync: str = "always",
    mode: str = MODE,
    hops: bool = False,
    master: str = ALL_CORES,
    quiet_seconds: float = 3.0,
    slow_rows: int = 20_000,
    threshold_rows: int = 60_000,
) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        redis, platform, client, bus = without_ingestors(stack, fsync=fsync, mode=mode, master=master)
        client.triggers.add(SQL, trigger_id=TRIGGER_ID, timeout=TIMEOUT_SECONDS).close()
        least = floor(redis.url, rows, pause_seconds)

        if hops:
            yield from publishes(redis.url, fsync, rows)
        trades = Trades(bus, PATTERN_TICKER, SECOND_NS)
        events = subscriber_of(stack, platform, streams.trigger(TRIGGER_ID))
        warm_up(events, trades, quiet_seconds)
        published = {"engine": Results(bus, bus_topics.TRIGGER_EVENTS)}
        way = measured(events, trades, published, rows=rows, pause=pause_seconds)
        yield {"name": "trigger", **figures(way.whole), **figures(least, "floor_"), "rows": rows, "fsync": fsync}
        if hops:
            yield from _hop_lines("trigger", way)

        minutes = Trades(bus, BARS_TICKER, _MINUTE_NS)
        bars = subscriber_of(stack, platform, streams.bars(BARS_TICKER, 60))
        warm_up(bars, minutes, quiet_seconds)
        way = measured(bars, minutes, {"engine": Results(bus, bus_topics.OHLC)}, rows=rows, pause=pause_seconds)
        yield {"name": "bars", **figures(way.whole), **figures(least, "floor_"), "rows": rows, "fsync": fsync}
        if hops:
            yield from _hop_lines("bars", way)

        client.triggers.add(
            "close > 0", tickers=[BARS_TICKER], parameters={"period_seconds": "60"}, trigger_id=BAR_TRIGGER_ID,
            timeout=TIMEOUT_SECONDS,
        ).close()  # fmt: skip
        over_bars = subscriber_of(stack, platform, streams.trigger(BAR_TRIGGER_ID))
        warm_up(over_bars, minutes, quiet_seconds)
        stages = {"bar": Results(bus, bus_topics.OHLC), "event": Results(bus, bus_topics.TRIGGER_EVENTS)}
        way = measured(over_bars, minutes, stages, rows=rows, pause=pause_seconds)
        yield {"name": "bar_trigger", **figures(way.whole), **figures(least, "floor_"), "rows": rows, "fsync": fsync}
        if hops:
            yield from _hop_lines("bar_trigger", way)
        client.triggers.remove(BAR_TRIGGER_ID)

        client.triggers.remove(TRIGGER_ID)
        client.triggers.add(SQL, tickers=[PATTERN_TICKER], trigger_id=TRIGGER_ID, timeout=TIMEOUT_SECONDS).close()
        beside = [f"load-{number}" for number in range(load_triggers)]
        for number, name in enumerate(beside):
            tickers = [_load_ticker(number % LOAD_TICKERS)]
            client.triggers.add(LOAD_SQL % number, tickers=tickers, trigger_id=name, timeout=TIMEOUT_SECONDS).close()
        warm_up(events, trades, quiet_seconds)
        with load(bus, load_rate):
            way = measured(events, trades, published, rows=rows, pause=pause_seconds)
        yield {
            "name": "load",
            **figures(way.whole),
            **figures(least, "floor_"),
            "rows": rows,
            "load_rate": load_rate,
            "load_triggers": load_triggers,
        }
        for name in beside:
            client.triggers.remove(name)

        slow = Trades(bus, _neighbour(bus, PATTERN_TICKER), SECOND_NS)
        client.triggers.add(
            SLOW_SQL % slow_rows, tickers=[slow.ticker], trigger_id="slow", timeout=TIMEOUT_SECONDS
        ).close()
        _publish(bus, slow, slow_rows)
        warm_up(events, trades, quiet_seconds)
        with repeated(slow.publish, 1 / 50):
            way = measured(events, trades, published, rows=rows, pause=pause_seconds)
        yield {"name": "slow", **figures(way.whole), **figures(least, "floor_"), "rows": rows, "slow_rows": slow_rows}
        client.triggers.remove("slow")

        flood = Trades(bus, _neighbour(bus, PATTERN_TICKER, "FLOOD"), SECOND_NS // 1_000)
        flood.newest = _THRESHOLD_FIRST
        client.triggers.add(
            THRESHOLD_SQL, tickers=[flood.ticker], trigger_id="threshold", timeout=TIMEOUT_SECONDS
        ).close()
        _publish(bus, flood, threshold_rows)
        warm_up(events, trades, quiet_seconds)
        with repeated(lambda: bus.publish(bus_topics.TICKS, [flood.record(10)]), 1 / 100):
            way = measured(events, trades, published, rows=rows, pause=pause_seconds)
        yield {"name": "threshold", **figures(way.whole), **figures(least, "floor_"), "rows": rows}
        client.triggers.remove("threshold")

        pids = [pid for pid in (redis.pid, platform.pid) if pid is not None]
        with repeated(trades.publish, 1 / 5):
            yield {"name": "idle", **idle(idle_seconds, pids), "seconds": idle_seconds}
    yield from of_sandbox(rows, fsync=fsync, mode=mode, master=master)


def of_sandbox(rows: int, *, fsync: str, mode: str, master: str) -> Iterator[dict[str, Any]]:
    """From a trade's time at the exchange to its event. Both kinds of trigger get the same trades."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="candlewright-bench-")))
        own = {"BUS__FSYNC": fsync, "SPARK__MODE": mode, "SPARK__MASTER": master}
        platform = stack.enter_context(
            PrivatePlatform(folder, ("--sandbox",), own, hear=lambda line: print(line, file=sys.stderr))
        )
        client: Client = stack.enter_context(connect_client(settings=platform.settings, timeout=TIMEOUT_SECONDS))
        poller, found = zmq.Poller(), defaultdict[str, list[float]](list)
        names: dict[zmq.Socket[bytes], str] = {}
        for name, sql in SANDBOX_SQL.items():
            events = subscriber_of(stack, platform, streams.trigger(name))
            poller.register(events, zmq.POLLIN)
            names[events] = name
            client.triggers.add(sql, tickers=[SANDBOX_TICKER], trigger_id=name, timeout=TIMEOUT_SECONDS).close()
        deadline = time.monotonic() + TIMEOUT_SECONDS + 5 * rows
        while min(len(found[name]) for name in SANDBOX_SQL) < WARM_ROWS + rows:
            for events, _ in poller.poll(1_000):
                *_, message = events.recv_multipart()
                now_ns = time.time_ns()
                event = ing.CEPTriggerEvent.FromString(message[1:])
                found[names[events]].append((now_ns - event.timestamp) / 1_000_000)
            if time.monotonic() > deadline:
                raise TimeoutError("the sandbox's trades did not arrive")
    for name, values in found.items():
        yield {"name": name, **figures(values[WARM_ROWS:]), "rows": len(values) - WARM_ROWS, "fsync": fsync}


def _load_ticker(number: int) -> str:
    return f"LOAD{number}/USDT.BENCH"


def _publish(bus: Bus, trades: Trades, count: int) -> None:
    for _ in range(0, count, _BATCH):
        bus.publish(bus_topics.TICKS, [trades.record(_BATCH)])


def _neighbour(bus: Bus, ticker: str, name: str = "SLOW") -> str:
    """Another ticker of the same partition."""
    count = bus.partitions(bus_topics.TICKS)
    names = (f"{name}{number}/USDT.BENCH" for number in range(1_000))
    return next(name for name in names if partition_of(name.encode(), count) == partition_of(ticker.encode(), count))


def _hop_lines(name: str, way: Way) -> Iterator[dict[str, Any]]:
    for hop, values in way.hops.items():
        yield {"name": f"{name}.{hop}", **figures(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60, help="timed trades of each kind")
    parser.add_argument("--pause", type=float, default=0.2, help="mean seconds between a result and the next trade")
    parser.add_argument("--load-rate", type=int, default=20_000, help="further trades a second under load")
    parser.add_argument("--load-triggers", type=int, default=100, help="further triggers on the tickers of the load")
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    parser.add_argument("--fsync", choices=["always", "everysec", "no"], default="always")
    parser.add_argument("--mode", choices=["continuous", "batch"], default=MODE, help="as spark.mode")
    parser.add_argument("--hops", action="store_true", help="also the parts of each way")
    add_master(parser, ALL_CORES)
    parser.add_argument("--output", choices=["json"], default="json")
    asked = parser.parse_args()
    configure_logging("bench", "warning")
    for line in run(
        asked.rows,
        asked.pause,
        asked.load_rate,
        load_triggers=asked.load_triggers,
        idle_seconds=asked.idle_seconds,
        fsync=asked.fsync,
        mode=asked.mode,
        hops=asked.hops,
        master=asked.master,
    ):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
