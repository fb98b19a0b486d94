"""`python -m gateways`: serve the enabled gateways until SIGTERM or Ctrl-C."""

import asyncio
import sys

from bus.connect import check_access, connect
from candlewright.wire.errors import CandlewrightError, ConfigurationError
from core.background import exit_on_failure
from core.log import configure_logging, get_logger
from core.part import call_to_stop, serve_status, take_descriptors
from core.settings import load_settings
from gateways.enabled import enabled_gateways
from gateways.server import Gateways


async def _serve(gateways: Gateways) -> None:
    stop = asyncio.Event()
    call_to_stop(stop.set)
    await gateways.serve(stop)


def main() -> int:
    try:
        settings = load_settings()
        check_access(settings.bus)
        bus = connect(settings.bus)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    configure_logging("gateways", settings.log.level)
    exit_on_failure()
    take_descriptors()
    try:
        gateways = Gateways(enabled_gateways(settings, bus))
        http = serve_status(settings.http.bind, gateways.status)
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
