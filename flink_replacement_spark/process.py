"""The driver's process from its settings to its end, after Spark has begun to start."""

import os

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql.pandas import functions

from bus.connect import check_access
from bus.roles import say_lost, say_standby
from candlewright.wire.errors import CandlewrightError, RoleLost
from core.background import exit_on_failure
from core.log import configure_logging, get_logger
from core.part import call_to_stop, serve_status
from core.settings import Settings
from flink_replacement_spark.engine.watched import gist_of
from flink_replacement_spark.server import PART, Driver
from flink_replacement_spark.spark.session import Starting

__all__ = ["run"]


def run(settings: Settings, spark: Starting) -> int:
    """Until SIGTERM; returns the exit code. Raises ConfigurationError."""
    _map_without_pandas()
    driver = Driver(settings, os.environ.get("CANDLEWRIGHT_SUPERVISED", ""), spark)
    check_access(settings.bus)
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


def _map_without_pandas() -> None:
    """PySpark requires pandas for `mapInArrow`, which does not use it: 0.2 s and 40 MB."""
    vars(functions)["require_minimum_pandas_version"] = lambda: None
