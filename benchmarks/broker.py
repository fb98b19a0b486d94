"""Jobs dispatched and completed per second, journalled on a real Redis, against a raw ROUTER/DEALER echo.

Each job is a request of its own: read from the bus, leased, dispatched, completed by one worker process with 100 slots,
its piece and its end published, its lease revoked. The floor is what pyzmq alone does between two processes with 100
messages in flight; it moves two messages a job where the broker moves three.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

from bus import topics
from bus.api import Record
from bus.embedded import EmbeddedRedis
from bus.redis_bus import RedisBus
from core.log import configure_logging
from protobuf import frames
from protobuf import ingestor_pb2 as ing
from protobuf import records_pb2 as rec

ROOT = Path(__file__).resolve().parent.parent
START = 1_704_067_200 * 1_000_000_000
MINUTE = 60 * 1_000_000_000
CLIENTS = 10
TIMEOUT_SECONDS = 120.0


def run(jobs: int = 30_000, slots: int = 100) -> dict[str, Any]:
    """One round. `rows`: jobs accepted; `result_rows`: requests that ended exactly once with the expected status."""
    before = _echo_rate(jobs * 2, slots)
    with tempfile.TemporaryDirectory() as name, EmbeddedRedis(Path(name) / "redis") as redis:
        folder = Path(name)
        bus = RedisBus(redis.url)
        bus.create_topic(topics.REQUESTS, 1)
        _accept(bus, jobs)
        address = f"tcp://127.0.0.1:{_free_port()}"
        environment = {
            **os.environ,
            "CANDLEWRIGHT_BUS__URL": redis.url,
            "CANDLEWRIGHT_BROKER__BIND": address,
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_HTTP_PORT_FILE": str(folder / "broker.http"),
            "CANDLEWRIGHT_LOG__LEVEL": "error",
        }
        with _process(["-m", "broker"], environment) as started_broker:
            _wait_until_read(folder / "broker.http", jobs)
            worker = ["-m", "benchmarks.broker", "--worker", address, "--slots", str(slots)]
            with _process(worker, environment) as started_worker:
                _wait_for_line(started_worker)
                parts = {"broker": started_broker.pid, "worker": started_worker.pid, "redis": redis.pid or 0}
                used = {part: -_cpu_seconds(pid) for part, pid in parts.items()}
                started = time.perf_counter()
                _wait_until_done(bus, jobs)
                seconds = time.perf_counter() - started
                for part, pid in parts.items():
                    used[part] += _cpu_seconds(pid)
        ended = _ended_once(bus)
        bus.close()
    # Before and after, because a machine is not equally busy all the time.
    floor = (before + _echo_rate(jobs * 2, slots)) / 2
    return {
        "rows": jobs,
        "seconds": round(seconds, 4),
        "rows_per_second": round(jobs / seconds),
        "result_rows": ended,
        "floor_rows_per_second": round(floor),
        "ratio": round(jobs / seconds / floor, 3),
        "slots": slots,
        "cpu_microseconds_per_job": {part: round(used[part] / jobs * 1e6, 1) for part in parts},
    }


def _cpu_seconds(pid: int) -> float:
    """Processor time that a process has used so far, which tells more on a busy machine than the time that passed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    user, system = fields[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _accept(bus: RedisBus, jobs: int) -> None:
    deadline = time.time_ns() + 3_600 * 1_000_000_000
    records = []
    for number in range(jobs):
        asked = ing.SubmitHistoricalRequest(
            request_id=f"request-{number}",
            ticker=f"COIN{number % 100}/USDT.BENCH",
            start_time=START,
            end_time=START + 60 * MINUTE,
            period_seconds=60,
            client_id=f"client-{number % CLIENTS}",
        )
        request = rec.Request(historical=asked, accepted_at=time.time_ns(), deadline=deadline)
        records.append(Record(request.SerializeToString(), key=asked.request_id.encode()))
    for index in range(0, jobs, 500):
        bus.publish(topics.REQUESTS, records[index : index + 500])


def _wait_until_read(port_file: Path, jobs: int) -> None:
    until = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < until:
        if port_file.exists():
            with urllib.request.urlopen(f"http://127.0.0.1:{port_file.read_text()}/status") as answer:
                if json.load(answer).get("requests") == jobs:
                    return
        time.sleep(0.05)
    raise TimeoutError("the broker did not read its requests")


def _outcomes(bus: RedisBus) -> Iterator[rec.HistoryOutcome]:
    for partition in range(bus.partitions(topics.HISTORY_OUTCOMES)):
        offset = 0
        while stored := bus.read(topics.HISTORY_OUTCOMES, partition, offset):
            offset = stored[-1].offset + 1
            for record in stored:
                yield rec.HistoryOutcome.FromString(record.value)


def _wait_until_done(bus: RedisBus, jobs: int) -> None:
    """Two outcomes a job: its piece and its request."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while sum(state.end for state in bus.state(topics.HISTORY_OUTCOMES)) < 2 * jobs:
        if time.monotonic() > until:
            raise TimeoutError("the jobs did not end")
        time.sleep(0.01)


def _ended_once(bus: RedisBus) -> int:
    ends: Counter[str] = Counter()
    pieces: Counter[str] = Counter()
    for outcome in _outcomes(bus):
        if outcome.HasField("request"):
            ends[outcome.request.request_id] += outcome.request.status == ing.HistoryReadyNotification.NOT_FOUND
        else:
            pieces[outcome.piece.request_id] += 1
    return sum(1 for name, count in ends.items() if count == 1 and pieces[name] == 1)


def _work(address: str, slots: int) -> None:
    """An ingestor that finds every range validly empty, as quickly as it can."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.connect(address)
    print("connected", flush=True)
    ready = frames.encode(ing.WorkerReady(exchanges=["BENCH"], job_type=ing.HISTORICAL))
    for _ in range(slots):
        socket.send_multipart(ready)
    more = int(zmq.SNDMORE)
    head = bytes((frames.type_id_of(ing.WorkComplete),))
    while True:
        socket.recv()
        body = socket.recv()
        if body[0] == frames.DISPATCH:
            job = ing.DataRequest.FromString(body[1:])
            done = ing.WorkComplete(job_id=job.job_id, success=True)
            socket.send(frames.VERSION, more)
            socket.send(head + done.SerializeToString())
            socket.send(ready[0], more)
            socket.send(ready[1])


def _echo(address: str) -> None:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    socket.bind(address)
    while True:
        socket.send_multipart(socket.recv_multipart())


def _echo_rate(messages: int, in_flight: int) -> float:
    """Round trips a second of two frames, the second as large as a dispatch."""
    address = f"tcp://127.0.0.1:{_free_port()}"
    parts = [frames.VERSION, b"x" * 120]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with _process(["-m", "benchmarks.broker", "--echo", address], dict(os.environ)):
        socket = context.socket(zmq.DEALER)
        socket.connect(address)
        for _ in range(in_flight):
            socket.send_multipart(parts)
        socket.recv_multipart()
        started = time.perf_counter()
        for _ in range(messages):
            socket.send_multipart(parts)
            socket.recv_multipart()
        seconds = time.perf_counter() - started
        context.destroy(linger=0)
    return messages / seconds


def _free_port() -> int:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        return context.socket(zmq.ROUTER).bind_to_random_port("tcp://127.0.0.1")
    finally:
        context.destroy(linger=0)


@contextmanager
def _process(arguments: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, *arguments], env=environment, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=10)


def _wait_for_line(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is None or not process.stdout.readline():
        raise RuntimeError("the worker did not start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", choices=["json"], default="json")
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--worker", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--echo", metavar="ADDRESS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        _work(arguments.worker, arguments.slots)
    elif arguments.echo:
        _echo(arguments.echo)
    else:
        configure_logging("benchmark", "error")
        print(json.dumps(run(arguments.jobs, arguments.slots)))


if __name__ == "__main__":
    main()
