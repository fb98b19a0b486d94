"""Candles in the hands of the user."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from candlewright.client.records import Notification

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Candles:
    """Candles of one ticker and period, ascending and unique by open time.

    Columns as in `lake.market.ohlc`: ticker, period_seconds, open_time (UTC), open, high, low, close, volume,
    quote_volume, trade_count, source, complete, updated_at; legacy pages lack the last three.
    """

    table: "pa.Table"

    @property
    def row_count(self) -> int:
        return int(self.table.num_rows)

    def __len__(self) -> int:
        return self.row_count

    def to_arrow(self) -> "pa.Table":
        return self.table

    def to_pandas(self) -> "pd.DataFrame":
        return self.table.to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        import polars as pl

        return pl.DataFrame(self.table)


@dataclass(frozen=True, eq=False)
class History(Candles):
    """The rows of a finished request. `holes`: half-open (start, end) in ns where the venue has no candle."""

    notification: Notification
    holes: Sequence[tuple[int, int]]

    def __repr__(self) -> str:
        final = self.notification
        return f"<History {final.ticker} {final.period_seconds}s rows={self.row_count} holes={len(self.holes)}>"
