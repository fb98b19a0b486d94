"""Serves the triggers of one owner in a task that does not end; each step does the work of a micro-batch.

An owner without a trigger waits only for registrations, and skips all rows until then.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from bus import Bus, StoredRecord, TopicPartition
from bus import topics as bus_topics
from candlewright.wire.grid import SECOND
from core.settings import Settings
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
from flink_replacement_spark.triggers.rows import (
    due_after,
    held_from,
    is_active,
    is_behind,
    reads_events,
    resume,
    run_step,
)
from flink_replacement_spark.triggers.source import (
    BEHIND,
    ROWS,
    Barrier,
    TriggerPlan,
    TriggerPlanner,
    next_time,
    spans_of,
    towards,
)
from flink_replacement_spark.triggers.store import PartStore
from triggers.texts.check import TriggerRules

__all__ = ["TRIGGERS_QUERY", "TriggerOwner", "reader_of"]

TRIGGERS_QUERY = "triggers"
_ROOM = BatchRoom(100_000, 8 << 20)
#: Records of a topic per step of an owner that no task serves.
_CAUGHT_UP = 5_000
_CONTROLS = bus_topics.TRIGGER_CONTROLS


def reader_of(owner: int) -> str:
    """The reader name of an owner; owners progress separately, so each holds what it needs."""
    return f"{bus_topics.READER_TRIGGERS}-{owner}"


@dataclass(kw_only=True)
class TriggerOwner:
    """`owner`: a partition of the bus, or their count for the joint one."""

    url: str
    query_id: str
    owner: int
    rules: TriggerRules
    settings: Settings
    _planner: TriggerPlanner = field(default_factory=lambda: TriggerPlanner(_ROOM))
    _at: Mapping[str, Positions] = field(default_factory=dict)
    _moved_at: float = 0.0

    @property
    def name(self) -> str:
        return str(self.owner)

    @property
    def query(self) -> str:
        return TRIGGERS_QUERY

    @property
    def given(self) -> TopicPartition:
        return bus_topics.OHLC, self.owner

    @property
    def may_rest(self) -> bool:
        return True

    def of(self, url: str, query_id: str) -> Self:
        return replace(self, url=url, query_id=query_id)

    def is_done(self, step: Step) -> bool:
        """Whether the step is done. A step that changed no state is not marked, and runs again."""
        return PartStore(self._bus, self.query_id).newest(self.owner) >= step.number

    def resume(self, step: Step) -> None:
        batch_id = step.number + self.is_done(step)
        resume(self._bus, self.query_id, batch_id, owner=self.owner, rules=self.rules, settings=self.settings)

    def awaits(self, before: Step, *, written: Step | None = None) -> Awaited:
        at = self._with_events(before.end) or self.first()
        is_waiting = self._is_waiting(before, at)
        is_own = at == self._at
        needed = {} if is_waiting else held_from(self._bus, self.query_id, self.owner, is_own=is_own)
        self._held.move(needed or (written and self._with_events(written.end)) or at)
        if is_waiting:
            self._planner = TriggerPlanner(_ROOM)
            return Awaited({(_CONTROLS, 0): at[_CONTROLS]["0"]}, WAIT_SECONDS)
        if not is_own:
            # Another task has advanced.
            self._planner = TriggerPlanner(_ROOM)
        if is_behind(self.query_id, self.owner):
            waiting = 0.0
        else:
            due_ns = due_after(self.query_id, self.owner, before.now_ns)
            due_seconds = math.inf if due_ns is None else max(0.0, (due_ns - time.time_ns()) / SECOND)
            waiting = self._held.seconds_left(min(WAIT_SECONDS, due_seconds))
        wants_events = reads_events(self.query_id, self.owner)
        return self._planner.awaits(at, before.now_ns, longest_seconds=waiting, reads_events=wants_events)

    def take(self, before: Step, news: News) -> Step | None:
        at = self._with_events(before.end) or self.first()
        if self._is_waiting(before, at):
            return self._begin(before, at, news)
        has_work = is_behind(self.query_id, self.owner)
        due_ns = due_after(self.query_id, self.owner, before.now_ns)
        end = self._at = self._planner.next(at, news.states, reads_events=reads_events(self.query_id, self.owner))
        is_due = due_ns is not None and time.time_ns() >= due_ns
        now_ns = next_time(before.now_ns, is_moved=end != at or has_work or is_due)
        return None if end == at and now_ns == before.now_ns else Step(before.number + 1, at, end, now_ns)

    def _is_waiting(self, before: Step, at: Mapping[str, Positions]) -> bool:
        return not at[_CONTROLS]["0"] if before.number < 0 else not is_active(self.query_id, self.owner)

    def takes_long(self, step: Step) -> bool:
        """Whether triggers are registered: texts are compiled, and stored rows may be read."""
        return step.end[_CONTROLS]["0"] > step.start[_CONTROLS]["0"]

    def is_quiet(self, found: Iterable[StoredRecord]) -> bool:
        return False

    def run(self, step: Step, writes: Writes | None = None, known: KnownRecords = NOTHING_KNOWN) -> Done:
        plan = TriggerPlan(self.owner, step.now_ns, spans_of(step.start, step.end))
        result = run_step(
            self._bus,
            self.query_id,
            step.number,
            rules=self.rules,
            plan=plan,
            settings=self.settings,
            writes=writes,
            known=known,
        )
        return Done(result.counts, result.suspended)

    def _begin(self, before: Step, at: Mapping[str, Positions], news: News) -> Step | None:
        """The step with the next registration, whose trigger sees only rows published after the current ones."""
        if news.states[_CONTROLS, 0].end <= at[_CONTROLS]["0"]:
            if time.monotonic() >= self._moved_at + WAIT_SECONDS:
                self._held.move({**at, **self._ends((*ROWS, bus_topics.TICK_MARKS))}, at_once=True)
                self._moved_at = time.monotonic()
            return None
        # The ends of controls and marks before those of rows, so that no row from before a registration is taken for a
        # later one.
        end = self._ends(BEHIND + ROWS)
        start = end | {_CONTROLS: at[_CONTROLS]}
        return Step(before.number + 1, start, end, next_time(before.now_ns, is_moved=True))

    def _with_events(self, at: Mapping[str, Positions]) -> Mapping[str, Positions]:
        """Steps of versions that read no events left their place out."""
        topic = bus_topics.TRIGGER_EVENTS
        return at if not at or topic in at else {**at, **self._ends((topic,))}

    def _ends(self, topics: Sequence[str]) -> dict[str, Positions]:
        states = self._bus.states(topics)
        return {topic: {str(p): own[p].end for p in self._partitions(topic)} for topic, own in states.items()}

    def first(self) -> Mapping[str, Positions]:
        """Where a query without steps begins: at its reader's hold, else at the oldest record."""
        return {topic: self._held.first(topic, self._partitions(topic)) for topic in ROWS + BEHIND}

    def of_batch(self, number: int, start: Mapping[str, Any] | None, end: Mapping[str, Any]) -> Step:
        """The step that is this owner's part of a micro-batch."""
        mine = {topic: [str(p) for p in self._partitions(topic)] for topic in ROWS + BEHIND}
        stop = {t: {p: end[t][p] for p in own} for t, own in mine.items() if t in end}
        stop = dict(self._with_events(stop))
        if start is None:
            return Step(number, self.first(), stop, end["now_ns"])
        first = {t: {p: start[t][p] for p in own} if t in start else stop[t] for t, own in mine.items()}
        return Step(number, first, stop, end["now_ns"])

    def towards(self, before: Step, barrier: Barrier, now_ns: int) -> Step | None:
        """The next step towards an end common to all owners; None if it is reached."""
        at = self._with_events(before.end) or self.first()
        mine = {
            topic: {p: own[p] for p in at[topic]} for topic, own in (*barrier.rows.items(), *barrier.behind.items())
        }
        own = Barrier({topic: mine[topic] for topic in BEHIND}, {topic: mine[topic] for topic in ROWS})
        end = towards(at, own.rows, own, most=dict.fromkeys(ROWS, _CAUGHT_UP))
        return None if end == at and before.now_ns == now_ns else Step(before.number + 1, at, end, now_ns)

    def _partitions(self, topic: str) -> Sequence[int]:
        if topic == _CONTROLS:
            return [0]
        return [self.owner] if self.owner < self.rules.partitions else range(self.rules.partitions)

    @property
    def _bus(self) -> Bus:
        return worker_bus(self.url)

    @cached_property
    def _held(self) -> Held:
        return Held(self._bus, reader_of(self.owner), bus_topics.READER_TRIGGERS)
