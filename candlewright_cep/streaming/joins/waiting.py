"""Rows of a stream that wait for others: those of the same time, or of slower tickers."""

from collections.abc import Set
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from candlewright_cep.streaming.rows.release import FOREVER, Clock, Rows, compact, joined
from candlewright_cep.streaming.rows.row_log import without
from candlewright_cep.vector import distinct

__all__ = ["Waiting"]


@dataclass(slots=True)
class Waiting:
    """Rows that wait for the slowest known ticker, if the rows of all tickers come in one order (`merged`), or for the
    others of their time (`tied`).

    `reached`: the time up to which rows were released. Older rows of a ticker not seen before are late: they are
    counted by ticker in `late` (for the last feed) and not released after newer ones.
    """

    held: Rows | None = None
    reached: int | None = None
    late: dict[str, int] = field(default_factory=dict)

    def tied(self, rows: Rows, clock: Clock) -> Rows:
        """The rows whose time has passed; rows of equal time are released together."""
        together = self._with_held(rows)
        names, codes = distinct(together.ticker)
        limits = np.array([-FOREVER if (w := clock.of(name)) is None else w for name in names], np.int64).take(codes)
        due = (together.time < limits) | (limits == FOREVER)
        if due.all():
            self.held = None
            return together
        self.held = compact(together.take(np.flatnonzero(~due)))
        return together.take(np.flatnonzero(due))

    def merged(self, rows: Rows, least: int | None) -> Rows:
        rows = self._without_late(rows)
        together = self._with_held(rows)
        due = (
            np.zeros(together.length, dtype=np.bool_) if least is None else (together.time < least) | (least == FOREVER)
        )
        picked = np.flatnonzero(due)
        order = np.lexsort((together.sequence[picked], together.time[picked]))
        self.held = compact(together.take(np.flatnonzero(~due))) if not due.all() else None
        if least == FOREVER:
            least = int(together.time.max()) if together.length else None
        if least is not None:
            self.reached = least if self.reached is None else max(self.reached, least)
        return together.take(picked[order])

    def drop(self, tickers: Set[str]) -> None:
        self.held = without(self.held, tickers)

    def _with_held(self, rows: Rows) -> Rows:
        return rows if self.held is None or not self.held.length else joined([self.held, rows])

    def _without_late(self, rows: Rows) -> Rows:
        self.late = {}
        if self.reached is None or not rows.length or int(rows.time.min()) >= self.reached:
            return rows
        is_late = rows.time < self.reached
        for ticker in rows.ticker.take(pa.array(np.flatnonzero(is_late))).to_pylist():
            self.late[ticker] = self.late.get(ticker, 0) + 1
        return rows.take(np.flatnonzero(~is_late))

    def all_together(self, rows: Rows, clock: Clock) -> tuple[Rows, Clock]:
        """`merged` by the common watermark of all tickers, which is also returned as the clock of each ticker."""
        least = clock.least
        rows = self.merged(rows, least)
        if least is not None and self.reached is not None:
            # A ticker that has just begun may be behind.
            least = max(least, self.reached)
        names = {*clock.watermarks, *clock.closed}
        return rows, Clock(
            dict.fromkeys(names, least) if least is not None else {}, set(names) if least == FOREVER else set()
        )
