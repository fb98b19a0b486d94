"""What the status page says of a query that stopped."""

import pytest

from flink_replacement_spark.watched import gist_of

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


@pytest.mark.parametrize(
    ("reason", "gist"),
    [
        (PYTHON_UNDER_SPARK, "ValueError: this state has version 1, and this program reads 2"),
        ("[STREAM_FAILED] Query live terminated\n\tat org.apache.Spark", "[STREAM_FAILED] Query live terminated"),
        ("core.errors.BusUnavailable: no Redis at 6379\nmore", "core.errors.BusUnavailable: no Redis at 6379"),
        ("it stopped", "it stopped"),
        ("", ""),
    ],
)
def test_the_last_python_error_or_the_first_line_is_told(reason: str, gist: str) -> None:
    assert gist_of(reason) == gist
