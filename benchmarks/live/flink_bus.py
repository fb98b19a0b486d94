"""The bus on both sides of a row pattern in Apache Flink; `flink_latency.py` runs this in the project's environment.

    python -m benchmarks.live.flink_bus [--rows 60]

A trade is published on the bus with `fsync = always`. A process that waits for it with a blocking read decodes it and
passes it to Flink through a socket; another one takes Flink's match from a socket and publishes it, again with
`fsync = always`, from where the relay sends it to a subscriber. For each of Flink's jobs one JSON line with the ports
of both sockets, to which the job must connect, and one with its latencies. Before the first job, `without Flink`: the
same with a process in its place that passes each line on. After the last one, `candlewright`: `trigger` of `latency`.
"""

import argparse
import json
import multiprocessing
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import zmq

from benchmarks.system import latency
from bus import FewRecords, Record, SequenceStamp
from bus import topics as bus_topics
from bus.connect import connect
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire import streams, tick_columns
from candlewright_platform.supervisor.private import PrivatePlatform
from core.log import configure_logging
from core.settings import Settings

HOST = "127.0.0.1"
ORDERS = 2
#: Until a match must have arrived.
TIMEOUT_SECONDS = 120.0
#: As many as between sockets.
WARM_ROWS = 200
_MILLISECOND_NS = 1_000_000
_BYTES = 64


def bus_at(url: str) -> RedisBus:
    return connect(Settings.model_validate({"bus": {"url": url}}).bus)


def accepted(door: socket.socket) -> socket.socket:
    found, _ = door.accept()
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def pass_trades(url: str, door: socket.socket) -> None:
    bus, flink = bus_at(url), accepted(door)
    places = {(bus_topics.TICKS, p): state.end for p, state in enumerate(bus.state(bus_topics.TICKS))}
    while True:
        few: FewRecords = {}
        for place in bus.wait(places, 1.0, few_records=few):
            for record in few.get(place) or bus.read(*place, places[place]):
                places[place] = record.offset + 1
                ticks = tick_columns.decode(record.value)
                for trade_id, price, time_ns in zip(ticks.trade_id, ticks.price, ticks.timestamp, strict=True):
                    row = f"{ticks.ticker},{trade_id.decode()},{price},{time_ns // _MILLISECOND_NS}\n"
                    flink.sendall(row.encode())


def pass_matches(url: str, door: socket.socket, trigger_id: str) -> None:
    """Only one match is under way at a time."""
    bus, flink = bus_at(url), accepted(door)
    stamp = SequenceStamp(streams.trigger(trigger_id), context_tag=streams.TRIGGERS.tag)
    while number := flink.recv(_BYTES):
        event = ing.CEPTriggerEvent(trigger_id=trigger_id)
        event.context.update({"event_id": number.decode(), "ticker": latency.PATTERN_TICKER})
        record = Record(
            event.SerializeToString(),
            key=trigger_id.encode(),
            partition_key=latency.PATTERN_TICKER.encode(),
            sequence=stamp,
        )
        bus.publish(bus_topics.TRIGGER_EVENTS, [record])


def echo(trades: int, matches: int) -> None:
    """In Flink's place."""
    with socket.create_connection((HOST, trades)) as source, socket.create_connection((HOST, matches)) as sink:
        sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while row := source.recv(1_024):
            sink.sendall(row[:_BYTES])


@contextmanager
def child(run: Callable[..., None], *arguments: object) -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(target=run, args=arguments, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def measured(url: str, relay: str, rows: int, pause: float, *, begin: Callable[[int, int], None]) -> dict[str, Any]:
    """`begin`: called with the ports to which Flink must connect."""
    # Of its own: a relay repeats a topic's events to new subscribers for some time after its start.
    trigger_id = secrets.token_hex(4)
    with ExitStack() as stack:
        trades_door, matches_door = (stack.enter_context(socket.create_server((HOST, 0))) for _ in range(2))
        stack.enter_context(child(pass_trades, url, trades_door))
        stack.enter_context(child(pass_matches, url, matches_door, trigger_id))
        begin(trades_door.getsockname()[1], matches_door.getsockname()[1])
        events: zmq.Socket[bytes] = stack.enter_context(zmq.Context.instance().socket(zmq.SUB))
        events.subscribe(streams.trigger(trigger_id))
        events.connect(relay)
        events.rcvtimeo = round(TIMEOUT_SECONDS * 1_000)
        bus = stack.enter_context(closing(bus_at(url)))
        trades = latency.Trades(bus, latency.PATTERN_TICKER, latency.SECOND_NS)
        latency.warm_up(events, trades, quiet_seconds=1.0)
        for _ in range(WARM_ROWS):
            trades.publish()
            events.recv_multipart()
        way = latency.measured(events, trades, {}, rows=rows, pause=pause)
        return {**latency.figures(way.whole), "rows": rows, "fsync": "always"}


def run(rows: int, pause: float) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="candlewright-bench-")))
        redis = stack.enter_context(EmbeddedRedis(folder / "redis", fsync="always"))
        platform = stack.enter_context(
            PrivatePlatform(
                folder / "data",
                ("--parts", "relay"),
                {"BUS__URL": redis.url},
                hear=lambda line: print(line, file=sys.stderr),
            )
        )
        relay = platform.settings.relay.notifications_bind
        with ExitStack() as inner:
            yield {
                "name": "without Flink",
                **measured(
                    redis.url, relay, rows, pause, begin=lambda *ports: inner.enter_context(child(echo, *ports))
                ),
            }
        for _ in range(ORDERS):
            yield measured(redis.url, relay, rows, pause, begin=_tell)
    yield {**next(iter(latency.run(rows, pause))), "name": "candlewright"}


def _tell(trades: int, matches: int) -> None:
    print(json.dumps({"trades": trades, "matches": matches}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60, help="timed trades of each kind")
    parser.add_argument("--pause", type=float, default=0.2, help="mean seconds between a match and the next trade")
    options = parser.parse_args()
    configure_logging("bench", "warning")
    for line in run(options.rows, options.pause):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
