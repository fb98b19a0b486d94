"""`python -m alerts`: deliver alerts until SIGTERM or Ctrl-C. Stands by while another process delivers."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable

from alerts.senders.sender import Sender
from alerts.server import Alerts, senders_of
from bus.connect import check_access, connect
from bus.roles import ALERTS, Keeper, say_lost, say_standby
from candlewright.wire.errors import CandlewrightError, ConfigurationError, RoleLost
from core.background import exit_on_failure
from core.http import Status
from core.log import configure_logging, get_logger
from core.part import call_to_stop, serve_status
from core.settings import Settings, load_settings


class _Part:
    """Delivers alerts while it holds the role; a standby until then."""

    def __init__(self, settings: Settings, senders: dict[str, Sender], seat: str) -> None:
        self._settings = settings
        self._senders = senders
        self._stopping = threading.Event()
        self._stop_serving: Callable[[], object] = self._stopping.set
        self._alerts: Alerts | None = None
        self._lost: RoleLost | None = None
        self._keeper = Keeper.of(settings.bus.url, ALERTS, settings.roles.lease_seconds, seat=seat)

    def run(self) -> None:
        """Runs until `stop` is called. Raises CandlewrightError, including RoleLost."""
        self._keeper.on_lost = self._role_lost
        term = self._keeper.wait(self._stopping, say_standby)
        if term is None:
            return
        settings = self._settings
        bus = connect(settings.bus.model_copy(update={"url": term.address(settings.bus.url)}))
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
        self._stop_serving = lambda: loop.call_soon_threadsafe(stop.set)
        if self._stopping.is_set():
            return
        await alerts.serve(stop)
        self._stop_serving = self._stopping.set

    def _role_lost(self, error: RoleLost) -> None:
        self._lost = error
        self.stop()


def main() -> int:
    try:
        settings = load_settings()
        check_access(settings.bus)
        part = _Part(settings, senders_of(settings.alerts), os.environ.get("CANDLEWRIGHT_SUPERVISED", ""))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    configure_logging("alerts", settings.log.level)
    exit_on_failure()
    call_to_stop(part.stop)
    try:
        http = serve_status(settings.http.bind, part.status)
    except OSError as error:
        get_logger().error("cannot_serve", error=str(error))
        return 1
    try:
        part.run()
    except RoleLost as error:
        say_lost(error)
        return 1
    except CandlewrightError as error:
        get_logger().error("alerts_failed", error=str(error))
        return 1
    finally:
        part.close()
        http.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
