"""`python -m flink_replacement_spark`: Spark, its queries and Spark Connect, until SIGTERM."""

import os
import sys

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from bus.connect import check_access
from bus.roles import say_lost, say_standby
from candlewright.wire.errors import CandlewrightError, ConfigurationError, RoleLost
from core.background import exit_on_failure
from core.log import configure_logging, get_logger
from core.part import call_to_stop, serve_status
from core.settings import load_settings
from flink_replacement_spark.engine.watched import gist_of
from flink_replacement_spark.server import PART, Driver


def main() -> int:
    try:
        settings = load_settings()
        driver = Driver(settings, os.environ.get("CANDLEWRIGHT_SUPERVISED", ""))
        check_access(settings.bus)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    configure_logging(PART, settings.log.level)
    exit_on_failure()
    try:
        status = serve_status(settings.http.bind, driver.status)
        call_to_stop(driver.stop)
        try:
            driver.start(say_standby)
            driver.run()
        finally:
            driver.close()
            status.close()
    except RoleLost as error:
        say_lost(error)
        return 1
    except (CandlewrightError, Py4JError, OSError) as error:
        get_logger().error("driver_failed", error=gist_of(str(error)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
