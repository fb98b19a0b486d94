"""Trades that an ingestor had to ask for, when a job began or its stream was cut, and bars that are made of them.

They come after they happened, so that a trigger which was registered in between must not see them. The exchange's clock
tells: the ingestor says how far it was ahead. What came as it happened needs no clock, since its place shows it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from candlewright.wire.grid import SECOND
from candlewright_cep.streaming.release import SEQUENCE

__all__ = ["Ages", "AskedFor", "RegisteredAt"]

_NEVER = -(2**63)
#: Rows that still wait for their turn are of the last ones.
_RUNS = 16

#: When (ns, by the platform's clock) the trigger on a ticker was registered; None where there is none.
RegisteredAt = Callable[[str], int | None]
#: Per row how long (ns) before its trigger's registration it happened; 0 for those that the trigger sees, None when it
#: sees all.
Ages = Callable[[pa.Table], NDArray[np.int64] | None]


@dataclass(slots=True)
class _Ticker:
    """`ahead_ns`: the exchange's clock less the platform's. `newest_ns`: event time of the newest trade that was
    requested; `until_ns`: the exchange's time then. `runs`: numbers of the rows that these trades are, first and
    end."""

    ahead_ns: int
    newest_ns: int
    until_ns: int
    runs: list[list[int]] = field(default_factory=list)


class AskedFor:
    """`note` what comes; `reaches` says cheaply whether rows can be concerned, `ages` which are."""

    def __init__(self) -> None:
        self._tickers: dict[str, _Ticker] = {}
        self._newest_ns = _NEVER
        self._end_row = 0

    def note(
        self, ticker: str, ahead_ns: int, newest_ns: int, *, until_ns: int, first_row: int = 0, end: int = 0
    ) -> None:
        """Trades of event times up to `newest_ns`, which are the rows numbered from `first_row` to before `end`."""
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

    def reaches(self, label: int, rows: pa.Table) -> bool:
        """`label`: 0 for trades, else the period of the bars."""
        if not self._tickers or not rows.num_rows:
            return False
        if label:
            return bool(_integers(rows, "open_time").min() <= self._newest_ns)
        return bool(rows[SEQUENCE].to_numpy().min() < self._end_row)

    def ages(self, label: int, rows: pa.Table, registered_at: RegisteredAt) -> NDArray[np.int64] | None:
        """See `Ages`. A bar happens when it ends."""
        if not rows.num_rows:
            return None
        encoded = rows["ticker"].combine_chunks().dictionary_encode()
        names: list[str] = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        bounds = [self._bounds(label, name, registered_at(name)) for name in names]
        before, opened_by = (np.array(column, np.int64)[codes] for column in zip(*bounds, strict=True))
        if label:
            opened = _integers(rows, "open_time")
            # One that ends with the registration is from before it.
            happened = opened + (label * SECOND - 1)
            is_past = (happened < before) & (opened <= opened_by)
        else:
            happened = _integers(rows, "ts_ns")
            is_past = happened < before
            if is_past.any():
                is_past &= self._were_asked_for(names, rows[SEQUENCE].to_numpy())
        return np.where(is_past, before - happened, 0) if is_past.any() else None

    def is_past(self, label: int, ticker: str, row: int, *, time_ns: int, registered_at: int) -> bool:
        """Whether the row of this number and event time is none that a trigger sees."""
        before, opened_by = self._bounds(label, ticker, registered_at)
        if label:
            return time_ns + label * SECOND - 1 < before and time_ns <= opened_by
        return time_ns < before and bool(self._were_asked_for([ticker], np.array([row]))[0])

    def _bounds(self, label: int, ticker: str, registered_at: int | None) -> tuple[int, int]:
        """By the exchange's clock: what happened earlier is from before the registration; and when bars that may be
        made of trades that were asked for had opened.
        """
        known = self._tickers.get(ticker)
        if known is None or not registered_at:
            return _NEVER, _NEVER
        before = registered_at + known.ahead_ns
        # A bar that ended later is made as time passes.
        return (min(before, known.until_ns) if label else before), known.newest_ns

    def _were_asked_for(self, tickers: list[str], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Numbers are given out once, so that a number alone tells the ticker."""
        runs = sorted(run for ticker in tickers if (known := self._tickers.get(ticker)) for run in known.runs)
        if not runs:
            return np.zeros(len(numbers), np.bool_)
        first, end = (np.array(column, np.int64) for column in zip(*runs, strict=True))
        place = np.searchsorted(first, numbers, side="right") - 1
        found: NDArray[np.bool_] = (place >= 0) & (numbers < end[place])
        return found

    # ---- state
    def save(self) -> dict[str, Any]:
        return {t: [own.ahead_ns, own.newest_ns, own.until_ns, own.runs] for t, own in self._tickers.items()}

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "AskedFor":
        found = cls()
        for ticker, (ahead_ns, newest_ns, until_ns, runs) in state.items():
            for first, end in runs or [[0, 0]]:
                found.note(ticker, ahead_ns, newest_ns, until_ns=until_ns, first_row=first, end=end)
        return found


def _integers(rows: pa.Table, name: str) -> NDArray[np.int64]:
    found: NDArray[np.int64] = rows[name].cast(pa.int64()).to_numpy()
    return found
