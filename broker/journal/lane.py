"""One of the two lanes to the bus: the loop itself sends a batch and polls for the answer; a thread handles the rest.

So no other thread has to acquire the interpreter lock for a usual batch, and the loop reads frames meanwhile. Anything
unusual (marks, tables, pages, an unreachable bus, a batch too large for the socket's buffer) goes to the thread, which
can wait.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Generic

import zmq

from broker.journal.writer import Batch, WriterThread, slowness
from broker.metrics import BUS_RETRIES, WRITE_SECONDS
from bus.api import Pending
from candlewright.wire.errors import BusUnavailable
from core.log import get_logger

#: A healthy bus answers within this time (s).
SOON_SECONDS = 0.002

log = get_logger()


class Lane(Generic[Batch]):
    """Handles one batch at a time: after `submit`, `done` returns it, as with `WriterThread`.

    `begin` sends a whole batch or returns None; `write` writes it in the thread. `poller` is the loop's poller, which
    returns when `done` should be called.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[Batch], Pending | None],
        write: Callable[[Batch], None],
        *,
        wake: Callable[[], None],
        poller: zmq.Poller,
    ) -> None:
        self._begin: Callable[[Batch], Pending | None] = begin
        self._poller = poller
        self._thread: WriterThread[Batch] = WriterThread(name, write, wake)
        self._under_way: tuple[Batch, Pending] | None = None
        self._begun_at = 0.0
        #: How long the last batch took that the loop sent itself.
        self.took_seconds = 0.0

    @property
    def is_busy(self) -> bool:
        return self._under_way is not None or self._thread.is_busy

    @property
    def is_due_soon(self) -> bool:
        """Whether the loop's poll will soon report the running batch."""
        return self._under_way is not None and time.monotonic() - self._begun_at < SOON_SECONDS

    @property
    def busy_since(self) -> float:
        """When the running batch was begun or given to the thread; infinity if there is none."""
        if self._under_way is not None:
            return self._begun_at
        return self._thread.busy_since if self._thread.is_busy else math.inf

    def complaint(self) -> str:
        """The problem that keeps this lane from writing, or an empty string."""
        return slowness(self._begun_at) if self._under_way is not None else self._thread.complaint()

    def submit(self, batch: Batch) -> None:
        pending = self._begin(batch)
        if pending is None:
            self._thread.submit(batch)
        else:
            self._under_way, self._begun_at = (batch, pending), time.monotonic()
            self._poller.register(pending.fileno(), zmq.POLLIN)

    def done(self, ready: Sequence[object] | None = None) -> Batch | None:
        """The batch that was written, once.

        `ready`: the result of the poll; without it, checks for the answer itself, and notices if none arrives in time.
        """
        if self._under_way is None:
            return self._thread.done()
        batch, pending = self._under_way
        if ready is not None and pending.fileno() not in ready:
            return None
        is_written = True
        try:
            if not pending.is_done():
                return None
        except BusUnavailable as error:
            BUS_RETRIES.inc()
            log.warning("bus_write_failed", error=str(error))
            is_written = False
        self._poller.unregister(pending.fileno())
        self._under_way = None
        if not is_written:
            self._thread.submit(batch)
            return None
        self.took_seconds = time.monotonic() - self._begun_at
        WRITE_SECONDS.observe(self.took_seconds)
        return batch

    def close(self, patience_seconds: float) -> None:
        self._thread.close(patience_seconds)
