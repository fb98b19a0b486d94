"""What the status page reports about a query that has stopped."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from flink_replacement_spark.engine.watched import WatchedQuery, gist_of

PYTHON_UNDER_SPARK = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 617, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
pyspark.errors.exceptions.captured.PythonException:
Traceback (most recent call last):
  File "saved.py", line 41, in unpack
    raise ValueError("this state has version 1, and this program reads 2")
ValueError: this state has version 1, and this program reads 2


=== Streaming Query ===
Current State: ACTIVE
"""

JAVA_UNDER_PYTHON = """An error occurred while calling o132.start.
: org.apache.spark.SparkException: [CANNOT_LOAD] Error loading the manager for path=s3a://lake. SQLSTATE: 58030
\tat org.apache.spark.sql.Streaming.start(Streaming.scala:39)
\tSuppressed: org.apache.spark.util.Utils$Original: Full stack
\t\tat org.apache.spark.sql.Streaming.start(Streaming.scala:39)
Caused by: java.lang.RuntimeException: java.lang.ClassNotFoundException: Class S3A not found
\tat org.apache.hadoop.conf.Configuration.getClass(Configuration.java:2737)
Caused by: java.lang.ClassNotFoundException: Class S3A not found
\t... 84 more
"""


_UNAVAILABLE = "candlewright.wire.errors.BusUnavailable: no Redis at 6379"


@pytest.mark.parametrize(
    ("reason", "gist"),
    [
        (PYTHON_UNDER_SPARK, "ValueError: this state has version 1, and this program reads 2"),
        (
            JAVA_UNDER_PYTHON,
            "org.apache.spark.SparkException: [CANNOT_LOAD] Error loading the manager for path=s3a://lake. "
            "SQLSTATE: 58030 (caused by java.lang.ClassNotFoundException: Class S3A not found)",
        ),
        ("[STREAM_FAILED] Query live terminated\n\tat org.apache.Spark", "[STREAM_FAILED] Query live terminated"),
        (_UNAVAILABLE + "\nmore", _UNAVAILABLE),
        ("it stopped", "it stopped"),
        ("", ""),
    ],
)
def test_the_line_with_the_reason_is_reported_of_an_html_page(reason: str, gist: str) -> None:
    assert gist_of(reason) == gist


def test_a_query_that_stopped_starts_only_where_it_may() -> None:
    attempts: list[int] = []

    def start() -> StreamingQuery:
        attempts.append(len(attempts))
        raise PySparkException("the bus is down")

    query = WatchedQuery("history", start, lambda: 0)
    query.check(may_start=False)
    assert attempts == []
    query.check()
    assert attempts == [0] and query.problem == "the history query stopped: the bus is down"


def test_a_query_waits_for_its_first_start_alone() -> None:
    attempts: list[int] = []
    waits = [True]

    def start() -> StreamingQuery:
        attempts.append(1)
        raise PySparkException("no")

    query = WatchedQuery("history", start, lambda: 0, waits=lambda: waits[0])
    query.check()
    assert not attempts and query.is_waiting and not query.problem
    waits[0] = False
    assert query.is_waiting, "until the next check"
    query.check()
    assert len(attempts) == 1 and not query.is_waiting and query.problem
    waits[0] = True
    query.start()
    assert len(attempts) == 2
