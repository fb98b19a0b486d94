"""The records of one bus partition as released rows, input by input, with their watermarks."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from candlewright.wire.grid import SECOND
from candlewright_cep import Clock, ReleaseBuffer
from protobuf import records_pb2 as records
from triggers.events.chained import EventIntake
from triggers.records.clocks import NO_ROW, TICKS, Arrival, Clocks
from triggers.records.moved import Moved
from triggers.records.rows import BarIntake, PeriodBars, TickIntake, newest, whole_trades
from triggers.texts.check import INPUTS, TriggerRules
from venues import sound

__all__ = ["Due", "Intake"]

_NO_BARS = INPUTS["ohlc"].schema.append(pa.field("_sequence", pa.int64())).empty_table()
_NO_PERIOD = PeriodBars(_NO_BARS, _NO_BARS, np.zeros(0, np.bool_))


@dataclass(frozen=True, slots=True)
class Due:
    """Rows to be evaluated together. `label`: 0 for trades, otherwise the period of the bars. `revisions`: whether the
    rows are all revisions of bars; None for trades. `is_joint`: rows for triggers that process several tickers in one
    order. `is_ordered`: trades in the order of event time, for triggers that look at more than one row; other triggers
    take trades as they arrive.
    """

    label: int
    moved: Moved
    revisions: bool | None = None
    is_joint: bool = False
    is_ordered: bool = True


class Intake:
    """Call `mark`, then `trades` and `bars` for each micro-batch, with the result of `due`."""

    def __init__(self, rules: TriggerRules) -> None:
        self.rules = rules
        self.ticks = TickIntake()
        self.candles = BarIntake()
        self.events = EventIntake()
        self.clocks = Clocks()
        self.buffer = ReleaseBuffer("ts_ns", "ticker", rules.watermark_delay_ns)

    @property
    def bad_records(self) -> int:
        return self.ticks.refused.count + self.candles.refused.count

    def take_refused(self) -> list[tuple[bytes, str]]:
        return self.ticks.refused.take() + self.candles.refused.take()

    def mark(self, value: bytes) -> None:
        """Take a serialised TickMark, of which only clocks and requested periods are used."""
        try:
            mark = records.TickMark.FromString(value)
        except DecodeError:
            self.ticks.refused.add(value, "not a TickMark")
            return
        if not (mark.HasField("clock") or mark.HasField("wanted")):
            return
        if problem := sound.problem_with_mark(mark):
            self.ticks.refused.add(value, problem)
        else:
            self.clocks.mark(mark)

    def due(self) -> dict[str, int]:
        """Exchange times that have become valid now that the trades of this micro-batch have been read."""
        return self.clocks.due(self.ticks.counted.numbers)

    def note_begun(self, now_ns: int) -> None:
        """Periods that are new in this micro-batch may have bars made of its trades and of earlier ones."""
        for ticker, periods in self.clocks.begun.items():
            reached_ns = self.buffer.clock.watermarks.get(ticker)
            if reached_ns is not None and now_ns:
                reached_ns += self.rules.watermark_delay_ns
                for period in periods:
                    self.ticks.asked_for.begin(ticker, period, reached_ns=reached_ns, ahead_ns=reached_ns - now_ns)
        self.clocks.begun.clear()

    # ---- trades
    def pass_over(self, ticks: Sequence[bytes], now_ns: int) -> None:
        """Skip trades that no trigger may see, but recognise them as duplicates later."""
        clock = self.buffer.clock
        arrivals = self.clocks.arrivals.setdefault(TICKS, {})
        for ticker, time in self.ticks.pass_over(ticks).items():
            reached = time - self.rules.watermark_delay_ns
            clock.watermarks[ticker] = max(reached, clock.watermarks.get(ticker, reached))
            clock.closed.discard(ticker)
            arrivals[ticker] = Arrival(now_ns, NO_ROW, time)

    def trades(
        self, rows: pa.Table, due: Mapping[str, int], now_ns: int, *, late_rows: dict[str, int], as_they_come: bool
    ) -> Iterator[Due]:
        """`rows`: of `ticks`, with the columns that are read. `late_rows`: counts by ticker, which are increased.

        `as_they_come`: also yields rows out of order.
        """
        clock = self.buffer.clock
        before, closed = dict(clock.watermarks), set(clock.closed)
        parts: list[pa.Table] = []
        arrived: Moved | None = None
        if rows.num_rows:
            self.clocks.arrived(TICKS, rows, "ts_ns", now_ns=now_ns)
            released = self.buffer.push(rows)
            if as_they_come:
                # A row that decides alone needs no order, so it is never late.
                arrived = Moved.of(rows, set(), clock, whole=whole_trades)
                yield Due(TICKS, arrived, is_ordered=False)
            parts.append(released.rows)
            for ticker in released.late.column("ticker").to_pylist():
                late_rows[ticker] = late_rows.get(ticker, 0) + 1
        delay = self.rules.watermark_delay_ns
        parts.append(self.buffer.advance({ticker: time - delay for ticker, time in due.items()}))
        idle = self.clocks.idle(TICKS, clock, self.rules.idle_ns, now_ns=now_ns)
        if idle:
            parts.append(self.buffer.close(idle))
        found = [part for part in parts if part.num_rows]
        moved = _moved_since(before, closed, clock)
        if arrived is not None and len(found) == 1 and found[0] is rows:
            yield Due(TICKS, arrived.and_of(moved))
            return
        released_rows = (found[0] if len(found) == 1 else pa.concat_tables(found)) if found else rows.slice(0, 0)
        yield Due(TICKS, Moved.of(released_rows, moved, clock, whole=whole_trades))

    # ---- bars
    def bars(
        self, values: Sequence[bytes], due: Mapping[str, int], now_ns: int, *, revised: Collection[bool] = ()
    ) -> Iterator[Due]:
        """`values`: serialised OHLCVs. `revised`: also yields every revision, once for each listed `is_joint`.

        Process each item before requesting the next one, because the clocks of revisions advance.
        """
        clocks = self.clocks.bars
        before = {period: dict(clock.watermarks) for period, clock in clocks.items()}
        self.clocks.advance_bars(due)
        found = self.candles.rows(values)
        for period in sorted(found.keys() | clocks.keys()):
            clock = clocks.setdefault(period, Clock())
            told, closed = before.get(period, {}), set(clock.closed)
            own = found.get(period, _NO_PERIOD)
            by_clock = _moved_since(told, closed, clock)
            stepped = {is_joint: Clock(dict(clock.watermarks), set(clock.closed)) for is_joint in revised}
            if own.every.num_rows:
                self.clocks.arrived(period, own.every, "open_time", now_ns=now_ns)
                _go_on(clock, period, own.every)
            idle = self.clocks.idle(period, clock, self.rules.idle_ns, now_ns=now_ns)
            clock.closed |= idle
            for is_joint, own_clock in stepped.items():
                yield Due(period, Moved.of(_NO_BARS, by_clock, own_clock), revisions=True, is_joint=is_joint)
                for run in own.runs(is_joint=is_joint):
                    _go_on(own_clock, period, run)
                    yield Due(period, Moved.of(run, set(), own_clock), revisions=True, is_joint=is_joint)
                yield Due(period, Moved.of(_NO_BARS, idle, clock), revisions=True, is_joint=is_joint)
            yield Due(period, Moved.of(own.first, _moved_since(told, closed, clock), clock), revisions=False)

    def drop_unwanted(self, named: Collection[int], now_ns: int) -> list[int]:
        """Drop periods that no trigger needs any more, and return them. `named`: the periods that triggers name."""
        dropped = self.clocks.unwanted(named, now_ns)
        for period in dropped:
            self.clocks.forget(period)
            self.candles.reached.pop(period, None)
        return dropped

    # ---- state
    def save(self) -> tuple[dict[str, Any], pa.Table | None]:
        """The state as JSON, without the counted trades, and the trades that wait for their turn."""
        buffer, held = self.buffer.snapshot()
        if held is not None and not held.num_rows:
            held = None
        meta: dict[str, Any] = {"ticks": self.ticks.save(), "bars": self.candles.save(), "buffer": buffer}
        meta["events"] = self.events.next_row
        return meta | self.clocks.save(), held

    def restore(self, meta: Mapping[str, Any], held: pa.Table | None) -> None:
        """`meta` may have further entries."""
        self.ticks = TickIntake.load(meta["ticks"])
        self.candles = BarIntake.load(meta["bars"])
        # Missing in states of older versions.
        self.events = EventIntake(meta.get("events", 0))
        self.buffer.restore(meta["buffer"], held)
        self.clocks = Clocks.load(meta)


def _go_on(clock: Clock, period: int, bars: pa.Table) -> None:
    """Bars of a period come in order, so the next one opens when this one ends, or later."""
    for ticker, _, opened in newest(bars, "open_time"):
        known = opened + period * SECOND
        clock.watermarks[ticker] = max(known, clock.watermarks.get(ticker, known))
        clock.closed.discard(ticker)


def _moved_since(before: Mapping[str, int], closed: set[str], clock: Clock) -> set[str]:
    """Tickers whose watermark has changed, or that have ended or begun again."""
    found = {ticker for ticker, value in clock.watermarks.items() if before.get(ticker) != value}
    return found | (clock.closed ^ closed)
