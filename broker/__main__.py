"""`python -m broker`: hand jobs to ingestors until SIGTERM or Ctrl-C; stand by while another broker holds the role."""

import os
import sys
import threading
from dataclasses import replace

from broker.journal.retention import Retention
from broker.server import BrokerServer
from bus.connect import check_access, connect
from bus.roles import BROKER, Keeper, say_lost, say_standby
from bus.topics import SERVING_KEY, TABLE_BROKER
from candlewright.wire.errors import CandlewrightError, ConfigurationError, RoleLost
from core.background import collect_rarely, exit_on_failure, switch_often
from core.http import Status
from core.log import configure_logging, get_logger
from core.part import call_to_stop, serve_status, take_descriptors
from core.settings import Settings, is_loopback, load_settings

log = get_logger()


class Broker:
    """A broker, which stands by until it holds the role, and serves for that term."""

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
        bus = connect(settings.bus.model_copy(update={"url": term.address(settings.bus.url)}))
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


def main() -> int:
    try:
        settings = load_settings()
        check_access(settings.bus)
        broker = Broker(settings, os.environ.get("CANDLEWRIGHT_SUPERVISED", ""))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    configure_logging("broker", settings.log.level)
    exit_on_failure()
    take_descriptors()
    switch_often()
    collect_rarely()
    call_to_stop(broker.stop)
    http = serve_status(settings.http.bind, broker.status)
    try:
        broker.run()
    except RoleLost as error:
        say_lost(error)
        return 1
    except CandlewrightError as error:
        log.error("broker_failed", error=str(error))
        return 1
    finally:
        broker.close()
        http.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
