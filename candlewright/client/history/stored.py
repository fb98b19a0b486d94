"""Stored rows, read without a request, and the ranges that are missing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from candlewright.client.history.history import Candles, span
from candlewright.client.notebook.cards import card, ranges
from candlewright.client.notebook.picture import candle_picture
from candlewright.client.records import Range
from candlewright.wire.grid import SECOND, first_open_from
from candlewright.wire.periods import format_period
from candlewright.wire.ranges import Ranges, common, without
from candlewright.wire.times import format_nanoseconds

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False, repr=False)
class Stored(Candles):
    """The result of `Client.load` and `Client.history(as_of=…)`. Ranges are half-open (start, end) in ns, by open time.

    `holes`: where the venue has no candle, as a finished request found. `unknown`: where nothing is stored, or nothing
    was known at `as_of`. `as_of` reports no holes, because the time when one became known is not recorded; the
    columns then are those of `lake.market.ohlc_revisions`, with `revision` and `known_at` in place of `updated_at`.
    """

    wanted: Range
    holes: Ranges
    unknown: Ranges
    as_of: int | None = None

    def __repr__(self) -> str:
        moment = "" if self.as_of is None else f" as of {format_nanoseconds(self.as_of)}"
        what = f"{self.wanted.ticker} {format_period(self.wanted.period_seconds)}{moment}"
        return f"<Stored {what} rows={self.row_count} holes={len(self.holes)} unknown={len(self.unknown)}>"

    def _repr_html_(self) -> str:
        return card(
            f"{self.wanted.ticker} {format_period(self.wanted.period_seconds)}",
            [
                "" if self.as_of is None else f"as of {format_nanoseconds(self.as_of)}",
                f"{self.row_count:,} candles",
                span(self.table),
            ],
            candle_picture(self.table, self.wanted.period_seconds, holes=self.holes, unknown=self.unknown),
            notes=[*ranges("hole", self.holes), *ranges("unknown range", self.unknown)],
        )

    @classmethod
    def of(cls, table: "pa.Table", wanted: Range, holes: Ranges = (), *, as_of: int | None = None) -> "Stored":
        """`table`: the first `wanted.limit` rows in order; `holes`: those that are known, in any order."""
        missing = _missing(table, wanted)
        return cls(table, wanted, tuple(common(missing, holes)), tuple(without(missing, holes)), as_of)


def _missing(table: "pa.Table", wanted: Range) -> list[tuple[int, int]]:
    """The ranges of open times between the rows; if the limit was reached, nothing after it counts as missing."""
    import numpy as np

    step = wanted.period_seconds * SECOND
    opens = table["open_time"].cast("int64").to_numpy() * 1_000
    end = first_open_from(wanted.end, wanted.period_seconds)
    if wanted.limit is not None and len(opens) >= wanted.limit:
        end = int(opens[-1]) + step
    before = np.concatenate(([first_open_from(wanted.start, wanted.period_seconds)], opens + step))
    after = np.concatenate((opens, [end]))
    places = np.flatnonzero(before < after)
    return list(zip(before[places].tolist(), after[places].tolist(), strict=True))
