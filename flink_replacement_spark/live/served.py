"""Live trades of one bus partition, served by a task that does not end: the work of a micro-batch, step by step."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from bus import Bus, Lives, PartitionState, StoredRecord, Swap
from bus import topics as bus_topics
from bus.api import TopicPartition
from flink_replacement_spark.engine.bus_source import BatchRoom, Positions, ends_of, worker_bus
from flink_replacement_spark.engine.handover import Handover, News
from flink_replacement_spark.engine.serving import WAIT_SECONDS, Done, Held, Step
from flink_replacement_spark.engine.writes import Together, Writes
from flink_replacement_spark.live.results import counted
from flink_replacement_spark.live.rows import run_step
from flink_replacement_spark.live.source import TOPICS, next_ends, records_of
from flink_replacement_spark.live.state import StateStore

__all__ = ["LiveOwner", "LiveTimes"]

#: Of one step: what waits is taken in larger steps than what comes.
_ROOM = BatchRoom(100_000, 32 << 20)
#: What triggers read besides.
_FOLLOWED = (bus_topics.OHLC, bus_topics.TRIGGER_CONTROLS, bus_topics.TRIGGER_EVENTS)


@dataclass(frozen=True, slots=True)
class LiveTimes:
    """As in `rows.process`."""

    lateness_ns: int
    horizon_ns: int
    max_ahead_ns: int
    journal_bytes: int


@dataclass
class LiveOwner:
    url: str
    query_id: str
    partition: int
    times: LiveTimes
    handover: Handover | None = None
    _lives: Lives = field(default_factory=Lives)
    _looked: Mapping[str, Positions] = field(default_factory=dict)
    _told: Mapping[str, Positions] | None = None
    _informed: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.partition)

    def is_done(self, step: Step) -> bool:
        """The state is kept last."""
        return StateStore(self._bus, self.query_id).pointer(self.partition).newest >= step.number

    def next(self, before: Step) -> Step | None:
        at = before.end or self.first()
        self._held.move(at)
        places = {(topic, self.partition): at[topic][self.name] for topic in TOPICS}
        others = self._watched()
        states = self._bus.states_after(
            places | others, self._held.seconds_left(WAIT_SECONDS), lives=self._lives, also=_FOLLOWED if others else ()
        )
        self._looked = self._own_ends(states) if others else {}
        news = {place: states[place[0]][place[1]].end for place in others}
        if self.handover and news != others:
            self.handover.nudge()
        self._informed = news
        end = next_ends(at, {topic: states[topic] for topic in TOPICS}, _ROOM, self.partition)
        return None if end == at else Step(before.number + 1, at, end)

    def run(self, step: Step, writes: Writes | None = None) -> Done:
        rows = [
            {"tag": tag, "partition": self.partition, "first": first, "last": end - 1}
            for tag, topic in enumerate(TOPICS)
            for (first, end) in [(step.start[topic][self.name], step.end[topic][self.name])]
            if end > first
        ]
        if not rows:
            return Done()
        times, ranges = self.times, [pa.RecordBatch.from_pylist(rows)]
        read, self._told = None, None
        if writes is not None:
            taken = {tag: list(records_of(self.url, ranges, tag)) for tag in (0, 1)}
            read = taken.__getitem__
            self._tell_read(step, [record for some in (*taken[0], *taken[1]) for record in some])
        results = run_step(
            self.url, self.query_id, step.number, times.lateness_ns, times.horizon_ns, times.max_ahead_ns,
            ranges, times.journal_bytes, writes, read,
        )  # fmt: skip
        if self.handover is not None and self._told is None:
            self.handover.nudge()
        return Done(counted(results))

    def commit(self, together: Together, plans: Sequence[Swap]) -> bool:
        told, made = self._told, together.published(bus_topics.OHLC)
        if self.handover is None or told is None or not made:
            return together.commit(plans)
        first = told[bus_topics.OHLC][self.name]
        if not together.commit_where(plans, {(bus_topics.OHLC, self.partition): first}):
            # Others publish bars too.
            self.handover.nudge()
            return together.commit(plans)
        now_ms = time.time_ns() // 1_000_000
        found = [
            StoredRecord(bus_topics.OHLC, self.partition, first + place, now_ms, record.key, record.value, {})
            for place, record in enumerate(made)
        ]
        self.handover.tell(News(told, {**told, bus_topics.OHLC: {self.name: first + len(made)}}, found))
        self._informed[bus_topics.OHLC, self.partition] = first + len(made)
        return True

    def _tell_read(self, step: Step, found: Sequence[StoredRecord]) -> None:
        """If all that was there is taken: a follower that sees a mark has seen the trades before it."""
        if self.handover is not None and self._looked and all(self._looked[t] == step.end[t] for t in TOPICS):
            self._told = self._looked
            self.handover.tell(News({**self._looked, **step.start}, self._looked, found))

    def first(self) -> Mapping[str, Positions]:
        """Of a query without steps: what its reader holds, else the oldest record."""
        return {topic: self._held.first(topic, [self.partition]) for topic in TOPICS}

    def of_batch(self, number: int, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> Step:
        """The step that is this owner's part of a micro-batch."""
        first = self.first() if start is None else {topic: {self.name: start[topic][self.name]} for topic in TOPICS}
        return Step(number, first, {topic: {self.name: end[topic][self.name]} for topic in TOPICS})

    def _watched(self) -> dict[TopicPartition, int]:
        """Where the follower's next records are, of those that it does not know of."""
        places = self.handover.watched() if self.handover else {}
        return {place: max(offset, self._informed.get(place, 0)) for place, offset in places.items()}

    def _own_ends(self, states: Mapping[str, Sequence[PartitionState]]) -> dict[str, Positions]:
        controls = bus_topics.TRIGGER_CONTROLS
        own = {topic: {self.name: found[self.partition].end} for topic, found in states.items() if topic != controls}
        return own | {controls: ends_of(states[controls])}

    @property
    def _bus(self) -> Bus:
        return worker_bus(self.url)

    @cached_property
    def _held(self) -> Held:
        return Held(self._bus, bus_topics.READER_BAR_MAKER)
