"""Makes answers that may be long in separate threads: TopicReplay, and reads of the tables."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from google.protobuf.message import Message

from bus.api import Bus
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import BusError, CandlewrightError, InvalidRequest
from core.log import get_logger
from relay import commands as do
from relay import events as ev
from relay import metrics
from relay.asked import Peer
from relay.door import frames_of
from relay.doors.outbox import Outbox, PeerStalled
from relay.live import topic_replay
from relay.requests.pages import ReadRows, pages
from relay.requests.stored import ReadStored
from relay.settings import RelayLimits

#: How long (s) a thread waits for a client that does not read.
_STREAM_SECONDS = 30.0
log = get_logger()
LongCommand = do.ReplayTopic | do.ReadRows | do.ReadStored


class LongAnswers:
    """`fail` and `reply` are called from these threads; at most `limits.max_running_tasks` tasks run or wait."""

    def __init__(
        self,
        bus: Bus,
        read_rows: ReadRows,
        read_stored: ReadStored,
        *,
        outbox: Outbox,
        limits: RelayLimits,
        fail: Callable[[ev.CommandFailed], None],
        reply: Callable[[do.Reply], None],
    ) -> None:
        self._bus = bus
        self._read_rows = read_rows
        self._read_stored = read_stored
        self._outbox = outbox
        self._limits = limits
        self._fail = fail
        self._reply = reply
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="relay-task")
        self._running = threading.BoundedSemaphore(limits.max_running_tasks)

    def start(self, command: LongCommand) -> list[ev.Event]:
        """Begin a task; returns its failure if too many are under way, else nothing."""
        if not self._running.acquire(blocking=False):
            return [ev.CommandFailed(command, "BUSY", "Too many long answers are under way; try again later.")]
        self._threads.submit(self._run, command)
        return []

    def close(self) -> None:
        """Wait for running tasks, and drop the others."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _run(self, command: LongCommand) -> None:
        try:
            if isinstance(command, do.ReplayTopic):
                self._replay_topic(command)
            elif isinstance(command, do.ReadRows):
                self._answer_from_table(command)
            else:
                answer = self._read_stored(command.query, self._limits.max_stored_rows)
                self._outbox.stream(command.peer, frames_of(command.peer, answer), _STREAM_SECONDS)
        except PeerStalled:
            log.info("client_stalled")
        except topic_replay.NotKept as error:
            self._failed(command, "NOT_KEPT", str(error), error.newest_sequence)
        except InvalidRequest as error:
            self._failed(command, "INVALID", str(error))
        except BusError:
            metrics.BUS_FAILURES.labels("task").inc()
            self._failed(command, "UNAVAILABLE", ev.UNAVAILABLE)
        except Exception as error:
            reason = str(error) if isinstance(error, CandlewrightError) else type(error).__name__
            log.exception("task_failed")
            metrics.FAILURES.labels("task").inc()
            self._failed(command, "FAILED", f"The stored data cannot be read now ({reason}); try again later.")
        finally:
            self._running.release()

    def _failed(self, command: LongCommand, code: str, text: str, newest_sequence: int | None = None) -> None:
        self._fail(ev.CommandFailed(command, code, text, newest_sequence, time.time_ns()))

    def _replay_topic(self, command: do.ReplayTopic) -> None:
        records = topic_replay.replay(self._bus, command.query, self._limits)
        self._stream(command.peer, records)

    def _answer_from_table(self, command: do.ReadRows) -> None:
        request = command.request
        limit = request.limit if request.HasField("limit") else None
        table = self._read_rows(request.ticker, request.period_seconds, request.start_time, request.end_time, limit)
        if table.num_rows > self._limits.page_rows and command.peer.is_req:
            self._refuse_several(command.peer, request.request_id)
            return
        for page in pages(request.request_id, table, self._limits.page_rows):
            self._outbox.stream(command.peer, frames_of(command.peer, page), _STREAM_SECONDS)

    def _stream(self, peer: Peer, messages: Sequence[Message]) -> None:
        if len(messages) > 1 and peer.is_req:
            self._refuse_several(peer, "")
            return
        for message in messages:
            self._outbox.stream(peer, frames_of(peer, message), _STREAM_SECONDS)

    def _refuse_several(self, peer: Peer, request_id: str) -> None:
        text = "This answer has several frames and a REQ socket takes only one: use DEALER."
        self._reply(do.Reply(peer, cw.Error(code="USE_DEALER", text=text, request_id=request_id)))
