"""Rows through Spark Connect, for a platform whose tables are on another machine."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from candlewright.client.errors import RowsUnavailable
from candlewright.client.history.history import History
from candlewright.client.history.promised import as_promised
from candlewright.client.history.stored import Stored
from candlewright.client.records import Notification, Range
from candlewright.settings import SparkAddress
from candlewright.wire.spark_connect import connect_session, connect_url

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.connect.session import SparkSession

REACH_SECONDS = 5.0
_IN_RANGE = (
    "ticker = :ticker AND period_seconds = :period"
    " AND open_time >= timestamp_micros(:start) AND open_time < timestamp_micros(:end)"
)


@contextmanager
def open_session(address: str) -> Iterator["SparkSession"]:
    """A Spark Connect session at a `host:port` or `sc://` address; raises RowsUnavailable if nothing listens there."""
    try:
        from pyspark.errors import PySparkException
    except ModuleNotFoundError as error:
        raise RowsUnavailable("Spark Connect needs Spark's client: install candlewright[spark-connect]") from error

    url = connect_url(address)
    where = f"Spark Connect at {url.partition(';')[0]}"
    host, _, port = url.removeprefix("sc://").partition("/")[0].rpartition(":")
    with ExitStack() as opened:
        try:
            # Spark's own client tries for a while before it reports that nothing listens there.
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
            session = opened.enter_context(connect_session(url))
        except (PySparkException, OSError, RuntimeError, ValueError) as error:
            raise RowsUnavailable(f"{where} cannot be reached: {error}; is `candlewright up` running there?") from error
        yield session


def session_of(settings: SparkAddress) -> AbstractContextManager["SparkSession"]:
    """A session with the platform of these settings; raises RowsUnavailable."""
    return open_session(settings.connect_url)


class SparkRows:
    def __init__(self, settings: SparkAddress) -> None:
        self._settings = settings

    def history(self, wanted: Range, final: Notification) -> History:
        # One session a read: none outlives its server.
        with session_of(self._settings) as session:
            from pyspark.errors import PySparkException

            try:
                table = self._candles(session, wanted)
                holes = self._holes(session, final.request_id)
                closed_until = self._closed_until(session, final.request_id)
            except PySparkException as error:
                raise RowsUnavailable(f"Spark Connect at {self._settings.connect_bind}: {error}") from error
        return as_promised(table, holes=holes, closed_until=closed_until, wanted=wanted, final=final)

    def histories(self, wanted: Sequence[Range], finals: Sequence[Notification]) -> list[History | RowsUnavailable]:
        found: list[History | RowsUnavailable] = []
        for each, final in zip(wanted, finals, strict=True):
            try:
                found.append(self.history(each, final))
            except RowsUnavailable as error:
                found.append(error)
        return found

    def stored(self, wanted: Range, as_of: int | None) -> Stored:
        with session_of(self._settings) as session:
            from pyspark.errors import PySparkException

            try:
                if as_of is not None:
                    return Stored.of(self._known(session, wanted, as_of), wanted, as_of=as_of)
                return Stored.of(self._candles(session, wanted), wanted, self._all_holes(session, wanted))
            except PySparkException as error:
                raise RowsUnavailable(f"Spark Connect at {self._settings.connect_bind}: {error}") from error

    def _candles(self, session: "SparkSession", wanted: Range) -> "pa.Table":
        sql = f"SELECT * FROM lake.market.ohlc WHERE {_IN_RANGE} ORDER BY open_time LIMIT :limit"
        return session.sql(sql, args=_arguments(wanted)).toArrow()

    def _known(self, session: "SparkSession", wanted: Range, as_of: int) -> "pa.Table":
        """The same decision as iceberg.effective, in SQL."""
        newest = "PARTITION BY open_time ORDER BY source = 'exchange' DESC, known_at DESC, revision DESC"
        sql = (
            f"SELECT * EXCEPT (place) FROM (SELECT *, ROW_NUMBER() OVER ({newest}) AS place"
            f" FROM lake.market.ohlc_revisions WHERE {_IN_RANGE} AND known_at <= timestamp_micros(:as_of))"
            " WHERE place = 1 ORDER BY open_time LIMIT :limit"
        )
        return session.sql(sql, args={**_arguments(wanted), "as_of": as_of // 1_000}).toArrow()

    def _all_holes(self, session: "SparkSession", wanted: Range) -> list[tuple[int, int]]:
        rows = session.sql(
            "SELECT unix_micros(hole.start) AS first, unix_micros(hole.end) AS last FROM (SELECT explode(holes) AS hole"
            " FROM lake.market.coverage WHERE ticker = :ticker AND period_seconds = :period"
            " AND status IN ('OK', 'NOT_FOUND'))",
            args={"ticker": wanted.ticker, "period": wanted.period_seconds},
        ).collect()
        return [(row["first"] * 1_000, row["last"] * 1_000) for row in rows]

    def _holes(self, session: "SparkSession", request_id: str) -> list[tuple[int, int]]:
        rows = session.sql(
            "SELECT unix_micros(hole.start) AS first, unix_micros(hole.end) AS last FROM"
            " (SELECT explode(holes) AS hole FROM lake.market.coverage WHERE request_id = :id) ORDER BY first",
            args={"id": request_id},
        ).collect()
        return [(row["first"] * 1_000, row["last"] * 1_000) for row in rows]

    def _closed_until(self, session: "SparkSession", request_id: str) -> int | None:
        [row] = session.sql(
            "SELECT unix_micros(max(closed_until)) AS closed FROM lake.market.coverage WHERE request_id = :id",
            args={"id": request_id},
        ).collect()
        return None if row["closed"] is None else row["closed"] * 1_000


def _arguments(wanted: Range) -> dict[str, str | int]:
    # Microseconds are what the table keeps: a bound between two of them moves up to the next one.
    return {
        "ticker": wanted.ticker,
        "period": wanted.period_seconds,
        "start": -(-wanted.start // 1_000),
        "end": -(-wanted.end // 1_000),
        "limit": wanted.limit if wanted.limit is not None else 2_147_483_647,
    }
