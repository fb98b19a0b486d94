"""The address of Spark Connect, for clients and for the driver that serves it; and a session there."""

import atexit
import re
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

#: The key in `spark.conf` of the token that Spark Connect requires.
TOKEN = "spark.connect.authenticate.token"
_ADDRESS = re.compile(r"^(?:sc://)?(.+)$")
_EVERYWHERE = re.compile(r"^(0\.0\.0\.0|\*|\[::\]):")
_LOOPBACK = re.compile(r"^(127\.0\.0\.1|\[::1\]):")
#: Retries of one call, after 0.05, 0.2, 0.8, 3.5 and 13 s, if the server is down. Spark's own 15 take ten minutes.
_RETRIES = 5


def connect_url(bind: str, token: str = "") -> str:
    """`sc://host:port` of a `host:port`, or of such an address as it is; one that names a token keeps its own."""
    address = _EVERYWHERE.sub("127.0.0.1:", _ADDRESS.sub(r"\1", bind))
    if not token or ";token=" in address:
        return f"sc://{address}"
    # Spark's client sends a token only over TLS, except to this name.
    address = _LOOPBACK.sub("localhost:", address)
    separator = "" if address.endswith(";") else ";" if "/;" in address else "/;"
    return f"sc://{address}{separator}token={urllib.parse.quote(token, safe='')}"


@contextmanager
def connect_session(url: str) -> Iterator["SparkSession"]:
    """A session for one `with`, separate from all others in the process. Raises what pyspark raises; loads pyspark."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # Not pyspark.sql's class, which sets the environment; children of this process would inherit it.
    from pyspark.sql.connect.session import SparkSession

    session: SparkSession = SparkSession.builder.remote(url).create()
    client = session.client
    client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
    try:
        yield session
    finally:
        # Releasing the session is optional: a server that is down forgets it anyway.
        client.set_retry_policies([])
        session.stop()
        # Its finalizer would close the client again at the next garbage collection, and stop the threads that all
        # sessions share: a session that is just submitting work to them would wait for itself forever.
        client.close = _closed  # type: ignore[method-assign]
        atexit.unregister(client._cleanup_ml_cache)


def _closed() -> None:
    pass
