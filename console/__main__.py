"""`python -m console`: serve the HTTP API and the console until SIGTERM or Ctrl-C."""

import asyncio
import sys

from candlewright.wire.errors import CandlewrightError, ConfigurationError
from console.server import Console
from core.absent import leave_out
from core.background import exit_on_failure
from core.log import configure_logging, get_logger
from core.part import call_to_stop, serve_status, take_descriptors
from core.settings import load_settings


async def _serve(console: Console) -> None:
    call_to_stop(console.stop)
    await console.serve()


def main() -> int:
    leave_out("pandas")
    try:
        settings = load_settings()
        configure_logging("console", settings.log.level)
        console = Console(settings)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    exit_on_failure()
    take_descriptors()
    try:
        http = serve_status(settings.http.bind, console.status)
    except OSError as error:
        get_logger().error("cannot_serve", error=str(error))
        return 1
    try:
        asyncio.run(_serve(console))
    except (CandlewrightError, OSError) as error:
        get_logger().error("console_failed", error=str(error))
        return 1
    finally:
        http.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
