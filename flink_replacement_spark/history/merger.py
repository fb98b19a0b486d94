"""Upserts that need Spark: MERGE if rows change, and whole pieces that executors read, check and write."""

import json
import operator
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bus import topics as bus_topics
from candlewright.wire.errors import CommitConflict
from core.catalog_conf import SPARK_CATALOG
from flink_replacement_spark.engine.watched import gist_of
from flink_replacement_spark.history.outcomes import runs
from flink_replacement_spark.history.pieces import PieceFault, checked_candles, faults_of, pages_of_job
from iceberg import COMMITTED, OHLC, OHLC_REVISIONS, has_files_in, load_table
from protobuf import records_pb2 as records

TABLE = f"{SPARK_CATALOG}.{'.'.join(OHLC.identifier)}"
REVISIONS = f"{SPARK_CATALOG}.{'.'.join(OHLC_REVISIONS.identifier)}"
_KEY = ("ticker", "period_seconds", "open_time")
_COLUMNS = (
    "ticker string, period_seconds int, open_time timestamp, open double, high double, low double, close double, "
    "volume double, quote_volume double, trade_count bigint, source string, complete boolean, updated_at timestamp"
)
_CHECKED = "tag int, fault string"
_SUMMARY_PREFIX = "spark.sql.iceberg.snapshot-property."
#: Snapshot properties are set on the session, so writers of different tables take turns here.
_NAMING = threading.Lock()

#: The same decision as iceberg.compare_candles, in SQL.
_IS_CHANGED = """
    NOT (t.source = 'exchange' AND s.source <> 'exchange')
    AND (t.open <> s.open OR t.high <> s.high OR t.low <> s.low OR t.close <> s.close OR t.volume <> s.volume
         OR (s.quote_volume IS NOT NULL AND NOT t.quote_volume <=> s.quote_volume)
         OR (s.trade_count IS NOT NULL AND NOT t.trade_count <=> s.trade_count)
         OR t.source <> s.source OR t.complete <> s.complete)
"""
_VALUES = "open, high, low, close, volume, quote_volume, trade_count, source, complete"
#: The same as iceberg.corrections, in SQL; `t` is the revision in effect.
_REVISE = f"""
    INSERT INTO {REVISIONS} (ticker, period_seconds, open_time, {_VALUES}, revision, known_at)
    SELECT s.ticker, s.period_seconds, s.open_time, {", ".join(f"s.{name}" for name in _VALUES.split(", "))},
           COALESCE(known.last + 1, 0), TIMESTAMP_MICROS(:known_at)
    FROM {{incoming}} s LEFT JOIN (
        SELECT ticker, period_seconds, open_time, MAX(revision) AS last,
               MAX_BY(STRUCT({_VALUES}), STRUCT(source = 'exchange', known_at, revision)) AS t
        FROM {REVISIONS}
        WHERE ticker IN ({{tickers}}) AND open_time >= TIMESTAMP_MICROS(:first) AND open_time < TIMESTAMP_MICROS(:end)
        GROUP BY ticker, period_seconds, open_time
    ) known USING (ticker, period_seconds, open_time)
    WHERE known.last IS NULL OR ({_IS_CHANGED})
"""


class SparkMerger:
    """Callers must hold the turn of the table that they write (`TableLocks`)."""

    def __init__(self, session: SparkSession, catalog: Catalog, bus_url: str) -> None:
        self._session = session
        self._catalog = catalog
        self._bus_url = bus_url

    def merge(self, rows: pa.Table, summary: dict[str, str]) -> None:
        """Upsert `rows` (of `market.ohlc`) by key; CommitConflict means that the rows must be compared with the table
        again.
        """
        with _spark_errors():
            self._merge(self._session.createDataFrame(rows), rows["ticker"].unique().to_pylist(), summary)

    def write_pieces(self, pieces: Sequence[records.PieceDone], summary: dict[str, str]) -> dict[int, str]:
        """Write non-overlapping pieces, one task each; faulty ones are skipped, and returned as faults by index."""
        with _spark_errors():
            checked = self._read(pieces, range(len(pieces))).mapInArrow(_check(pieces), _CHECKED).collect()
            faults = {row.tag: row.fault for row in checked if row.fault}
            seen = {row.tag for row in checked}
            faults |= {
                index: f"Piece {piece.piece} was reported with {piece.rows} candles, but none are on the bus."
                for index, piece in enumerate(pieces)
                if piece.rows and index not in seen
            }
            sound = [index for index, piece in enumerate(pieces) if piece.rows and index not in faults]
            if sound:
                frame = self._read(pieces, sound).mapInArrow(_decode(pieces), _COLUMNS)
                chosen = [pieces[index] for index in sound]
                table = load_table(self._catalog, OHLC)
                if _is_untouched(table, chosen):
                    with self._summary(summary):
                        _append_untouched(frame, table, chosen)
                else:
                    self._merge(frame, sorted({piece.ticker for piece in chosen}), summary)
        return faults

    def revise_pieces(self, pieces: Sequence[records.PieceDone], summary: dict[str, str]) -> None:
        """Append the rows of these pieces that `market.ohlc_revisions` does not have yet."""
        with _spark_errors():
            names = _named(sorted({piece.ticker for piece in pieces}))
            arguments: dict[str, str | int] = {
                **names,
                "known_at": time.time_ns() // 1_000_000 * 1_000 + COMMITTED,
                "first": min(piece.start_time for piece in pieces) // 1_000,
                "end": max(piece.end_time for piece in pieces) // 1_000,
            }
            frame = self._read(pieces, range(len(pieces))).mapInArrow(_decode(pieces), _COLUMNS)
            with self._view(frame) as incoming, self._summary(summary):
                self._session.sql(_REVISE.format(incoming=incoming, tickers=_places(names)), args=arguments)

    def _read(self, pieces: Sequence[records.PieceDone], indices: Sequence[int]) -> DataFrame:
        ranges = [
            (bus_topics.HISTORY, pieces[index].partition, span.first_offset, span.last_offset, index)
            for index in indices
            for span in pieces[index].spans
        ]
        reader = self._session.read.format("bus").option("url", self._bus_url)
        return reader.option("ranges", json.dumps(ranges)).load()

    def _merge(self, rows: DataFrame, tickers: Sequence[str], summary: dict[str, str]) -> None:
        names = _named(tickers)
        matching = " AND ".join(f"t.{column} = s.{column}" for column in _KEY)
        with self._view(rows) as incoming, self._summary(summary):
            self._session.sql(
                f"MERGE INTO {TABLE} t USING {incoming} s ON {matching} AND t.ticker IN ({_places(names)}) "
                f"WHEN MATCHED AND {_IS_CHANGED} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
                args=names,
            )

    @contextmanager
    def _view(self, rows: DataFrame) -> Iterator[str]:
        name = f"incoming_{time.monotonic_ns()}"
        rows.createOrReplaceTempView(name)
        try:
            yield name
        finally:
            self._session.catalog.dropTempView(name)

    @contextmanager
    def _summary(self, summary: dict[str, str]) -> Iterator[None]:
        keys = {f"{_SUMMARY_PREFIX}{key}": value for key, value in summary.items()}
        with _NAMING:
            for key, value in keys.items():
                self._session.conf.set(key, value)
            try:
                yield
            finally:
                for key in keys:
                    self._session.conf.unset(key)


def _is_untouched(table: Table, pieces: Sequence[records.PieceDone]) -> bool:
    return not any(
        has_files_in(table, run[0].ticker, run[0].period_seconds, start_ns=run[0].start_time, end_ns=run[-1].end_time)
        for run in runs(pieces)
    )


def _append_untouched(frame: DataFrame, table: Table, pieces: Sequence[records.PieceDone]) -> None:
    """Append by overwriting empty ranges. Iceberg then refuses the commit if another process has written there since
    `table` was read, such as a driver whose term has ended; a plain append would add the rows twice.
    """
    ranges = [
        (F.col("ticker") == run[0].ticker)
        & (F.col("period_seconds") == run[0].period_seconds)
        & (F.col("open_time") >= F.timestamp_micros(F.lit(run[0].start_time // 1_000)))
        & (F.col("open_time") < F.timestamp_micros(F.lit(run[-1].end_time // 1_000)))
        for run in runs(pieces)
    ]
    writer = frame.writeTo(TABLE).option("isolation-level", "serializable")
    if table.metadata.current_snapshot_id is not None:
        writer = writer.option("validate-from-snapshot-id", str(table.metadata.current_snapshot_id))
    writer.overwrite(reduce(operator.or_, ranges))


def _named(tickers: Sequence[str]) -> dict[str, str]:
    """SQL arguments; a literal list lets Iceberg skip the files of other tickers."""
    return {f"ticker{number}": ticker for number, ticker in enumerate(tickers)}


def _places(names: Iterable[str]) -> str:
    return ", ".join(f":{name}" for name in names)


Batches = Iterator[pa.RecordBatch]
ArrowFunction = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def _decode(pieces: Sequence[records.PieceDone]) -> ArrowFunction:
    """A task's function, from the records of one piece to its rows."""
    encoded = [piece.SerializeToString() for piece in pieces]
    updated_at_us = time.time_ns() // 1_000

    def decode(batches: Iterable[pa.RecordBatch]) -> Batches:
        for piece, values in _by_piece(batches, encoded):
            found = list(pages_of_job(values, piece))
            yield from checked_candles(found, piece, updated_at_us).combine_chunks().to_batches()

    return decode


def _check(pieces: Sequence[records.PieceDone]) -> ArrowFunction:
    encoded = [piece.SerializeToString() for piece in pieces]
    index_of = {content: index for index, content in enumerate(encoded)}

    def check(batches: Iterable[pa.RecordBatch]) -> Batches:
        for piece, values in _by_piece(batches, encoded):
            fault = None
            try:
                with faults_of(piece):
                    checked_candles(list(pages_of_job(values, piece)), piece, 0)
            except PieceFault as refused:
                fault = str(refused)
            tag = pa.array([index_of[piece.SerializeToString()]], pa.int32())
            yield pa.RecordBatch.from_arrays([tag, pa.array([fault], pa.string())], names=["tag", "fault"])

    return check


def _by_piece(
    batches: Iterable[pa.RecordBatch], encoded: Sequence[bytes]
) -> Iterator[tuple[records.PieceDone, Iterator[bytes]]]:
    """Records by piece; their tag names the piece."""
    values: list[bytes] = []
    tag = -1
    for batch in batches:
        if batch.num_rows:
            tag = batch.column("tag")[0].as_py()
            values += batch.column("value").to_pylist()
    if tag >= 0:
        yield records.PieceDone.FromString(encoded[tag]), iter(values)


@contextmanager
def _spark_errors() -> Iterator[None]:
    """Translate Spark's errors to retryable ones; a retry is safe, because it compares with the table first."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise CommitConflict(f"Spark: {gist_of(str(error))}") from error
