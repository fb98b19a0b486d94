"""The trigger query's work on the executors: from the records of one bus partition to events.

It publishes events, and progress for the relay, under names made of query, partition and batch, so a repeated
micro-batch publishes nothing twice. Only counters and failures go to the driver.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from bus import Bus, KeyedTables, Log, Record, SequenceStamp, StoredRecord
from bus import topics as bus_topics
from candlewright.wire import streams
from candlewright.wire.grid import SECOND
from core.background import collect_rarely
from core.poison import culprits, is_poison
from core.settings import BusSettings, Settings, TicksSettings
from flink_replacement_spark.engine.bus_source import NOTHING_KNOWN, KnownRecords, read_range, worker_bus
from flink_replacement_spark.engine.checked_records import CheckedRecords
from flink_replacement_spark.engine.writes import Direct, Outdated, Writes
from flink_replacement_spark.triggers.source import ROWS, Ends, Span, TriggerPlan
from flink_replacement_spark.triggers.store import PartStore, Since, Stored
from protobuf import records_pb2 as records
from triggers.events.firings import Fired
from triggers.partition import TriggerOutput, TriggerPartition, TriggerReport
from triggers.texts.check import TriggerRules

__all__ = [
    "RESULT",
    "RESULT_SCHEMA",
    "StepResult",
    "counted",
    "held_from",
    "is_active",
    "is_behind",
    "process",
    "publish_events",
    "publish_progress",
    "reads_events",
    "resume",
    "run_step",
]

#: `name`: of a counter, with its `value`; with `reason`, the id of a suspended trigger.
RESULT = pa.schema([("name", pa.string()), ("value", pa.int64()), ("reason", pa.string())])
RESULT_SCHEMA = "name string, value bigint, reason string"

_PUBLISH_RECORDS = 5_000
_PUBLISH_BYTES = 8 << 20
#: Records per partition that are read back when a trigger starts, to recognise repeated trades.
_TAIL_RECORDS = 1_000
_COST_NS = 10 * SECOND
#: Notes, steps and bytes of records after which a step with events stores its state whole, and one without events.
_MOST, _ENOUGH = (64, 128, 1 << 20), (8, 64, 1 << 18)
#: Their records are at most this part of `bus.max_bytes`.
_PART_OF_BUS = 64

Batches = Iterable[pa.RecordBatch]


def process(
    url: str, query_id: str, batch_id: int, *, rules: TriggerRules, settings: Settings | None = None
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A task's function for one micro-batch; a task gets the rows of source `triggers` of its owners.

    `settings`: the settings of the tables for look-back; without them, a trigger that looks back is suspended.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        collect_rarely()
        for batch in batches:
            for row in batch.to_pylist():
                plan = TriggerPlan.from_json(row["owner"], row["plan"])
                done = run_step(worker_bus(url), query_id, batch_id, rules=rules, plan=plan, settings=settings)
                yield done.rows()

    return run


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """Steps that are not on the bus yet: what each took, where the first one starts and the last one ends, and the
    bytes of their records. `is_plain`: the state after them follows from their records.
    """

    plans: Sequence[TriggerPlan] = ()
    start: Ends = field(default_factory=dict)
    end: Ends = field(default_factory=dict)
    size: int = 0
    is_plain: bool = True

    def and_then(self, plan: TriggerPlan, read: Sequence[Span], *, size: int, is_plain: bool) -> "_Unwritten":
        """`read`: the spans that were read."""
        taken = replace(plan, spans=tuple(span for span in read if span.end > span.first))
        return _Unwritten(
            [*self.plans, taken],
            self.start or plan.starts(),
            plan.ends(),
            self.size + size,
            self.is_plain and is_plain,
        )


_NONE = _Unwritten()


@dataclass(frozen=True, slots=True)
class _Kept:
    """The state of one of this worker's partitions: after the `stored` one, and the `unwritten` steps."""

    stored: Stored
    live: TriggerPartition
    unwritten: _Unwritten = _NONE


_CACHE: dict[tuple[str, int], _Kept] = {}


def is_active(query_id: str, owner: int) -> bool:
    """Whether a trigger of the owner needs records, as far as this process knows."""
    cached = _CACHE.get((query_id, owner))
    return cached is None or cached.live.is_active


def reads_events(query_id: str, owner: int) -> bool:
    """Whether a trigger of the owner reads events of triggers, as far as this process knows."""
    cached = _CACHE.get((query_id, owner))
    return cached is None or cached.live.reads_events


def is_behind(query_id: str, owner: int) -> bool:
    """Whether rows may wait for a slow trigger of the owner, as far as this process knows."""
    cached = _CACHE.get((query_id, owner))
    return cached is None or cached.live.is_behind


def due_after(query_id: str, owner: int, now_ns: int) -> int | None:
    """When the wall clock alone next brings something after `now_ns` (ns), as far as this process knows; None without
    any.
    """
    cached = _CACHE.get((query_id, owner))
    return None if cached is None else cached.live.due_after(now_ns)


def held_from(bus: Bus, query_id: str, owner: int, *, is_own: bool) -> Ends:
    """Where the records start that the owner's stored state needs; empty if it needs none. `is_own`: no other process
    has stored it since this one did.
    """
    cached = _CACHE.get((query_id, owner)) if is_own else None
    return PartStore(bus, query_id).start(owner) if cached is None else cached.stored.since.start


def resume(
    bus: Bus, query_id: str, batch_id: int, *, owner: int, rules: TriggerRules, settings: Settings | None = None
) -> None:
    """Read the owner's state before micro-batch `batch_id`, so that its first step need not: it takes seconds with
    thousands of different texts.
    """
    store = PartStore(bus, query_id)
    base = store.base_of(owner, batch_id)
    kept = _CACHE.get((query_id, owner))
    if base < 0 or (kept is not None and kept.stored.base == base):
        return
    if (found := _resume(bus, store, owner, base, rules=rules, settings=settings)) is not None:
        _CACHE[query_id, owner] = _Kept(*found)


@dataclass(frozen=True, slots=True)
class StepResult:
    """Counts by name; the triggers that were suspended, with the reason."""

    counts: Mapping[str, int]
    suspended: Mapping[str, str]

    def rows(self) -> pa.RecordBatch:
        """A row of RESULT for each."""
        rows: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in self.counts.items()]
        rows += [{"name": trigger_id, "reason": reason} for trigger_id, reason in self.suspended.items()]
        return pa.RecordBatch.from_pylist(rows, schema=RESULT)


def counted(results: pa.RecordBatch | pa.Table) -> tuple[dict[str, int], dict[str, str]]:
    """The tasks' counts by name, and the triggers that they suspended, with the reason."""
    counts, suspended = Counter[str](), dict[str, str]()
    for row in results.to_pylist():
        if row["reason"] is not None:
            suspended[row["name"]] = row["reason"]
        else:
            counts[row["name"]] += row["value"]
    return counts, suspended


def run_step(
    bus: Bus,
    query_id: str,
    batch_id: int,
    *,
    rules: TriggerRules,
    plan: TriggerPlan,
    settings: Settings | None,
    writes: Writes | None = None,
    known: KnownRecords = NOTHING_KNOWN,
) -> StepResult:
    """Carry out a micro-batch for one owner. `writes`: how to write; by default each call at once. `known`: records
    that need not be read.
    """
    writes = writes or Direct(bus)
    store = PartStore(bus, query_id, writes)
    base = store.base_of(plan.owner, batch_id)
    checked = _checked(bus, settings)
    reports: list[TriggerReport] = []

    # Removed from the cache, because a state that a failed batch has changed must not be reused.
    kept = _CACHE.pop((query_id, plan.owner), None)
    if kept is not None and (
        kept.stored.base != base or (kept.unwritten.plans and kept.unwritten.end != plan.starts())
    ):
        kept = None
    if kept is None and writes.follows_unwritten:
        raise Outdated("the state after steps that were not written is gone")

    def state() -> tuple[Stored, TriggerPartition]:
        """The stored state before the batch."""
        reports.clear()
        resumed = _resume(bus, store, plan.owner, base, rules=rules, settings=settings) if base >= 0 else None
        return resumed or (Stored(), _first(bus, rules, plan, reports, checked))

    stored, live = (kept.stored, kept.live) if kept is not None and base >= 0 else state()
    unwritten = kept.unwritten if kept is not None else _NONE
    is_new = stored.base < 0
    before = live.duplicates, live.bad_records
    was_active, had_slow = live.is_active, live.has_slow
    spans = [span for span in plan.spans if live.reads_events or span.topic != bus_topics.TRIGGER_EVENTS]
    read = _records(bus, spans if was_active else [plan.controls], known)
    try:
        output = _process(live, read, checked, plan.now_ns)
    except Exception as error:  # No error caused by one record may stop the others.
        if not is_poison(error):
            raise
        if unwritten.plans:
            raise Outdated(
                "the records since the stored state are read again, because one cannot be processed"
            ) from error
        checked.exclude(culprits(read, lambda some: _process(state()[1], some, checked, plan.now_ns)))
        stored, live = state()
        output = _process(live, read, checked, plan.now_ns)
    if live.is_active and not was_active:
        live.prime(_tail(bus, plan, checked, ends=True), plan.now_ns)
    checked.refuse(live.take_refused())
    if output.lookbacks:
        # Imported here because tables take long to import and most workers never read one.
        from flink_replacement_spark.triggers.lookback import look_back

        look_back(bus, settings, plan, live=live, output=output)
    is_special = is_new or not was_active or not live.is_active or plan.controls.end > plan.controls.first
    is_special |= bool(reports or output.reports or output.lookbacks or output.functions or checked.has_refused)
    is_plain = not (is_special or had_slow or live.has_slow)
    checked.put_aside(bus)
    reports += output.reports
    writer = f"{query_id}:{plan.owner}"
    publish_events(writes, writer, batch_id, events=output.fired)
    _publish_rows(writes, writer, batch_id, query_id=query_id, rows=output.functions)
    _publish_progress(writes, writer, batch_id, plan, reports, is_new=is_new)
    rows_read = sum(span.end - span.first for span in spans if span.topic in ROWS) if was_active else 0
    result = _result(output, reports, live, before, rows_read)
    may_wait = writes.may_wait and not (is_new or output.fired or reports or output.lookbacks or output.functions)
    may_wait &= result.counts.keys() <= {"records"}
    if read or output.is_changed or is_new:
        unwritten = unwritten.and_then(plan, spans, size=checked.size, is_plain=is_plain)
    if not may_wait and (unwritten.plans or (stored.since.notes and not writes.may_note)):
        most_bytes = (settings.bus if settings else BusSettings()).max_bytes // _PART_OF_BUS
        after = stored.since.and_then(unwritten.start, steps=len(unwritten.plans), size=unwritten.size)
        if writes.may_note and unwritten.is_plain and _may_note(after, most_bytes, is_urgent=bool(output.fired)):
            stored = store.note(plan.owner, batch_id, stored, after=after, plans=unwritten.plans)
        else:
            if not live.triggers:
                live = TriggerPartition(rules, plan.owner)
            stored = store.save(plan.owner, batch_id, stored, parts=live.segments())
            _note_costs(bus, query_id, plan, live)
        unwritten = _NONE
    kept = _Kept(stored, live, unwritten)
    writes.afterwards(lambda: _CACHE.__setitem__((query_id, plan.owner), kept))
    return result


def _may_note(after: Since, most_bytes: int, *, is_urgent: bool) -> bool:
    """Whether a further note is written after a whole state, instead of the next one. `after`: including it."""
    notes, steps, size = _MOST if is_urgent else _ENOUGH
    return after.notes <= notes and after.steps <= steps and after.size <= min(size, most_bytes)


#: By query and owner, when its costs were last noted (ns), and the noted value.
_NOTED: dict[tuple[str, int], tuple[int, bytes]] = {}


def _note_costs(bus: KeyedTables, query_id: str, plan: TriggerPlan, live: TriggerPartition) -> None:
    """Publish costs for the trigger's details, at most every `_COST_NS`."""
    at, known = _NOTED.get((query_id, plan.owner), (-_COST_NS, None))
    if plan.now_ns - at < _COST_NS:
        return
    costs = live.costs().SerializeToString(deterministic=True)
    if costs != known:
        bus.put(bus_topics.TABLE_TRIGGER_COSTS, {str(plan.owner): costs})
    _NOTED[query_id, plan.owner] = plan.now_ns, costs


def _process(
    live: TriggerPartition, read: Sequence[StoredRecord], checked: CheckedRecords, now_ns: int
) -> TriggerOutput:
    ticks, bars, events, marks, controls = _values(read, checked)
    return live.process(ticks, bars, marks, controls=controls, now_ns=now_ns, events=events)


def _values(read: Sequence[StoredRecord], checked: CheckedRecords) -> Iterator[list[bytes]]:
    """Those of trades, bars, events, marks and controls."""
    by_topic: dict[str, list[StoredRecord]] = {}
    for record in read:
        by_topic.setdefault(record.topic, []).append(record)
    for topic in (*ROWS, bus_topics.TICK_MARKS, bus_topics.TRIGGER_CONTROLS):
        yield checked.values(by_topic.get(topic, []))


def _checked(bus: Log, settings: Settings | None) -> CheckedRecords:
    max_ahead_ns = (settings.ticks if settings else TicksSettings()).max_ahead_ns
    return CheckedRecords(max_ahead_ns, bus.partitions(bus_topics.TICKS))


def _first(
    bus: Bus, rules: TriggerRules, plan: TriggerPlan, reports: list[TriggerReport], checked: CheckedRecords
) -> TriggerPartition:
    """The initial state, after a lost checkpoint or before the first trigger.

    Triggers registered before the first control of this micro-batch run from its first record on.
    """
    live = TriggerPartition(rules, plan.owner)
    known = _registered(bus, plan.controls.first)
    if known:
        reports += live.process([], controls=known, now_ns=plan.now_ns).reports
        if live.is_active:
            live.prime(_tail(bus, plan, checked, ends=False), plan.now_ns)
    return live


def _registered(bus: KeyedTables, before: int) -> list[bytes]:
    """The registrations whose controls are before offset `before`, as controls."""
    if not before:
        return []
    found = []
    for _, value in sorted(bus.items(bus_topics.TABLE_TRIGGERS).items()):
        try:
            entry = records.TriggerEntry.FromString(value)
        except DecodeError:
            # The relay, which owns this table, counts and reports this.
            continue
        is_due = entry.HasField("control_offset") and entry.control_offset < before
        if is_due and not entry.is_leaving and not entry.suspended_reason:
            found.append(records.TriggerControl(register=entry.registration).SerializeToString())
    return found


def _resume(
    bus: Bus, store: PartStore, owner: int, base: int, *, rules: TriggerRules, settings: Settings | None
) -> tuple[Stored, TriggerPartition] | None:
    """The stored state; None if it cannot be read, so its triggers start afresh."""
    try:
        stored, plans = store.load(owner, base)
        live = TriggerPartition.of(stored.parts, rules, owner)
        for plan in plans:
            ticks, bars, events, marks, _ = _values(_records(bus, plan.spans), _checked(bus, settings))
            live.replay(ticks, bars, marks, now_ns=plan.now_ns, events=events)
        return stored, live
    except Exception as error:  # The state of one partition must not stop the others.
        if not is_poison(error):
            raise
        store.put_aside(owner, error)
        return None


def _records(bus: Bus, spans: Sequence[Span], known: KnownRecords = NOTHING_KNOWN) -> list[StoredRecord]:
    return [
        record
        for span in spans
        for found in read_range(bus, span.topic, span.partition, first=span.first, last=span.end - 1, known=known)
        for record in found
    ]


def _tail(bus: Bus, plan: TriggerPlan, checked: CheckedRecords, *, ends: bool) -> list[bytes]:
    """The newest trades before the start of this micro-batch, or before its end."""
    states = bus.state(bus_topics.TICKS)
    spans = []
    for span in plan.of(bus_topics.TICKS):
        end = span.end if ends else span.first
        first = max(states[span.partition].first, end - _TAIL_RECORDS)
        spans.append(Span(span.topic, span.partition, first, end))
    return checked.values(_records(bus, spans))


def publish_events(writes: Writes, writer: str, batch_id: int, *, events: Sequence[Fired]) -> None:
    """Publish events, each once, however often micro-batch `batch_id` of `writer` runs."""
    for chunk, part in enumerate(_chunks(events)):
        writes.publish_as(bus_topics.TRIGGER_EVENTS, part, writer=f"{writer}:{chunk}", number=batch_id)


def _chunks(events: Sequence[Fired]) -> Iterator[list[Record]]:
    part: list[Record] = []
    stamps: dict[str, SequenceStamp] = {}
    size = 0
    for event in events:
        value = event.value
        if part and (len(part) >= _PUBLISH_RECORDS or size + len(value) > _PUBLISH_BYTES):
            yield part
            part, size = [], 0
        key = event.trigger_id.encode()
        place = event.ticker.encode() or key
        stamp = stamps.get(event.trigger_id)
        if stamp is None:
            stamp = stamps[event.trigger_id] = SequenceStamp(
                streams.trigger(event.trigger_id), context_tag=streams.TRIGGERS.tag
            )
        part.append(Record(value, key=key, partition_key=place, sequence=stamp))
        size += len(value)
    if part:
        yield part


def _publish_rows(
    writes: Writes, writer: str, batch_id: int, *, query_id: str, rows: Sequence[records.FunctionRows]
) -> None:
    """Publish the input of external functions, which the driver runs, once, as with events."""
    if not rows:
        return
    for row in rows:
        row.query_id = query_id
    found = [Record(row.SerializeToString(), key=row.trigger_id.encode(), partition=0) for row in rows]
    writes.publish_as(bus_topics.FUNCTION_ROWS, found, writer=f"{writer}:functions", number=batch_id)


def _publish_progress(
    writes: Writes, writer: str, batch_id: int, plan: TriggerPlan, reports: Sequence[TriggerReport], *, is_new: bool
) -> None:
    controls = plan.controls
    if controls.end != (0 if is_new else controls.first) or _suspended(reports):
        publish_progress(writes, writer, batch_id, owner=plan.owner, controls_end=controls.end, reports=reports)


def _suspended(reports: Sequence[TriggerReport]) -> list[records.TriggerSuspended]:
    return [
        records.TriggerSuspended(trigger_id=report.trigger_id, version=report.version, reason=report.reason)
        for report in reports
        if report.state == "suspended"
    ]


def publish_progress(
    writes: Writes, writer: str, batch_id: int, *, owner: int, controls_end: int, reports: Sequence[TriggerReport]
) -> None:
    """Publish the progress of `owner` for the relay, once, as with events."""
    progress = records.TriggerProgress(partition=owner, controls_end=controls_end, suspended=_suspended(reports))
    record = Record(progress.SerializeToString(), partition=0)
    writes.publish_as(bus_topics.TRIGGER_PROGRESS, [record], writer=f"{writer}:progress", number=batch_id)


def _result(
    output: TriggerOutput,
    reports: Sequence[TriggerReport],
    live: TriggerPartition,
    before: tuple[int, int],
    records_read: int,
) -> StepResult:
    counts = {
        "records": records_read,
        "events": len(output.fired),
        "late_rows": sum(output.late_rows.values()),
        "duplicates": live.duplicates - before[0],
        "bad_records": live.bad_records - before[1],
        "degraded_skips": output.degraded_skips,
    }
    return StepResult(
        {name: value for name, value in counts.items() if value},
        {report.trigger_id: report.reason for report in reports if report.state == "suspended"},
    )
