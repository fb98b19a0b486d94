"""`python -m gateways`: serve the enabled gateways until SIGTERM or Ctrl-C."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from bus.connect import connect
from candlewright.wire.errors import CandlewrightError, ConfigurationError
from core.background import exit_on_failure
from core.http import StatusServer
from core.log import configure_logging, get_logger
from core.settings import load_settings
from gateways.enabled import enabled_gateways
from gateways.server import Gateways


async def _serve(gateways: Gateways) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await gateways.serve(stop)


def main() -> int:
    try:
        settings = load_settings()
        bus = connect(settings.bus)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    configure_logging("gateways", settings.log.level)
    exit_on_failure()
    port_file = os.environ.get("CANDLEWRIGHT_HTTP_PORT_FILE")
    try:
        gateways = Gateways(enabled_gateways(settings, bus))
        http = StatusServer(settings.http.bind, gateways.status, port_file=Path(port_file) if port_file else None)
        try:
            asyncio.run(_serve(gateways))
        finally:
            http.close()
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    except (OSError, CandlewrightError) as error:
        get_logger().error("cannot_serve", error=str(error))
        return 1
    finally:
        bus.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
