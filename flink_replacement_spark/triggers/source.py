"""Spark data source `triggers`: which records a micro-batch of the trigger query takes, and what time it is for it.

One row for each owner: a partition of the bus, or the joint one after them (numbered by their count), which learns
the records of all. `plan` says the rest as JSON (`TriggerPlan`). The task reads the records itself, and only where
triggers run. Options: `url`, `reader` (holds what is not committed), `tasks` (input partitions that share the owners),
`max_records` and `max_bytes` (of each topic, a micro-batch).

Registrations come behind the rows that were there before them: their end is read first, and they are held back until
the rows that were there then are planned. So are marks, so that the trades which a clock speaks of have come; and bars
wait for the trades of their partition that were there, those that they are made of among them.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from bus import Bus, Lives, PartitionState
from bus import topics as bus_topics
from candlewright.wire.errors import BusUnavailable
from flink_replacement_spark.engine.bus_source import (
    LIVES,
    BatchRoom,
    HoldingReader,
    capped,
    check_start,
    lives_of,
    remember_plan,
    remembered_plan,
    written_lives,
)

__all__ = ["SOURCE", "Span", "TriggerPlan", "TriggerSource", "TriggerStreamReader"]

SOURCE = "triggers"
ROWS = (bus_topics.TICKS, bus_topics.OHLC)
BEHIND = (bus_topics.TRIGGER_CONTROLS, bus_topics.TICK_MARKS)
SCHEMA = "owner int, plan string"
_ARROW_SCHEMA = pa.schema([("owner", pa.int32()), ("plan", pa.string())])
_POLL_SECONDS = 0.5
_CLOCK_NS = 1_000_000_000
#: How often holds move while nothing is registered, and nothing is read.
_HOLD_SECONDS = 5.0

Ends = dict[str, dict[str, int]]
Offsets = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """Records `first` to `end` - 1 of one partition."""

    topic: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class TriggerPlan:
    """What one owner has to do in a micro-batch. `now_ns`: the wall clock, the same whenever the batch runs again."""

    owner: int
    now_ns: int
    spans: tuple[Span, ...]

    def of(self, topic: str) -> tuple[Span, ...]:
        return tuple(span for span in self.spans if span.topic == topic)

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
class _Barrier:
    """`behind` may be planned once `rows` are."""

    behind: Ends
    rows: Ends


class TriggerStreamReader(HoldingReader):
    """Offsets: per topic and partition the next offset to read; `now_ns`; and LIVES."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._tasks = int(options.get("tasks", "1"))
        self._room = BatchRoom.of(options, 32 << 20)
        self._planned: Offsets | None = None
        self._barrier: _Barrier | None = None
        self._committed: Offsets = {}
        self._held_at = 0.0

    # ---- what Spark calls
    def initialOffset(self) -> Offsets:  # noqa: N802
        lives = Lives()
        places = {topic: self._hold_start(topic, lives) for topic in ROWS + BEHIND}
        self._planned = {"now_ns": 0} | places | written_lives(lives)
        return dict(self._planned)

    def latestOffset(self) -> Offsets:  # noqa: N802
        """The ends of the next micro-batch, after waiting a moment for news; while the bus is away, no news.

        Raises RecordsLost.
        """
        bus = self._connected()
        planned = (
            self._planned if self._planned is not None else remembered_plan(bus, self._reader) or self.initialOffset()
        )
        try:
            self._planned = self._next(bus, planned)
        except BusUnavailable:
            self._planned = planned
        return dict(self._planned)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Raises RecordsLost where `end` is that of a bus which went back behind `start`.

        Before there ever was a registration `end` stays where the first batch was planned, and Spark asks anew for its
        start, which has moved on with the holds meanwhile: nothing is read of such a batch.
        """
        for topic in ROWS + BEHIND if end[bus_topics.TRIGGER_CONTROLS]["0"] else ():
            check_start(topic, start[topic], end[topic], start, end)
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
            # Most micro-batches move the clock alone, or one topic.
            if end[topic] != self._committed.get(topic):
                self._connected().hold(topic, self._reader, {int(p): offset for p, offset in end[topic].items()})
                self._committed[topic] = end[topic]

    # ---- planning
    def _next(self, bus: Bus, planned: Offsets) -> Offsets:
        if not planned[bus_topics.TRIGGER_CONTROLS]["0"]:
            return self._first(bus, planned)
        clock_due = planned["now_ns"] + _CLOCK_NS
        waiting = min(_POLL_SECONDS, max(0.0, (clock_due - time.time_ns()) / 1e9))
        places = {(t, int(p)): offset for t in ROWS + BEHIND for p, offset in planned[t].items()}
        lives = lives_of(planned)
        bus.wait(places, waiting, lives=lives)
        behind = {} if self._barrier else {topic: _ends(bus.state(topic)) for topic in BEHIND}
        bars, trades = bus.state(bus_topics.OHLC), bus.state(bus_topics.TICKS)
        for topic, states in ((bus_topics.OHLC, bars), (bus_topics.TICKS, trades)):
            lives.check_all(topic, {int(p): offset for p, offset in planned[topic].items()}, states)
        if self._barrier is None:
            self._barrier = _Barrier(behind, {bus_topics.OHLC: _ends(bars), bus_topics.TICKS: _ends(trades)})
        barrier = self._barrier
        found: Offsets = {topic: planned[topic] for topic in BEHIND}
        ticks = capped(planned[bus_topics.TICKS], [state.end for state in trades], self._room.records_of(trades))
        made = [
            end if ticks[p] >= barrier.rows[bus_topics.TICKS][p] else planned[bus_topics.OHLC].get(p, 0)
            for p, end in barrier.rows[bus_topics.OHLC].items()
        ]
        found |= {
            bus_topics.TICKS: ticks,
            bus_topics.OHLC: capped(planned[bus_topics.OHLC], made, self._room.records_of(bars)),
        }
        if all(offset >= barrier.rows[topic][p] for topic in ROWS for p, offset in found[topic].items()):
            for topic, ends in barrier.behind.items():
                found[topic] = capped(planned[topic], [ends[str(p)] for p in range(len(ends))], self._room.max_records)
            if all(found[topic] == ends for topic, ends in barrier.behind.items()):
                self._barrier = None
        now_ns = max(time.time_ns(), planned["now_ns"])
        is_moved = any(found[topic] != planned[topic] for topic in ROWS + BEHIND)
        known = written_lives(lives) if is_moved else {LIVES: planned.get(LIVES, {})}
        return found | known | {"now_ns": now_ns if is_moved or now_ns >= clock_due else planned["now_ns"]}

    def _first(self, bus: Bus, planned: Offsets) -> Offsets:
        """Before the first registration no task reads rows; only their ends count."""
        controls = bus_topics.TRIGGER_CONTROLS
        is_news = bool(bus.wait({(controls, 0): 0}, _POLL_SECONDS))
        if not is_news and time.monotonic() < self._held_at + _HOLD_SECONDS:
            return planned
        found: Offsets = {}
        lives = Lives()
        for topic in BEHIND + ROWS:
            states = bus.state(topic)
            lives.start(topic, states)
            found[topic] = _ends(states)
        if found[controls]["0"]:
            return found | written_lives(lives) | {"now_ns": time.time_ns()}
        for topic in ROWS + BEHIND:
            bus.hold(topic, self._reader, {int(p): offset for p, offset in found[topic].items()})
        self._committed.clear()
        self._held_at = time.monotonic()
        return planned

    @staticmethod
    def _plan(owner: int, count: int, start: Offsets, end: Offsets) -> TriggerPlan:
        spans = []
        for topic in ROWS + BEHIND:
            for partition, stop in end[topic].items():
                if topic == bus_topics.TRIGGER_CONTROLS or owner in (int(partition), count):
                    first = min(stop, start[topic].get(partition, 0))
                    spans.append(Span(topic, int(partition), first, stop))
        return TriggerPlan(owner, end["now_ns"], tuple(spans))


class TriggerSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return TriggerStreamReader(self.options)


def _ends(states: Sequence[PartitionState]) -> dict[str, int]:
    return {str(p): state.end for p, state in enumerate(states)}
