"""Runs the operator's Spark SQL on the tables, through Spark Connect of the running platform."""

import re
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException

from candlewright.wire.errors import CandlewrightError, InvalidRequest, TriggerRejected
from candlewright.wire.spark_connect import connect_session
from core.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

_REFUSED = re.compile(r"INVALID_SQL (\d+):(\d+): ([^\n]*)")
_FAILED_SKIP = re.compile(r"SkipFailed: ([^\n]*)")
_SHOWN_LINES = 12


class SparkUnreachable(CandlewrightError):
    retryable = True


def run_sql(settings: Settings, text: str, limit: int | None = None) -> pa.Table:
    """The result of `text` (Spark SQL with MATCH_RECOGNIZE, default catalog `lake`), at most `limit` rows of it.

    Raises as `answer`, and SparkUnreachable if no platform answers.
    """
    from flink_replacement_spark.spark.conf import is_listening

    # The Connect client itself would retry for a while.
    if not is_listening(settings):
        raise SparkUnreachable(f"no Spark Connect at {settings.spark.connect_bind}: is the platform up?")
    with connect_session(settings.spark.connect_url) as session:
        return answer(session, text, limit)


def answer(session: "SparkSession", text: str, limit: int | None = None) -> pa.Table:
    """The result of `text` in a separate session, at most `limit` rows of it.

    Raises TriggerRejected for an invalid MATCH_RECOGNIZE, and InvalidRequest for a text that Spark refuses.
    """
    try:
        frame = _frame(session, text)
        return (frame if limit is None else frame.limit(limit)).toArrow()
    except PySparkException as error:
        raise _said(str(error)) from error


def _frame(session: "SparkSession", text: str) -> "DataFrame":
    # Loading the matcher takes as long as a small query, so it is loaded only if the text may have such a clause.
    if "match_recognize" not in text.lower():
        return session.sql(text)
    from candlewright_cep import TriggerRejected as Rejected
    from candlewright_cep.spark.clauses import frame_of

    try:
        # Ids put trades at the same time in the exchange's order.
        return frame_of(session, text, numbered="trade_id")
    except Rejected as error:
        raise TriggerRejected(error.message, error.line, error.column, hint=error.hint) from error


def _said(text: str) -> CandlewrightError:
    """Spark's message without its JVM stack, or, if the matcher failed on an executor, the matcher's message."""
    refused = _REFUSED.search(text)
    if refused is not None:
        return TriggerRejected(refused[3], int(refused[1]), int(refused[2]))
    skip = _FAILED_SKIP.search(text)
    if skip is not None:
        return InvalidRequest(skip[1])
    kept = text.partition("\nJVM stacktrace")[0].strip()
    return InvalidRequest("\n".join(kept.splitlines()[:_SHOWN_LINES]))
