"""`python -m ingestor`: fetch from exchanges until SIGTERM, Ctrl-C or a SHUTDOWN from the broker."""

import asyncio
import sys
from contextlib import closing

from bus import Bus
from bus.connect import check_access, connect
from bus.origin import settle_origin
from candlewright.wire.errors import CandlewrightError, ConfigurationError
from core.background import exit_on_failure, loading, switch_often
from core.log import configure_logging, get_logger
from core.part import call_to_stop, serve_status
from core.settings import Settings, load_settings


async def serve(settings: Settings, bus: Bus) -> None:
    with loading():
        from ingestor.server import IngestorServer
    server = IngestorServer(settings, bus)
    call_to_stop(server.shut_down)
    try:
        http = serve_status(settings.http.bind, server.status)
    except OSError as error:
        get_logger().error("cannot_serve", error=str(error))
        raise SystemExit(1) from error
    with closing(http):
        await server.run()


def main() -> int:
    try:
        settings = load_settings()
        check_access(settings.bus)
        bus = connect(settings.bus)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    configure_logging("ingestor", settings.log.level)
    exit_on_failure()
    switch_often()
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
