"""`python -m alerts`: deliver alerts until SIGTERM or Ctrl-C."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from alerts.server import Alerts, senders_of
from bus.connect import connect
from candlewright.wire.errors import CandlewrightError, ConfigurationError
from core.background import exit_on_failure
from core.http import StatusServer
from core.log import configure_logging, get_logger
from core.settings import load_settings


async def _serve(alerts: Alerts) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await alerts.serve(stop)


def main() -> int:
    try:
        settings = load_settings()
        senders = senders_of(settings.alerts)
        bus = connect(settings.bus)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    configure_logging("alerts", settings.log.level)
    exit_on_failure()
    port_file = os.environ.get("CANDLEWRIGHT_HTTP_PORT_FILE")
    alerts = Alerts(settings.alerts, bus, senders, settings.data_dir)
    try:
        http = StatusServer(settings.http.bind, alerts.status, port_file=Path(port_file) if port_file else None)
    except OSError as error:
        get_logger().error("cannot_serve", error=str(error))
        return 1
    try:
        asyncio.run(_serve(alerts))
    except CandlewrightError as error:
        get_logger().error("cannot_serve", error=str(error))
        return 1
    finally:
        http.close()
        bus.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
