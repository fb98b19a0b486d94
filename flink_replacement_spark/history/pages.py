"""Decodes records of `history` to columns; a packed protobuf column is already a little-endian array."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from candlewright.wire.errors import BadFrame
from iceberg import OHLC
from protobuf import records_pb2 as records

_PRICES = ("open", "high", "low", "close", "volume")
_NUMBERS = {field.name: field.number for field in records.HistoryPage.DESCRIPTOR.fields}
_KINDS: dict[str, str] = {
    "open_time": "<u8",
    **dict.fromkeys(_PRICES, "<f8"),
    "quote_volume": "<f8",
    "trade_count": "<u8",
}
_NANOSECONDS_PER_MICROSECOND = 1_000
#: More trades than any candle has.
_MANY_TRADES = 1 << 53

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Page:
    """Candles of one job as arrays of equal length; `quote_volume` and `trade_count` are empty where unknown."""

    job_id: str
    ticker: str
    period_seconds: int
    source: str
    columns: dict[str, Array]

    def __len__(self) -> int:
        return len(self.columns["open_time"])


def decode_page(value: bytes) -> Page:
    """The page in a record. Raises BadFrame for bytes that are not a page, or if its columns differ in length."""
    try:
        message = records.HistoryPage.FromString(value)
    except DecodeError as error:
        raise BadFrame("BAD_RECORD", f"history: {error}") from error
    packed = dict(_length_delimited(value))
    columns = {name: _column(message, name, packed.get(_NUMBERS[name], b"")) for name in _KINDS}
    rows = len(columns["open_time"])
    for name, column in columns.items():
        if len(column) != rows and (name in _PRICES or len(column) > 0):
            raise BadFrame("BAD_RECORD", f"history: {len(column)} values of {name} for {rows} candles")
    return Page(message.job_id, message.ticker, message.period_seconds, message.source, columns)


def problem_with(page: Page) -> str:
    """The name of a column with a value that the table must not contain, or an empty string."""
    for name, column in page.columns.items():
        is_sound = column < _MANY_TRADES if name == "trade_count" else np.isfinite(column)
        if name != "open_time" and not is_sound.all():
            return name
    return ""


def _column(message: records.HistoryPage, name: str, packed: bytes) -> Array:
    values: Sequence[Any] = getattr(message, name)
    kind = np.dtype(_KINDS[name])
    if len(packed) == len(values) * kind.itemsize:
        return np.frombuffer(packed, dtype=kind)
    # Valid protobuf that the platform's own writers do not produce: an unpacked column, or one in several parts.
    return np.fromiter(values, dtype=kind, count=len(values))


def _length_delimited(value: bytes) -> Iterator[tuple[int, bytes]]:
    """The number and body of each length-delimited field of a valid message."""
    at, end = 0, len(value)
    while at < end:
        tag, at = _varint(value, at)
        match tag & 7:
            case 0:
                _, at = _varint(value, at)
            case 1:
                at += 8
            case 2:
                size, at = _varint(value, at)
                yield tag >> 3, value[at : at + size]
                at += size
            case 5:
                at += 4
            case _:
                return


def _varint(value: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = value[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7


def candles(pages: Sequence[Page], start_ns: int | Array, end_ns: int | Array, *, updated_at_us: int) -> pa.Table:
    """Rows of `market.ohlc` from pages of one ticker and period: those of [start_ns, end_ns), in order, the last page
    winning where an open time is repeated. The bounds are scalars, or arrays with an element per row.
    """
    pages = [page for page in pages if len(page)]
    if not pages:
        return OHLC.arrow_schema.empty_table()
    open_time = np.concatenate([page.columns["open_time"] for page in pages]).astype(np.int64)
    inside = np.flatnonzero((open_time >= start_ns) & (open_time < end_ns))
    # np.unique of the reversed array finds the last occurrence of each open time.
    times, place = np.unique(open_time[inside][::-1], return_index=True)
    chosen = inside[len(inside) - 1 - place]
    rows = len(times)
    prices = {name: np.concatenate([page.columns[name] for page in pages])[chosen] for name in _PRICES}
    source = pa.DictionaryArray.from_arrays(
        pa.array(np.repeat(np.arange(len(pages), dtype=np.int32), [len(page) for page in pages])[chosen]),
        pa.array([page.source for page in pages]),
    )
    columns = {
        "ticker": pa.repeat(pages[0].ticker, rows),
        "period_seconds": pa.repeat(pa.scalar(pages[0].period_seconds, pa.int32()), rows),
        "open_time": _microseconds(times // _NANOSECONDS_PER_MICROSECOND),
        **{name: pa.array(values) for name, values in prices.items()},
        "quote_volume": _optional(pages, "quote_volume", chosen, pa.float64()),
        "trade_count": _optional(pages, "trade_count", chosen, pa.int64()),
        "source": source.dictionary_decode(),
        "complete": pa.repeat(True, rows),
        "updated_at": _microseconds(np.full(rows, updated_at_us)),
    }
    schema = OHLC.arrow_schema
    return pa.table([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema)


def _microseconds(values: Array) -> pa.Array:
    return pa.array(values.astype("datetime64[us]")).cast(pa.timestamp("us", "UTC"))


def _optional(pages: Sequence[Page], name: str, chosen: Array, kind: pa.DataType) -> pa.Array:
    parts = [page.columns[name] if len(page.columns[name]) else np.zeros(len(page)) for page in pages]
    unknown = np.concatenate([np.full(len(page), len(page.columns[name]) == 0) for page in pages])
    values = np.concatenate([part.astype(kind.to_pandas_dtype()) for part in parts])
    return pa.array(values[chosen], mask=unknown[chosen])
