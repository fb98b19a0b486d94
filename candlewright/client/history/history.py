"""Candles as users get them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from candlewright.client.notebook.cards import card, ranges
from candlewright.client.notebook.picture import candle_picture
from candlewright.client.records import Notification
from candlewright.wire.periods import format_period
from candlewright.wire.times import format_nanoseconds

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True, eq=False, repr=False)
class Candles:
    """Candles of one ticker and period, ascending and unique by open time.

    Columns as in `lake.market.ohlc`: ticker, period_seconds, open_time (UTC), open, high, low, close, volume,
    quote_volume, trade_count, source, complete, updated_at; legacy pages (`Client.ohlc`) lack updated_at.
    """

    table: "pa.Table"

    @property
    def row_count(self) -> int:
        """How many candles."""
        return int(self.table.num_rows)

    def __len__(self) -> int:
        return self.row_count

    def __repr__(self) -> str:
        return f"<{type(self).__name__} rows={self.row_count}>"

    def to_arrow(self) -> "pa.Table":
        """The table itself; times are timestamps in UTC (µs)."""
        return self.table

    def to_pandas(self) -> "pd.DataFrame":
        """A copy with the same columns and a plain index; `.set_index("open_time")` makes it a time series."""
        return self.table.to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        """The same columns, without a copy where possible."""
        import polars as pl

        return pl.DataFrame(self.table)


@dataclass(frozen=True, eq=False, repr=False)
class History(Candles):
    """The rows of a finished request. `holes`: half-open (start, end) in ns where the venue has no candle.

    `closed_until`: the start of the candles that had not closed, and are left out; None if all had.
    """

    notification: Notification
    holes: Sequence[tuple[int, int]]
    closed_until: int | None = None

    def __repr__(self) -> str:
        final = self.notification
        period = format_period(final.period_seconds)
        return f"<History {final.ticker} {period} rows={self.row_count} holes={len(self.holes)}>"

    def _repr_html_(self) -> str:
        final = self.notification
        notes = ranges("hole", self.holes)
        if self.closed_until is not None:
            notes.append(f"not closed yet: from {format_nanoseconds(self.closed_until)}")
        return card(
            f"{final.ticker} {format_period(final.period_seconds)}",
            [f"{self.row_count:,} candles", span(self.table), f"{len(self.holes)} holes" if self.holes else "no holes"],
            candle_picture(self.table, final.period_seconds, holes=self.holes),
            notes=notes,
        )


def span(table: "pa.Table") -> str:
    """The open times of the first and the last candle, as text; empty if there are no candles."""
    if not table.num_rows:
        return ""
    opens = table["open_time"].cast("int64")
    first, last = (format_nanoseconds(opens[place].as_py() * 1_000) for place in (0, -1))
    return f"{first} to {last}"
