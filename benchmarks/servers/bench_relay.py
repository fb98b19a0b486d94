"""Final notifications per second from a real Redis to four subscriber processes, against a raw XPUB.

The relay runs as a separate process. It is stopped (SIGSTOP) while the notifications are put on the bus. Timing runs
from its continuation to the last delivery, so that only the relay's work is measured: read from the bus, find each
request's client, index the final, publish it on both of its topics. The floor is an XPUB in a Python loop that sends
the same payload on one topic to the same subscribers. Redis does not wait for its disk, as nothing is written during
the timing.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import zmq

from benchmarks.measuring.output import add_output, show
from bus import topics
from bus.api import Record
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.frames import VERSION, encode, encode_body
from core.log import configure_logging
from protobuf import records_pb2 as rec

ROOT = Path(__file__).resolve().parents[2]
START = 1_704_067_200 * 1_000_000_000
HOUR = 3_600 * 1_000_000_000
CLIENTS = 10
TIMEOUT_SECONDS = 60.0
_OPEN_TOPICS = re.compile(rb"^candlewright_relay_subscriptions (\S+)$", re.MULTILINE)
_SUBSCRIBED = re.compile(rb"^candlewright_relay_subscribed_total (\S+)$", re.MULTILINE)


def run(rows: int = 40_000, subscribers: int = 4, submits: int = 2_000, *, rounds: int = 3) -> dict[str, Any]:
    """`rows`: notifications published in one round; `result_rows`: its deliveries to the subscriber processes.

    Rounds of the floor and of the relay alternate, and the fastest of each counts: other load on the machine only
    slows a round down.
    """
    floors, found = [], []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        redis = stack.enter_context(EmbeddedRedis(folder / "redis", fsync="no"))
        bus = RedisBus(redis.url)
        stack.callback(bus.close)
        _register(bus, rows)
        requests, notifications = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
        relay = stack.enter_context(relay_process(redis.url, requests, notifications, port_file=folder / "relay.http"))
        for _ in range(rounds):
            floors.append(_raw_seconds(rows, subscribers))
            found.append(_relay_round(bus, relay, notifications, folder / "relay.http", rows, subscribers))
        submit_rate = _submit_rate(requests, submits)
    floor, (seconds, received) = min(floors), min(found)
    return {
        "rows": rows,
        "seconds": round(seconds, 4),
        "rows_per_second": round(rows / seconds),
        "result_rows": received,
        "floor_rows_per_second": round(rows / floor),
        "ratio": round(floor / seconds, 3),
        "subscribers": subscribers,
        "rounds": rounds,
        "submits_per_second": round(submit_rate),
    }


def _relay_round(
    bus: RedisBus, relay: "subprocess.Popen[bytes]", address: str, port_file: Path, rows: int, subscribers: int
) -> tuple[float, int]:
    """Seconds from the first read to the last delivery, and the deliveries; raises if one is lost."""
    _wait_for_metric(port_file, _OPEN_TOPICS, 0)
    before = _metric(port_file, _SUBSCRIBED) or 0
    with ExitStack() as stack:
        readers = [stack.enter_context(_subscriber(address, rows)) for _ in range(subscribers)]
        _wait_for_metric(port_file, _SUBSCRIBED, before + subscribers)
        relay.send_signal(signal.SIGSTOP)
        _finish(bus, rows)
        started = time.monotonic()
        relay.send_signal(signal.SIGCONT)
        received, ended = _collect(readers)
    if received != rows * subscribers:
        raise RuntimeError(f"the relay delivered {received} of {rows * subscribers}")
    return ended - started, received


def _final(number: int) -> ing.HistoryReadyNotification:
    return ing.HistoryReadyNotification(
        request_id=f"request-{number:08}",
        ticker="BTC/USDT.BINANCE",
        period_seconds=60,
        start_time=START,
        end_time=START + HOUR,
        status=ing.HistoryReadyNotification.OK,
        iceberg_namespace="market",
        iceberg_table="ohlc",
        row_count=60,
        completed_at=START + 2 * HOUR,
    )


def _request(number: int) -> ing.SubmitHistoricalRequest:
    return ing.SubmitHistoricalRequest(
        request_id=f"request-{number:08}",
        ticker="BTC/USDT.BINANCE",
        start_time=START,
        end_time=START + HOUR,
        period_seconds=60,
        client_id=f"client-{number % CLIENTS}",
    )


# ---- the platform's part


def _register(bus: RedisBus, rows: int) -> None:
    """The relay's work when it accepts a request."""
    bus.create_topic(topics.REQUESTS, 1)
    for number in range(rows):
        request = _request(number)
        content = rec.Request(historical=request).SerializeToString(deterministic=True)
        bus.publish_once(
            topics.REQUESTS,
            Record(content, key=request.request_id.encode()),
            registry=topics.REGISTRY_REQUESTS,
            name=request.request_id,
            content=content,
            keep_seconds=3_600,
        )


def _finish(bus: RedisBus, rows: int) -> None:
    records = [Record(_final(n).SerializeToString(), key=_final(n).request_id.encode()) for n in range(rows)]
    for first in range(0, rows, 500):
        bus.publish(topics.NOTIFICATIONS, records[first : first + 500])


@contextmanager
def relay_process(
    url: str, requests: str, notifications: str, *, port_file: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    environment = {
        **os.environ,
        "CANDLEWRIGHT_BUS__URL": url,
        "CANDLEWRIGHT_RELAY__REQUESTS_BIND": requests,
        "CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND": notifications,
        "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
        "CANDLEWRIGHT_HTTP_PORT_FILE": str(port_file),
        "CANDLEWRIGHT_LOG__LEVEL": "error",
    }
    with _process(["-m", "relay"], env=environment) as process:
        yield process


def _metric(port_file: Path, pattern: "re.Pattern[bytes]") -> float | None:
    if not port_file.exists():
        return None
    with urllib.request.urlopen(f"http://127.0.0.1:{port_file.read_text()}/metrics") as answer:
        found = pattern.search(answer.read())
    return None if found is None else float(found[1])


def _wait_for_metric(port_file: Path, pattern: "re.Pattern[bytes]", value: float) -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < until:
        if _metric(port_file, pattern) == value:
            return
        time.sleep(0.02)
    raise TimeoutError("the subscribers did not reach the relay")


def _submit_rate(address: str, submits: int) -> float:
    """Requests accepted per second on one connection with 100 under way."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.rcvtimeo = int(TIMEOUT_SECONDS * 1_000)
        socket.connect(address)
        messages = [_request(10**7 + number) for number in range(submits)]
        started = time.monotonic()
        for index, message in enumerate(messages):
            socket.send_multipart(encode(message))
            if index >= 100:
                socket.recv_multipart()
        for _ in range(min(100, submits)):
            socket.recv_multipart()
        return submits / (time.monotonic() - started)


# ---- the floor


def _raw_seconds(rows: int, subscribers: int) -> float:
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket, ExitStack() as stack:
        socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        socket.setsockopt(zmq.SNDHWM, 0)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        readers = [stack.enter_context(_subscriber(f"tcp://127.0.0.1:{port}", rows)) for _ in range(subscribers)]
        for _ in range(subscribers):
            socket.recv()
        messages = [(f"RESPONSE:client-{n % CLIENTS}".encode(), encode_body(_final(n))) for n in range(rows)]
        started = time.monotonic()
        for topic, body in messages:
            socket.send_multipart((topic, VERSION, body))
        received, ended = _collect(readers)
        if received != rows * subscribers:
            raise RuntimeError(f"the raw socket delivered {received} of {rows * subscribers}")
    return ended - started


# ---- subscribers


@contextmanager
def _process(arguments: list[str], **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def _subscriber(address: str, rows: int) -> Iterator["subprocess.Popen[bytes]"]:
    arguments = ["-m", "benchmarks.servers.bench_relay", "--subscriber", address, "--rows", str(rows)]
    with _process(arguments, stdout=subprocess.PIPE) as process:
        yield process


def _collect(readers: "list[subprocess.Popen[bytes]]") -> tuple[int, float]:
    """The number of messages that all readers received, and the time of the last one."""
    received, ended = 0, 0.0
    for reader in readers:
        assert reader.stdout is not None
        count, at = json.loads(reader.stdout.readline())
        received += count
        ended = max(ended, at)
    return received, ended


def _subscribe(address: str, rows: int) -> None:
    """Count messages and report when the last one arrived; a lost one shows as a count that is too small."""
    received, ended = 0, 0.0
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        # The prefix of every client's topic; as it belongs to no client, nothing of an earlier round is replayed.
        socket.subscribe("RESPONSE:client-")
        socket.rcvtimeo = int(TIMEOUT_SECONDS * 1_000)
        socket.connect(address)
        try:
            while received < rows:
                socket.recv_multipart()
                received += 1
                if received == 1:
                    socket.rcvtimeo = 5_000
        except zmq.Again:
            ended = time.monotonic() - 5
        print(json.dumps([received, ended or time.monotonic()]), flush=True)


def free_ports(count: int) -> list[int]:
    with zmq.Context() as context, ExitStack() as stack:
        sockets = [stack.enter_context(context.socket(zmq.PULL)) for _ in range(count)]
        return [socket.bind_to_random_port("tcp://127.0.0.1") for socket in sockets]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--subscriber", metavar="ADDRESS", help=argparse.SUPPRESS)
    add_output(parser)
    asked = parser.parse_args()
    if asked.subscriber:
        _subscribe(asked.subscriber, asked.rows)
        return
    configure_logging("bench", "warning")
    result = run(asked.rows)
    show(result, asked.output)


if __name__ == "__main__":
    main()
