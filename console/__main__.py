"""`python -m console`: serve the HTTP API and the console until SIGTERM or Ctrl-C."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from candlewright.wire.errors import CandlewrightError, ConfigurationError
from console.server import Console
from core.absent import leave_out
from core.background import exit_on_failure
from core.http import StatusServer
from core.log import configure_logging, get_logger
from core.settings import load_settings


async def _serve(console: Console) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, console.stop)
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
    port_file = os.environ.get("CANDLEWRIGHT_HTTP_PORT_FILE")
    try:
        http = StatusServer(settings.http.bind, console.status, port_file=Path(port_file) if port_file else None)
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
