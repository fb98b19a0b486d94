"""`python -m broker`: hand jobs to ingestors until SIGTERM or Ctrl-C; stand by while another broker holds the role."""

import os
import sys

from broker.part import Broker
from bus.connect import check_access
from bus.roles import say_lost
from candlewright.wire.errors import CandlewrightError, ConfigurationError, RoleLost
from core.background import collect_rarely, exit_on_failure, switch_often
from core.log import configure_logging, get_logger
from core.part import call_to_stop, serve_status, take_descriptors
from core.settings import load_settings


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
    try:
        http = serve_status(settings.http.bind, broker.status)
    except OSError as error:
        get_logger().error("cannot_serve", error=str(error))
        broker.close()
        return 1
    try:
        broker.run()
    except RoleLost as error:
        say_lost(error)
        return 1
    except CandlewrightError as error:
        get_logger().error("broker_failed", error=str(error))
        return 1
    finally:
        broker.close()
        http.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
