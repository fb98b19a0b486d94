"""One Spark SQL text on the tables, for the operator: through Spark Connect of the running platform."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.errors import PySparkException

from core.errors import CandlewrightError, InvalidRequest
from core.settings import Settings
from flink_replacement_spark.session import connect_url


class SparkUnreachable(CandlewrightError):
    retryable = True


def run_sql(settings: Settings, text: str, limit: int | None = None) -> pa.Table:
    """The result of `text` (Spark SQL, default catalog `lake`), at most `limit` rows of it.

    Raises InvalidRequest for a text that Spark refuses, SparkUnreachable when no platform answers.
    """
    from pyspark.sql.connect.session import SparkSession

    with _spark_errors(settings):
        session = SparkSession.builder.remote(connect_url(settings)).create()
        try:
            frame = session.sql(text)
            return (frame if limit is None else frame.limit(limit)).toArrow()
        finally:
            session.stop()


@contextmanager
def _spark_errors(settings: Settings) -> Iterator[None]:
    import grpc  # type: ignore[import-untyped]

    try:
        yield
    except grpc.RpcError as error:
        raise SparkUnreachable(f"no Spark Connect at {settings.spark.connect_bind}: is the platform up?") from error
    except PySparkException as error:
        text = str(error)
        if "UNAVAILABLE" in text or "failed to connect" in text.lower():
            raise SparkUnreachable(f"no Spark Connect at {settings.spark.connect_bind}: is the platform up?") from error
        raise InvalidRequest(text.partition("\nJVM stacktrace")[0].strip()) from error
