"""The connection of one daemon to one use of a function: frames in, frames out.

It has two threads. The caller's thread reads, and answers keepalives and Info immediately; the other runs the function,
on as many points at a time as have arrived meanwhile. The queue between them holds `QUEUED` reads; when it is full
nothing is read, so that a faster daemon waits, and a daemon whose function hangs gets no answer and ends it.
"""

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from candlewright.wire.errors import BadFrame, CandlewrightError
from core.background import start_thread
from gateways.kapacitor.log import say
from gateways.kapacitor.session import FunctionKind, Refused, Session, info_of
from gateways.kapacitor.writer import ResponseWriter
from protobuf.udf_frames import MAX_FRAME_BYTES, FrameReader
from protobuf.udf_superset_pb2 import Request, Response

__all__ = ["Connection"]

QUEUED = 8
#: This many are processed together, which spreads the cost of a call.
_AT_ONCE = 2_048
_TEXT = 1_000
#: When a task is stopped, the daemon does not wait for its second thread, which passes points on. A point that arrives
#: there after the output has ended makes the daemon panic, with all its tasks. So the output ends some time after the
#: last point.
LINGER_SECONDS = 0.25
#: Keepalives are sent before the function's final output: for a stopped task, the daemon decides at random with each
#: response whether it keeps reading. Output that is still read after these belongs to a task whose input ended
#: normally.
PROBES = 32


class Connection:
    """`read`: up to this many bytes, none at the end; `write`: all of its bytes, flushed; `give_up`: called once when
    no further request will be served, so that a blocked read ends if possible.
    """

    def __init__(
        self,
        kind: FunctionKind,
        *,
        is_batch: bool,
        read: Callable[[int], bytes],
        write: Callable[[bytes], None],
        give_up: Callable[[], None],
        limit: int = MAX_FRAME_BYTES,
    ) -> None:
        self._kind = kind
        self._is_batch = is_batch
        self._source = read
        self._frames = FrameReader(self._fill, Request, limit)
        self._writer = ResponseWriter(write)
        self._give_up = give_up
        self._session = Session(kind=kind, is_batch=is_batch, say=say)
        #: Batches of requests as they arrived; an empty one is the end.
        self._requests: queue.Queue[list[Request]] = queue.Queue(QUEUED)
        self._read_now: list[Request] = []
        self._has_failed = threading.Event()
        #: Whether the worker has yet to see the end.
        self._is_open = True
        #: The time of the last keepalive.
        self._heard = 0

    @property
    def counts(self) -> dict[str, int]:
        """The counts of its function; empty before init."""
        function = self._session.function
        return {} if function is None else dict(function.counts)

    def run(self) -> bool:
        """Runs until the daemon closes its side and all answers are written. False if it ended in any other way."""
        worker = start_thread("function", self._work, on_failure=self._worker_broke)
        try:
            self._read()
        except BadFrame as error:
            self._fail(str(error))
        except OSError as error:
            self._fail(f"the connection broke: {error}")
        self._hand_over()
        self._requests.put([])
        worker.join()
        self._session.close()
        self._linger()
        return not self._has_failed.is_set()

    def _linger(self) -> None:
        if self._writer.sent_points_at is not None:
            time.sleep(max(0.0, self._writer.sent_points_at + LINGER_SECONDS - time.monotonic()))

    def _read(self) -> None:
        while (request := self._frames.next()) is not None:
            if self._has_failed.is_set():
                return
            kind = request.WhichOneof("message")
            if kind == "keepalive":
                response = Response()
                response.keepalive.time = self._heard = request.keepalive.time
                self._writer.send([response])
                # Passes the time to a function that is idle, and does not wait for one that is busy.
                if not self._read_now and self._requests.empty():
                    self._requests.put_nowait([request])
            elif kind == "info":
                self._writer.send([info_of(self._kind, is_batch=self._is_batch)])
            else:
                self._read_now.append(request)

    def _fill(self, size: int) -> bytes:
        """A read may block, but requests that arrived before it must not wait."""
        self._hand_over()
        return self._source(size)

    def _hand_over(self) -> None:
        if self._read_now:
            self._requests.put(self._read_now)
            self._read_now = []

    def _work(self) -> None:
        while self._is_open:
            taken = last = self._requests.get()
            while last and len(taken) < _AT_ONCE and not self._requests.empty():
                last = self._requests.get_nowait()
                taken = taken + last
            self._is_open = bool(last)
            # The function failed and takes nothing more, but the reader must not wait for room.
            if not self._has_failed.is_set():
                self._serve(taken, is_open=self._is_open)

    def _worker_broke(self, error: BaseException) -> None:
        self._has_failed.set()
        self._give_up()
        # The reader must not wait for room.
        while self._is_open:
            self._is_open = bool(self._requests.get())

    def _serve(self, requests: list[Request], *, is_open: bool) -> None:
        try:
            self._writer.send(self._session.answer(requests, time.time_ns()))
            if not is_open:
                self._finish()
        except (Refused, CandlewrightError) as error:
            self._fail(str(error))
        except OSError as error:
            self._fail(f"the connection broke: {error}")
        except Exception as error:
            # The outermost loop of this use: the task gets the reason for its end, other tasks continue.
            self._fail(f"{type(error).__name__}: {error}")

    def _finish(self) -> None:
        last = self._session.finish()
        if last:
            alive = Response()
            alive.keepalive.time = self._heard
            self._writer.send([*[alive] * PROBES, *last])

    def _fail(self, text: str) -> None:
        if self._has_failed.is_set():
            return
        self._has_failed.set()
        say("ended_with_error", function=self._kind.name, error=text)
        response = Response()
        response.error.error = f"{self._kind.name}: {text}"[:_TEXT]
        # The other side may no longer be reading.
        with suppress(OSError):
            self._writer.send([response])
        self._give_up()
