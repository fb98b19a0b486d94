"""Rows through Spark Connect, for a platform whose tables are on another machine."""

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from candlewright.client.errors import RowsUnavailable
from candlewright.client.history import History
from candlewright.client.promised import as_promised
from candlewright.client.records import Notification, Range
from core.settings import SparkSettings
from core.spark_connect import connect_session, connect_url

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.connect.session import SparkSession

REACH_SECONDS = 5.0


@contextmanager
def open_session(address: str) -> Iterator["SparkSession"]:
    """A Spark Connect session at a `host:port` or `sc://` address; raises RowsUnavailable when nobody listens there."""
    from pyspark.errors import PySparkException

    url = connect_url(address)
    where = f"Spark Connect at {url.partition(';')[0]}"
    host, _, port = url.removeprefix("sc://").partition("/")[0].rpartition(":")
    with ExitStack() as opened:
        try:
            # Spark's own client tries for a while before it says that nobody is there.
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
            session = opened.enter_context(connect_session(url))
        except (PySparkException, OSError, RuntimeError, ValueError) as error:
            raise RowsUnavailable(f"{where} cannot be reached: {error}; is `candlewright up` running there?") from error
        yield session


def session_of(settings: SparkSettings) -> AbstractContextManager["SparkSession"]:
    """A session with the platform of these settings; raises RowsUnavailable."""
    return open_session(settings.connect_url)


class SparkRows:
    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings

    def history(self, wanted: Range, final: Notification) -> History:
        from pyspark.errors import PySparkException

        # One session a read: none outlives its server.
        with session_of(self._settings) as session:
            try:
                table = self._candles(session, wanted)
                holes = self._holes(session, final.request_id)
            except PySparkException as error:
                raise RowsUnavailable(f"Spark Connect at {self._settings.connect_bind}: {error}") from error
        return as_promised(table, holes, wanted, final)

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
