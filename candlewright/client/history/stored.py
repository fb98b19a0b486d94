"""Rows that are stored, read without a request: what is there, and what of the range is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from candlewright.client.history.history import Candles
from candlewright.client.records import Range
from candlewright.client.times import format_nanoseconds
from candlewright.wire.grid import SECOND, first_open_from
from candlewright.wire.periods import format_period

if TYPE_CHECKING:
    import pyarrow as pa

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, eq=False, repr=False)
class Stored(Candles):
    """What `Client.load` and `Client.history(as_of=…)` read. Ranges are half-open (start, end) in ns, by open time.

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

    @classmethod
    def of(cls, table: "pa.Table", wanted: Range, holes: Ranges = (), as_of: int | None = None) -> "Stored":
        """`table`: the first `wanted.limit` rows in order; `holes`: those that are known, in any order."""
        missing = _missing(table, wanted)
        return cls(table, wanted, tuple(_common(missing, holes)), tuple(_without(missing, holes)), as_of)


def _missing(table: "pa.Table", wanted: Range) -> list[tuple[int, int]]:
    """The ranges of open times between the rows; after a limit that was reached nothing is missing."""
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


def _common(ranges: Ranges, others: Ranges) -> list[tuple[int, int]]:
    found = {(max(a, c), min(b, d)) for a, b in ranges for c, d in others if max(a, c) < min(b, d)}
    return _joined(sorted(found))


def _without(ranges: Ranges, others: Ranges) -> list[tuple[int, int]]:
    cuts = _joined(sorted(others))
    found = []
    for start, end in ranges:
        for first, last in cuts:
            if last <= start or first >= end:
                continue
            if start < first:
                found.append((start, first))
            start = max(start, last)
        if start < end:
            found.append((start, end))
    return found


def _joined(ranges: Ranges) -> list[tuple[int, int]]:
    """Of ranges in order, those that overlap or touch as one."""
    found: list[tuple[int, int]] = []
    for start, end in ranges:
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found
