"""The alerts as a process: it stands by until it holds the role, and delivers for that term."""

import asyncio
import threading
import time
from collections.abc import Callable

from alerts.senders.sender import Sender
from alerts.server import Alerts
from bus.connect import connect_under
from bus.roles import ALERTS, Keeper, say_standby
from candlewright.wire.errors import RoleLost
from core.background import start_task
from core.http import Status
from core.settings import Settings


class Part:
    def __init__(self, settings: Settings, senders: dict[str, Sender], seat: str) -> None:
        self._settings = settings
        self._senders = senders
        self._stopping = threading.Event()
        self._stop_serving: Callable[[], object] = self._stopping.set
        self._alerts: Alerts | None = None
        self._lost: RoleLost | None = None
        #: When the event loop last ran.
        self._moved_at: float | None = None
        self._keeper = Keeper.of(settings.bus.url, ALERTS, settings.roles.lease_seconds, seat=seat)

    def run(self) -> None:
        """Runs until `stop` is called. Raises CandlewrightError, including RoleLost."""
        self._keeper.on_lost, self._keeper.moved_at = self._role_lost, lambda: self._moved_at
        term = self._keeper.wait(self._stopping, say_standby)
        if term is None:
            return
        settings = self._settings
        bus = connect_under(term, settings.bus)
        try:
            self._alerts = Alerts(settings.alerts, bus, self._senders, data_dir=settings.data_dir)
            asyncio.run(self._serve(self._alerts))
        finally:
            bus.close()
        if self._lost is not None:
            raise self._lost

    def stop(self) -> None:
        """Safe in a signal handler, and from any thread."""
        self._stopping.set()
        self._stop_serving()

    def close(self) -> None:
        self._keeper.close()

    def status(self) -> Status:
        if self._alerts is None:
            return Status(part="alerts", is_ready=False, is_standby=self._keeper.is_standby)
        return self._alerts.status()

    async def _serve(self, alerts: Alerts) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        moving = start_task(self._move, "alerts-loop")
        self._stop_serving = lambda: loop.call_soon_threadsafe(stop.set)
        if self._stopping.is_set():
            return
        await alerts.serve(stop)
        self._stop_serving = self._stopping.set
        moving.cancel()

    async def _move(self) -> None:
        while True:
            self._moved_at = time.monotonic()
            await asyncio.sleep(1)

    def _role_lost(self, error: RoleLost) -> None:
        self._lost = error
        self.stop()
