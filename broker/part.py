"""A broker as a process: it stands by until it holds the role, and serves for that term."""

import threading
from dataclasses import replace

from broker.journal.retention import Retention
from broker.server import BrokerServer
from bus.connect import connect_under
from bus.roles import BROKER, Keeper, say_standby
from bus.topics import SERVING_KEY, TABLE_BROKER
from core.http import Status
from core.log import get_logger
from core.settings import Settings, is_loopback

log = get_logger()


class Broker:
    def __init__(self, settings: Settings, seat: str) -> None:
        self._settings = settings
        self._stopping = threading.Event()
        self._server: BrokerServer | None = None
        self._keeper = Keeper.of(settings.bus.url, BROKER, settings.roles.lease_seconds, seat=seat)

    def run(self) -> None:
        """Serve until `stop`. Raises CandlewrightError, such as RoleLost."""
        term = self._keeper.wait(self._stopping, say_standby)
        if term is None:
            return
        settings = self._settings
        bus = connect_under(term, settings.bus)
        try:
            keys_in = settings.data_dir if settings.security.curve else None
            if keys_in is None and not is_loopback(settings.broker.bind):
                log.warning("open_without_keys", address=settings.broker.bind, remedy="set security.curve")
            server = BrokerServer(
                settings.broker, bus, Retention.of(settings), max_ahead_ns=settings.ticks.max_ahead_ns, keys_in=keys_in
            )
            self._keeper.on_lost = server.fail
            server.start()
            bus.put(TABLE_BROKER, {SERVING_KEY: b"%d" % term.epoch})
            self._server = server
            if self._stopping.is_set():
                server.stop()
            self._keeper.moved_at = lambda: server.moved_at
            server.run()
        finally:
            bus.close()

    def stop(self) -> None:
        self._stopping.set()
        if self._server is not None:
            self._server.stop()

    def close(self) -> None:
        self._keeper.close()

    def status(self) -> Status:
        if self._server is None:
            is_standby = self._keeper.is_standby
            return Status(part="broker", is_ready=False, details={"role": self._keeper.status()}, is_standby=is_standby)
        status = self._server.status()
        return replace(status, details={**status.details, "role": self._keeper.status()})
