"""A streaming query that is restarted with back-off when it ends."""

import re
import time
from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from core import metrics
from core.log import get_logger

log = get_logger()

_FIRST_BACKOFF_SECONDS = 0.5
_MAX_BACKOFF_SECONDS = 15.0
_RESTARTS = metrics.Counter(
    "candlewright_spark_query_restarts_total",
    "Queries restarted after an error.",
    ["query"],
    registry=metrics.REGISTRY,
)


#: The last line of a Python traceback: the error's class and message.
_PYTHON_ERROR = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Full|Lost|Unavailable|Conflict|Unknown): \S.*", re.MULTILINE
)
#: The error that a call to the JVM returned, and each of its causes.
_JAVA_ERROR = re.compile(r"^(?:: |Caused by: )((?:\w+\.)+\w+(?:: .*)?)$", re.MULTILINE)


def gist_of(reason: str) -> str:
    """The essential line of a long Spark error: the last Python error, else the Java error with its root cause, else
    the first line.
    """
    if errors := _PYTHON_ERROR.findall(reason):
        return str(errors[-1])
    if errors := _JAVA_ERROR.findall(reason):
        return str(errors[0]) if errors[0] == errors[-1] else f"{errors[0]} (caused by {errors[-1]})"
    return reason.strip().partition("\n")[0]


class WatchedQuery:
    """`start_query` starts the query; `batches` returns the number of successful micro-batches, which shows whether a
    restart helped. `check` does not start it for the first time while `waits` returns True.
    """

    def __init__(
        self,
        name: str,
        start_query: Callable[[], StreamingQuery],
        batches: Callable[[], int],
        *,
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = name
        self.query: StreamingQuery | None = None
        self.problem = ""
        self._start_query = start_query
        self._batches = batches
        self._waits = waits
        self._has_begun = False
        self._batches_at_start = 0
        self._restart_at = 0.0
        self._backoff = _FIRST_BACKOFF_SECONDS

    @property
    def is_running(self) -> bool:
        return self.query is not None and not self.problem

    @property
    def is_waiting(self) -> bool:
        """Whether it has never been started."""
        return not self._has_begun

    @property
    def is_idle(self) -> bool:
        """Whether the query has nothing more to read. Raises Py4JError if the JVM is gone."""
        return self.query is not None and not self.query.status["isDataAvailable"]

    def start(self) -> None:
        self._has_begun = True
        try:
            self._batches_at_start = self._batches()
            self.query = self._start_query()
            self.problem = ""
        except PySparkException as error:
            self._plan_restart(str(error))

    def check(self, *, may_start: bool = True) -> None:
        """Restart the query if it has ended; call often. Raises Py4JError if the JVM is gone."""
        if self.query is not None:
            if self.query.isActive:
                if self._batches() > self._batches_at_start:
                    self._backoff = _FIRST_BACKOFF_SECONDS
                return
            error = self.query.exception()
            self.query = None
            self._plan_restart(str(error) if error else "it stopped")
        must_wait = self.is_waiting and self._waits()
        if may_start and not must_wait and time.monotonic() >= self._restart_at:
            self.start()

    def stop(self) -> None:
        if self.query is not None and self.query.isActive:
            self.query.stop()

    def _plan_restart(self, reason: str) -> None:
        self.problem = f"the {self.name} query stopped: {gist_of(reason)}"
        self._restart_at = time.monotonic() + self._backoff
        self._backoff = min(2 * self._backoff, _MAX_BACKOFF_SECONDS)
        _RESTARTS.labels(self.name).inc()
        log.error("query_stopped", query=self.name, reason=reason[-4_000:])
