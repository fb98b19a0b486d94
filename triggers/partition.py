"""What the trigger query does with the records of one bus partition: no Spark, no bus, no clock.

All triggers over the partition's tickers share its rows: trades are put in order of event time once, bars come in it.
A trigger that fails is suspended and said so; what the others give is as if it had never been there.
"""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from cep import Clock, ReleaseBuffer
from core.errors import TriggerRejected
from protobuf import records_pb2 as records
from protobuf.ingestor_pb2 import CEPTriggerEvent, ResultSchema
from triggers.check import INPUTS, CompiledTrigger, TriggerRules, compile_trigger
from triggers.events import Firing, firings, schema_of, silence
from triggers.rows import BarIntake, PeriodBars, TickIntake, newest
from triggers.streams import Moved, Shard, Trigger
from venues.grid import SECOND

__all__ = ["TriggerOutput", "TriggerPartition", "TriggerReport"]

#: How long after the end of its period, by the exchange's clock, a bar may come before deadlines pass without it.
BAR_SLACK_NS = 30 * SECOND
TICKS = 0


@dataclass(frozen=True, slots=True)
class TriggerReport:
    """`state`: active (registered and running), suspended (with the reason) or removed."""

    trigger_id: str
    version: int
    state: str
    reason: str = ""


@dataclass(slots=True)
class TriggerOutput:
    """`late_rows`: per ticker the trades that came behind their watermark."""

    events: list[CEPTriggerEvent] = field(default_factory=list)
    reports: list[TriggerReport] = field(default_factory=list)
    late_rows: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Arrival:
    """The newest row of a ticker: when it came by the wall clock, its number, its event time (ns)."""

    at_ns: int
    row: int
    time_ns: int


class TriggerPartition:
    """Call `process` with each micro-batch's records; `save` after it and `TriggerPartition.load` before its next."""

    def __init__(self, rules: TriggerRules | None = None) -> None:
        self.rules = rules or TriggerRules()
        self.triggers: dict[str, Trigger] = {}
        self._ticks = TickIntake()
        self._bars = BarIntake()
        self._buffer = _buffer(self.rules)
        self._bar_clocks: dict[int, Clock] = {}
        self._marks: dict[str, tuple[int, int]] = {}
        self._arrivals: dict[int, dict[str, _Arrival]] = {}
        self._shards: dict[int, Shard] = {}
        self._next_shard = 0
        self._by_ticker: dict[str, set[int]] = {}
        self._every: set[int] = set()
        self._by_text: dict[tuple[object, ...], set[int]] = {}

    @property
    def duplicates(self) -> int:
        return self._ticks.duplicates

    @property
    def bad_records(self) -> int:
        return self._ticks.bad_records + self._bars.bad_records

    @property
    def shards(self) -> int:
        """How many streams of a text there are; triggers that differ only in their tickers share them."""
        return len(self._shards)

    def process(
        self,
        ticks: Sequence[bytes],
        bars: Sequence[bytes] = (),
        marks: Sequence[bytes] = (),
        controls: Sequence[bytes] = (),
        now_ns: int = 0,
    ) -> TriggerOutput:
        """`ticks`: TickBatch or Tick; `bars`: OHLCV; `marks`: TickMark; `controls`: TriggerControl; all serialised, in
        the order of the bus.

        Controls count from the rows of the next call on. `now_ns`: the wall clock, for idle tickers and dead-man
        triggers; the same whenever a micro-batch runs again; 0 = unknown.
        """
        output = TriggerOutput()
        for value in marks:
            self._mark(value)
        trades = self._ticks.rows(ticks)
        due = self._due_clocks()
        self._process_ticks(trades, due, now_ns, output)
        self._process_bars(bars, due, now_ns, output)
        if now_ns:
            self._report_silence(now_ns, output)
        for value in controls:
            self._control(value, output)
        return output

    # ---- trades
    def _process_ticks(self, rows: pa.Table, due: Mapping[str, int], now_ns: int, output: TriggerOutput) -> None:
        clock = self._buffer.clock
        before, closed = dict(clock.watermarks), set(clock.closed)
        parts: list[pa.Table] = []
        if rows.num_rows:
            self._arrived(TICKS, rows, "ts_ns", now_ns)
            released = self._buffer.push(rows)
            parts.append(released.rows)
            for ticker in released.late.column("ticker").to_pylist():
                output.late_rows[ticker] = output.late_rows.get(ticker, 0) + 1
        delay = self.rules.watermark_delay_ns
        parts.append(self._buffer.advance({ticker: time - delay for ticker, time in due.items()}))
        idle = self._idle(TICKS, clock, now_ns)
        if idle:
            parts.append(self._buffer.close(idle))
        found = [part for part in parts if part.num_rows]
        if found:
            released_rows = pa.concat_tables(found)
        else:
            released_rows = rows.slice(0, 0)
        moved = {ticker for ticker, value in clock.watermarks.items() if before.get(ticker) != value}
        self._feed(TICKS, _moved(released_rows, moved | (clock.closed ^ closed), clock), None, output)

    def _mark(self, value: bytes) -> None:
        try:
            mark = records.TickMark.FromString(value)
        except DecodeError:
            self._ticks.bad_records += 1
            return
        if mark.WhichOneof("body") == "clock":
            self._marks[mark.ticker] = (min(mark.clock.exchange_time, 2**63 - 1), mark.clock.sequence)

    def _due_clocks(self) -> dict[str, int]:
        """A clock is true once the trades that its ingestor had published before it were counted."""
        counted = self._ticks.counted
        due = {ticker: time for ticker, (time, number) in self._marks.items() if counted.get(ticker, 0) >= number}
        for ticker in due:
            del self._marks[ticker]
        return due

    def _arrived(self, label: int, rows: pa.Table, time_column: str, now_ns: int) -> None:
        own = self._arrivals.setdefault(label, {})
        for ticker, number, time in newest(rows, time_column):
            last = own.setdefault(ticker, _Arrival(now_ns, number, time))
            last.at_ns, last.row, last.time_ns = max(now_ns, last.at_ns), number, max(time, last.time_ns)

    def _idle(self, label: int, clock: Clock, now_ns: int) -> set[str]:
        """Tickers that have been quiet for too long; a bar is not missed before its period has passed."""
        if not self.rules.idle_ns or not now_ns:
            return set()
        limit = self.rules.idle_ns + label * SECOND
        arrivals = self._arrivals.get(label, {})
        return {t for t, last in arrivals.items() if t not in clock.closed and now_ns - last.at_ns >= limit}

    # ---- bars
    def _advance_bars(self, due: Mapping[str, int]) -> None:
        for period, clock in self._bar_clocks.items():
            for ticker, time in due.items():
                if ticker in clock.watermarks:
                    known = time - period * SECOND - BAR_SLACK_NS
                    clock.watermarks[ticker] = max(known, clock.watermarks[ticker])

    def _process_bars(
        self, values: Sequence[bytes], due: Mapping[str, int], now_ns: int, output: TriggerOutput
    ) -> None:
        before = {period: dict(clock.watermarks) for period, clock in self._bar_clocks.items()}
        self._advance_bars(due)
        found = self._bars.rows(values)
        for period in sorted(found.keys() | self._bar_clocks.keys()):
            clock = self._bar_clocks.setdefault(period, Clock())
            closed = set(clock.closed)
            bars = found.get(period)
            if bars is not None:
                for run in bars.runs:
                    self._arrived(period, run, "open_time", now_ns)
                    clock.closed.difference_update(run.column("ticker").to_pylist())
                for ticker, opened in self._bars.reached[period].items():
                    # Bars of a period come in order, so that the next one opens where this one ends, or later.
                    known = opened + period * SECOND
                    clock.watermarks[ticker] = max(known, clock.watermarks.get(ticker, known))
            clock.closed |= self._idle(period, clock, now_ns)
            own = before.get(period, {})
            moved = {ticker for ticker, value in clock.watermarks.items() if own.get(ticker) != value}
            self._feed_bars(period, bars, moved | (clock.closed ^ closed), clock, output)

    def _feed_bars(
        self, period: int, bars: PeriodBars | None, moved: set[str], clock: Clock, output: TriggerOutput
    ) -> None:
        empty = INPUTS["ohlc"].schema.append(pa.field("_sequence", pa.int64())).empty_table()
        first = bars.first if bars is not None else empty
        self._feed(period, _moved(first, moved, clock), False, output)
        runs = bars.runs if bars is not None else []
        for run in runs or [empty]:
            self._feed(period, _moved(run, moved, clock), True, output)

    # ---- triggers
    def _feed(self, label: int, moved: Moved, revisions: bool | None, output: TriggerOutput) -> None:
        if not moved.tickers:
            return
        concerned = set(self._every)
        if len(moved.tickers) < len(self._by_ticker):
            for ticker in moved.tickers:
                concerned |= self._by_ticker.get(ticker, set())
        else:
            concerned |= self._shards.keys()
        for number in sorted(concerned):
            shard = self._shards.get(number)
            if shard is None or not shard.takes(label) or not shard.is_concerned(moved):
                continue
            if revisions is None or shard.compiled.options.revisions == revisions:
                self._feed_shard(number, shard, label, moved, output)

    def _feed_shard(self, number: int, shard: Shard, label: int, moved: Moved, output: TriggerOutput) -> None:
        try:
            events, is_truncated = shard.feed(label, moved)
            found = firings(events, shard.compiled.query.columns, label, shard.compiled.numbers_hold, is_truncated)
        except Exception as error:  # Whatever one trigger's rows bring about must not stop the others.
            owners = [self.triggers[trigger_id] for trigger_id in shard.trigger_ids]
            if len(owners) == 1:
                self._suspend(owners[0], str(error) or type(error).__name__, output)
                return
            parts = shard.split(label, owners)
            self._forget_shard(number)
            for part in parts:
                self._feed_shard(self._keep_shard(part), part, label, moved, output)
            return
        schema = schema_of(shard.compiled.query.columns)
        for firing in found:
            owner = shard.owner_of(firing.ticker)
            if owner is not None:
                self._fire(self.triggers[owner], label, firing, schema, shard.compiled, output)

    def _fire(
        self,
        trigger: Trigger,
        label: int,
        firing: Firing,
        schema: ResultSchema,
        compiled: CompiledTrigger,
        output: TriggerOutput,
    ) -> None:
        cooldown = compiled.options.cooldown_ns
        if cooldown:
            place = f"{label}/{firing.ticker}"
            last = trigger.fired.get(place)
            if last is not None and firing.time_ns < last + cooldown:
                trigger.suppressed += 1
                return
            trigger.fired[place] = firing.time_ns
        trigger.events += 1
        output.events.append(firing.event(trigger.trigger_id, trigger.version, schema))

    def _report_silence(self, now_ns: int, output: TriggerOutput) -> None:
        for shard in self._shards.values():
            silent_ns = shard.compiled.options.deadman_ns
            if not silent_ns:
                continue
            first = "bars_from" if shard.compiled.is_on_bars else "ticks_from"
            for label in sorted(self._arrivals):
                if not shard.takes(label):
                    continue
                for ticker, last in self._arrivals[label].items():
                    # A sole owner answers for any ticker; it may have named some.
                    owner = shard.owners.get(ticker) or (shard.sole if shard.takes_every_ticker else None)
                    if owner is None or now_ns - last.at_ns < silent_ns:
                        continue
                    trigger = self.triggers[owner]
                    place = f"{label}/{ticker}"
                    if last.row < getattr(trigger, first) or trigger.silent.get(place) == last.row:
                        continue
                    trigger.silent[place] = last.row
                    trigger.events += 1
                    firing, schema = silence(label, ticker, last.row, last.time_ns, now_ns - last.at_ns)
                    output.events.append(firing.event(trigger.trigger_id, trigger.version, schema))

    # ---- registrations
    def _control(self, value: bytes, output: TriggerOutput) -> None:
        try:
            control = records.TriggerControl.FromString(value)
        except DecodeError:
            self._ticks.bad_records += 1
            return
        match control.WhichOneof("body"):
            case "register":
                self._register(control.register, output)
            case "remove" if control.remove.trigger_id in self.triggers:
                trigger = self.triggers[control.remove.trigger_id]
                self._detach(trigger)
                del self.triggers[trigger.trigger_id]
                output.reports.append(TriggerReport(trigger.trigger_id, trigger.version, "removed"))

    def _register(self, registration: records.TriggerRegistration, output: TriggerOutput) -> None:
        known = self.triggers.get(registration.trigger_id)
        if known is not None:
            if known.version >= registration.version:
                return
            self._detach(known)
        trigger = Trigger.of(registration, self._ticks.next_row, self._bars.next_row)
        self.triggers[trigger.trigger_id] = trigger
        try:
            compiled = compile_trigger(trigger.sql, trigger.parameters, self.rules)
        except TriggerRejected as error:
            self._suspend(trigger, str(error), output)
            return
        self._attach(trigger, compiled)
        output.reports.append(TriggerReport(trigger.trigger_id, trigger.version, "active"))

    def _suspend(self, trigger: Trigger, reason: str, output: TriggerOutput) -> None:
        self._detach(trigger)
        trigger.reason = reason
        output.reports.append(TriggerReport(trigger.trigger_id, trigger.version, "suspended", reason))

    def _attach(self, trigger: Trigger, compiled: CompiledTrigger) -> None:
        is_alone = compiled.query.needs_merge or not trigger.tickers
        if not is_alone:
            for number in sorted(self._by_text.get(trigger.text, ())):
                if self._shards[number].can_take(trigger):
                    self._shards[number].add(trigger)
                    self._index(number, trigger.tickers)
                    return
        shard = Shard(compiled, trigger.text, trigger.trigger_id if is_alone else "")
        shard.add(trigger)
        self._keep_shard(shard)

    def _detach(self, trigger: Trigger) -> None:
        for number in sorted(self._by_text.get(trigger.text, ())):
            shard = self._shards[number]
            if trigger.trigger_id not in shard.trigger_ids:
                continue
            shard.drop(trigger)
            if shard.sole or not shard.owners:
                self._forget_shard(number)
            for ticker in trigger.tickers:
                self._by_ticker.get(ticker, set()).discard(number)
            return

    def _keep_shard(self, shard: Shard) -> int:
        number = self._next_shard
        self._next_shard += 1
        self._shards[number] = shard
        self._by_text.setdefault(shard.text, set()).add(number)
        if shard.takes_every_ticker:
            self._every.add(number)
        self._index(number, shard.owners)
        return number

    def _index(self, number: int, tickers: Sequence[str] | Mapping[str, str]) -> None:
        for ticker in tickers:
            self._by_ticker.setdefault(ticker, set()).add(number)

    def _forget_shard(self, number: int) -> None:
        shard = self._shards.pop(number)
        self._every.discard(number)
        numbers = self._by_text[shard.text]
        numbers.discard(number)
        if not numbers:
            del self._by_text[shard.text]
        for ticker in shard.owners:
            self._by_ticker.get(ticker, set()).discard(number)

    # ---- state
    def save(self) -> bytes:
        buffer, held = self._buffer.snapshot()
        shards = [(number, shard.text, *shard.save()) for number, shard in self._shards.items()]
        meta = {
            "triggers": [_written(trigger) for trigger in self.triggers.values()],
            "ticks": self._ticks.save(),
            "bars": self._bars.save(),
            "buffer": buffer,
            "bar_clocks": {str(p): [c.watermarks, sorted(c.closed)] for p, c in self._bar_clocks.items()},
            "marks": self._marks,
            "arrivals": {
                str(label): {ticker: [last.at_ns, last.row, last.time_ns] for ticker, last in own.items()}
                for label, own in self._arrivals.items()
            },
            "next_shard": self._next_shard,
            "shards": [[number, list(text), own] for number, text, own, _ in shards],
        }
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("meta", json.dumps(meta))
            archive.writestr("held", b"" if held is None else _packed(held))
            for number, _, own, states in shards:
                for label, state in zip(own["labels"], states, strict=True):
                    archive.writestr(f"{number}/{label}", state)
        return out.getvalue()

    @classmethod
    def load(cls, data: bytes, rules: TriggerRules | None = None) -> "TriggerPartition":
        """Raises ValueError for other bytes, TriggerRejected for a text that this version does not take any more."""
        partition = cls(rules)
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                partition._restore(archive)
        except (KeyError, zipfile.BadZipFile) as error:
            raise ValueError(f"not the state of a trigger partition: {error}") from error
        return partition

    def _restore(self, archive: zipfile.ZipFile) -> None:
        meta = json.loads(archive.read("meta"))
        held = archive.read("held")
        self.triggers = {trigger.trigger_id: trigger for trigger in _read(meta["triggers"])}
        self._ticks = TickIntake.load(meta["ticks"])
        self._bars = BarIntake.load(meta["bars"])
        self._buffer.restore(meta["buffer"], pa.ipc.open_stream(held).read_all() if held else None)
        self._bar_clocks = {int(p): Clock(dict(w), set(closed)) for p, (w, closed) in meta["bar_clocks"].items()}
        self._marks = {ticker: (time, number) for ticker, (time, number) in meta["marks"].items()}
        self._arrivals = {
            int(label): {ticker: _Arrival(*last) for ticker, last in own.items()}
            for label, own in meta["arrivals"].items()
        }
        for number, (sql, parameters), own in meta["shards"]:
            text = (sql, tuple((name, value) for name, value in parameters))
            compiled = compile_trigger(sql, dict(parameters), self.rules)
            states = [archive.read(f"{number}/{label}") for label in own["labels"]]
            self._next_shard = number
            self._keep_shard(Shard.load(compiled, text, own, states))
        self._next_shard = meta["next_shard"]


def _buffer(rules: TriggerRules) -> ReleaseBuffer:
    return ReleaseBuffer("ts_ns", "ticker", rules.watermark_delay_ns)


def _moved(rows: pa.Table, tickers: set[str], clock: Clock) -> Moved:
    rows, by_ticker = _by_ticker(rows)
    return Moved(rows, by_ticker, frozenset(tickers | by_ticker.keys()), clock)


def _by_ticker(rows: pa.Table) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The rows with those of each ticker together, in the order they had, and the parts."""
    if not rows.num_rows:
        return rows, {}
    encoded = rows.column("ticker").combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    if not bool((order[1:] > order[:-1]).all()):
        rows, codes = rows.take(pa.array(order)), codes[order]
    cuts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), rows.num_rows]
    names = encoded.dictionary.to_pylist()
    return rows, {names[codes[start]]: rows.slice(start, end - start) for start, end in pairwise(cuts)}


def _written(trigger: Trigger) -> list[Any]:
    return [
        trigger.trigger_id, trigger.version, trigger.sql, trigger.parameters, trigger.tickers, trigger.ticks_from,
        trigger.bars_from, trigger.reason, trigger.events, trigger.suppressed, trigger.fired, trigger.silent,
    ]  # fmt: skip


def _read(written: list[list[Any]]) -> Iterator[Trigger]:
    for trigger_id, version, sql, parameters, tickers, *rest in written:
        yield Trigger(trigger_id, version, sql, parameters, tuple(tickers), *rest)


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found
