"""Time in one bus partition: event time by the exchanges' clocks and by bars, quiet time by the wall clock."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from candlewright.wire.grid import SECOND
from candlewright_cep import Clock
from protobuf import records_pb2 as records
from triggers.records.rows import newest

__all__ = ["NO_ROW", "TICKS", "Arrival", "Clocks"]

#: How long after the end of its period (exchange clock) a bar may arrive before deadlines pass without it.
_BAR_SLACK_NS = 30 * SECOND
#: A period is dropped this long, plus two of its lengths, after its last bar.
_LAST_BARS_NS = 300 * SECOND
#: The label of trades; that of bars is their period.
TICKS = 0
#: The period of the bars that every ticker has.
_ALWAYS = 60
NO_ROW = -1


@dataclass(slots=True)
class Arrival:
    """The newest row of a ticker: when it arrived (wall clock), its number, its event time (ns)."""

    at_ns: int
    row: int
    time_ns: int


@dataclass(slots=True)
class Clocks:
    """`bars`: watermarks by period; those of trades are in the release buffer. `arrivals`: by label and ticker.

    `marks`: for each ticker the exchange's time (ns), and the number of the trade after which it is valid. `wanted`:
    for each ticker the requested periods, as last reported; `begun`: those that were not requested before.
    """

    bars: dict[int, Clock] = field(default_factory=dict)
    arrivals: dict[int, dict[str, Arrival]] = field(default_factory=dict)
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    wanted: dict[str, list[int]] = field(default_factory=dict)
    begun: dict[str, set[int]] = field(default_factory=dict)

    def mark(self, mark: records.TickMark) -> None:
        if mark.HasField("wanted"):
            before, after = set(self.wanted.get(mark.ticker, ())), set(mark.wanted.period_seconds)
            self.wanted[mark.ticker] = sorted(after)
            self.begun[mark.ticker] = (self.begun.get(mark.ticker, set()) | after - before) & after
        if mark.WhichOneof("body") == "clock":
            number = max(mark.clock.sequence, mark.after_sequence)
            self.marks[mark.ticker] = (min(mark.clock.exchange_time, 2**63 - 1), number)

    def due(self, counted: Mapping[str, int]) -> dict[str, int]:
        """Exchange times that have become valid, each returned once. `counted`: for each ticker the newest trade that
        was read.

        A clock is valid once all trades that its ingestor had published before it have been read. A clock is read after
        those trades, so if none was counted, they are all from before the first record.
        """
        found = {ticker: time for ticker, (time, number) in self.marks.items() if counted.get(ticker, number) >= number}
        for ticker in found:
            del self.marks[ticker]
        return found

    def arrived(self, label: int, rows: pa.Table, time_column: str, *, now_ns: int) -> None:
        own = self.arrivals.setdefault(label, {})
        for ticker, number, time in newest(rows, time_column):
            last = own.get(ticker)
            if last is None:
                last = own[ticker] = Arrival(now_ns, number, time)
            last.at_ns, last.row, last.time_ns = max(now_ns, last.at_ns), number, max(time, last.time_ns)

    @property
    def newest_ns(self) -> int:
        """The latest event time of any row that arrived."""
        return max((last.time_ns for own in self.arrivals.values() for last in own.values()), default=0)

    def idle(self, label: int, clock: Clock, idle_ns: int, *, now_ns: int) -> set[str]:
        """Tickers that have been quiet for `idle_ns` (0 = never); a bar is not missing before its period has passed."""
        if not idle_ns or not now_ns:
            return set()
        return {ticker for ticker, due_ns in self._idle_at(label, clock, idle_ns) if now_ns >= due_ns}

    def idle_due(self, label: int, clock: Clock, idle_ns: int) -> Iterator[int]:
        """When each ticker will have been quiet for `idle_ns` (wall clock, ns), if no row arrives until then."""
        return (due_ns for _, due_ns in self._idle_at(label, clock, idle_ns)) if idle_ns else iter(())

    def _idle_at(self, label: int, clock: Clock, idle_ns: int) -> Iterator[tuple[str, int]]:
        limit = idle_ns + label * SECOND
        for ticker, last in self.arrivals.get(label, {}).items():
            if ticker not in clock.closed:
                yield ticker, last.at_ns + limit

    def advance_bars(self, due: Mapping[str, int]) -> None:
        """Advance the clocks of bars to the exchanges' times. A ticker's clock stops while the bar of one of its trades
        is due.

        So no bar arrives after its clock, however long the pipeline was down.
        """
        for period, clock in self.bars.items():
            for ticker, time in due.items():
                if ticker in clock.watermarks and not self._awaits_bar(period, ticker):
                    known = time - period * SECOND - _BAR_SLACK_NS
                    clock.watermarks[ticker] = max(known, clock.watermarks[ticker])

    def unwanted(self, named: Collection[int], now_ns: int) -> list[int]:
        """Periods that have ended: none of their tickers requests them, and their last bars are long past.

        `named`: the periods that triggers name. A ticker whose requested periods were never reported keeps its own.
        """
        return [
            period
            for period in self.bars
            if period != _ALWAYS
            and period not in named
            and all(
                period not in self.wanted.get(ticker, [period])
                and now_ns - last.at_ns > _LAST_BARS_NS + 2 * period * SECOND
                for ticker, last in self.arrivals.get(period, {}).items()
            )
        ]

    def forget(self, period: int) -> None:
        self.bars.pop(period, None)
        self.arrivals.pop(period, None)

    def _awaits_bar(self, period: int, ticker: str) -> bool:
        if period != _ALWAYS and period not in self.wanted.get(ticker, [period]):
            return False
        trade, bar = (self.arrivals.get(label, {}).get(ticker) for label in (TICKS, period))
        return trade is not None and bar is not None and trade.time_ns >= bar.time_ns + period * SECOND

    def save(self) -> dict[str, Any]:
        return {
            "bar_clocks": {str(p): [c.watermarks, sorted(c.closed)] for p, c in self.bars.items()},
            "marks": self.marks,
            "wanted": self.wanted,
            "arrivals": {
                str(label): {ticker: [last.at_ns, last.row, last.time_ns] for ticker, last in own.items()}
                for label, own in self.arrivals.items()
            },
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "Clocks":
        """`state` may have further entries."""
        return cls(
            {int(p): Clock(dict(w), set(closed)) for p, (w, closed) in state["bar_clocks"].items()},
            {
                int(label): {ticker: Arrival(*last) for ticker, last in own.items()}
                for label, own in state["arrivals"].items()
            },
            {ticker: (time, number) for ticker, (time, number) in state["marks"].items()},
            # Missing in states of older versions.
            dict(state.get("wanted", {})),
        )
