"""Shared by the fault tests: the parts of a running platform, a wire-level client, and the tables.

The client uses only pyzmq, the generated message classes and the published frame format.
"""

import json
import os
import random
import signal
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

import pyarrow as pa
import zmq
from pyiceberg.catalog import load_catalog

from candlewright.wire import ingestor_pb2 as ing
from candlewright_platform.supervisor.private import PrivatePlatform
from iceberg.filters import equal as equals
from sandbox import SandboxThread
from tests.klines import klines

Final = ing.HistoryReadyNotification
Status = ing.HistoryReadyNotification.NotificationStatus
Submitted = ing.SubmitResponse

START_SECONDS = 300.0
MINUTE_MS = 60_000
MS = 1_000_000
VERSION = b"\x01"
SUBMIT, SUBMITTED, HISTORY_READY = 0x10, 0x11, 0x12
#: A row in comparable form: open time in ms, open, high, low, close, volume, quote volume, trades.
Row = tuple[Any, ...]
_COLUMNS = ("open", "high", "low", "close", "volume", "quote_volume", "trade_count")
#: Each part is at least one of ten victims; Spark, which takes longest to return, is one.
_VICTIMS = ("flink_replacement_spark", *("relay", "broker", "redis") * 2, "ingestor-1", "ingestor-2", "ingestor-3")


def victims_of(choice: random.Random, rounds: int) -> list[str]:
    """The part that is killed in each round."""
    found = [*_VICTIMS * (rounds // len(_VICTIMS)), *choice.sample(_VICTIMS, rounds % len(_VICTIMS))]
    choice.shuffle(found)
    return found


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """The first true value that `condition` returns; fails with `what` if there is none in time."""
    give_up = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() >= give_up:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)
    return found


class Platform:
    """A running platform over a sandbox, as an operator sees it: its status page, its processes, its tables."""

    def __init__(self, up: PrivatePlatform, exchange: SandboxThread, told: list[str]) -> None:
        self.up = up
        self.exchange = exchange
        self.told = told

    @property
    def data_dir(self) -> Path:
        return self.up.data_dir

    # ---- the status page
    def ask(self, path: str) -> tuple[int, bytes]:
        url = f"http://{self.up.settings.http.bind}{path}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def page(self) -> dict[str, Any]:
        page: dict[str, Any] = json.loads(self.ask("/status")[1])
        return page

    def part(self, name: str) -> dict[str, Any]:
        part: dict[str, Any] = self.page()["parts"][name]
        return part

    def is_well(self) -> bool:
        return self.ask("/health")[0] == self.ask("/ready")[0] == 200

    def wait_until_well(self, seconds: float = 240.0) -> None:
        until(self.is_well, seconds, f"the platform is well again; it said {self.told[-15:]}")

    # ---- its processes
    def signal(self, part: str, number: signal.Signals) -> int:
        """Send it to the process of a part; returns its pid."""
        pid = until(lambda: self.part(part)["pid"], 60, f"{part} runs")
        os.kill(pid, number)
        return int(pid)

    def kill(self, part: str) -> None:
        """kill -9; returns once the supervisor has started another process of this part."""
        old = self.signal(part, signal.SIGKILL)
        until(lambda: self.part(part)["pid"] not in (None, old), 60, f"{part} is started again")

    @contextmanager
    def frozen(self, part: str) -> Iterator[None]:
        pid = self.signal(part, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    # ---- what is right, and what there is
    def exchange_rows(self, symbol: str, start_ms: int, end_ms: int, *, interval: str = "1m") -> list[Row]:
        """The exchange's own REST answer for [start, end)."""
        found = klines(self.exchange.url, symbol, start_ms=start_ms, end_ms=end_ms, interval=interval)
        return [(row[0], *map(float, row[1:6]), float(row[7]), row[8]) for row in found]

    def table(self, name: str, **equal: Any) -> pa.Table:
        """All rows of a table whose columns equal these values, read with pyiceberg."""
        catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{self.data_dir / 'catalog.db'}")
        table = catalog.load_table(("market", name))
        scan = table.scan()
        for column, value in equal.items():
            scan = scan.filter(equals(column, value))
        return scan.to_arrow()

    def rows(self, ticker: str, start_ms: int, end_ms: int, *, period_seconds: int = 60) -> list[Row]:
        """Rows of [start, end) by open time, including any duplicates."""
        return [row for row in self.all_rows(ticker, period_seconds) if start_ms <= row[0] < end_ms]

    def all_rows(self, ticker: str, period_seconds: int = 60) -> list[Row]:
        found = self.table("ohlc", ticker=ticker, period_seconds=period_seconds)
        times = [round(moment.timestamp() * 1_000) for moment in found["open_time"].to_pylist()]
        return sorted(zip(times, *(found[name].to_pylist() for name in _COLUMNS), strict=True))

    def coverage(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of `market.coverage` by request id."""
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self.table("coverage").to_pylist():
            found[row["request_id"]].append(row)
        return found

    def client(self, name: str) -> "WireClient":
        relay = self.up.settings.relay
        return WireClient(relay.requests_bind, relay.notifications_bind, name)


@contextmanager
def platform(
    data_dir: Path, *, ingestors: int = 3, environment: dict[str, str] | None = None, **sandbox: Any
) -> Iterator[Platform]:
    """A separate platform on free ports; it must end cleanly."""
    told: list[str] = []
    with SandboxThread(**{"seed": 11, "rate_limit": False, **sandbox}) as exchange:
        up = PrivatePlatform(
            data_dir,
            ("--exchange-url", f"BINANCE={exchange.url}", "--ingestors", str(ingestors)),
            {"INGESTOR__VENUES": '["BINANCE"]', "INGESTOR__RATE_LIMIT": "false", **(environment or {})},
            hear=told.append,
        )
        try:
            up.start(START_SECONDS)
            yield Platform(up, exchange, told)
        finally:
            code = up.stop()
        assert code == 0, told[-40:]


def submit_message(
    request_id: str, ticker: str, start_ms: int, *, end_ms: int, period_seconds: int = 60, **further: Any
) -> ing.SubmitHistoricalRequest:
    return ing.SubmitHistoricalRequest(
        request_id=request_id,
        ticker=ticker,
        start_time=start_ms * MS,
        end_time=end_ms * MS,
        period_seconds=period_seconds,
        **further,
    )


@dataclass
class Deliveries:
    """Bodies of notifications by request id, with the topics on which they arrived."""

    bodies: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    topics: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    strange: list[list[bytes]] = field(default_factory=list)


class WireClient:
    """Submits and listens. Its methods are for one thread; `deliveries` grows in another."""

    def __init__(self, requests: str, notifications: str, client_id: str) -> None:
        self.client_id = client_id
        self.deliveries = Deliveries()
        self.resent = self.refused = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._requests = requests
        self._notifications = notifications
        self._socket = self._connect()
        self._topics: SimpleQueue[str] = SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._listen, name=f"listener-{client_id}")
        self._topics.put(f"RESPONSE:{client_id}")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._socket.close(0)
        self._context.term()

    def _connect(self) -> "zmq.Socket[bytes]":
        socket = self._context.socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(self._requests)
        return socket

    def submit(self, message: ing.SubmitHistoricalRequest, patience_seconds: float = 90.0) -> ing.SubmitResponse:
        """QUEUED, DUPLICATE or INVALID; repeated after silence and after ERROR."""
        give_up = time.monotonic() + patience_seconds
        while time.monotonic() < give_up:
            self._socket.send_multipart([VERSION, bytes((SUBMIT,)) + message.SerializeToString()])
            answer = self._answer(message.request_id, 3.0)
            if answer is None:
                self.resent += 1
            elif answer.status == Submitted.ERROR:
                self.refused += 1
                time.sleep(0.2)
            else:
                if answer.notification_topic.startswith("HISTORY_READY:"):
                    self._topics.put(answer.notification_topic)
                return answer
        raise AssertionError(f"no answer to {message.request_id} within {patience_seconds:g} s")

    def _answer(self, request_id: str, seconds: float) -> ing.SubmitResponse | None:
        give_up = time.monotonic() + seconds
        while (left := give_up - time.monotonic()) > 0 and self._socket.poll(int(left * 1_000) + 1):
            version, body = self._socket.recv_multipart()
            assert version == VERSION
            assert body[0] == SUBMITTED, body
            answer = ing.SubmitResponse.FromString(body[1:])
            if answer.request_id == request_id:
                return answer
        return None

    def final(self, request_id: str, seconds: float = 90.0) -> ing.HistoryReadyNotification:
        """The content of its final; fails if there are two different ones, or none in time."""
        until(lambda: request_id in self.deliveries.bodies, seconds, f"a final for {request_id}")
        (body,) = set(self.deliveries.bodies[request_id])
        return Final.FromString(body[1:])

    def finals(self, request_ids: Iterable[str], seconds: float) -> None:
        """Wait until each request has a final."""
        wanted = set(request_ids)
        until(
            lambda: wanted <= set(self.deliveries.bodies),
            seconds,
            f"finals for all; {len(wanted - set(self.deliveries.bodies))} of {len(wanted)} are missing: "
            f"{sorted(wanted - set(self.deliveries.bodies))[:5]}",
        )

    def history(self, message: ing.SubmitHistoricalRequest, seconds: float = 90.0) -> ing.HistoryReadyNotification:
        """Submit it and wait for its final."""
        answer = self.submit(message)
        assert answer.status in (Submitted.QUEUED, Submitted.DUPLICATE), answer
        return self.final(message.request_id, seconds)

    def _listen(self) -> None:
        with self._context.socket(zmq.SUB) as socket:
            socket.linger = 0
            socket.connect(self._notifications)
            while not self._stopping.is_set():
                try:
                    while True:
                        socket.subscribe(self._topics.get_nowait())
                except Empty:
                    pass
                if socket.poll(50):
                    self._take(socket.recv_multipart())

    def _take(self, frames: list[bytes]) -> None:
        if len(frames) != 3 or frames[1] != VERSION or frames[2][:1] != bytes((HISTORY_READY,)):
            self.deliveries.strange.append(frames)
            return
        topic, _, body = frames
        final = Final.FromString(body[1:])
        if topic.decode() not in (f"RESPONSE:{self.client_id}", f"HISTORY_READY:{final.request_id}"):
            # Subscriptions match by prefix, so skip other clients' topics.
            return
        self.deliveries.topics[final.request_id].add(topic.decode())
        self.deliveries.bodies[final.request_id].append(body)
