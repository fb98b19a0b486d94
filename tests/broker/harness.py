"""A broker over a bus with real sockets, and peers that speak its protocol."""

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
from google.protobuf.message import Message

from broker.server import BrokerServer
from bus import topics
from bus.api import Bus, Record
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.keys import ClientKey
from core.settings import BrokerSettings
from protobuf import records_pb2 as rec

MINUTE = 60 * 1_000_000_000
START = 1_704_067_200 * 1_000_000_000
PATIENCE_SECONDS = 20.0


class RunningBroker:
    """A `BrokerServer` on its own thread."""

    def __init__(self, bus: Bus, keys_in: Path | None = None, **settings: Any) -> None:
        self.bus = bus
        self.server = BrokerServer(BrokerSettings(**{"bind": "tcp://127.0.0.1:0", **settings}), bus, keys_in=keys_in)
        self.server.start()
        self.address = self.server.address
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()


class Peer:
    """An ingestor's end of the socket; `receive` skips heartbeats unless they are requested."""

    def __init__(self, address: str, key: ClientKey | None = None, name: bytes = b"") -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        if key is not None:
            self._socket.setsockopt(zmq.CURVE_SERVERKEY, key.platform.encode())
            self._socket.setsockopt(zmq.CURVE_PUBLICKEY, key.public.encode())
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, key.secret.encode())
        if name:
            self._socket.setsockopt(zmq.ROUTING_ID, name)
        self._socket.connect(address)

    def send(self, message: Message, *, flags: int = 0) -> None:
        self._socket.send_multipart(frames.encode(message), flags)

    def send_raw(self, *parts: bytes) -> None:
        self._socket.send_multipart(parts)

    def offer(
        self, venue: str = "TEST", kind: ing.SlotType = ing.HISTORICAL, slots: int = 1, *, flags: int = 0
    ) -> None:
        for _ in range(slots):
            self.send(ing.WorkerReady(exchanges=[venue], job_type=kind), flags=flags)

    def receive(self, seconds: float = PATIENCE_SECONDS, *, heartbeats: bool = False) -> Message | None:
        """The next message, or None after `seconds`."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            if not self._socket.poll(int(rest * 1_000) + 1):
                break
            message = frames.decode(self._socket.recv_multipart(), frames.BROKER_TO_INGESTOR)
            is_heartbeat = isinstance(message, ing.IngestorControl) and message.action == ing.IngestorControl.HEARTBEAT
            if heartbeats or not is_heartbeat:
                return message
        return None

    def job(self, seconds: float = PATIENCE_SECONDS) -> ing.DataRequest:
        message = self.receive(seconds)
        assert isinstance(message, ing.DataRequest), message
        return message

    def complete(self, job: ing.DataRequest, failure: str = "") -> None:
        done = ing.WorkComplete(job_id=job.job_id, success=not failure)
        if failure:
            done.error_message = failure
        self.send(done)

    def answer(self, job: ing.DataRequest, rows: list[cw.OHLCV]) -> None:
        """A foreign ingestor's whole answer."""
        body = ing.DataResponse(request_id=job.request_id, ohlc_data=[row.SerializeToString() for row in rows])
        body.total_records = len(rows)
        self.send(body)
        self.complete(job)

    def close(self) -> None:
        self._socket.close()


def candle(open_time: int, period_seconds: int = 60, close: float = 1.5) -> cw.OHLCV:
    return cw.OHLCV(
        open_time=open_time, open=1.0, high=2.0, low=0.5, close=close, volume=3.0, period_seconds=period_seconds
    )


def minutes(start: int, end: int) -> list[cw.OHLCV]:
    return [candle(open_time) for open_time in range(start, end, MINUTE)]


class Client:
    """Puts requests on the bus as the relay does, and reads what the broker decided."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self._numbers = itertools.count(1)

    def submit(
        self,
        rows: int = 10,
        *,
        request_id: str = "",
        ticker: str = "BTC/USDT.TEST",
        start: int = START,
        limit: int | None = None,
        client_id: str = "",
        seconds: float = 600.0,
    ) -> str:
        """A request for `rows` minutes."""
        request_id = request_id or f"request-{next(self._numbers)}"
        asked = ing.SubmitHistoricalRequest(
            request_id=request_id,
            ticker=ticker,
            start_time=start,
            end_time=start + rows * MINUTE,
            period_seconds=60,
            limit=limit,
            client_id=client_id,
        )
        self._put(rec.Request(historical=asked), request_id, seconds)
        return request_id

    def ask(self, request: ing.DataRequest, seconds: float = 600.0) -> None:
        self._put(rec.Request(data=request), request.request_id, seconds)

    def cancel(self, request_id: str) -> None:
        control = ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id=request_id)
        self._put(rec.Request(control=control), request_id, 600.0)

    def control(self, control: ing.IngestorControl) -> None:
        self._put(rec.Request(control=control), "", 600.0)

    def _put(self, request: rec.Request, key: str, seconds: float) -> None:
        request.accepted_at = time.time_ns()
        request.deadline = time.time_ns() + int(seconds * 1e9)
        self.bus.create_topic(topics.REQUESTS, 1)
        self.bus.publish(topics.REQUESTS, [Record(request.SerializeToString(), key=key.encode())])

    def outcomes(self) -> list[rec.HistoryOutcome]:
        found = []
        for partition in range(self.bus.partitions(topics.HISTORY_OUTCOMES)):
            for record in self.bus.read(topics.HISTORY_OUTCOMES, partition, 0):
                found.append(rec.HistoryOutcome.FromString(record.value))
        return found

    def pieces(self, request_id: str) -> list[rec.PieceDone]:
        found = [outcome.piece for outcome in self.outcomes() if outcome.HasField("piece")]
        return [piece for piece in found if piece.request_id == request_id]

    def ends(self, request_id: str) -> list[rec.RequestDone]:
        found = [outcome.request for outcome in self.outcomes() if outcome.HasField("request")]
        return [end for end in found if end.request_id == request_id]

    def end(self, request_id: str) -> rec.RequestDone:
        """Wait for the single end of a request."""
        eventually(lambda: bool(self.ends(request_id)))
        ends = self.ends(request_id)
        assert len(ends) == 1
        return ends[0]

    def rows(self, piece: rec.PieceDone) -> list[int]:
        """Open times in the pages that an accepted piece names, as the history writer reads them."""
        found: list[int] = []
        for span in piece.spans:
            count = span.last_offset - span.first_offset + 1
            stored = self.bus.read(topics.HISTORY, piece.partition, span.first_offset, max_records=count)
            for record in stored:
                page = rec.HistoryPage.FromString(record.value)
                if page.job_id == piece.job_id:
                    found.extend(page.open_time)
        return found


def eventually(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until `condition` holds; the pause only bounds how often it is checked."""
    until = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < until, "this never became true"
        pause.wait(0.01)
