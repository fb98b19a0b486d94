"""`python -m ingestor`: fetch from exchanges until SIGTERM, Ctrl-C or a SHUTDOWN from the broker."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from bus import Bus
from bus.connect import connect
from bus.origin import settle_origin
from candlewright.wire.errors import CandlewrightError
from core.background import exit_on_failure
from core.http import StatusServer
from core.log import configure_logging, get_logger
from core.settings import Settings, load_settings
from ingestor.server import IngestorServer


async def serve(settings: Settings, bus: Bus) -> None:
    server = IngestorServer(settings, bus)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.shut_down)
    port_file = os.environ.get("CANDLEWRIGHT_HTTP_PORT_FILE")
    bind = "127.0.0.1:0" if port_file else settings.http.bind
    http = StatusServer(bind, server.status, port_file=Path(port_file) if port_file else None)
    try:
        await server.run()
    finally:
        http.close()


def main() -> int:
    settings = load_settings()
    configure_logging("ingestor", settings.log.level)
    exit_on_failure()
    bus = connect(settings.bus)
    try:
        if settings.origin is not None:
            settle_origin(bus, settings.origin)
        asyncio.run(serve(settings, bus))
    except CandlewrightError as error:
        get_logger().error("ingestor_failed", error=str(error))
        return 1
    finally:
        bus.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
