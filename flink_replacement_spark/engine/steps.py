"""Owners of bus partitions, and the steps in which they take its records, in mode `continuous`.

Instead of Spark's log of offsets, a table of steps on the bus records, for each owner, which records a step takes and
the time that it sees.

A small step is one call to the bus, which atomically writes the step, its results and the state after it, by
compare-and-set. A step without results need not be written at once: it is written with a later one, within
`UNWRITTEN_SECONDS` or four times as long if it is small, so that it does not delay results of other owners; until then,
a task that starts takes its records again. A large step is stored before it has any effect, and then runs under its
number as a micro-batch does, so its results are published once however often it runs. A starting task repeats the
newest step unless it was done. A task that Spark gave up but that still runs can only carry out the same steps, or
finds that it is outdated.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, Self

from bus import Bus, FewRecords, Lives, Log, PartitionState, Record, StoredRecord, Swap, TopicPartition
from candlewright.wire.errors import BusError, BusUnavailable, RecordsLost, RoleLost
from flink_replacement_spark.engine.bus_source import NOTHING_KNOWN, Awaited, KnownRecords, Positions
from flink_replacement_spark.engine.writes import MOST_BYTES, NO_ENDS, Outdated, Together, Writes, commit_together

__all__ = [
    "NO_STEP",
    "SMALL_RECORDS",
    "UNWRITTEN_SECONDS",
    "WAIT_SECONDS",
    "Course",
    "Done",
    "Held",
    "News",
    "Owner",
    "OwnerFailed",
    "Step",
    "Steps",
    "Unwritten",
    "are_small",
    "commit",
    "look",
]

#: How long (s) an owner waits for records at a time.
WAIT_SECONDS = 5.0
#: How long (s) steps without results may not be written; four times as long while they have at most `FEW_RECORDS`.
UNWRITTEN_SECONDS, FEW_RECORDS, _FEW_TIMES = 0.25, 50, 4
_EARLY_SECONDS = 0.02
#: How often (s) an owner reports to the bus which records it no longer needs.
_HOLD_SECONDS = 1.0
#: A step with more records is stored before it runs.
SMALL_RECORDS = 1_000
#: An owner with a step that takes more processor time (s) is heavy for that many seconds.
_HEAVY_SECONDS, _HEAVY_FOR_SECONDS = 0.02, 1.0
_NS_PER_MS = 1_000_000
#: Query id -> id of its newest run.
_RUNS = "serving_runs"


@dataclass(frozen=True)
class Step:
    """Records from `start` to `end` (exclusive), by topic and partition; `now_ns`: the wall clock for the step."""

    number: int
    start: Mapping[str, Positions]
    end: Mapping[str, Positions]
    now_ns: int = 0

    @cached_property
    def records(self) -> int:
        """The number of records in the step."""
        return sum(
            max(0, end - self.start[topic].get(partition, 0))
            for topic, own in self.end.items()
            for partition, end in own.items()
        )

    @cached_property
    def packed(self) -> bytes:
        return json.dumps([self.number, self.start, self.end, self.now_ns]).encode()

    @classmethod
    def unpacked(cls, content: bytes) -> "Step":
        return cls(*json.loads(content))


#: The step before an owner's first one.
NO_STEP = Step(-1, {}, {})


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a step: `counts` by name, and triggers that it suspended, with the reason."""

    counts: Mapping[str, int] = field(default_factory=dict)
    suspended: Mapping[str, str] = field(default_factory=dict)


class Held:
    """The hold on an owner's untaken records. `former`: the name of a previous reader."""

    def __init__(self, bus: Bus, reader: str, former: str = "") -> None:
        self._bus = bus
        self._reader = reader
        self._former = former
        self._at: Mapping[str, Positions] = {}
        self._held: dict[str, Positions] = {}
        self._held_at = -_HOLD_SECONDS

    def first(self, topic: str, partitions: Iterable[int]) -> Positions:
        """Where an owner without steps begins: at the hold, else at the oldest record."""
        if (known := self._at.get(topic)) is not None:
            return known
        held = self._bus.holds(topic, self._former) | self._bus.holds(topic, self._reader)
        states = self._bus.state(topic)
        found = {p: min(states[p].end, max(states[p].first, held.get(p, 0))) for p in partitions}
        self._bus.hold(topic, self._reader, found)
        self._at = {**self._at, topic: {str(p): offset for p, offset in found.items()}}
        return self._at[topic]

    def move(self, at: Mapping[str, Positions], *, at_once: bool = False) -> None:
        """Release all records before `at`; written to the bus within a second."""
        self._at = at
        if at_once or self.seconds_left(1.0) <= 0:
            for topic, positions in at.items():
                if positions != self._held.get(topic):
                    self._bus.hold(topic, self._reader, {int(p): offset for p, offset in positions.items()})
            self._held = dict(at)
            self._held_at = time.monotonic()

    def seconds_left(self, longest: float) -> float:
        """Seconds until the hold must be written to the bus; `longest` if it is up to date."""
        if self._at == self._held:
            return longest
        return min(longest, max(0.0, self._held_at + _HOLD_SECONDS - time.monotonic()))


@dataclass(frozen=True, slots=True)
class News:
    """The states of the partitions that were awaited, and their new records where these are few."""

    states: Mapping[TopicPartition, PartitionState]
    few_records: KnownRecords = field(default_factory=dict)

    def of(self, step: Step) -> KnownRecords:
        """The new records of the step that are known."""
        places = [(topic, int(partition)) for topic, own in step.end.items() for partition in own]
        return {place: self.few_records[place] for place in places if place in self.few_records}

    def and_results(self, place: TopicPartition, results: Sequence[Record]) -> "News":
        """The same once `results` are the next records of a partition, all of whose earlier ones are taken."""
        state, now_ms = self.states[place], time.time_ns() // _NS_PER_MS
        known = [
            StoredRecord(*place, state.end + number, now_ms, record.key, record.value, {})
            for number, record in enumerate(results)
        ]
        after = replace(state, end=state.end + len(results))
        return News({**self.states, place: after}, {**self.few_records, place: known})


class Owner(Protocol):
    """A unit of serving: the records of one bus partition, or of several that triggers take together."""

    @property
    def name(self) -> str: ...

    @property
    def query(self) -> str:
        """The name of the query that it is a part of."""
        ...

    @property
    def given(self) -> TopicPartition | None:
        """Where the results of the owner before it in a chain are among its records; None if it takes none."""
        ...

    @property
    def may_rest(self) -> bool:
        """Whether an error of this owner stops only this owner, for a while; an error of any other ends its task."""
        ...

    def of(self, url: str, query_id: str) -> Self:
        """The same for this query, over an address that names the driver's term."""
        ...

    def is_done(self, step: Step) -> bool:
        """Whether all effects of the step are on the bus, so it need not run again."""
        ...

    def resume(self, step: Step) -> None:
        """Read the state that `step`, or the one after it if that is done, begins with. Until then, the owner's task
        does not count as serving.
        """
        ...

    def awaits(self, before: Step, *, written: Step | None = None) -> Awaited:
        """What the step after `before`, which is done, waits for.

        `written`: the newest step on the bus, if it is an earlier one; records after it must be held.
        """
        ...

    def take(self, before: Step, news: News) -> Step | None:
        """The step after `before`, once `awaits` has brought `news`; None if there is nothing to do."""
        ...

    def takes_long(self, step: Step) -> bool:
        """Whether the step may take long even if its records are few, so that no other owner should wait for it."""
        ...

    def is_quiet(self, found: Iterable[StoredRecord]) -> bool:
        """Whether these next records will hardly have results, so that they may be taken later."""
        ...

    def run(self, step: Step, writes: Writes | None = None, known: KnownRecords = NOTHING_KNOWN) -> Done:
        """Carry out the step; may be repeated. `writes`: how to write; by default each call at once. `known`: records
        that need not be read.
        """
        ...


class Unwritten:
    """The steps without results since one was written: where they `start`, and when they must be written."""

    def __init__(self) -> None:
        self.start: Mapping[str, Positions] = {}
        self._since = self._due = math.inf
        self._records = 0

    def add(self, step: Step) -> None:
        if not self.start:
            self.start = step.start
            self._since = time.monotonic()
        self._records += step.records
        self._due = self._since + UNWRITTEN_SECONDS * (_FEW_TIMES if self._records <= FEW_RECORDS else 1)

    def must_be_written(self) -> None:
        self._due = 0.0

    def may_wait(self, step: Step) -> bool:
        """Whether this step need not be written yet."""
        return bool(step.records or self.start) and not self.is_due

    @property
    def is_due(self) -> bool:
        """A little early, so that owners which began to wait together are written together."""
        return time.monotonic() >= self._due - _EARLY_SECONDS

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._due - time.monotonic())


class Steps:
    """The newest step of each owner of a query. `run_id`: the run in which steps are taken; see `begin_run`."""

    def __init__(self, bus: Bus, query_id: str, run_id: str = "") -> None:
        self._bus = bus
        self._table = f"steps:{query_id}"
        self._query_id = query_id
        self._run_id = run_id.encode()

    def begin_run(self) -> None:
        """Begin a new run; from now on, tasks of earlier runs have no effect."""
        self._bus.put(_RUNS, {self._query_id: self._run_id})

    def check_run(self) -> None:
        """Raises BusError in a task of an earlier run."""
        if self._run_id and self._bus.get(_RUNS, [self._query_id]) != [self._run_id]:
            raise BusError(f"query {self._query_id} has been started again in the meantime")

    def newest(self, owner: str) -> Step:
        (found,) = self._bus.get(self._table, [owner])
        return NO_STEP if found is None else Step.unpacked(found)

    def advance(self, owner: str, before: Step, after: Step) -> Step:
        """Plan the step after `before`; returns `after`, or the step that another task has planned instead."""
        if self._bus.replace(self._table, owner, _row_of(before), new=after.packed):
            return after
        found = self.newest(owner)
        if found.number <= before.number:
            raise _lost(owner, before, found)
        return found

    def check_follows(self, owner: str, before: Step) -> None:
        """Raises BusError unless the newest step is `before` or a later one."""
        found = self.newest(owner)
        if found != before and found.number <= before.number:
            raise _lost(owner, before, found)

    @property
    def bus(self) -> Bus:
        return self._bus

    def plans(self, owner: str, before: Step, after: Step) -> list[Swap]:
        """What records `after` as the newest step, if that is `before`."""
        plans = [Swap(self._table, owner, _row_of(before), after.packed, {})]
        if self._run_id:
            plans.append(Swap(_RUNS, self._query_id, self._run_id, self._run_id, {}))
        return plans

    def put(self, owner: str, step: Step) -> None:
        """Set the step of an owner that no task serves."""
        self._bus.put(self._table, {owner: step.packed})

    def all(self) -> dict[str, Step]:
        return {owner: Step.unpacked(content) for owner, content in self._bus.items(self._table).items()}

    def forget(self) -> None:
        self._bus.delete(self._table, list(self._bus.items(self._table)))


def _row_of(step: Step) -> bytes | None:
    return None if step.number < 0 else step.packed


def _lost(owner: str, before: Step, found: Step) -> BusError:
    return BusError(f"the bus has lost steps of owner {owner}: {found.number} is the newest, not {before.number}")


#: Errors that concern all owners of a task, or a task that another one has replaced.
_OF_TASK = (BusUnavailable, Outdated, RecordsLost, RoleLost)


class OwnerFailed(Exception):
    """The owner of `course` has failed with an error that concerns no other owner; it is the cause of this one."""

    def __init__(self, course: "Course") -> None:
        super().__init__(course.owner.name)
        self.course = course


class Course:
    """An owner's way from step to step, from the newest one on the bus. Calls of the owner raise BusError, or
    OwnerFailed.
    """

    def __init__(self, owner: Owner, steps: Steps, on_done: Callable[[str, Done], object]) -> None:
        self.owner = owner
        self._steps = steps
        self._on_done = on_done
        self._together = Together(steps.bus)
        #: The step that was carried out last, and the one that was written last.
        self._step = self._written = steps.newest(owner.name)
        self._unwritten = Unwritten()
        self._running: tuple[Step, Done] | None = None
        #: The first step is written at once, so a task that must take records again makes progress.
        self._has_written = False
        self._heavy_until = -math.inf

    def anew(self) -> "Course":
        """The same from the newest step on the bus."""
        return Course(self.owner, self._steps, self._on_done)

    @property
    def bus(self) -> Bus:
        return self._steps.bus

    @property
    def is_heavy(self) -> bool:
        """Whether a step of the last second took long, or was expected to."""
        return time.monotonic() < self._heavy_until

    def resume(self) -> None:
        """Read the owner's state; see `Owner.resume`."""
        with self._owners_call():
            self.owner.resume(self._step)

    def complete(self) -> None:
        """Carry out the newest step on the bus unless it is done."""
        with self._owners_call():
            if self._step.number >= 0 and not self.owner.is_done(self._step):
                self._on_done(self.owner.query, self.owner.run(self._step))

    def awaits(self) -> Awaited:
        with self._owners_call():
            awaited = self.owner.awaits(self._step, written=self._written)
        return replace(awaited, seconds=min(awaited.seconds, self._unwritten.seconds_left))

    def take(self, news: News) -> Step | None:
        """The next step; None if there is nothing to do."""
        with self._owners_call():
            planned = self.owner.take(self._step, news)
            takes_long = planned is not None and (planned.records > SMALL_RECORDS or self.owner.takes_long(planned))
        if takes_long:
            self._heavy_until = time.monotonic() + _HEAVY_FOR_SECONDS
        if self._unwritten.start and (planned.records > SMALL_RECORDS if planned else self._unwritten.is_due):
            # Only the steps that have not been written.
            self._unwritten.must_be_written()
            return Step(self._step.number + 1, self._step.end, self._step.end, self._step.now_ns)
        return planned

    def is_quiet(self, found: Iterable[StoredRecord]) -> bool:
        with self._owners_call():
            return self.owner.is_quiet(found)

    @property
    def is_due(self) -> bool:
        """Whether steps without results must be written now."""
        return bool(self._unwritten.start) and self._unwritten.is_due

    def carry_out(self, planned: Step) -> bool:
        """Carry out a large step; False if another task has advanced: it has planned another one."""
        self._together.forget()
        if self._steps.advance(self.owner.name, self._written, planned) != planned:
            return False
        with self._owners_call():
            done = self.owner.run(planned)
        self._step = self._written = planned
        self._unwritten = Unwritten()
        self._on_done(self.owner.query, done)
        return True

    def run(self, planned: Step, known: KnownRecords) -> None:
        """Carry out a small step, up to its `commit`."""
        unwritten = self._unwritten
        self._together.begin(
            may_wait=self._has_written and unwritten.may_wait(planned),
            follows_unwritten=bool(unwritten.start),
        )
        began = time.thread_time()
        with self._owners_call():
            self._running = planned, self.owner.run(planned, self._together, known)
        if time.thread_time() > began + _HEAVY_SECONDS:
            self._heavy_until = time.monotonic() + _HEAVY_FOR_SECONDS

    def results(self, topic: str) -> list[Record]:
        """What the step that runs has published to the topic."""
        return self._together.results(topic)

    @property
    def is_small(self) -> bool:
        """Whether one call to the bus can write what the step that runs does."""
        return are_small([self])

    @property
    def has_results(self) -> bool:
        """Whether the step that runs has published anything."""
        return self._together.has_results

    # ---- for `commit`
    @property
    def together(self) -> Together:
        return self._together

    @property
    def must_write(self) -> bool:
        planned, _ = self._run_of()
        return not self._together.is_empty or bool(planned.records and not self._together.may_wait)

    def plan(self) -> tuple[Step, list[Swap]]:
        """The step to be written, with those before it that were not, and the rows that record it."""
        planned, _ = self._run_of()
        if self._unwritten.start:
            planned = replace(planned, start=self._unwritten.start)
        return planned, self._steps.plans(self.owner.name, self._written, planned)

    def check_steps(self) -> None:
        """Raises BusError if the bus has lost steps."""
        self._steps.check_follows(self.owner.name, self._written)

    def end(self, written: Step | None) -> None:
        """Continue after the step that ran. `written`: as it is on the bus; None if it was not written."""
        planned, done = self._run_of()
        self._running = None
        if written is not None:
            self._step = self._written = written
            self._unwritten, self._has_written = Unwritten(), True
        else:
            self._together.pass_over()
            if planned.records:
                self._step = planned
                self._unwritten.add(planned)
            else:
                self._step = replace(self._step, now_ns=planned.now_ns)
        self._on_done(self.owner.query, done)

    def _run_of(self) -> tuple[Step, Done]:
        assert self._running is not None, "no step runs"
        return self._running

    @contextmanager
    def _owners_call(self) -> Iterator[None]:
        try:
            yield
        except _OF_TASK:
            raise
        except Exception as error:
            raise OwnerFailed(self) from error


def look(bus: Log, awaited: Sequence[Awaited], lives: Lives) -> News:
    """The news, as soon as anything comes that one of these awaits. Raises RecordsLost."""
    after: dict[TopicPartition, int] = {}
    for each in awaited:
        for place, offset in each.after.items():
            after[place] = min(offset, after.get(place, offset))
    also = [place for each in awaited for place in each.also]
    few: FewRecords = {}
    seconds = min(each.seconds for each in awaited)
    return News(bus.states_after(after, seconds, lives=lives, also=also, few_records=few), few)


def are_small(courses: Sequence[Course]) -> bool:
    """Whether one call to the bus can write what these do."""
    return sum(course.together.size for course in courses) <= MOST_BYTES


def commit(courses: Sequence[Course], ends: Mapping[TopicPartition, int] = NO_ENDS) -> bool:
    """Write the steps that these run in one call to the bus. If only the clock moves, nothing is written; and a step
    without results only once it is due. `ends`: where partitions must end before. False, with nothing written, if one
    ends elsewhere, or another task has advanced: it has carried out these steps, or planned others. Also if there are
    too many results for one call after steps that were not written: a task that died between two calls would repeat all
    of these as one step, whose calls might differ. Another course takes them as such at once.
    """
    written = [course for course in courses if course.must_write]
    if not are_small(written) and any(course.together.follows_unwritten for course in written):
        return False
    plans = [course.plan() for course in written]
    swaps = [swap for _, own in plans for swap in own]
    if written and not commit_together([course.together for course in written], swaps, ends):
        for course in written:
            course.check_steps()
        return False
    after = dict(zip(written, plans, strict=True))
    for course in courses:
        course.end(after[course][0] if course in after else None)
    return True
