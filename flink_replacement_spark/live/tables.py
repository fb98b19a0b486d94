"""Writes published bars to `market.ohlc`, and the live query's ticks and gaps to `market.ticks` and `market.gaps`.

Exactly once: bars are always compared with the table before they are written, trades if a commit may be a repetition.
"""

import time
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from bus import topics as bus_topics
from bus.api import StoredRecord
from candlewright.wire import bar_columns
from core import metrics
from flink_replacement_spark.history.writer import Merger
from flink_replacement_spark.live.tick_rows import are_perhaps_stored, rows_of_gaps, rows_of_trades
from flink_replacement_spark.tables.follower import Followed, Taken
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.published_bars import published_bars
from iceberg import (
    GAPS,
    OHLC,
    TICKS,
    append_or_find,
    compare_with_stored,
    is_committed,
    load_table,
    newest_of_each,
    scan_trade_ids,
)

__all__ = ["FOLLOWED_BARS", "FOLLOWED_TICKS", "BarTable", "TickTable"]

FOLLOWED_BARS = Followed(
    topic=bus_topics.OHLC,
    reader=bus_topics.READER_BAR_TABLE,
    state="bar_table",
    max_records=200_000,
    many_records=5_000,
    digest=published_bars,
    decode=bar_columns.decode,
)


def _digest(records: Sequence[StoredRecord]) -> None:
    rows_of_trades(records)
    rows_of_gaps(records)


FOLLOWED_TICKS = Followed(
    topic=bus_topics.TICK_ROWS,
    reader=bus_topics.READER_TICK_TABLE,
    state="tick_table",
    # A record has up to 50,000 trades; one commit is bounded by their bytes.
    max_records=10_000,
    many_records=1_000,
    digest=_digest,
)

_ROWS = metrics.Counter(
    "candlewright_spark_live_rows_total", "Rows that live data added or changed.", ["table"], registry=metrics.REGISTRY
)


class BarTable:
    """`store` is what a `Follower` of the topic `ohlc` calls; of each bar its newest record counts."""

    def __init__(self, catalog: Catalog, merger: Merger, locks: TableLocks) -> None:
        self._catalog = catalog
        self._merger = merger
        self._locks = locks

    def store(self, taken: Taken) -> None:
        published = published_bars(taken.records)
        if not published.num_rows:
            return
        incoming = _rows(newest_of_each(published))
        summary = {"candlewright.live-bars": taken.name}
        with self._locks.writing(OHLC, "live bars"):
            table = load_table(self._catalog, OHLC)
            # Rows of an earlier attempt at this commit may have been replaced by candles of history.
            if taken.is_repeat and is_committed(table, summary):
                return
            difference = compare_with_stored(table, incoming)
            written = pa.concat_tables([difference.new, difference.changed])
            if difference.changed.num_rows:
                self._merger.merge(written, self._locks.sign(summary))
            elif written.num_rows:
                append_or_find(table, written, self._locks.sign(summary))
        _ROWS.labels(OHLC.name).inc(written.num_rows)


class TickTable:
    """`store` is what a `Follower` of the topic `tick_rows` calls."""

    def __init__(self, catalog: Catalog, locks: TableLocks) -> None:
        self._catalog = catalog
        self._locks = locks
        #: The positions of this process's last commit, by partition.
        self._ends: Mapping[int, int] | None = None

    def store(self, taken: Taken) -> None:
        trades, gaps = rows_of_trades(taken.records), rows_of_gaps(taken.records)
        if gaps.num_rows:
            with self._locks.writing(GAPS, "live gaps"):
                load_table(self._catalog, GAPS).upsert(
                    gaps,
                    join_cols=["ticker", "from_trade_id", "to_trade_id", "from_ts"],
                    snapshot_properties=self._locks.sign({}),
                )
            _ROWS.labels(GAPS.name).inc(gaps.num_rows)
        if not trades.num_rows:
            return
        summary = {"candlewright.live-ticks": taken.name}
        with self._locks.writing(TICKS, "live ticks"):
            table = load_table(self._catalog, TICKS)
            if taken.is_repeat or self._may_overlap(taken) or are_perhaps_stored(taken.records):
                trades = _not_stored(table, trades)
            if trades.num_rows:
                append_or_find(table, trades, self._locks.sign(summary))
        self._ends = taken.end
        _ROWS.labels(TICKS.name).inc(trades.num_rows)

    def _may_overlap(self, taken: Taken) -> bool:
        """Whether the records may repeat stored ones, since a restored bus may have forgotten the last commit."""
        ends = self._ends
        return ends is None or any(first < ends.get(partition, 0) for partition, first in taken.start.items())


def _rows(published: pa.Table) -> pa.Table:
    """Rows of `market.ohlc`."""
    now = pa.scalar(time.time_ns() // 1_000).cast(pa.timestamp("us", "UTC"))
    rows = published.append_column("updated_at", pa.repeat(now, published.num_rows))
    return rows.select(OHLC.arrow_schema.names).cast(OHLC.arrow_schema)


def _not_stored(table: Table, ticks: pa.Table) -> pa.Table:
    """Each trade once, unless the table has it."""
    bounds = pc.min_max(ticks["ts_ns"]).as_py()
    found = scan_trade_ids(
        table, ticks["ticker"].unique().to_pylist(), start_ns=bounds["min"], end_ns=bounds["max"] + 1
    )
    asked, known = (
        pc.binary_join_element_wise(
            rows["ticker"].cast(pa.string()), rows["trade_id"].cast(pa.string()), "\n"
        ).combine_chunks()
        for rows in (ticks, found)
    )
    first: dict[str, int] = {}
    for place, key in enumerate(asked.to_pylist()):
        first.setdefault(key, place)
    once = pa.array(list(first.values()), pa.int64())
    return ticks.take(once.filter(pc.invert(pc.is_in(asked.take(once), value_set=known))))
