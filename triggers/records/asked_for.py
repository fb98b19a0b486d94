"""Trades that an ingestor fetched over REST when a job began or its stream was interrupted, and bars that are made
late: of these trades, or of trades from before their period was requested.

They arrive after they happened, so a trigger that was registered in between must not see them. Their times are those of
the exchange's clock, and the ingestor reports how far that was ahead of its own. Trades that arrived as they happened
need no clocks, because their position on the bus tells whether they came before a registration.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from candlewright.wire.grid import SECOND
from candlewright_cep.streaming.rows.release import SEQUENCE
from candlewright_cep.vector import distinct

__all__ = ["Ages", "AskedFor", "RegisteredAt"]

_NEVER = -(2**63)
#: How many runs are kept: rows that still wait for their turn belong to the last ones.
_RUNS = 16

#: When the trigger on a ticker was registered (ns, platform clock); None if unknown.
RegisteredAt = Callable[[str], int | None]
#: For each row how long (ns) before its trigger's registration it happened; 0 for rows that the trigger sees, None if
#: it sees all.
Ages = Callable[[pa.Table], NDArray[np.int64] | None]


@dataclass(slots=True)
class _Ticker:
    """`ahead_ns`: the exchange's clock minus the platform's. `newest_ns`: event time of the newest fetched trade;
    `until_ns`: the exchange's time when it was fetched. `runs`: first and end number of the rows made of these
    trades. `begun`: for each period the exchange's time when it was first requested.
    """

    ahead_ns: int
    newest_ns: int
    until_ns: int
    runs: list[list[int]] = field(default_factory=list)
    begun: dict[int, int] = field(default_factory=dict)


class AskedFor:
    """`note` records fetched trades, and `begin` new periods; `reaches` checks cheaply whether rows can be affected,
    `ages` finds which are.
    """

    def __init__(self) -> None:
        self._tickers: dict[str, _Ticker] = {}
        self._newest_ns = _NEVER
        self._end_row = 0

    def note(
        self, ticker: str, ahead_ns: int, newest_ns: int, *, until_ns: int, first_row: int = 0, end: int = 0
    ) -> None:
        """Record trades with event times up to `newest_ns`, whose rows have the numbers `first_row` to `end`
        (exclusive).
        """
        known = self._tickers.setdefault(ticker, _Ticker(ahead_ns, newest_ns, until_ns))
        known.ahead_ns = ahead_ns
        known.newest_ns, known.until_ns = max(newest_ns, known.newest_ns), max(until_ns, known.until_ns)
        if first_row < end:
            if known.runs and known.runs[-1][1] == first_row:
                known.runs[-1][1] = end
            else:
                known.runs = [*known.runs[1 - _RUNS :], [first_row, end]]
        self._newest_ns = max(self._newest_ns, newest_ns)
        self._end_row = max(self._end_row, end)

    def begin(self, ticker: str, period: int, *, reached_ns: int, ahead_ns: int) -> None:
        """Record that bars of this period are requested from now on. `reached_ns`: the exchange's time; `ahead_ns`: how
        far it is at least ahead of the platform's.
        """
        known = self._tickers.setdefault(ticker, _Ticker(ahead_ns, _NEVER, _NEVER))
        known.begun[period] = reached_ns
        self._newest_ns = max(self._newest_ns, reached_ns)

    def reaches(self, label: int, rows: pa.Table) -> bool:
        """Whether any of these rows can be affected. `label`: 0 for trades, otherwise the period of the bars."""
        if not self._tickers or not rows.num_rows:
            return False
        if label:
            return bool(_integers(rows, "open_time").min() <= self._newest_ns)
        return bool(rows[SEQUENCE].to_numpy().min() < self._end_row)

    def ages(self, label: int, rows: pa.Table, registered_at: RegisteredAt) -> NDArray[np.int64] | None:
        """See `Ages`. A bar happens when it ends."""
        if not rows.num_rows:
            return None
        names, codes = distinct(rows["ticker"])
        bounds = [self._bounds(label, name, registered_at(name)) for name in names]
        before, opened_by = (np.array(column, np.int64)[codes] for column in zip(*bounds, strict=True))
        if label:
            opened = _integers(rows, "open_time")
            # A bar that ends at the moment of the registration is from before it.
            happened = opened + (label * SECOND - 1)
            is_past = (happened < before) & (opened <= opened_by)
        else:
            happened = _integers(rows, "ts_ns")
            is_past = happened < before
            if is_past.any():
                is_past &= self._were_asked_for(names, rows[SEQUENCE].to_numpy())
        return np.where(is_past, before - happened, 0) if is_past.any() else None

    def is_past(self, label: int, ticker: str, row: int, *, time_ns: int, registered_at: int) -> bool:
        """Whether a trigger must not see the row with this number and event time."""
        before, opened_by = self._bounds(label, ticker, registered_at)
        if label:
            return time_ns + label * SECOND - 1 < before and time_ns <= opened_by
        return time_ns < before and bool(self._were_asked_for([ticker], np.array([row]))[0])

    def _bounds(self, label: int, ticker: str, registered_at: int | None) -> tuple[int, int]:
        """By the exchange's clock: the time before which rows are from before the registration; and the latest open
        time of bars that may be made late.
        """
        known = self._tickers.get(ticker)
        if known is None or not registered_at:
            return _NEVER, _NEVER
        before = registered_at + known.ahead_ns
        begun = known.begun.get(label, _NEVER)
        if label and known.newest_ns > begun:
            # A bar that ends later is made as time passes.
            return min(before, max(known.until_ns, begun)), known.newest_ns
        return before, max(known.newest_ns, begun)

    def _were_asked_for(self, tickers: list[str], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Numbers are unique over all tickers, so the ticker of each need not be known."""
        runs = sorted(run for ticker in tickers if (known := self._tickers.get(ticker)) for run in known.runs)
        if not runs:
            return np.zeros(len(numbers), np.bool_)
        first, end = (np.array(column, np.int64) for column in zip(*runs, strict=True))
        place = np.searchsorted(first, numbers, side="right") - 1
        found: NDArray[np.bool_] = (place >= 0) & (numbers < end[place])
        return found

    # ---- state
    def save(self) -> dict[str, Any]:
        return {
            ticker: [own.ahead_ns, own.newest_ns, own.until_ns, own.runs, list(own.begun.items())]
            for ticker, own in self._tickers.items()
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "AskedFor":
        found = cls()
        # States of older versions have no periods.
        for ticker, (ahead_ns, newest_ns, until_ns, runs, *begun) in state.items():
            for first, end in runs or [[0, 0]]:
                found.note(ticker, ahead_ns, newest_ns, until_ns=until_ns, first_row=first, end=end)
            for period, reached_ns in begun[0] if begun else ():
                found.begin(ticker, period, reached_ns=reached_ns, ahead_ns=ahead_ns)
        return found


def _integers(rows: pa.Table, name: str) -> NDArray[np.int64]:
    found: NDArray[np.int64] = rows[name].cast(pa.int64()).to_numpy()
    return found
