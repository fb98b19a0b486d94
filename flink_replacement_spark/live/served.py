"""Serves the live trades of one bus partition in a task that does not end; each step does the work of a micro-batch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from bus import Bus, StoredRecord
from bus import topics as bus_topics
from flink_replacement_spark.engine.bus_source import (
    NOTHING_KNOWN,
    Awaited,
    BatchRoom,
    KnownRecords,
    Positions,
    worker_bus,
)
from flink_replacement_spark.engine.steps import WAIT_SECONDS, Done, Held, News, Step
from flink_replacement_spark.engine.writes import Writes
from flink_replacement_spark.live.rows import is_quiet, run_step
from flink_replacement_spark.live.source import TOPICS, Range, next_ends
from flink_replacement_spark.live.store import StateStore

__all__ = ["LIVE_QUERY", "LiveOwner", "LiveTimes"]

LIVE_QUERY = "live"
#: The most records of one step; a backlog is taken in larger steps than new records.
_ROOM = BatchRoom(100_000, 32 << 20)


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

    @property
    def name(self) -> str:
        return str(self.partition)

    @property
    def query(self) -> str:
        return LIVE_QUERY

    @property
    def given(self) -> None:
        return None

    @property
    def may_rest(self) -> bool:
        return False

    def of(self, url: str, query_id: str) -> Self:
        return replace(self, url=url, query_id=query_id)

    def is_done(self, step: Step) -> bool:
        """Whether the step's state is stored, which happens last."""
        return StateStore(self._bus, self.query_id).pointer(self.partition).newest >= step.number

    def resume(self, step: Step) -> None:
        """Nothing: the state takes milliseconds to read, and the first step does it."""

    def awaits(self, before: Step, *, written: Step | None = None) -> Awaited:
        at = before.end or self.first()
        self._held.move((written and written.end) or at)
        places = {(topic, self.partition): at[topic][self.name] for topic in TOPICS}
        return Awaited(places, self._held.seconds_left(WAIT_SECONDS))

    def take(self, before: Step, news: News) -> Step | None:
        at = before.end or self.first()
        states = {topic: {self.name: news.states[topic, self.partition]} for topic in TOPICS}
        end = next_ends(at, states, _ROOM)
        return None if end == at else Step(before.number + 1, at, end)

    def takes_long(self, step: Step) -> bool:
        return False

    def is_quiet(self, found: Iterable[StoredRecord]) -> bool:
        return is_quiet(self.query_id, self.partition, found)

    def run(self, step: Step, writes: Writes | None = None, known: KnownRecords = NOTHING_KNOWN) -> Done:
        ranges = [
            Range(tag, first, end - 1)
            for tag, topic in enumerate(TOPICS)
            for (first, end) in [(step.start[topic][self.name], step.end[topic][self.name])]
            if end > first
        ]
        if not ranges and not (writes and writes.follows_unwritten):
            return Done()
        times = self.times
        counts = run_step(
            self.url,
            self.query_id,
            step.number,
            partition=self.partition,
            lateness_ns=times.lateness_ns,
            horizon_ns=times.horizon_ns,
            max_ahead_ns=times.max_ahead_ns,
            ranges=ranges,
            journal_bytes=times.journal_bytes,
            starts={tag: step.start[topic][self.name] for tag, topic in enumerate(TOPICS)},
            writes=writes,
            known=known,
        )
        return Done(counts.counted())

    def first(self) -> Mapping[str, Positions]:
        """Where a query without steps begins: at its reader's hold, else at the oldest record."""
        return {topic: self._held.first(topic, [self.partition]) for topic in TOPICS}

    def of_batch(self, number: int, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> Step:
        """The step that is this owner's part of a micro-batch."""
        first = self.first() if start is None else {topic: {self.name: start[topic][self.name]} for topic in TOPICS}
        return Step(number, first, {topic: {self.name: end[topic][self.name]} for topic in TOPICS})

    @property
    def _bus(self) -> Bus:
        return worker_bus(self.url)

    @cached_property
    def _held(self) -> Held:
        return Held(self._bus, bus_topics.READER_BAR_MAKER)
