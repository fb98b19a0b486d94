"""Spark data source `triggers`: plans the records and the time of a micro-batch of the trigger query.

One row for each owner: a partition of the bus, or the joint one after them (numbered by their count), which reads the
records of all. `plan` says the rest as JSON (`TriggerPlan`). The task reads the records itself, and only where
triggers run. Options: `url`, `reader` (holds what is not committed), `tasks` (input partitions that share the owners),
`max_records` and `max_bytes` (of each topic, a micro-batch).

A registration is processed after the rows that were on the bus before it: the end of the registrations is read first,
and they are held back until all rows that were on the bus at that time are planned. The same holds for marks, since a
clock says that trades up to its time have arrived. Bars wait for the trades of their partition that were on the bus,
which include those that the bars are made of. Events of triggers are read if a trigger reads them, and skipped
otherwise.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from bus import Bus, Lives, PartitionState, TopicPartition
from bus import topics as bus_topics
from flink_replacement_spark.engine.bus_source import (
    LIVES,
    POLL_SECONDS,
    Awaited,
    BatchRoom,
    HoldingReader,
    Offsets,
    Positions,
    capped,
    check_start,
    ends_of,
    lives_of,
    remember_plan,
    written_lives,
)

__all__ = [
    "BEHIND",
    "ROWS",
    "SOURCE",
    "Barrier",
    "Ends",
    "Span",
    "TriggerPlan",
    "TriggerPlanner",
    "TriggerSource",
    "TriggerStreamReader",
    "next_time",
    "spans_of",
    "towards",
]

SOURCE = "triggers"
ROWS = (bus_topics.TICKS, bus_topics.OHLC, bus_topics.TRIGGER_EVENTS)
BEHIND = (bus_topics.TRIGGER_CONTROLS, bus_topics.TICK_MARKS)
SCHEMA = "owner int, plan string"
_ARROW_SCHEMA = pa.schema([("owner", pa.int32()), ("plan", pa.string())])
_ALL = 2**62
_CLOCK_NS = 1_000_000_000
#: How often holds move while nothing is registered, and nothing is read.
_HOLD_SECONDS = 5.0

Ends = Mapping[str, Positions]


@dataclass(frozen=True, slots=True)
class Span:
    """Records from `first` to `end` (exclusive) of one partition."""

    topic: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class TriggerPlan:
    """One owner's work in a micro-batch. `now_ns`: the wall clock, the same if the batch runs again."""

    owner: int
    now_ns: int
    spans: tuple[Span, ...]

    def of(self, topic: str) -> tuple[Span, ...]:
        return tuple(span for span in self.spans if span.topic == topic)

    def starts(self) -> Ends:
        """The offset of the first record, by topic and partition."""
        return self._by_place(lambda span: span.first)

    def ends(self) -> Ends:
        """The offset after the last record, by topic and partition."""
        return self._by_place(lambda span: span.end)

    def _by_place(self, offset: Callable[[Span], int]) -> Ends:
        found: dict[str, Positions] = {}
        for span in self.spans:
            found.setdefault(span.topic, {})[str(span.partition)] = offset(span)
        return found

    @property
    def controls(self) -> Span:
        return self.of(bus_topics.TRIGGER_CONTROLS)[0]

    def to_json(self) -> str:
        return json.dumps([self.now_ns, [[s.topic, s.partition, s.first, s.end] for s in self.spans]])

    @classmethod
    def from_json(cls, owner: int, text: str) -> "TriggerPlan":
        now_ns, spans = json.loads(text)
        return cls(owner, now_ns, tuple(Span(*span) for span in spans))


@dataclass
class _Owners(InputPartition):
    plans: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """`behind` may be planned once `rows` have been planned."""

    behind: Ends
    rows: Ends

    def is_passed(self, planned: Ends) -> bool:
        return all(offset >= self.rows[topic][p] for topic in ROWS for p, offset in planned[topic].items())

    def is_done(self, planned: Ends) -> bool:
        return self.is_passed(planned) and all(planned[topic] == own for topic, own in self.behind.items())


class TriggerPlanner:
    """Plans the next records for the reader of these partitions."""

    def __init__(self, room: BatchRoom) -> None:
        self._room = room
        self._barrier: Barrier | None = None

    def awaits(
        self, planned: Ends, now_ns: int, *, longest_seconds: float = POLL_SECONDS, reads_events: bool = True
    ) -> Awaited:
        """What to wait for before `next`: news, until the clock is due. `now_ns`: the time that was planned last.
        `reads_events`: without it events are skipped with the next other records.
        """
        waiting = min(longest_seconds, max(0.0, (now_ns + _CLOCK_NS - time.time_ns()) / 1e9))
        # Those behind are examined first.
        awaited = BEHIND + (ROWS if reads_events else ROWS[:2])
        places = {(t, int(p)): offset for t in awaited for p, offset in planned[t].items()}
        events = [(bus_topics.TRIGGER_EVENTS, int(p)) for p in planned[bus_topics.TRIGGER_EVENTS]]
        return Awaited(places, waiting, events)

    def next(
        self, planned: Ends, known: Mapping[TopicPartition, PartitionState], *, reads_events: bool = True
    ) -> dict[str, Positions]:
        """Up to where the next records are taken, from `planned`, which names the partitions. `known`: their states."""
        awaited = BEHIND + (ROWS if reads_events else ROWS[:2])
        states = {topic: {p: known[topic, int(p)] for p in planned[topic]} for topic in BEHIND + ROWS}
        ends = {topic: {p: state.end for p, state in own.items()} for topic, own in states.items()}
        rows = {topic: ends[topic] for topic in ROWS}
        if self._barrier is None:
            self._barrier = Barrier({topic: ends[topic] for topic in BEHIND}, rows)
        most = {topic: self._room.records_of(states[topic].values()) for topic in ROWS}
        if not reads_events:
            most[bus_topics.TRIGGER_EVENTS] = _ALL
        found = towards(planned, rows, self._barrier, most=most)
        if self._barrier.is_done(found):
            self._barrier = None
        is_moved = any(found[topic] != planned[topic] for topic in awaited)
        return found if is_moved else dict(planned)


def towards(
    planned: Ends, rows: Ends, barrier: Barrier, *, most: Mapping[str, int], most_behind: int = 100_000
) -> dict[str, Positions]:
    """Advance from `planned` towards `rows`, by up to `most` records of each topic, and then past the barrier."""
    ticks, events = (
        capped(planned[topic], rows[topic], most[topic]) for topic in (bus_topics.TICKS, bus_topics.TRIGGER_EVENTS)
    )
    made = {
        p: end if ticks[p] >= barrier.rows[bus_topics.TICKS][p] else planned[bus_topics.OHLC].get(p, 0)
        for p, end in barrier.rows[bus_topics.OHLC].items()
    }
    found = {topic: planned[topic] for topic in BEHIND} | {
        bus_topics.TICKS: ticks,
        bus_topics.OHLC: capped(planned[bus_topics.OHLC], made, most[bus_topics.OHLC]),
        bus_topics.TRIGGER_EVENTS: events,
    }
    if barrier.is_passed(found):
        for topic, own in barrier.behind.items():
            found[topic] = capped(planned[topic], own, most_behind)
    return found


def next_time(planned_ns: int, *, is_moved: bool) -> int:
    """The wall clock for the next records; without records it advances every second."""
    now_ns = max(time.time_ns(), planned_ns)
    return now_ns if is_moved or now_ns >= planned_ns + _CLOCK_NS else planned_ns


class TriggerStreamReader(HoldingReader):
    """Offsets contain, per topic and partition, the next offset to read; `now_ns`; and LIVES."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._tasks = int(options.get("tasks", "1"))
        self._planner = TriggerPlanner(BatchRoom.of(options, 32 << 20))
        self._committed: Offsets = {}
        self._held_at = 0.0

    # ---- calls from Spark
    def initialOffset(self) -> Offsets:  # noqa: N802
        lives = Lives()
        places = {topic: self._hold_start(topic, lives) for topic in ROWS + BEHIND}
        self._planned = {"now_ns": 0} | places | written_lives(lives)
        return dict(self._planned)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Raises RecordsLost if `end` is before `start`, because the bus has lost records.

        Before there ever was a registration `end` stays where the first batch was planned, and Spark asks again for its
        start, which has moved on with the holds meanwhile: nothing is read of such a batch.
        """
        end = _whole(end, start)
        start = _whole(start, end)
        for topic in ROWS + BEHIND if end[bus_topics.TRIGGER_CONTROLS]["0"] else ():
            check_start(topic, start[topic], end[topic], start=start, end=end)
        self._planned = dict(end)
        remember_plan(self._connected(), self._reader, end)
        count = len(end[bus_topics.TICKS])
        plans = [self._plan(owner, count, start, end) for owner in range(count + 1)]
        shared = [plans[first :: self._tasks] for first in range(min(self._tasks, len(plans)))]
        return [_Owners(tuple((plan.owner, plan.to_json()) for plan in own)) for own in shared]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Owners)
        owners, texts = (list(column) for column in zip(*partition.plans, strict=True))
        columns = [pa.array(owners, pa.int32()), pa.array(texts, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)

    def commit(self, end: Offsets) -> None:
        for topic in ROWS + BEHIND:
            # Most micro-batches advance only the clock, or one topic.
            if topic in end and end[topic] != self._committed.get(topic):
                self._connected().hold(topic, self._reader, {int(p): offset for p, offset in end[topic].items()})
                self._committed[topic] = end[topic]

    # ---- planning
    def _next(self, bus: Bus, planned: Offsets) -> Offsets:
        if not planned[bus_topics.TRIGGER_CONTROLS]["0"]:
            return self._first(bus, planned)
        lives = lives_of(planned)
        if bus_topics.TRIGGER_EVENTS not in planned:
            planned = _whole(planned, {bus_topics.TRIGGER_EVENTS: ends_of(bus.state(bus_topics.TRIGGER_EVENTS))})
        at = {topic: planned[topic] for topic in ROWS + BEHIND}
        awaited = self._planner.awaits(at, planned["now_ns"])
        found = self._planner.next(at, bus.states_after(awaited.after, awaited.seconds, lives=lives, also=awaited.also))
        is_moved = any(found[topic] != planned[topic] for topic in ROWS + BEHIND)
        known = written_lives(lives) if is_moved else {LIVES: planned.get(LIVES, {})}
        return found | known | {"now_ns": next_time(planned["now_ns"], is_moved=is_moved)}

    def _first(self, bus: Bus, planned: Offsets) -> Offsets:
        """The plan before the first registration, when no task reads rows and only their ends matter."""
        controls = bus_topics.TRIGGER_CONTROLS
        is_news = bool(bus.wait({(controls, 0): 0}, POLL_SECONDS))
        if not is_news and time.monotonic() < self._held_at + _HOLD_SECONDS:
            return planned
        found: Offsets = {}
        lives = Lives()
        for topic in BEHIND + ROWS:
            states = bus.state(topic)
            lives.start(topic, states)
            found[topic] = ends_of(states)
        if found[controls]["0"]:
            return found | written_lives(lives) | {"now_ns": time.time_ns()}
        for topic in ROWS + BEHIND:
            bus.hold(topic, self._reader, {int(p): offset for p, offset in found[topic].items()})
        self._committed.clear()
        self._held_at = time.monotonic()
        return planned

    @staticmethod
    def _plan(owner: int, count: int, start: Offsets, end: Offsets) -> TriggerPlan:
        mine = {
            topic: {
                p: stop
                for p, stop in end[topic].items()
                if topic == bus_topics.TRIGGER_CONTROLS or owner in (int(p), count)
            }
            for topic in ROWS + BEHIND
        }
        return TriggerPlan(owner, end["now_ns"], spans_of(start, mine))


def _whole(offsets: Offsets, other: Offsets) -> Offsets:
    """Offsets with the position in the events, which older versions omitted."""
    topic = bus_topics.TRIGGER_EVENTS
    return {topic: other.get(topic, {}), **offsets}


def spans_of(start: Mapping[str, Any], end: Mapping[str, Positions]) -> tuple[Span, ...]:
    """The spans of the partitions in `end`, which may be from a version that read no events."""
    return tuple(
        Span(topic, int(p), min(stop, start[topic].get(p, 0)), stop)
        for topic in ROWS + BEHIND
        for p, stop in end.get(topic, {}).items()
    )


class TriggerSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return TriggerStreamReader(self.options)
