"""Runs the operator's Spark SQL on the tables, through Spark Connect of the running platform."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException

from candlewright.wire.errors import CandlewrightError, InvalidRequest, TriggerRejected
from candlewright.wire.spark_connect import connect_session
from core.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

_REFUSED = re.compile(r"INVALID_SQL (\d+):(\d+): ([^\n]*)")
_FAILED_SKIP = re.compile(r"SkipFailed: ([^\n]*)")
#: Of a view, which would outlive the temporary one that has the results.
_STORED_VIEW = re.compile(r"references temporary view: \[match_recognize_")
_SHOWN_LINES = 12
#: Spark answers EXPLAIN of a text that it refuses with a row, not with an error.
_FOR_THE_ENGINE = re.compile(r"match_recognize|^\s*explain\b", re.IGNORECASE)
_UNKNOWN_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
Views: TypeAlias = Callable[[], Mapping[str, str]]


class SparkUnreachable(CandlewrightError):
    retryable = True


def run_sql(settings: Settings, text: str, limit: int | None = None, *, views: Views = dict) -> pa.Table:
    """The result of `text` (Spark SQL, default catalog `lake`), at most `limit` rows of it. See `answer`.

    Raises as `answer`, and SparkUnreachable if no platform answers.
    """
    from flink_replacement_spark.spark.conf import is_listening

    # The Connect client itself would retry for a while.
    if not is_listening(settings):
        raise SparkUnreachable(f"no Spark Connect at {settings.spark.connect_bind}: is the platform up?")
    with connect_session(settings.spark.connect_url) as session:
        return answer(session, text, limit, views=views)


def answer(session: "SparkSession", text: str, limit: int | None = None, *, views: Views = dict) -> pa.Table:
    """The result of `text` in a separate session, at most `limit` rows of it. What Spark accepts is Spark's; a text
    that it refuses may have queries in the trigger language. `views` returns the texts of the registered views by name.

    Raises TriggerRejected for an invalid MATCH_RECOGNIZE or query, and InvalidRequest for a text that Spark refuses.
    """

    def rows(frame: "DataFrame") -> pa.Table:
        return (frame if limit is None else frame.limit(limit)).toArrow()

    try:
        # Loading the engine takes as long as a small query, so it is loaded only if the text may need it.
        if not _FOR_THE_ENGINE.search(text):
            with suppress(AnalysisException):
                return rows(session.sql(text))
        try:
            return rows(_frame(session, text, {}))
        except AnalysisException as error:
            if _UNKNOWN_TABLE not in str(error) or not (known := views()):
                raise
        return rows(_frame(session, text, known))
    except PySparkException as error:
        raise _said(str(error)) from error


def _frame(session: "SparkSession", text: str, views: Mapping[str, str]) -> "DataFrame":
    from candlewright_cep import TriggerRejected as Rejected
    from candlewright_cep.spark.clauses import frame_of

    try:
        # Ids put trades at the same time in the exchange's order.
        return frame_of(session, text, numbered="trade_id", views=views)
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
    if _STORED_VIEW.search(text):
        hint = "use CREATE TABLE … AS SELECT, or `candlewright view add`"
        return InvalidRequest(f"Spark cannot store a view with a query in the trigger language: {hint}")
    kept = text.partition("\nJVM stacktrace")[0].strip()
    return InvalidRequest("\n".join(kept.splitlines()[:_SHOWN_LINES]))
