"""Sources of rows other than the relay: the tables themselves, or Spark Connect."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from candlewright.client.errors import RowsUnavailable
from candlewright.client.history.history import History
from candlewright.client.history.stored import Stored
from candlewright.client.records import Notification, Range
from candlewright.extensions import extension
from candlewright.settings import ClientConfig
from candlewright.wire import candlewright_pb2 as cw

if TYPE_CHECKING:
    import pyarrow as pa


class Rows(Protocol):
    def history(self, wanted: Range, final: Notification) -> History:
        """The first `wanted.limit` rows of the range; raises RowsUnavailable."""
        ...

    def histories(self, wanted: Sequence[Range], finals: Sequence[Notification]) -> list[History | RowsUnavailable]:
        """The same for several tickers, with one period and range; an error in place of a ticker without rows."""
        ...

    def stored(self, wanted: Range, as_of: int | None) -> Stored:
        """The stored rows of the range, or those known at a time (ns); raises RowsUnavailable."""
        ...


def near_rows(config: ClientConfig, *, is_command: bool = False) -> Rows | None:
    """The tables themselves, if they can be reached from here and the platform is installed to read them. `is_command`:
    this process will read rows once, so the libraries that read them are loaded now, while its request runs.
    """
    tables = extension("tables")
    rows: Rows | None = tables(config, is_command=is_command) if tables is not None else None
    return rows


def legacy_table(candles: Sequence[cw.OHLCV]) -> "pa.Table":
    """The pages of the legacy request as columns."""
    import pyarrow as pa

    def column(name: str, kind: Any, values: Sequence[object]) -> tuple[str, pa.Array]:
        return name, pa.array(values, type=kind)

    return pa.table(
        dict(
            (
                column("ticker", pa.string(), [c.ticker for c in candles]),
                column("period_seconds", pa.int32(), [c.period_seconds for c in candles]),
                column("open_time", pa.timestamp("us", tz="UTC"), [c.open_time // 1_000 for c in candles]),
                column("open", pa.float64(), [c.open for c in candles]),
                column("high", pa.float64(), [c.high for c in candles]),
                column("low", pa.float64(), [c.low for c in candles]),
                column("close", pa.float64(), [c.close for c in candles]),
                column("volume", pa.float64(), [c.volume for c in candles]),
                column(
                    "quote_volume",
                    pa.float64(),
                    [c.quote_volume if c.HasField("quote_volume") else None for c in candles],
                ),
                column(
                    "trade_count", pa.int64(), [c.trade_count if c.HasField("trade_count") else None for c in candles]
                ),
                column("source", pa.string(), [c.source for c in candles]),
                column("complete", pa.bool_(), [c.complete for c in candles]),
            )
        )
    )
