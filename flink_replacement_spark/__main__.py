"""`python -m flink_replacement_spark`: Spark, its queries and Spark Connect, until SIGTERM."""

import sys

from candlewright.wire.errors import ConfigurationError
from core.absent import leave_out
from core.background import loading
from core.settings import load_settings
from flink_replacement_spark.spark.session import Starting


def main() -> int:
    try:
        settings = load_settings()
        if not settings.bus.url:
            raise ConfigurationError("bus.url is needed: candlewright up sets it for the parts that it starts")
        leave_out("pandas")
        with loading():
            spark = Starting.of(settings)
            # Loaded while the JVM starts.
            from flink_replacement_spark.process import run

        return run(settings, spark)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
