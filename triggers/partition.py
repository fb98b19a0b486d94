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
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from bus.api import partition_of
from cep import Clock, ReleaseBuffer
from core.errors import TriggerRejected
from protobuf import records_pb2 as records
from protobuf.ingestor_pb2 import CEPTriggerEvent
from triggers.check import INPUTS, CompiledTrigger, TriggerRules, compile_trigger, is_joint
from triggers.events import Fired, Firing, firings, schema_of, silence
from triggers.lookback import LookbackRequest
from triggers.rows import BarIntake, PeriodBars, TickIntake, newest, ticker_of
from triggers.streams import Common, Moved, Saved, Shard, Text, Trigger, squeezed, unsqueezed
from venues.grid import SECOND

__all__ = ["TriggerOutput", "TriggerPartition", "TriggerReport"]

#: How long after the end of its period, by the exchange's clock, a bar may come before deadlines pass without it.
BAR_SLACK_NS = 30 * SECOND
TICKS = 0
_NO_ROW = -1


@dataclass(frozen=True, slots=True)
class TriggerReport:
    """`state`: active (registered and running), suspended (with the reason) or removed."""

    trigger_id: str
    version: int
    state: str
    reason: str = ""


@dataclass(slots=True)
class TriggerOutput:
    """`late_rows`: per ticker the trades that came behind their watermark. `is_changed`: the state is another now.
    `lookbacks`: of triggers that begin with this call; `look_back` takes their rows before the next one.
    """

    fired: list[Fired] = field(default_factory=list)
    reports: list[TriggerReport] = field(default_factory=list)
    lookbacks: list[LookbackRequest] = field(default_factory=list)
    late_rows: dict[str, int] = field(default_factory=dict)
    is_changed: bool = False

    @property
    def events(self) -> list[CEPTriggerEvent]:
        """What `fired` says."""
        return [CEPTriggerEvent.FromString(event.value) for event in self.fired]


@dataclass(slots=True)
class _Arrival:
    """The newest row of a ticker: when it came by the wall clock, its number, its event time (ns)."""

    at_ns: int
    row: int
    time_ns: int


class TriggerPartition:
    """Call `process` with each micro-batch's records; `save` after it and `TriggerPartition.load` before its next.

    `number`: which partition of the bus this is; `rules.partitions`: the joint one, which gets the records of all and
    runs the triggers that take rows of several together.
    """

    def __init__(self, rules: TriggerRules | None = None, number: int = 0) -> None:
        self.rules = rules or TriggerRules()
        self.number = number
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
        self._by_key: dict[str, set[int]] = {}
        self._shard_of: dict[str, int] = {}
        self._written: bytes | None = None
        self._unreported: list[TriggerReport] = []

    @property
    def is_active(self) -> bool:
        """False while no trigger needs any record; then `process` may be given controls only."""
        return bool(self._shards)

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
        is_changed = bool(ticks or bars or marks or controls or self._unreported)
        output = TriggerOutput(reports=self._unreported, is_changed=is_changed)
        self._unreported = []
        for value in marks:
            self._mark(value)
        trades = self._ticks.rows(self._wanted(ticks, now_ns))
        due = self._due_clocks()
        self._process_ticks(trades, due, now_ns, output)
        self._process_bars(bars, due, now_ns, output)
        if now_ns:
            self._report_silence(now_ns, output)
        for value in controls:
            self._control(value, now_ns, output)
        return output

    def prime(self, ticks: Sequence[bytes], now_ns: int) -> None:
        """After a time without records: the newest ones of `ticks`, which no trigger sees.

        Trades that come again are known by them, and what is older is late.
        """
        self._ticks.counted.clear()
        self._marks.clear()
        self._pass_over(ticks, now_ns)

    def look_back(self, request: LookbackRequest, past: pa.Table, output: TriggerOutput) -> None:
        """`past`: rows of `past_ticks` or `past_bars`. They warm the trigger up; what fails over them is suspended."""
        number = self._shard_of.get(request.trigger_id)
        if number is None or not past.num_rows:
            return
        most = pc.max(pc.value_counts(past["ticker"]).field("counts")).as_py()
        if most > self.rules.retained_rows:
            limit = self.rules.retained_rows
            self.refuse_lookback(request, f"the look-back has {most} rows of a ticker, {limit} are allowed", output)
            return
        clocks = {TICKS: self._buffer.clock, **self._bar_clocks}
        try:
            self._shards[number].look_back(past, clocks, self.rules.watermark_delay_ns)
        except Exception as error:  # Whatever one trigger's rows bring about must not stop the others.
            self._suspend(self.triggers[request.trigger_id], str(error) or type(error).__name__, output)

    def refuse_lookback(self, request: LookbackRequest, reason: str, output: TriggerOutput) -> None:
        """Its rows cannot be had: the trigger is suspended."""
        if request.trigger_id in self._shard_of:
            self._suspend(self.triggers[request.trigger_id], reason, output)

    # ---- trades
    def _wanted(self, ticks: Sequence[bytes], now_ns: int) -> Sequence[bytes]:
        """Without the trades of tickers that no trigger is on."""
        if self._every:
            return ticks
        wanted: list[bytes] = []
        others: list[bytes] = []
        for value in ticks:
            ticker = ticker_of(value)
            (wanted if ticker is None or self._by_ticker.get(ticker) else others).append(value)
        self._pass_over(others, now_ns)
        return wanted

    def _pass_over(self, ticks: Sequence[bytes], now_ns: int) -> None:
        clock = self._buffer.clock
        arrivals = self._arrivals.setdefault(TICKS, {})
        for ticker, time in self._ticks.pass_over(ticks).items():
            reached = time - self.rules.watermark_delay_ns
            clock.watermarks[ticker] = max(reached, clock.watermarks.get(ticker, reached))
            clock.closed.discard(ticker)
            arrivals[ticker] = _Arrival(now_ns, _NO_ROW, time)

    def _process_ticks(self, rows: pa.Table, due: Mapping[str, int], now_ns: int, output: TriggerOutput) -> None:
        clock = self._buffer.clock
        before, closed = dict(clock.watermarks), set(clock.closed)
        parts: list[pa.Table] = []
        if rows.num_rows:
            self._arrived(TICKS, rows, "ts_ns", now_ns)
            released = self._buffer.push(rows)
            if any(shard.compiled.is_stateless for shard in self._shards.values()):
                # A row that decides alone needs no order, and so no watermark.
                self._feed(TICKS, _moved(released.fresh, set(), clock), None, output, is_ordered=False)
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
            number = max(mark.clock.sequence, mark.after_sequence)
            self._marks[mark.ticker] = (min(mark.clock.exchange_time, 2**63 - 1), number)

    def _due_clocks(self) -> dict[str, int]:
        """A clock is true once the trades that its ingestor had published before it were counted.

        Clocks come behind those trades: where none was counted, they are all from before the first record.
        """
        counted = self._ticks.counted
        due = {ticker: time for ticker, (time, number) in self._marks.items() if counted.get(ticker, number) >= number}
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
    def _feed(
        self, label: int, moved: Moved, revisions: bool | None, output: TriggerOutput, *, is_ordered: bool = True
    ) -> None:
        """`revisions`: whether the rows are all revisions of bars; None for trades. `is_ordered`: trades in the order
        of event time, for triggers that look at more than a row; those that do not take trades as they come.
        """
        if not moved.tickers:
            return
        output.is_changed = True
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
            if revisions is not None:
                takes = shard.compiled.options.revisions == revisions
            else:
                takes = shard.compiled.is_stateless != is_ordered
            if takes:
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
            parts = shard.split(label)
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
        schema: bytes,
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
        output.fired.append(firing.event(trigger.trigger_id, trigger.version, schema))

    def _report_silence(self, now_ns: int, output: TriggerOutput) -> None:
        for shard in self._shards.values():
            silent_ns = shard.compiled.options.deadman_ns
            if not silent_ns:
                continue
            labels = [label for label in sorted(self._arrivals) if shard.takes(label)]
            named = shard.owners
            tickers = named if not shard.takes_every_ticker else {t for label in labels for t in self._arrivals[label]}
            for ticker in sorted(tickers):
                trigger = self.triggers[named.get(ticker) or shard.sole]
                first = trigger.bars_from if shard.compiled.is_on_bars else trigger.ticks_from
                arrivals = {label: self._arrivals[label].get(ticker) for label in labels}
                found = {label: last for label, last in arrivals.items() if last is not None and last.row >= first}
                for label, last in found.items():
                    if now_ns - last.at_ns >= silent_ns:
                        self._say_silence(trigger, label, ticker, last, now_ns, output)
                waited_ns = now_ns - trigger.registered_ns if trigger.registered_ns else 0
                if not found and ticker in named and waited_ns >= silent_ns:
                    label = shard.compiled.options.period_seconds
                    self._say_silence(trigger, label, ticker, None, now_ns, output)

    def _say_silence(
        self, trigger: Trigger, label: int, ticker: str, last: _Arrival | None, now_ns: int, output: TriggerOutput
    ) -> None:
        """Once for each silence. `last`: None when nothing came since the registration."""
        place = f"{label}/{ticker}"
        row = last.row if last is not None else _NO_ROW
        if trigger.silent.get(place) == row:
            return
        trigger.silent[place] = row
        trigger.events += 1
        output.is_changed = True
        since_ns = last.at_ns if last is not None else trigger.registered_ns
        firing, schema = silence(label, ticker, row, last.time_ns if last is not None else None, since_ns, now_ns)
        output.fired.append(firing.event(trigger.trigger_id, trigger.version, schema))

    # ---- registrations
    def _control(self, value: bytes, now_ns: int, output: TriggerOutput) -> None:
        try:
            control = records.TriggerControl.FromString(value)
        except DecodeError:
            self._ticks.bad_records += 1
            return
        match control.WhichOneof("body"):
            case "register":
                self._register(control.register, now_ns, output)
            case "remove" if control.remove.trigger_id in self.triggers:
                trigger = self.triggers[control.remove.trigger_id]
                self._detach(trigger)
                _withdraw(trigger.trigger_id, output)
                del self.triggers[trigger.trigger_id]
                self._written = None
                output.reports.append(TriggerReport(trigger.trigger_id, trigger.version, "removed"))

    def _register(self, registration: records.TriggerRegistration, now_ns: int, output: TriggerOutput) -> None:
        self._written = None
        known = self.triggers.get(registration.trigger_id)
        if known is not None:
            if known.version >= registration.version:
                return
            self._detach(known)
            _withdraw(known.trigger_id, output)
            del self.triggers[registration.trigger_id]
        tickers = self._tickers_here(registration.tickers)
        if tickers is None:
            return
        trigger = Trigger.of(registration, tickers, self._ticks.next_row, self._bars.next_row, now_ns)
        try:
            compiled = compile_trigger(trigger.sql, trigger.parameters, self.rules)
        except TriggerRejected as error:
            if not self._is_joint:
                self.triggers[trigger.trigger_id] = trigger
                self._suspend(trigger, str(error), output)
            return
        if is_joint(compiled, registration.tickers, self.rules.partitions) != self._is_joint:
            return
        self.triggers[trigger.trigger_id] = trigger
        self._attach(trigger, compiled)
        output.reports.append(TriggerReport(trigger.trigger_id, trigger.version, "active"))
        if compiled.looks_back and trigger.tickers:
            options = compiled.options
            since_ns = trigger.registered_ns - options.lookback_ns
            output.lookbacks.append(
                LookbackRequest(
                    trigger.trigger_id, compiled.is_on_bars, options.period_seconds, trigger.tickers, since_ns
                )
            )

    @property
    def _is_joint(self) -> bool:
        return 0 < self.rules.partitions == self.number

    def _tickers_here(self, tickers: Sequence[str]) -> Sequence[str] | None:
        """Those of a registration that lie in this partition; None when it has nothing to do here."""
        count = self.rules.partitions
        if count <= 1:
            return None if self._is_joint else tickers
        if not tickers:
            return tickers
        places = {ticker: partition_of(ticker.encode(), count) for ticker in tickers}
        if self._is_joint:
            return tickers if len(set(places.values())) > 1 else None
        return [ticker for ticker, place in places.items() if place == self.number] or None

    def _suspend(self, trigger: Trigger, reason: str, output: TriggerOutput) -> None:
        self._detach(trigger)
        trigger.reason = reason
        output.reports.append(TriggerReport(trigger.trigger_id, trigger.version, "suspended", reason))

    def _attach(self, trigger: Trigger, compiled: CompiledTrigger) -> None:
        is_alone = compiled.query.needs_merge or not trigger.tickers or compiled.looks_back
        common = Common.of(compiled, trigger.text, is_alone)
        if not is_alone:
            taken = set[int]().union(*(self._by_ticker.get(ticker, set()) for ticker in trigger.tickers))
            number = min(self._by_key.get(common.key, set()) - taken, default=None)
            if number is not None and self._shards[number].can_take(trigger):
                self._shards[number].add(trigger, common.numbers)
                self._shard_of[trigger.trigger_id] = number
                self._index(number, trigger.tickers)
                return
        shard = Shard(common.prepared(), common.key, trigger.text, trigger.trigger_id if is_alone else "")
        shard.add(trigger, common.numbers)
        self._keep_shard(shard)

    def _detach(self, trigger: Trigger) -> None:
        number = self._shard_of.pop(trigger.trigger_id, None)
        if number is None:
            return
        shard = self._shards[number]
        shard.drop(trigger)
        if shard.sole or not shard.owners:
            self._forget_shard(number)
        for ticker in trigger.tickers:
            self._by_ticker.get(ticker, set()).discard(number)

    def _keep_shard(self, shard: Shard) -> int:
        number = self._next_shard
        self._next_shard += 1
        self._shards[number] = shard
        self._by_key.setdefault(shard.key, set()).add(number)
        for trigger_id in shard.trigger_ids:
            self._shard_of[trigger_id] = number
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
        numbers = self._by_key[shard.key]
        numbers.discard(number)
        if not numbers:
            del self._by_key[shard.key]
        for ticker in shard.owners:
            self._by_ticker.get(ticker, set()).discard(number)

    # ---- state
    def save(self) -> bytes:
        """The whole state; see `segments`."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, content in self.segments().items():
                archive.writestr(name, content)
        return out.getvalue()

    def segments(self) -> dict[str, bytes]:
        """The state in named parts. A part that nothing changed is the same object as in the call before, so that
        only the others need to be written."""
        buffer, held = self._buffer.snapshot()
        meta = {
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
            "histories": {trigger.trigger_id: own for trigger in self.triggers.values() if (own := _history(trigger))},
        }
        if self._written is None:
            self._written = squeezed(json.dumps([_written(trigger) for trigger in self.triggers.values()]).encode())
        found = {"meta": squeezed(json.dumps(meta).encode()), "triggers": self._written}
        if held is not None:
            found["held"] = _packed(held)
        for number, shard in self._shards.items():
            found |= {f"{number}/{part}": content for part, content in shard.save().items()}
        return found

    def _common(self, text: Text, is_alone: bool = False) -> Common:
        sql, parameters = text
        return Common.of(compile_trigger(sql, dict(parameters), self.rules), text, is_alone)

    def _common_of(self, trigger_id: str) -> Common:
        return self._common(self.triggers[trigger_id].text)

    @classmethod
    def load(cls, data: bytes, rules: TriggerRules | None = None, number: int = 0) -> "TriggerPartition":
        """Triggers whose text or state this version does not take any more are suspended; the next `process` says so.

        Raises ValueError for other bytes.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                parts = {name: archive.read(name) for name in archive.namelist()}
        except zipfile.BadZipFile as error:
            raise ValueError(f"not the state of a trigger partition: {error}") from error
        return cls.of(parts, rules, number)

    @classmethod
    def of(
        cls, segments: Mapping[str, bytes], rules: TriggerRules | None = None, number: int = 0
    ) -> "TriggerPartition":
        """`load` from what `segments` gave."""
        partition = cls(rules, number)
        try:
            partition._restore(dict(segments))
        except KeyError as error:
            raise ValueError(f"not the state of a trigger partition: {error}") from error
        return partition

    def _restore(self, parts: dict[str, bytes]) -> None:
        meta = json.loads(unsqueezed(parts.pop("meta")))
        self.triggers = {
            trigger.trigger_id: trigger for trigger in _read(json.loads(unsqueezed(parts.pop("triggers"))))
        }
        for trigger_id, history in meta["histories"].items():
            _remember(self.triggers[trigger_id], history)
        held = parts.pop("held", b"")
        self._ticks = TickIntake.load(meta["ticks"])
        self._bars = BarIntake.load(meta["bars"])
        self._buffer.restore(meta["buffer"], pa.ipc.open_stream(held).read_all() if held else None)
        self._bar_clocks = {int(p): Clock(dict(w), set(closed)) for p, (w, closed) in meta["bar_clocks"].items()}
        self._marks = {ticker: (time, number) for ticker, (time, number) in meta["marks"].items()}
        self._arrivals = {
            int(label): {ticker: _Arrival(*last) for ticker, last in own.items()}
            for label, own in meta["arrivals"].items()
        }
        shards: dict[int, dict[str, bytes]] = {}
        for name, content in parts.items():
            of_shard, part = name.split("/", 1)
            shards.setdefault(int(of_shard), {})[part] = content
        for number, own in sorted(shards.items()):
            self._next_shard = number
            saved = Saved.of(own)
            try:
                common = self._common(saved.text, bool(saved.sole))
                self._keep_shard(Shard.load(common, saved, self._common_of))
            except (TriggerRejected, ValueError) as error:
                for trigger_id in saved.trigger_ids:
                    trigger = self.triggers[trigger_id]
                    trigger.reason = str(error)
                    report = TriggerReport(trigger_id, trigger.version, "suspended", trigger.reason)
                    self._unreported.append(report)
        self._unreported.sort(key=lambda report: report.trigger_id)
        self._next_shard = meta["next_shard"]


def _withdraw(trigger_id: str, output: TriggerOutput) -> None:
    output.lookbacks = [request for request in output.lookbacks if request.trigger_id != trigger_id]


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
    """What a registration alone decides."""
    return [
        trigger.trigger_id, trigger.version, trigger.sql, trigger.parameters, trigger.tickers, trigger.ticks_from,
        trigger.bars_from, trigger.registered_ns,
    ]  # fmt: skip


def _read(written: list[list[Any]]) -> Iterator[Trigger]:
    for trigger_id, version, sql, parameters, tickers, ticks_from, bars_from, registered_ns in written:
        yield Trigger(
            trigger_id, version, sql, parameters, tuple(tickers), ticks_from, bars_from, registered_ns=registered_ns
        )


def _history(trigger: Trigger) -> list[Any] | None:
    """What has happened to it since; None for nothing."""
    found = [trigger.reason, trigger.events, trigger.suppressed, trigger.fired, trigger.silent]
    return found if any(found) else None


def _remember(trigger: Trigger, history: list[Any]) -> None:
    trigger.reason, trigger.events, trigger.suppressed, trigger.fired, trigger.silent = history


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found
