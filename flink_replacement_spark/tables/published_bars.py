"""Converts bars of the topic `ohlc` to rows of `market.ohlc_revisions` or `market.ohlc`."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from bus import StoredRecord
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.errors import BadFrame
from iceberg import OHLC_REVISIONS, PUBLISHED_LAST
from venues import sound

__all__ = ["published_bars"]

_SCHEMA = OHLC_REVISIONS.arrow_schema
#: The sources of the platform's own bars; clients' bars are stored in no table, whatever source they name.
_SOURCES = frozenset({"ticks", "derived"})


def published_bars(
    records: Sequence[StoredRecord], moments: Mapping[int, tuple[int, int]] = MappingProxyType({})
) -> pa.Table:
    """`records`: of each partition in order, after what `Taken.moments` describes. Bars that are not the platform's own
    are left out.

    Raises BadFrame for a record that is not a sound bar.
    """
    times = _known_at(records, moments)
    found = [(bar, at) for record, at in zip(records, times.tolist(), strict=True) for bar in _own(record)]
    bars = [bar for bar, _ in found]
    columns = {
        "ticker": [bar.ticker for bar in bars],
        "period_seconds": [bar.period_seconds for bar in bars],
        "open_time": [bar.open_time // 1_000 for bar in bars],
        "open": [bar.open for bar in bars],
        "high": [bar.high for bar in bars],
        "low": [bar.low for bar in bars],
        "close": [bar.close for bar in bars],
        "volume": [bar.volume for bar in bars],
        "quote_volume": [bar.quote_volume if bar.HasField("quote_volume") else None for bar in bars],
        "trade_count": [bar.trade_count if bar.HasField("trade_count") else None for bar in bars],
        "source": [bar.source for bar in bars],
        "complete": [bar.complete for bar in bars],
        "revision": [bar.revision for bar in bars],
        "known_at": [at for _, at in found],
    }
    return pa.table([pa.array(columns[part.name], part.type) for part in _SCHEMA], schema=_SCHEMA)


def _own(record: StoredRecord) -> Iterable[OHLCV]:
    try:
        bar = OHLCV.FromString(record.value)
    except DecodeError as error:
        raise BadFrame("BAD_RECORD", "not an OHLCV") from error
    if bar.source in _SOURCES and not bar.from_client:
        if problem := sound.problem_with_bar(bar):
            raise BadFrame("BAD_RECORD", problem)
        yield bar


def _known_at(
    records: Sequence[StoredRecord], moments: Mapping[int, tuple[int, int]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The time (µs) at which each was published: the bus's millisecond, and the position among the partition's records
    of that millisecond, which does not depend on how commits are cut.
    """
    if not records:
        return np.empty(0, np.int64)
    places = [(record.partition, record.timestamp_ms, record.offset) for record in records]
    partition, time_ms, offset = np.array(places, np.int64).T
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
