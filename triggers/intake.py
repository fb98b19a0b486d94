"""The records of one bus partition as rows whose turn has come, input by input, with how far time is known."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from cep import Clock, ReleaseBuffer
from protobuf import records_pb2 as records
from triggers.check import INPUTS, TriggerRules
from triggers.clocks import NO_ROW, TICKS, Arrival, Clocks
from triggers.moved import Moved
from triggers.rows import BarIntake, PeriodBars, TickIntake, whole_trades
from venues.grid import SECOND

__all__ = ["Due", "Intake"]

_NO_BARS = INPUTS["ohlc"].schema.append(pa.field("_sequence", pa.int64())).empty_table()


@dataclass(frozen=True, slots=True)
class Due:
    """What triggers take together. `label`: 0 for trades, else the period of the bars. `revisions`: whether the rows
    are all revisions of bars; None for trades. `is_ordered`: trades in the order of event time, for triggers that look
    at more than a row; those that do not take trades as they come.
    """

    label: int
    moved: Moved
    revisions: bool | None = None
    is_ordered: bool = True


class Intake:
    """`mark`, then `trades` and `bars` of each micro-batch, with what `due` says."""

    def __init__(self, rules: TriggerRules) -> None:
        self.rules = rules
        self.ticks = TickIntake()
        self.candles = BarIntake()
        self.clocks = Clocks()
        self.buffer = ReleaseBuffer("ts_ns", "ticker", rules.watermark_delay_ns)

    @property
    def bad_records(self) -> int:
        return self.ticks.bad_records + self.candles.bad_records

    def mark(self, value: bytes) -> None:
        """A serialised TickMark."""
        try:
            self.clocks.mark(records.TickMark.FromString(value))
        except DecodeError:
            self.ticks.bad_records += 1

    def due(self) -> dict[str, int]:
        """Exchanges' times that are true now that the trades of this micro-batch were counted."""
        return self.clocks.due(self.ticks.counted)

    # ---- trades
    def pass_over(self, ticks: Sequence[bytes], now_ns: int) -> None:
        """Trades that no trigger is to see: they are known when they come again."""
        clock = self.buffer.clock
        arrivals = self.clocks.arrivals.setdefault(TICKS, {})
        for ticker, time in self.ticks.pass_over(ticks).items():
            reached = time - self.rules.watermark_delay_ns
            clock.watermarks[ticker] = max(reached, clock.watermarks.get(ticker, reached))
            clock.closed.discard(ticker)
            arrivals[ticker] = Arrival(now_ns, NO_ROW, time)

    def trades(
        self, rows: pa.Table, due: Mapping[str, int], now_ns: int, late_rows: dict[str, int], *, as_they_come: bool
    ) -> Iterator[Due]:
        """`rows`: of `ticks`, with the columns that are read. `late_rows`: counts by ticker, which are added to.

        `as_they_come`: also rows out of order.
        """
        clock = self.buffer.clock
        before, closed = dict(clock.watermarks), set(clock.closed)
        parts: list[pa.Table] = []
        if rows.num_rows:
            self.clocks.arrived(TICKS, rows, "ts_ns", now_ns)
            released = self.buffer.push(rows)
            if as_they_come:
                # A row that decides alone needs no order, and so no watermark.
                yield Due(TICKS, Moved.of(released.fresh, set(), clock, whole_trades), is_ordered=False)
            parts.append(released.rows)
            for ticker in released.late.column("ticker").to_pylist():
                late_rows[ticker] = late_rows.get(ticker, 0) + 1
        delay = self.rules.watermark_delay_ns
        parts.append(self.buffer.advance({ticker: time - delay for ticker, time in due.items()}))
        idle = self.clocks.idle(TICKS, clock, self.rules.idle_ns, now_ns)
        if idle:
            parts.append(self.buffer.close(idle))
        found = [part for part in parts if part.num_rows]
        released_rows = pa.concat_tables(found) if found else rows.slice(0, 0)
        yield Due(TICKS, Moved.of(released_rows, _moved_since(before, closed, clock), clock, whole_trades))

    # ---- bars
    def bars(self, values: Sequence[bytes], due: Mapping[str, int], now_ns: int) -> Iterator[Due]:
        """`values`: serialised OHLCVs."""
        clocks = self.clocks.bars
        before = {period: dict(clock.watermarks) for period, clock in clocks.items()}
        self.clocks.advance_bars(due)
        found = self.candles.rows(values)
        for period in sorted(found.keys() | clocks.keys()):
            clock = clocks.setdefault(period, Clock())
            closed = set(clock.closed)
            bars = found.get(period)
            if bars is not None:
                for run in bars.runs:
                    self.clocks.arrived(period, run, "open_time", now_ns)
                    clock.closed.difference_update(run.column("ticker").to_pylist())
                for ticker, opened in self.candles.reached[period].items():
                    # Bars of a period come in order, so that the next one opens where this one ends, or later.
                    known = opened + period * SECOND
                    clock.watermarks[ticker] = max(known, clock.watermarks.get(ticker, known))
            clock.closed |= self.clocks.idle(period, clock, self.rules.idle_ns, now_ns)
            yield from _of_bars(period, bars, _moved_since(before.get(period, {}), closed, clock), clock)

    # ---- state
    def save(self) -> tuple[dict[str, Any], pa.Table | None]:
        """The state as JSON, and the trades that wait for their turn."""
        buffer, held = self.buffer.snapshot()
        meta = {"ticks": self.ticks.save(), "bars": self.candles.save(), "buffer": buffer}
        return meta | self.clocks.save(), held

    def restore(self, meta: Mapping[str, Any], held: pa.Table | None) -> None:
        """`meta` may have further entries."""
        self.ticks = TickIntake.load(meta["ticks"])
        self.candles = BarIntake.load(meta["bars"])
        self.buffer.restore(meta["buffer"], held)
        self.clocks = Clocks.load(meta)


def _of_bars(period: int, bars: PeriodBars | None, moved: set[str], clock: Clock) -> Iterator[Due]:
    yield Due(period, Moved.of(bars.first if bars is not None else _NO_BARS, moved, clock), revisions=False)
    for run in (bars.runs if bars is not None else []) or [_NO_BARS]:
        yield Due(period, Moved.of(run, moved, clock), revisions=True)


def _moved_since(before: Mapping[str, int], closed: set[str], clock: Clock) -> set[str]:
    """Tickers whose watermark is another now, or that have ended or go on again."""
    found = {ticker for ticker, value in clock.watermarks.items() if before.get(ticker) != value}
    return found | (clock.closed ^ closed)
