"""The lane of leases: the loop itself asks the bus and polls for the answer; a thread does it where that fails.

Each dispatch waits for its lease, so that this lane has the shortest way. No other thread has to get the
interpreter for it, and the loop reads frames meanwhile. Whatever is out of the ordinary (marks, a bus that has gone, a
batch that does not fit into a socket at once) goes to the thread, which has patience.
"""

import time
from collections.abc import Callable

import zmq

from broker.batch import Leases
from broker.instruments import BUS_RETRIES, WRITE_SECONDS
from broker.writer import BusWriter, WriterThread, slowness
from bus.api import Bus, Pending
from core.errors import BusUnavailable
from core.log import get_logger

log = get_logger()


class LeaseLane:
    """One batch at a time: `submit`, then `done` gives it back, as with `WriterThread`.

    `poller` is the loop's own, which returns when `done` is worth a call.
    """

    def __init__(self, bus: Bus, writer: BusWriter, wake: Callable[[], None], poller: zmq.Poller) -> None:
        self._bus = bus
        self._poller = poller
        self._thread = WriterThread[Leases]("bus-leases", writer.write_leases, wake)
        self._batch = Leases()
        self._pending: Pending | None = None
        self._begun_at = 0.0

    @property
    def is_busy(self) -> bool:
        return self._pending is not None or self._thread.is_busy

    def complaint(self) -> str:
        """What keeps this lane from its work, or an empty string."""
        return slowness(self._begun_at) if self._pending is not None else self._thread.complaint()

    def submit(self, batch: Leases) -> None:
        if not batch.marks:
            pending = self._bus.begin_grant(batch.grant, revoking=[*batch.revoke, *batch.finished])
            if pending is not None:
                self._batch, self._pending, self._begun_at = batch, pending, time.monotonic()
                self._poller.register(pending.fileno(), zmq.POLLIN)
                return
        self._thread.submit(batch)

    def done(self) -> Leases | None:
        """The batch that was written, once."""
        pending = self._pending
        if pending is None:
            return self._thread.done()
        is_lost = False
        try:
            if not pending.is_done():
                return None
        except BusUnavailable as error:
            BUS_RETRIES.inc()
            log.warning("bus_write_failed", error=str(error))
            is_lost = True
        self._poller.unregister(pending.fileno())
        self._pending = None
        batch, self._batch = self._batch, Leases()
        if is_lost:
            self._thread.submit(batch)
            return None
        WRITE_SECONDS.observe(time.monotonic() - self._begun_at)
        return batch

    def close(self, patience_seconds: float) -> None:
        self._thread.close(patience_seconds)
