"""One use of a function: started, initialised, fed, asked for its state, ended.

Reading, writing and keepalives have one thread each, so that neither side ever waits for the other's pipe. Any
misbehaviour of the function, including silence and invalid output, ends this use with UdfFailed and affects nothing
else.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from candlewright.wire.errors import BadFrame, CandlewrightError
from core.background import start_thread
from core.settings_gateways import KapacitorFunctionSettings
from protobuf import udf_frames
from protobuf.udf_frames import FrameReader
from protobuf.udf_superset_pb2 import BeginBatch, EdgeType, EndBatch, InfoResponse, Option, Point, Request, Response
from triggers.udf.options import UdfRefused
from triggers.udf.peer import LogLine, Peer, open_peer

__all__ = ["Output", "StateRefused", "UdfFailed", "Use", "ask_info"]

#: The most output of a function that is held until it is taken.
MAX_OUTPUT_POINTS = 1_000_000
MAX_OUTPUT_BYTES = 512 << 20
#: How long a working function may take to answer. A function that neither takes input nor emits output during its
#: timeout hangs, even if it answers keepalives.
ANSWER_SECONDS = 60.0
#: The most bytes per write, so that the function's progress in reading is visible.
_WRITE_BYTES = 64 << 10
#: The most bytes that wait for the function to read them; beyond that, the sender waits.
_WAITING_BYTES = 8 << 20
_ASKED = ("info", "init", "snapshot", "restore")


class UdfFailed(CandlewrightError):
    """This use has ended; another one may continue from its last state."""

    retryable = True


class StateRefused(UdfFailed):
    """The function does not accept the state that it returned before."""


@dataclass(frozen=True, slots=True)
class Output:
    """A point of a stream, or a batch if it has `begin` and `end`."""

    points: Sequence[Point]
    begin: BeginBatch | None = None
    end: EndBatch | None = None


def ask_info(settings: KapacitorFunctionSettings, log_line: LogLine) -> InfoResponse:
    """A function's description of itself, from a separate use, as the daemon requests it at its start. Raises
    UdfFailed.
    """
    use = Use(settings, EdgeType.STREAM, log_line)
    try:
        # A client waits for the answer.
        return use.ask("info", Request(), settings.timeout_seconds).info
    finally:
        use.stop()


class Use:
    """Call the methods from one thread. `provides`: the edge type that its output must have. Raises UdfFailed if it
    cannot be started.
    """

    def __init__(self, settings: KapacitorFunctionSettings, provides: EdgeType, log_line: LogLine) -> None:
        self._settings = settings
        self._provides = provides
        try:
            self._peer: Peer = open_peer(settings, log_line)
        except (OSError, ValueError) as error:
            raise UdfFailed(f"it cannot be started: {error}") from error
        self._changed = threading.Condition()
        self._failure = ""
        self._is_stopping = False
        #: Time of the last response, and of the last sign of work.
        self._heard_at = self._moved_at = time.monotonic()
        #: Keepalives sent, keepalives answered, and the newest time that an answer has echoed.
        self._keepalives, self._echoes, self._echoed = 0, 0, 0
        self._asked: str = ""
        self._answer: Response | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._has_work_waiting = False
        self._ends_input = False
        self._outputs: list[Output] = []
        self._output_points = self._output_bytes = 0
        self._batch: tuple[BeginBatch, list[Point]] | None = None
        #: The number of unsolicited answers.
        self.unasked = 0
        #: The last snapshot received. An unsolicited one may arrive between a request and its answer; the later one is
        #: the answer.
        self.newest_state = b""
        loops = (self._read, self._write, self._keep_alive)
        self._threads = [start_thread(f"udf{loop.__name__}", loop, on_failure=self._broke) for loop in loops]

    @property
    def failure(self) -> str:
        """Why this use has ended; empty while it runs."""
        return self._failure

    # -- what the owner asks for

    def init(self, options: Sequence[Option], task_id: str, node_id: str) -> None:
        """Raises UdfRefused if the function does not accept the options."""
        request = Request()
        request.init.options.extend(options)
        request.init.taskID, request.init.nodeID = task_id, node_id
        answer = self.ask("init", request).init
        if not answer.success:
            raise UdfRefused(f"the function refuses its options: {answer.error}")

    def restore(self, state: bytes) -> None:
        """Raises StateRefused."""
        request = Request()
        request.restore.snapshot = state
        answer = self.ask("restore", request).restore
        if not answer.success:
            raise StateRefused(f"the function refuses its state: {answer.error}")

    def send(self, requests: Sequence[Request]) -> None:
        """Blocks while the function has too much input to read."""
        with self._changed:
            self._moved_at = time.monotonic()
        for request in requests:
            self._put(udf_frames.encode(request))

    def ask(self, kind: str, request: Request, within_seconds: float = ANSWER_SECONDS) -> Response:
        """The answer to `request`, which comes after everything sent before has been processed."""
        getattr(request, kind).SetInParent()
        with self._changed:
            self._asked, self._answer = kind, None
            self._moved_at = time.monotonic()
        self._put(udf_frames.encode(request))
        with self._changed:
            self._wait_for(lambda: self._answer is not None, kind, within_seconds)
            answer, self._answer = self._answer, None
            assert answer is not None
            return answer

    def settle(self) -> None:
        """One more keepalive round trip, plus the function's own settling time: output from its own threads arrives
        shortly after its answers.
        """
        number, time_ns = self._send_keepalive()
        with self._changed:
            self._moved_at = time.monotonic()
            # Some functions answer with their own time.
            self._wait_for(lambda: self._echoed >= time_ns or self._echoes >= number, "keepalive")
            if self._settings.settle_seconds:
                end = time.monotonic() + self._settings.settle_seconds
                while not self._failure and (left := end - time.monotonic()) > 0:
                    self._changed.wait(left)
            self._check()

    def take_outputs(self) -> list[Output]:
        """The outputs since the last call."""
        with self._changed:
            outputs, self._outputs = self._outputs, []
            self._output_points = self._output_bytes = 0
            return outputs

    def stop(self) -> list[Output]:
        """End politely: close the input and return the remaining outputs; killed after twice the timeout."""
        with self._changed:
            self._is_stopping = self._ends_input = True
            self._changed.notify_all()
        end = time.monotonic() + 2 * self._settings.timeout_seconds
        with self._changed:
            while not self._failure and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
        self.kill()
        return self.take_outputs()

    def kill(self) -> None:
        self._fail("it was ended")
        self._peer.kill()
        for thread in self._threads:
            thread.join()
        self._peer.close()

    # -- the threads

    def _read(self) -> None:
        frames = FrameReader(self._peer.read, Response)
        try:
            while (response := frames.next()) is not None:
                with self._changed:
                    self._heard_at = time.monotonic()
                    self._hear(response)
                    self._changed.notify_all()
                    if self._failure:
                        return
            if self._is_stopping:
                self._peer.wait(self._settings.timeout_seconds)
            self._fail("it has closed its output")
        except (BadFrame, UdfFailed) as error:
            self._fail(str(error))
        except (OSError, ValueError) as error:
            self._fail(f"reading its output failed: {error}")

    def _write(self) -> None:
        try:
            while True:
                with self._changed:
                    while not (self._waiting or self._ends_input or self._failure):
                        self._changed.wait()
                    if self._failure:
                        return
                    if not self._waiting:
                        break
                    data = b"".join(self._waiting)
                    is_work, self._has_work_waiting = self._has_work_waiting, False
                    self._waiting.clear()
                for start in range(0, len(data), _WRITE_BYTES):
                    piece = data[start : start + _WRITE_BYTES]
                    self._peer.write(piece)
                    with self._changed:
                        # Even a hanging function reads keepalives.
                        self._moved_at = time.monotonic() if is_work else self._moved_at
                        self._waiting_bytes -= len(piece)
                        self._changed.notify_all()
            self._peer.end_input()
        except (OSError, ValueError) as error:
            self._fail(f"it does not read its input: {error}")

    def _keep_alive(self) -> None:
        timeout = self._settings.timeout_seconds
        due = time.monotonic() + timeout / 2
        while True:
            with self._changed:
                silent_at = self._heard_at + timeout
                left = min(due, silent_at) - time.monotonic()
                if left > 0 and not self._failure:
                    self._changed.wait(left)
                if self._failure:
                    return
                now = time.monotonic()
                if now >= self._heard_at + timeout:
                    self._fail(f"it gave no sign of life for {timeout:g} s")
                    return
            if now >= due:
                self._send_keepalive()
                due = now + timeout / 2

    # -- with the lock held

    def _hear(self, response: Response) -> None:
        kind = response.WhichOneof("message")
        if kind != "keepalive":
            self._moved_at = self._heard_at
        if kind == "keepalive":
            self._echoes += 1
            self._echoed = max(self._echoed, response.keepalive.time)
        elif kind in _ASKED:
            if kind == "snapshot":
                self.newest_state = response.snapshot.snapshot
            if self._asked == kind:
                self._asked, self._answer = "", response
            else:
                self.unasked += 1
        elif kind == "error":
            raise UdfFailed(f"it says: {response.error.error[:1_000]}")
        elif kind == "point":
            self._hear_point(response.point)
        elif kind in ("begin", "end"):
            self._hear_edge(response, kind)
        else:
            raise UdfFailed("it sent an empty response")

    def _hear_point(self, point: Point) -> None:
        self._output_points += 1
        self._output_bytes += point.ByteSize()
        if self._output_points > MAX_OUTPUT_POINTS or self._output_bytes > MAX_OUTPUT_BYTES:
            raise UdfFailed(f"it emitted {self._output_points} points of {self._output_bytes} bytes at once")
        if self._batch is not None:
            self._batch[1].append(point)
        elif self._provides == EdgeType.BATCH:
            raise UdfFailed("it sent a point outside a batch")
        else:
            self._outputs.append(Output([point]))

    def _hear_edge(self, response: Response, kind: str) -> None:
        if self._provides != EdgeType.BATCH:
            raise UdfFailed(f"it sent the {kind} of a batch, but provides a stream")
        if kind == "begin":
            if self._batch is not None:
                raise UdfFailed("it began a batch inside another one")
            if not 0 <= response.begin.size <= MAX_OUTPUT_POINTS:
                raise UdfFailed(f"it began a batch of {response.begin.size} points")
            self._batch = (response.begin, [])
            return
        if self._batch is None:
            raise UdfFailed("it ended a batch that it never began")
        begin, points = self._batch
        self._batch = None
        self._outputs.append(Output(points, begin, response.end))

    def _wait_for(self, is_done: Callable[[], bool], what: str, within_seconds: float = ANSWER_SECONDS) -> None:
        end = time.monotonic() + within_seconds
        while not is_done():
            self._check()
            if (left := end - time.monotonic()) <= 0:
                self._fail(f"no answer to {what} for {within_seconds:g} s")
                self._check()
            self._wait_for_work(left)

    def _wait_for_work(self, left: float) -> None:
        """Wait for news, at most `left` seconds. Raises UdfFailed for a function that has stopped working."""
        timeout = self._settings.timeout_seconds
        idle_left = self._moved_at + timeout - time.monotonic()
        if idle_left <= 0:
            self._fail(f"it hangs: it did nothing for {timeout:g} s, though it answers keepalives")
            self._check()
        self._changed.wait(min(left, idle_left))

    def _check(self) -> None:
        if self._failure:
            raise UdfFailed(self._failure)

    # -- from any thread

    def _put(self, data: bytes, *, may_wait: bool = True) -> None:
        with self._changed:
            while may_wait and self._waiting_bytes > _WAITING_BYTES and not self._failure:
                self._wait_for_work(ANSWER_SECONDS)
            if may_wait:
                self._check()
            if self._failure or self._ends_input:
                return
            self._waiting.append(data)
            self._has_work_waiting |= may_wait
            self._waiting_bytes += len(data)
            self._changed.notify_all()

    def _send_keepalive(self) -> tuple[int, int]:
        """Returns its number and time."""
        request = Request()
        with self._changed:
            self._keepalives += 1
            time_ns = request.keepalive.time = time.time_ns()
            self._put(udf_frames.encode(request), may_wait=False)
            return self._keepalives, time_ns

    def _broke(self, error: BaseException) -> None:
        self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, text: str) -> None:
        with self._changed:
            self._failure = self._failure or text
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            if not self._is_stopping:
                self._peer.kill()
