"""One Spark SQL text on the tables, for the operator: through Spark Connect of the running platform."""

import pyarrow as pa
from pyspark.errors import PySparkException

from core.errors import CandlewrightError, InvalidRequest
from core.settings import Settings
from flink_replacement_spark.session import connect_url, is_listening


class SparkUnreachable(CandlewrightError):
    retryable = True


def run_sql(settings: Settings, text: str, limit: int | None = None) -> pa.Table:
    """The result of `text` (Spark SQL, default catalog `lake`), at most `limit` rows of it.

    Raises InvalidRequest for a text that Spark refuses, SparkUnreachable when no platform answers.
    """
    # The Connect client itself would try for ten minutes.
    if not is_listening(settings):
        raise SparkUnreachable(f"no Spark Connect at {settings.spark.connect_bind}: is the platform up?")
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(connect_url(settings)).create()
    try:
        frame = session.sql(text)
        return (frame if limit is None else frame.limit(limit)).toArrow()
    except PySparkException as error:
        raise InvalidRequest(str(error).partition("\nJVM stacktrace")[0].strip()) from error
    finally:
        session.stop()
