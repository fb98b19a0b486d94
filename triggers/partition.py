"""The trigger query's work on the records of one bus partition; uses no Spark, bus or clock.

All triggers over the partition's tickers share its rows: trades are put in order of event time once; bars arrive in
order. A trigger that fails is suspended and reported; the results of the others are as if it had never run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from candlewright_cep import Clock, Events
from candlewright_cep.streaming.patterns.match_results import Reports
from candlewright_cep.table_bytes import bytes_of, table_of
from protobuf import records_pb2 as records
from triggers.events.chained import EVENTS_LABEL
from triggers.events.firings import CHAINED_ENTRY, Firing, firings
from triggers.records.asked_for import Ages
from triggers.records.clocks import TICKS
from triggers.records.intake import Due, Intake
from triggers.records.lookback import LookbackRequest
from triggers.records.moved import Moved
from triggers.records.rows import ticker_of
from triggers.running.outcome import TriggerOutput, TriggerReport
from triggers.running.registry import Registry
from triggers.running.resting import Rests
from triggers.running.saved import SavedRegistry, archive_of, parts_of, read_meta, written_meta
from triggers.running.shares import Shares
from triggers.running.silences import silences, silences_due
from triggers.running.streams import Shard
from triggers.running.trigger import Trigger
from triggers.running.views import Views
from triggers.texts.check import CompiledTrigger, TriggerRules
from triggers.udf.rows import frames_of
from venues import sound

__all__ = ["TriggerOutput", "TriggerPartition", "TriggerReport"]


#: The result of a stream for its rows, and what it gave up; None if no rows came.
Feed = Callable[[Shard], tuple[Events, Reports] | None]


class TriggerPartition:
    """Call `process` with each micro-batch's records; `save` after it and `TriggerPartition.load` before the next one.

    `number`: the partition of the bus; `rules.partitions` is the joint one, which gets the records of all partitions
    and runs the triggers that combine rows of several.
    """

    def __init__(self, rules: TriggerRules | None = None, number: int = 0) -> None:
        self.rules = rules or TriggerRules()
        self._registry = Registry(self.rules, number)
        self._saved = SavedRegistry()
        self._intake = Intake(self.rules)
        self._shares = Shares(self.rules, self._registry)
        self._rests = Rests(self._registry)
        self._unreported: list[TriggerReport] = []

    @property
    def triggers(self) -> Mapping[str, Trigger]:
        """The triggers registered here, by id."""
        return self._registry.triggers

    @property
    def is_active(self) -> bool:
        """False while no trigger needs any record; `process` may then be given only controls."""
        return bool(self._registry.shards)

    @property
    def reads_events(self) -> bool:
        """Whether a trigger here reads the events of triggers."""
        return bool(self._registry.over_events())

    @property
    def is_behind(self) -> bool:
        """Whether rows of a slow trigger wait, so that there is work even without records."""
        return self._shares.is_behind

    @property
    def has_slow(self) -> bool:
        """Whether a slow trigger gets its rows after the others, even if none wait now."""
        return self._shares.has_slow

    @property
    def duplicates(self) -> int:
        return self._intake.ticks.duplicates

    @property
    def bad_records(self) -> int:
        return self._intake.bad_records

    def take_refused(self) -> list[tuple[bytes, str]]:
        """The values given to `process` since the last call that were refused, wholly or in part, with the reason."""
        return self._intake.take_refused()

    @property
    def shards(self) -> int:
        """How many streams there are for a text; triggers that differ only in their tickers share them."""
        return len(self._registry.shards)

    @property
    def views(self) -> int:
        """How many views are computed; triggers that read the same one share it."""
        return len(self._registry.views)

    def process(
        self,
        ticks: Sequence[bytes],
        bars: Sequence[bytes] = (),
        marks: Sequence[bytes] = (),
        *,
        controls: Sequence[bytes] = (),
        now_ns: int = 0,
        events: Sequence[bytes] = (),
    ) -> TriggerOutput:
        """Process one micro-batch.

        `ticks`: TickBatch or Tick; `bars`: OHLCV; `marks`: TickMark; `controls`: TriggerControl; `events`:
        CEPTriggerEvent, used if `reads_events`; all serialised, in the order of the bus. Controls apply from the rows
        of the next call on. `now_ns`: the wall clock, for idle tickers and dead-man triggers, which must be the same
        when a micro-batch is repeated; 0 = unknown.
        """
        is_changed = bool(ticks or bars or marks or controls or events or self._unreported)
        output = TriggerOutput(reports=self._unreported, is_changed=is_changed)
        self._unreported = []
        self._registry.settle_views()
        intake = self._intake
        for value in marks:
            intake.mark(value)
        trades = intake.ticks.rows(self._wanted(ticks, now_ns), self._registry.needs.columns)
        self._shares.begin(trades.num_rows + len(bars))
        if not self.rules.share_ns:
            self._catch_up(output)
        times = intake.due()
        needs = self._registry.needs
        for due in intake.trades(trades, times, now_ns, late_rows=output.late_rows, as_they_come=needs.as_they_come):
            self._feed(due, output)
        intake.note_begun(now_ns)
        for due in intake.bars(bars, times, now_ns, revised=needs.revised):
            self._feed(due, output)
        self._catch_up(output)
        self._shares.settle({TICKS: intake.buffer.clock, **intake.clocks.bars}, output)
        chained = self._registry.over_events()
        if chained:
            known_ns = max(now_ns, intake.clocks.newest_ns) if now_ns else 0
            rows = intake.events.rows(events, known_ns, intake.ticks.refused.add)
            for number, shard in chained:
                feed = partial(_with_events, rows, now_ns, {TICKS: intake.buffer.clock, **intake.clocks.bars})
                self._feed_shard(number, shard, EVENTS_LABEL, feed, output)
        if now_ns:
            silent = list(silences(self._registry, intake.clocks.arrivals, intake.ticks.asked_for, now_ns=now_ns))
            output.fired += silent
            dropped = intake.drop_unwanted(self._registry.needs.periods, now_ns)
            for period in dropped:
                self._registry.forget_period(period)
            output.is_changed |= bool(silent or dropped)
        self._registry.unite(intake.buffer.first_held)
        for value in controls:
            self._control(value, now_ns, output)
        return output

    def replay(
        self,
        ticks: Sequence[bytes],
        bars: Sequence[bytes],
        marks: Sequence[bytes],
        *,
        now_ns: int,
        events: Sequence[bytes],
    ) -> None:
        """Repeat a call of `process` during which `has_slow` was false, and whose results are known; its reports come
        again with those of the next call.
        """
        self._shares.is_counting = False
        self._unreported = self.process(ticks, bars, marks, now_ns=now_ns, events=events).reports
        self._shares.is_counting = True

    def due_after(self, now_ns: int) -> int | None:
        """When the wall clock alone next brings something after `now_ns`, the time of the last call: a silence, or a
        ticker that becomes idle. None without any.
        """
        clocks, idle_ns = self._intake.clocks, self.rules.idle_ns
        times = chain(
            silences_due(self._registry, clocks.arrivals, self._intake.ticks.asked_for),
            *(clocks.idle_due(label, clock, idle_ns) for label, clock in self._clocks.items()),
        )
        return min((time_ns for time_ns in times if time_ns > now_ns), default=None)

    def prime(self, ticks: Sequence[bytes], now_ns: int) -> None:
        """After a time without records: read the newest ones of `ticks`, which no trigger sees.

        Repetitions of these trades are then recognised, and older trades are late.
        """
        self._intake.ticks.counted.forget_numbers()
        self._intake.clocks.marks.clear()
        self._intake.pass_over(ticks, now_ns)

    def look_back(self, request: LookbackRequest, past: pa.Table, output: TriggerOutput) -> None:
        """`past`: rows of `past_ticks` or `past_bars`. They initialise the trigger's state; a trigger that fails over
        them is suspended.
        """
        shard = self._registry.shard_of(request.trigger_id)
        if shard is None or not past.num_rows:
            return
        most = pc.max(pc.value_counts(past["ticker"]).field("counts")).as_py()
        if most > self.rules.retained_rows:
            limit = self.rules.retained_rows
            self.refuse_lookback(request, f"the look-back has {most} rows of a ticker, {limit} are allowed", output)
            return
        clocks = self._clocks
        try:
            shard.look_back(past, clocks, self.rules.watermark_delay_ns)
        except Exception as error:  # No error caused by one trigger's rows may stop the others.
            self.refuse_lookback(request, str(error) or type(error).__name__, output)

    def refuse_lookback(self, request: LookbackRequest, reason: str, output: TriggerOutput) -> None:
        """The trigger's past rows cannot be read: suspend it."""
        if self._registry.shard_of(request.trigger_id) is not None:
            self._registry.suspend(self.triggers[request.trigger_id], reason, output)

    @property
    def _clocks(self) -> Mapping[int, Clock]:
        """By label."""
        return {TICKS: self._intake.buffer.clock, **self._intake.clocks.bars}

    def _control(self, value: bytes, now_ns: int, output: TriggerOutput) -> None:
        try:
            control = records.TriggerControl.FromString(value)
        except DecodeError:
            self._intake.ticks.refused.add(value, "not a TriggerControl")
            return
        if problem := sound.problem_with_control(control):
            self._intake.ticks.refused.add(value, problem)
            return
        intake = self._intake
        firsts = intake.ticks.next_row, intake.candles.next_row, intake.events.next_row
        self._registry.control(control, firsts, now_ns, output=output)

    def _wanted(self, ticks: Sequence[bytes], now_ns: int) -> Sequence[bytes]:
        """Leave out the trades of tickers without a trigger."""
        if self._registry.takes_every_ticker:
            return ticks
        wanted: list[bytes] = []
        others: list[bytes] = []
        for value in ticks:
            ticker = ticker_of(value)
            (wanted if ticker is None or self._registry.takes(ticker) else others).append(value)
        if others:
            self._intake.pass_over(others, now_ns)
        return wanted

    # ---- evaluation
    def _feed(self, due: Due, output: TriggerOutput) -> None:
        moved = due.moved
        if not moved.tickers:
            return
        output.is_changed = True
        is_reached = self._intake.ticks.asked_for.reaches(due.label, moved.rows)
        if is_reached:
            self._part_unlike(due)
        rests = due.is_ordered and not due.revisions
        stirred = self._rests.stirred(due.label, moved, is_all=is_reached) if rests else {}
        aged = self._aged(due) if is_reached else {}
        done: set[int] = set()
        for number, shard in self._registry.concerned(moved.tickers):
            if not _takes(shard, due):
                continue
            done.add(number)
            own = stirred.get(number)
            if own is not None and not own:
                continue
            ages = aged.get(number)
            if shard.backlog is not None:
                shard.put_off(due.label, moved, ages=ages, is_whole=due.revisions is True)
                continue
            self._feed_shard(number, shard, due.label, partial(_with_rows, due.label, moved, ages, own), output)
        for number, shard in self._registry.overlooked(moved, done):
            self._feed_shard(number, shard, due.label, partial(_with_rows, due.label, moved, None, None), output)
        if rests:
            self._rests.settle(due.label, moved, stirred)

    def _part_unlike(self, due: Due) -> None:
        """Triggers that are alike run separately once rows are from before the registrations of only some of them."""
        for _, shard in self._registry.concerned(due.moved.tickers):
            if shard.has_alike and _takes(shard, due):
                first, last = (shard.old_rows(due.moved, self._ages(shard, due.label, of)) for of in (min, max))
                if first != last:
                    self._registry.part_alike(shard)

    def _aged(self, due: Due) -> dict[int, Ages]:
        """For streams by number, which rows are from before a registration but arrived after it. A stream with such
        rows computes its view alone.
        """
        found = {}
        for number, shard in self._registry.concerned(due.moved.tickers):
            if _takes(shard, due):
                ages = self._ages(shard, due.label)
                if shard.view is not None and shard.backlog is None:
                    if not shard.old_rows(due.moved, ages):
                        continue
                    self._registry.part(shard)
                found[number] = ages
        return found

    def _catch_up(self, output: TriggerOutput) -> None:
        """Feed postponed rows to the streams whose turn it is."""
        for number, shard, most in self._shares.turns():
            assert shard.backlog is not None
            for label, moved, ages in shard.backlog.take(most):
                self._feed_shard(number, shard, label, partial(_with_rows, label, moved, ages, None), output)
                output.is_changed = True
                if number not in self._registry.shards:
                    break

    def _feed_shard(self, number: int, shard: Shard, label: int, feed: Feed, output: TriggerOutput) -> None:
        began = self._shares.now()
        try:
            result = feed(shard)
            if result is None:
                return
            output.is_changed = True
            events, given_up = result
            output.degraded_skips += given_up.degraded_skips
            for ticker, count in shard.late_rows(label).items():
                output.late_rows[ticker] = output.late_rows.get(ticker, 0) + count
            if shard.compiled.options.function is not None:
                self._to_function(shard, events, output)
                return
            told = shard.label_of(label)
            found = firings(
                events,
                shard.compiled.query.columns,
                told,
                numbers_hold=shard.compiled.numbers_hold,
                given_up=given_up,
            )
        except Exception as error:  # No error caused by one trigger's rows may stop the others.
            if self._registry.part(shard, error):
                self._feed_shard(number, shard, label, feed, output)
                return
            if len(shard.leaders) == 1:
                for trigger_id in shard.trigger_ids:
                    self._registry.suspend(self.triggers[trigger_id], str(error) or type(error).__name__, output)
                return
            parts = shard.split(label, error)
            self._registry.forget(number)
            for part in parts:
                self._feed_shard(self._registry.keep(part), part, label, feed, output)
            return
        self._shares.spend(number, shard, began)
        for firing in found:
            if shard.compiled.reads_events:
                firing.context += CHAINED_ENTRY
            leader = shard.owner_of(firing.ticker)
            for trigger_id in shard.group_of(leader) if leader is not None else ():
                trigger = self.triggers[trigger_id]
                self._registry.lived(trigger)
                _fire(trigger, told, firing, shard.schema, shard.compiled, output)

    def _to_function(self, shard: Shard, events: Events, output: TriggerOutput) -> None:
        function, query = shard.compiled.options.function, shard.compiled.query
        if len(events) and function is not None:
            trigger = self.triggers[shard.sole]
            output.functions += (
                records.FunctionRows(
                    trigger_id=trigger.trigger_id,
                    version=trigger.version,
                    parameters=dict(function.parameters),
                    frames=frames,
                )
                for frames in frames_of(events, query.columns, query.input_name)
            )

    def _ages(self, shard: Shard, label: int, of_alike: Callable[[Iterable[int]], int] = min) -> Ages:
        """`of_alike`: chooses between the registrations of triggers that are alike."""

        def registered_at(ticker: str) -> int | None:
            leader = shard.owner_of(ticker)
            return None if leader is None else of_alike(self.triggers[one].asked_ns for one in shard.group_of(leader))

        return lambda rows: self._intake.ticks.asked_for.ages(label, rows, registered_at)

    def costs(self) -> records.TriggerCosts:
        """The costs of the triggers that keep state, as of the last `segments`."""
        shards = (shard for shard in self._registry.shards.values() if not shard.compiled.is_stateless)
        return records.TriggerCosts(costs=[cost for shard in shards for cost in shard.costs()])

    # ---- state
    def save(self) -> bytes:
        """The whole state as one value; see `segments`."""
        return archive_of(self.segments())

    def segments(self) -> dict[str, bytes]:
        """The state in named parts. An unchanged part is the same object as in the previous call, so that only the
        others need to be written.
        """
        meta, held = self._intake.save()
        own = {"next_shard": self._registry.next_shard, "turn": self._shares.turn}
        found = {"meta": written_meta(meta | own)}
        if held is not None:
            found["held"] = bytes_of(held)
        return found | self._intake.ticks.counted.save() | self._rests.save() | self._saved.parts(self._registry)

    @classmethod
    def load(cls, data: bytes, rules: TriggerRules | None = None, number: int = 0) -> "TriggerPartition":
        """Restore a partition. Triggers whose text or state this version no longer accepts are suspended; the next
        `process` reports them.

        Raises ValueError for invalid bytes.
        """
        return cls.of(parts_of(data), rules, number)

    @classmethod
    def of(
        cls, segments: Mapping[str, bytes], rules: TriggerRules | None = None, number: int = 0
    ) -> "TriggerPartition":
        """`load` from the result of `segments`."""
        partition = cls(rules, number)
        try:
            partition._restore(dict(segments))
        except KeyError as error:
            raise ValueError(f"not the state of a trigger partition: {error}") from error
        return partition

    def _restore(self, parts: dict[str, bytes]) -> None:
        meta = read_meta(parts.pop("meta"))
        self._saved.read_triggers(self._registry, parts, meta)
        held = parts.pop("held", b"")
        self._intake.restore(meta, table_of(held) if held else None)
        self._intake.ticks.counted.restore(parts)
        self._rests.take(parts)
        views = Views.taken(parts)
        saved = list(self._saved.read_shards(parts))
        self._registry.restore_views(views, saved)
        self._unreported = self._registry.restore(saved)
        self._registry.next_shard = meta["next_shard"]
        # Missing in states of older versions.
        self._shares.restore(meta.get("turn", -1))


def _takes(shard: Shard, due: Due) -> bool:
    """Whether a stream is fed these rows and may have results for them."""
    if not shard.takes(due.label):
        return False
    if due.revisions is not None:
        takes = shard.compiled.options.revisions == due.revisions
        takes &= not due.revisions or shard.compiled.query.needs_merge == due.is_joint
    else:
        takes = shard.compiled.is_stateless != due.is_ordered
    return takes and shard.is_concerned(due.moved)


def _with_rows(
    label: int, moved: Moved, ages: Ages | None, stirred: Sequence[str] | None, shard: Shard
) -> tuple[Events, Reports]:
    return shard.feed(label, moved, ages, stirred=stirred)


def _with_events(
    rows: pa.Table, now_ns: int, clocks: Mapping[int, Clock], shard: Shard
) -> tuple[Events, Reports] | None:
    return shard.feed_events(rows, now_ns, clocks)


def _fire(
    trigger: Trigger, label: int, firing: Firing, schema: bytes, compiled: CompiledTrigger, output: TriggerOutput
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
