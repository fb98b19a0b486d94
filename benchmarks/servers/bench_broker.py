"""Jobs dispatched and completed per second, journalled on a real Redis, against a raw ROUTER/DEALER echo.

Each job is a separate request: read from the bus, leased, dispatched, completed by one worker process with 100 slots,
its piece and its end published, its lease revoked. A round begins with the worker's first offers, when the broker has
all requests, and ends when the last end is on the bus.

The floor is pyzmq alone between two processes, a DEALER that keeps 100 messages under way and a ROUTER that echoes
them. It moves two messages per job, the broker three.

`bare_rows_per_second` is the rate of the broker without its decisions, with the same kind of worker: every offer gets a
job, and every success ends a request, without state or checks. What remains are messages, protobuf and calls to Redis.
`bare_ratio` compares it with the floor, as `ratio` the broker.

Rounds of the floor, the bare loop and the broker alternate, because the load of a machine varies; their processes stay
alive between rounds. Rates are medians of the rounds, each from its first message to its last, and `ratio` is that of
the medians of broker and floor.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import zmq

from broker.commands import Command, Dispatch, DispatchedRequest, PublishPieceDone, PublishRequestDone
from broker.events import JOB_ID_LENGTH, Event, Final, JobCompleted, LeaseNote, PieceResult, SlotOffered
from broker.server import BrokerServer
from bus import topics
from bus.api import Record
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from core.background import collect_rarely
from core.log import configure_logging
from core.settings import BrokerSettings
from protobuf import records_pb2 as rec

ROOT = Path(__file__).resolve().parents[2]
_THIS = ["-m", "benchmarks.servers.bench_broker"]
START = 1_704_067_200 * 1_000_000_000
MINUTE = 60 * 1_000_000_000
CLIENTS = 10
_EMPTY = PieceResult(partition=0, spans=(), rows=0, expected=60, holes=((START, START + 60 * MINUTE),))
TIMEOUT_SECONDS = 120.0


def run(jobs: int = 30_000, slots: int = 100, rounds: int = 6) -> dict[str, Any]:
    """`rows`: jobs accepted, in all rounds; `result_rows`: requests that ended exactly once with the expected status.

    `round_ratios`: each round's ratio to the mean of the floors around it.
    """
    jobs_per_round = jobs // rounds
    jobs = jobs_per_round * rounds
    floors, rates, bare_rates = [], [], []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        redis = stack.enter_context(EmbeddedRedis(folder / "redis"))
        bus = RedisBus(redis.url)
        stack.callback(bus.close)
        bus.create_topic(topics.REQUESTS, 1)
        _accept(bus, jobs)
        echo = stack.enter_context(_Echo())
        address = f"tcp://127.0.0.1:{_free_port()}"
        environment = {
            **os.environ,
            "CANDLEWRIGHT_BUS__URL": redis.url,
            "CANDLEWRIGHT_BROKER__BIND": address,
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_HTTP_PORT_FILE": str(folder / "broker.http"),
            "CANDLEWRIGHT_LOG__LEVEL": "error",
        }
        broker = stack.enter_context(_process(["-m", "broker"], environment))
        _wait_until_read(folder / "broker.http", jobs)
        worker = stack.enter_context(_process([*_THIS, "--worker", address], environment))
        bare_address = f"tcp://127.0.0.1:{_free_port()}"
        bare_url = redis.url.removesuffix("/0") + "/1"
        bare = stack.enter_context(_process([*_THIS, "--bare", bare_address, bare_url], environment))
        bare_worker = stack.enter_context(_process([*_THIS, "--worker", bare_address], environment))
        parts = {"broker": broker.pid, "worker": worker.pid, "redis": redis.pid or 0}
        used = dict.fromkeys(parts, 0.0)
        bare_used = 0.0
        for each in (worker, bare_worker):
            _wait_for_line(each)
        floors.append(echo.rate(2 * jobs_per_round, slots))
        for done in range(jobs_per_round, jobs + 1, jobs_per_round):
            before = {part: _cpu_seconds(pid) for part, pid in parts.items()}
            rates.append(jobs_per_round / _round(bus, worker, jobs_per_round, slots, done))
            for part, pid in parts.items():
                used[part] += _cpu_seconds(pid) - before[part]
            bare_before = _cpu_seconds(bare.pid)
            started = time.perf_counter()
            _command(bare_worker, jobs_per_round, slots)
            bare_rates.append(jobs_per_round / (time.perf_counter() - started))
            bare_used += _cpu_seconds(bare.pid) - bare_before
            floors.append(echo.rate(2 * jobs_per_round, slots))
        ended = _ended_once(bus)
    rate, floor, bare_rate = map(statistics.median, (rates, floors, bare_rates))
    return {
        "rows": jobs,
        "seconds": round(sum(jobs_per_round / each for each in rates), 4),
        "rows_per_second": round(rate),
        "result_rows": ended,
        "floor_rows_per_second": round(floor),
        "ratio": round(rate / floor, 3),
        "round_ratios": [
            round(2 * each / sum(around), 3) for each, around in zip(rates, pairwise(floors), strict=True)
        ],
        "bare_rows_per_second": round(bare_rate),
        "bare_ratio": round(bare_rate / floor, 3),
        "slots": slots,
        "cpu_microseconds_per_job": {
            part: round(seconds / jobs * 1e6, 1) for part, seconds in (used | {"bare": bare_used}).items()
        },
    }


def _cpu_seconds(pid: int) -> float:
    """CPU time that a process has used so far, which is more reliable than elapsed time on a busy machine."""
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


def _round(bus: RedisBus, worker: subprocess.Popen[bytes], jobs: int, slots: int, done: int) -> float:
    """Seconds for this many jobs; `done`: jobs of all rounds including this one."""
    started = time.perf_counter()
    _command(worker, jobs, slots)
    until = time.monotonic() + TIMEOUT_SECONDS
    # Two outcomes per job: its piece and its request.
    while sum(state.end for state in bus.state(topics.HISTORY_OUTCOMES)) < 2 * done:
        if time.monotonic() > until:
            raise TimeoutError("the jobs did not end")
        time.sleep(0.001)
    return time.perf_counter() - started


def _command(worker: subprocess.Popen[bytes], jobs: int, slots: int) -> None:
    """Have the worker do this many jobs."""
    if worker.stdin is None:
        raise RuntimeError("the worker does not take commands")
    worker.stdin.write(f"{jobs} {slots}\n".encode())
    worker.stdin.flush()
    _wait_for_line(worker)


def _ended_once(bus: RedisBus) -> int:
    ends: Counter[str] = Counter()
    pieces: Counter[str] = Counter()
    for outcome in _outcomes(bus):
        if outcome.HasField("request"):
            ends[outcome.request.request_id] += outcome.request.status == ing.HistoryReadyNotification.NOT_FOUND
        else:
            pieces[outcome.piece.request_id] += 1
    return sum(1 for name, count in ends.items() if count == 1 and pieces[name] == 1)


def _work(address: str) -> None:
    """An ingestor that reports every range as validly empty, as fast as it can; each input line is a round."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.connect(address)
    print("connected", flush=True)
    ready = frames.encode(ing.WorkerReady(exchanges=["BENCH"], job_type=ing.HISTORICAL))
    more = int(zmq.SNDMORE)
    head = bytes((frames.type_id_of(ing.WorkComplete),))
    for line in sys.stdin:
        jobs, slots = map(int, line.split())
        to_offer, to_do = jobs - min(slots, jobs), jobs
        for _ in range(jobs - to_offer):
            socket.send_multipart(ready)
        while to_do:
            socket.recv()
            body = socket.recv()
            if body[0] == frames.DISPATCH:
                job = ing.DataRequest.FromString(body[1:])
                done = ing.WorkComplete(job_id=job.job_id, success=True)
                socket.send(frames.VERSION, more)
                socket.send(head + done.SerializeToString())
                to_do -= 1
                if to_offer:
                    socket.send(ready[0], more)
                    socket.send(ready[1])
                    to_offer -= 1
        print("done", flush=True)


def _bare(address: str, url: str) -> None:
    """The broker without its decisions, in a database of its own."""
    server = BrokerServer(BrokerSettings(bind=address), RedisBus(url))
    server.start()
    server.state.handle_all = partial(_undecided, count(1))  # type: ignore[method-assign]
    collect_rarely()
    server.run()


def _undecided(numbers: Iterator[int], events: Iterable[Event]) -> list[Command]:
    """A job for every offer, and an end for every success."""
    end = START + 60 * MINUTE
    commands: list[Command] = []
    for event in events:
        if isinstance(event, SlotOffered):
            number = next(numbers)
            name, ticker = f"request-{number}", f"COIN{number % 100}/USDT.BENCH"
            note = LeaseNote(name, 0, name, part=(START, end))
            asked = DispatchedRequest(ing.DataRequest.HISTORICAL_OHLC, ticker, "bare", 60)
            commands.append(Dispatch(event.connection, f"{number:0{JOB_ID_LENGTH}x}", note, asked))
        elif isinstance(event, JobCompleted):
            number = int(event.job_id, 16)
            name, ticker = f"request-{number}", f"COIN{number % 100}/USDT.BENCH"
            commands += (
                PublishPieceDone(
                    request_id=name,
                    number=0,
                    job_id=event.job_id,
                    ticker=ticker,
                    period_seconds=60,
                    start=START,
                    end=end,
                    result=_EMPTY,
                ),
                PublishRequestDone(
                    request_id=name,
                    ticker=ticker,
                    period_seconds=60,
                    start=START,
                    end=end,
                    status=Final.NOT_FOUND,
                    error_message="",
                    rows=0,
                    expected=60,
                    holes=_EMPTY.holes,
                    client_id="bare",
                ),
            )
    return commands


def _echo(address: str) -> None:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    socket.bind(address)
    while True:
        socket.send_multipart(socket.recv_multipart())


class _Echo:
    """An echo process, and the socket to it."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            address = f"tcp://127.0.0.1:{_free_port()}"
            stack.enter_context(_process([*_THIS, "--echo", address], dict(os.environ)))
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            stack.callback(context.destroy, linger=0)
            self._socket = context.socket(zmq.DEALER)
            self._socket.connect(address)
            self.rate(1, 1)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def rate(self, messages: int, in_flight: int) -> float:
        """Round trips per second of two frames, the second as large as a dispatch."""
        socket = self._socket
        parts = [frames.VERSION, b"x" * 120]
        started = time.perf_counter()
        for _ in range(in_flight):
            socket.send_multipart(parts)
        for _ in range(messages - in_flight):
            socket.recv_multipart()
            socket.send_multipart(parts)
        for _ in range(in_flight):
            socket.recv_multipart()
        return messages / (time.perf_counter() - started)


def _free_port() -> int:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        return socket.bind_to_random_port("tcp://127.0.0.1")


@contextmanager
def _process(arguments: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, *arguments]
    process = subprocess.Popen(command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=10)


def _wait_for_line(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is None or not process.stdout.readline():
        raise RuntimeError("the worker died")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", choices=["json"], default="json")
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--worker", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--bare", nargs=2, metavar=("ADDRESS", "URL"), help=argparse.SUPPRESS)
    parser.add_argument("--echo", metavar="ADDRESS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    configure_logging("benchmark", "error")
    if arguments.worker:
        _work(arguments.worker)
    elif arguments.bare:
        _bare(*arguments.bare)
    elif arguments.echo:
        _echo(arguments.echo)
    else:
        print(json.dumps(run(arguments.jobs, arguments.slots, arguments.rounds)))


if __name__ == "__main__":
    main()
