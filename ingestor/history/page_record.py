"""Writes HistoryPage records from columns: a packed field consists of the column's own bytes."""

import sys

import numpy as np
from numpy.typing import NDArray

from bus import Record
from ingestor.candles import Candles
from protobuf import records_pb2 as records

_PACKED = 2  # the wire type of a packed repeated field
_COLUMNS = ("open_time", "open", "high", "low", "close", "volume", "quote_volume", "trade_count")
_TAGS = {name: bytes((records.HistoryPage.DESCRIPTOR.fields_by_name[name].number << 3 | _PACKED,)) for name in _COLUMNS}


def page_record(
    candles: Candles, *, request_id: str, job_id: str, ticker: str, period_seconds: int, source: str
) -> Record:
    """One record of topic `history`."""
    head = records.HistoryPage(
        request_id=request_id, job_id=job_id, ticker=ticker, period_seconds=period_seconds, source=source
    )
    parts = [head.SerializeToString()]
    for name in _COLUMNS:
        column = getattr(candles, name)
        if column is not None:
            parts.append(_packed(_TAGS[name], column))
    return Record(b"".join(parts), key=job_id.encode(), partition_key=ticker.encode())


def _packed(tag: bytes, column: NDArray[np.int64] | NDArray[np.uint64] | NDArray[np.float64]) -> bytes:
    if sys.byteorder != "little":
        column = column.byteswap()
    payload = column.tobytes()
    return tag + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
