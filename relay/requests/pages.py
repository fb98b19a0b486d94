"""Answers to legacy requests: rows of `lake.market.ohlc` as pages of serialised OHLCV messages."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from core.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

#: (ticker, period_seconds, start_ns, end_ns, limit) -> rows as `lake.market.ohlc`, ordered by open time.
ReadRows = Callable[[str, int, int, int, int | None], "pa.Table"]

_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_NUMBERS = ("open", "high", "low", "close", "volume")


def read_from_iceberg(settings: Settings) -> ReadRows:
    """A reader that loads its libraries on first use, since most platforms never get a legacy request."""

    def read(ticker: str, period_seconds: int, start_ns: int, end_ns: int, limit: int | None) -> "pa.Table":
        from iceberg import read_ohlc

        return read_ohlc(settings, ticker, period_seconds, start_ns=start_ns, end_ns=end_ns, limit=limit)

    return read


def candles(table: "pa.Table") -> list[bytes]:
    """One serialised OHLCV per row."""
    factor = _NANOSECONDS[table.column("open_time").type.unit]
    opens = table.column("open_time").cast("int64").to_pylist()
    rows: list[dict[str, Any]] = table.drop_columns(["open_time"]).to_pylist()
    return [_candle(open_time * factor, row) for open_time, row in zip(opens, rows, strict=True)]


def _candle(open_time_ns: int, row: dict[str, Any]) -> bytes:
    message = cw.OHLCV(
        open_time=open_time_ns,
        period_seconds=row["period_seconds"],
        ticker=row["ticker"],
        complete=row["complete"],
        source=row["source"],
        **{name: row[name] for name in _NUMBERS},
    )
    if row["quote_volume"] is not None:
        message.quote_volume = row["quote_volume"]
    if row["trade_count"] is not None:
        message.trade_count = row["trade_count"]
    return message.SerializeToString()


def pages(request_id: str, table: "pa.Table", page_rows: int) -> Iterator[ing.Response]:
    """At least one page, the last one marked; `total_records` of each is the number of candles on all pages."""
    total = table.num_rows
    for first in range(0, max(total, 1), page_rows):
        yield ing.Response(
            request_id=request_id,
            status=ing.Response.OK,
            data=candles(table.slice(first, page_rows)),
            total_records=total,
            is_final=first + page_rows >= total,
        )
