"""Converts bars of the topic `ohlc` to rows of `market.ohlc_revisions` or `market.ohlc`."""

from collections.abc import Mapping, Sequence
from itertools import compress
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bus import StoredRecord
from candlewright.wire import bar_columns
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.errors import BadFrame
from flink_replacement_spark.tables.taken_records import TakenRecords, places_of, values_of
from iceberg import OHLC_REVISIONS, PUBLISHED_LAST
from venues import sound

__all__ = ["published_bars"]

_SCHEMA = OHLC_REVISIONS.arrow_schema
#: The sources of the platform's own bars; clients' bars are stored in no table, whatever source they name.
_SOURCES = ("ticks", "derived")
_PRICES = ("open", "high", "low", "close")


def published_bars(
    records: Sequence[StoredRecord], moments: Mapping[int, tuple[int, int]] = MappingProxyType({})
) -> pa.Table:
    """`records`: of each partition in order, after what `Taken.moments` describes. Bars that are not the platform's own
    are left out.

    Raises BadFrame for a record that is not a sound bar.
    """
    decoded = records.decoded if isinstance(records, TakenRecords) else ()
    bars = bar_columns.joined(decoded) if decoded else bar_columns.decode(*values_of(records))
    is_own = np.array([text in _SOURCES for text in bars.texts])[bars.source] & ~bars.from_client
    # Usually all are, and no column is copied.
    own: slice | NDArray[np.bool_] = slice(None) if is_own.all() else is_own
    tickers, sources = bars.ticker[own], bars.source[own]
    prices, volumes = bars.prices[:, own], bars.volumes[:, own]
    period_seconds, open_ns = bars.period_seconds[own], bars.open_time[own]
    trade_count, revision = bars.trade_count[own], bars.revision[own]
    if not sound.are_sound_bars(
        [bars.texts[place] for place in np.unique(tickers).tolist()],
        period_seconds=period_seconds,
        open_time=open_ns,
        prices=prices,
        volumes=volumes,
        trade_count=trade_count,
        revision=revision,
    ):
        checked = (OHLCV.FromString(record.value) for record in compress(records, is_own.tolist()))
        raise BadFrame("BAD_RECORD", next(filter(None, map(sound.problem_with_bar, checked))))
    texts = pa.array(bars.texts, _SCHEMA.field("ticker").type)
    columns: dict[str, pa.Array] = {
        "ticker": texts.take(pa.array(tickers)),
        "period_seconds": pa.array(period_seconds),
        "open_time": pa.array(open_ns.astype(np.int64) // 1_000),
        **dict(zip(_PRICES, map(pa.array, prices), strict=True)),
        "volume": pa.array(volumes[0]),
        "quote_volume": pa.array(volumes[1], mask=~bars.has_quote_volume[own]),
        "trade_count": pa.array(trade_count, mask=~bars.has_trade_count[own]),
        "source": texts.take(pa.array(sources)),
        "complete": pa.array(bars.complete[own]),
        "revision": pa.array(revision),
        "known_at": pa.array(_known_at(records, moments)[own]),
    }
    return pa.table([columns[part.name].cast(part.type) for part in _SCHEMA], schema=_SCHEMA)


def _known_at(
    records: Sequence[StoredRecord], moments: Mapping[int, tuple[int, int]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The time (µs) at which each was published: the bus's millisecond, and the position among the partition's records
    of that millisecond, which does not depend on how commits are cut.
    """
    if not records:
        return np.empty(0, np.int64)
    partition, offset, time_ms = places_of(records)
    is_first = np.ones(len(records), np.bool_)
    is_first[1:] = (time_ms[1:] != time_ms[:-1]) | (partition[1:] != partition[:-1])
    run = np.cumsum(is_first) - 1
    starts = offset[is_first]
    for place in np.unique(partition, return_index=True)[1].tolist():
        before_ms, first = moments.get(int(partition[place]), (-1, 0))
        if before_ms == time_ms[place]:
            starts[run[place]] = min(first, offset[place])
    within = offset - starts[run]
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = time_ms * 1_000 + np.minimum(within, PUBLISHED_LAST)
    return found
