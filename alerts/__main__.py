"""`python -m alerts`: deliver alerts until SIGTERM or Ctrl-C. Stands by while another process delivers."""

import os
import sys

from alerts.part import Part
from alerts.server import senders_of
from bus.connect import check_access
from bus.roles import say_lost
from candlewright.wire.errors import CandlewrightError, ConfigurationError, RoleLost
from core.background import exit_on_failure
from core.log import configure_logging, get_logger
from core.part import call_to_stop, serve_status
from core.settings import load_settings


def main() -> int:
    try:
        settings = load_settings()
        check_access(settings.bus)
        part = Part(settings, senders_of(settings.alerts), os.environ.get("CANDLEWRIGHT_SUPERVISED", ""))
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
