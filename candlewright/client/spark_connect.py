"""Rows through Spark Connect, for a platform whose tables are on another machine."""

import re
import socket
import urllib.parse
from typing import TYPE_CHECKING

from candlewright.client.errors import RowsUnavailable
from candlewright.client.history import History
from candlewright.client.operations import Range
from candlewright.client.records import Notification
from candlewright.client.rows import checked
from core.settings import SparkSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.connect.session import SparkSession

REACH_SECONDS = 5.0
#: In `spark.conf`: what Spark Connect wants to hear before it answers.
TOKEN = "spark.connect.authenticate.token"
_ADDRESS = re.compile(r"^(?:sc://)?(.+)$")
_EVERYWHERE = re.compile(r"^(0\.0\.0\.0|\*|\[::\]):")
_LOOPBACK = re.compile(r"^(127\.0\.0\.1|\[::1\]):")


def connect_url(bind: str, token: str = "") -> str:
    """`sc://host:port` of a `host:port`, or of such an address as it is; one that names a token keeps its own."""
    address = _EVERYWHERE.sub("127.0.0.1:", _ADDRESS.sub(r"\1", bind))
    if not token or ";token=" in address:
        return f"sc://{address}"
    # Spark's client sends a token over TLS alone, but for this one name.
    address = _LOOPBACK.sub("localhost:", address)
    separator = "" if address.endswith(";") else ";" if "/;" in address else "/;"
    return f"sc://{address}{separator}token={urllib.parse.quote(token, safe='')}"


def open_session(bind: str, token: str = "") -> "SparkSession":
    """A Spark Connect session; raises RowsUnavailable when nobody listens there."""
    from pyspark.errors import PySparkException

    # Not pyspark.sql's: that one sets the environment, and children of this process would take it for theirs.
    from pyspark.sql.connect.session import SparkSession

    url = connect_url(bind, token)
    address = url.partition(";")[0]
    # Spark's own client tries for minutes before it says that nobody is there.
    host, _, port = url.removeprefix("sc://").partition("/")[0].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
        session: SparkSession = SparkSession.builder.remote(url).create()
    except (PySparkException, OSError, RuntimeError, ValueError) as error:
        raise RowsUnavailable(f"Spark Connect at {address} cannot be reached: {error}") from error
    return session


def session_of(settings: SparkSettings) -> "SparkSession":
    """A session with the platform of these settings; raises RowsUnavailable."""
    return open_session(settings.connect_bind, settings.conf.get(TOKEN, ""))


class SparkRows:
    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings

    def history(self, wanted: Range, final: Notification) -> History:
        from pyspark.errors import PySparkException

        # One session a read: a session that outlives its server keeps the interpreter from ending for minutes.
        session = session_of(self._settings)
        try:
            table = self._candles(session, wanted)
            holes = self._holes(session, final.request_id)
        except PySparkException as error:
            raise RowsUnavailable(f"Spark Connect at {connect_url(self._settings.connect_bind)}: {error}") from error
        finally:
            session.stop()
        return checked(table, holes, wanted, final)

    def _candles(self, session: "SparkSession", wanted: Range) -> "pa.Table":
        # Microseconds are what the table keeps: a bound between two of them moves up to the next one.
        frame = session.sql(
            "SELECT * FROM lake.market.ohlc WHERE ticker = :ticker AND period_seconds = :period"
            " AND open_time >= timestamp_micros(:start) AND open_time < timestamp_micros(:end)"
            " ORDER BY open_time LIMIT :limit",
            args={
                "ticker": wanted.ticker,
                "period": wanted.period_seconds,
                "start": -(-wanted.start // 1_000),
                "end": -(-wanted.end // 1_000),
                "limit": wanted.limit if wanted.limit is not None else 2_147_483_647,
            },
        )
        return frame.toArrow()

    def _holes(self, session: "SparkSession", request_id: str) -> list[tuple[int, int]]:
        rows = session.sql(
            "SELECT unix_micros(hole.start) AS first, unix_micros(hole.end) AS last FROM"
            " (SELECT explode(holes) AS hole FROM lake.market.coverage WHERE request_id = :id) ORDER BY first",
            args={"id": request_id},
        ).collect()
        return [(row["first"] * 1_000, row["last"] * 1_000) for row in rows]
