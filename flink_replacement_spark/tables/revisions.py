"""Appends published bars, and corrections by history, to `lake.market.ohlc_revisions`.

Exactly once without a journal: rows are compared with the table before they are appended, so any step may run again.
`market.ohlc` is written first; maintenance takes care of snapshots and files, as for every table.
"""

import time

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from bus import topics as bus_topics
from candlewright.wire import bar_columns
from core import metrics
from core.catalog_conf import SPARK_CATALOG
from core.log import get_logger
from flink_replacement_spark.tables.follower import Followed, Taken
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.published_bars import published_bars
from iceberg import (
    OHLC,
    OHLC_REVISIONS,
    append_or_find,
    corrections,
    load_table,
    new_revisions,
    scan_revisions,
)

__all__ = ["FOLLOWED_REVISIONS", "RevisionTable", "fill_once", "must_fill"]

log = get_logger()

FOLLOWED_REVISIONS = Followed(
    topic=bus_topics.OHLC,
    reader=bus_topics.READER_REVISION_TABLE,
    state="revision_table",
    max_records=200_000,
    many_records=5_000,
    digest=published_bars,
    decode=bar_columns.decode,
)

_ROWS = metrics.Counter(
    "candlewright_spark_revisions_total", "Rows of ohlc_revisions.", ["origin"], registry=metrics.REGISTRY
)


class RevisionTable:
    def __init__(self, catalog: Catalog, locks: TableLocks) -> None:
        self._catalog = catalog
        self._locks = locks

    def store(self, taken: Taken) -> None:
        """Append published bars; see `Follower`."""
        bars = published_bars(taken.records, taken.moments)
        if not bars.num_rows:
            return
        with self._locks.writing(OHLC_REVISIONS, "live bars"):
            table = load_table(self._catalog, OHLC_REVISIONS)
            rows = new_revisions(bars, scan_revisions(table, bars, numbers_only=True))
            if rows.num_rows:
                append_or_find(table, rows, self._locks.sign({"candlewright.bars": taken.name}))
        _ROWS.labels("live").inc(rows.num_rows)

    def correct(self, candles: pa.Table, summary: dict[str, str]) -> None:
        """Append those candles of `market.ohlc`, committed by history, that differ from what is known."""
        if not candles.num_rows:
            return
        with self._locks.writing(OHLC_REVISIONS, "history"):
            table = load_table(self._catalog, OHLC_REVISIONS)
            rows = corrections(candles, scan_revisions(table, candles), time.time_ns() // 1_000_000)
            if rows.num_rows:
                append_or_find(table, rows, self._locks.sign(summary))
        _ROWS.labels("history").inc(rows.num_rows)


def must_fill(catalog: Catalog) -> bool:
    """Whether the data directory predates the table; once False, it stays so."""
    if load_table(catalog, OHLC_REVISIONS).current_snapshot() is not None:
        return False
    return load_table(catalog, OHLC).current_snapshot() is not None


def fill_once(session: SparkSession, catalog: Catalog) -> None:
    """Fill the table in a data directory that predates it; each stored bar counts as known since its last write.

    This is one commit, so a killed driver starts it again.
    """
    if not must_fill(catalog):
        return
    bars, revisions = (f"{SPARK_CATALOG}.{'.'.join(table.identifier)}" for table in (OHLC, OHLC_REVISIONS))
    columns = ", ".join(name for name in OHLC_REVISIONS.arrow_schema.names if name in OHLC.arrow_schema.names)
    log.info("revisions_filled", table=revisions)
    session.sql(f"INSERT INTO {revisions} ({columns}, revision, known_at) SELECT {columns}, 0, updated_at FROM {bars}")
