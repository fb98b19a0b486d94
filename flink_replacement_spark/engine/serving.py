"""Tasks that do not end: each serves some owners of bus partitions, and takes their records as they arrive.

Such a query has one micro-batch, which lasts as long as the query, so no record waits for a plan, a task or a commit.
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
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol, Self

import pyarrow as pa

from bus import Bus, KeyedTables, Swap
from candlewright.wire.errors import BusError, BusUnavailable
from core.background import collect_rarely, loading, start_thread, switch_often
from core.log import get_logger
from flink_replacement_spark.engine.bus_source import Positions, worker_bus
from flink_replacement_spark.engine.writes import Outdated, Together, Writes

__all__ = ["NO_STEP", "WAIT_SECONDS", "Done", "Held", "Owner", "Reports", "Serving", "Step", "Steps", "serve", "task"]

#: How long (s) an owner waits for records at a time.
WAIT_SECONDS = 5.0
#: How long (s) steps without results may not be written; four times as long while they have at most `FEW_RECORDS`.
UNWRITTEN_SECONDS, FEW_RECORDS, _FEW_TIMES = 0.25, 50, 4
#: How long (s) a failing task waits for the current steps of its other owners.
_END_SECONDS = 2.0
#: How often (s) an owner reports to the bus which records it no longer needs.
_HOLD_SECONDS = 1.0
#: A step with more records is stored before it runs.
_SMALL_RECORDS = 1_000
#: Suspended triggers in one report.
_NAMED = 100


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


#: Query id -> id of its newest run.
_RUNS = "serving_runs"
#: Query -> run, term and query id of what its tasks serve.
_ORDERS = "serving_orders"
#: How often a task without orders looks for them.
_LOOK_SECONDS = 0.2
log = get_logger()

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


class Owner(Protocol):
    """A unit of serving: the records of one bus partition, or of several that triggers take together."""

    @property
    def name(self) -> str: ...

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

    def next(self, before: Step, *, written: Step | None = None, longest_seconds: float = math.inf) -> Step | None:
        """The step after `before`, which is done. Waits up to WAIT_SECONDS and `longest_seconds` for records; None
        without any.

        `written`: the newest step on the bus, if it is an earlier one; records after it must be held.
        """
        ...

    def run(self, step: Step, writes: Writes | None = None) -> Done:
        """Carry out the step; may be repeated. `writes`: how to write; by default each call at once."""
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
        return time.monotonic() >= self._due

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

    def begin(self) -> Together:
        """A writer for the steps of one owner, one after the other."""
        return Together(self._bus)

    def carry_out(
        self, owner: Owner, before: Step, after: Step, *, together: Together, unwritten: Unwritten | None = None
    ) -> tuple[Step | None, Done] | None:
        """Carry out `after`; returns what is now on the bus if that has changed, and the result. None if another task
        has advanced: then nothing was done, or the step that it planned is still to do. `before` is the step on the
        bus, and `unwritten` what was carried out since. If only the clock moves, nothing is written; and a step without
        results only once it is due.
        """
        if after.records > _SMALL_RECORDS:
            together.forget()
            is_planned = self.advance(owner.name, before, after) == after
            return (after, owner.run(after)) if is_planned else None
        together.begin(
            may_wait=before.number >= 0 and unwritten is not None and unwritten.may_wait(after),
            follows_unwritten=unwritten is not None and bool(unwritten.start),
        )
        done = owner.run(after, together)
        if unwritten is not None and unwritten.start:
            after = replace(after, start=unwritten.start)
        if together.is_empty and (not after.records or together.may_wait):
            together.pass_over()
            return None, done
        plans = [Swap(self._table, owner.name, _row_of(before), after.packed, {})]
        if self._run_id:
            plans.append(Swap(_RUNS, self._query_id, self._run_id, self._run_id, {}))
        if together.commit(plans):
            return after, done
        found = self.newest(owner.name)
        if found != before and found.number <= before.number:
            raise _lost(owner.name, before, found)
        return None

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


def serve(owner: Owner, steps: Steps, stopping: threading.Event, *, on_done: Callable[[Done], object]) -> None:
    """Serve the owner until `stopping` is set. Raises the error of a failed step; another call continues with that
    step.
    """
    while not stopping.is_set():
        steps.check_run()
        step = steps.newest(owner.name)
        try:
            if step.number >= 0 and not owner.is_done(step):
                on_done(owner.run(step))
            _serve_from(step, owner, steps, stopping, on_done)
        except Outdated as error:
            log.warning("step_outdated", owner=owner.name, step=step.number, error=str(error))


def _serve_from(
    step: Step, owner: Owner, steps: Steps, stopping: threading.Event, on_done: Callable[[Done], object]
) -> None:
    """Also ends when another task has taken over the owner."""
    together, written, unwritten = steps.begin(), step, Unwritten()
    while not stopping.is_set():
        planned = owner.next(step, written=written, longest_seconds=unwritten.seconds_left)
        if unwritten.start and (planned.records > _SMALL_RECORDS if planned else unwritten.is_due):
            # Only the steps that have not been written.
            unwritten.must_be_written()
            planned = Step(step.number + 1, step.end, step.end, step.now_ns)
        if planned is None or stopping.is_set():
            continue
        found = steps.carry_out(owner, written, planned, together=together, unwritten=unwritten)
        if found is None:
            return
        row, done = found
        if row is not None:
            step = written = row
            unwritten = Unwritten()
        elif planned.records:
            step = planned
            unwritten.add(planned)
        else:
            step = replace(step, now_ns=planned.now_ns)
        on_done(done)


# ---- a task
class _Tally:
    """The results of a task's owners since it began."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._suspended: dict[str, str] = {}
        self.steps = 0

    def add(self, done: Done) -> None:
        with self._lock:
            self.steps += 1
            self._counts.update(done.counts)
            self._suspended |= done.suspended
            for trigger_id in list(self._suspended)[:-_NAMED]:
                del self._suspended[trigger_id]

    def packed(self) -> bytes:
        with self._lock:
            told = {"steps": self.steps, "counts": self._counts, "suspended": self._suspended, "at": time.time()}
            return json.dumps(told).encode()


@dataclass(frozen=True, slots=True)
class Serving:
    """One run of a query: the `name` of its reports, the number of `tasks` that share its owners, and the
    `interval_seconds` between reports.

    Its tasks begin with the orders of `begin`. Until then they wait, and a standby's tasks are there when its term is.
    """

    url: str
    name: str
    run_id: str
    tasks: int
    interval_seconds: float

    @property
    def table(self) -> str:
        return f"served:{self.name}"

    def begin(self, url: str, query_id: str) -> None:
        """Let the tasks serve this query over `url`, which names the term; tasks of earlier runs no longer have any
        effect.
        """
        bus = worker_bus(url)
        Steps(bus, query_id, self.run_id).begin_run()
        bus.put(_ORDERS, {self.name: json.dumps([self.run_id, url.partition("#")[2], query_id]).encode()})

    def orders(self) -> tuple[str, str]:
        """Address and query id, once `begin` was called."""
        while True:
            # The driver of a standby waits for its bus as well.
            with suppress(BusUnavailable):
                (found,) = worker_bus(self.url).get(_ORDERS, [self.name])
                if found is not None:
                    run_id, term, query_id = json.loads(found)
                    if run_id == self.run_id:
                        return f"{self.url.partition('#')[0]}#{term}", query_id
            time.sleep(_LOOK_SECONDS)


def task(serving: Serving, owners: Sequence[Owner]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task's function; each task gets one row, with its number as `value`."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for value in batch.column("value").to_pylist():
                serve_all(serving, value % serving.tasks, owners)
        yield from ()

    return run


def serve_all(serving: Serving, number: int, owners: Sequence[Owner]) -> None:
    """Serve the owners of task `number`, each on a thread, until one fails; raises its error."""
    switch_often()
    collect_rarely()
    url, query_id = serving.orders()
    bus = worker_bus(url)
    steps = Steps(bus, query_id, serving.run_id)
    served = [owner.of(url, query_id) for owner in owners[number :: serving.tasks]]
    with loading():
        for owner in served:
            owner.resume(steps.newest(owner.name))
    tally, stopping = _Tally(), threading.Event()
    failures: SimpleQueue[BaseException] = SimpleQueue()

    threads = [
        start_thread(
            f"{serving.name}-{owner.name}",
            partial(serve, owner, steps, stopping, on_done=tally.add),
            on_failure=failures.put,
        )
        for owner in served
    ]
    try:
        while True:
            bus.put(serving.table, {f"{serving.run_id}/{number}": tally.packed()})
            try:
                raise failures.get(timeout=serving.interval_seconds)
            except Empty:
                continue
    finally:
        # The process may get other tasks; threads that still run are then outdated, and notice it themselves.
        stopping.set()
        deadline = time.monotonic() + _END_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


class Reports:
    """The reports of a query's tasks, read by the driver."""

    def __init__(self, bus: KeyedTables, serving: Serving) -> None:
        self._bus = bus
        self._serving = serving
        self._known: dict[str, Mapping[str, Any]] = {}
        self._heard: dict[str, float] = {}

    def clear(self) -> None:
        """Forget the reports of earlier runs."""
        self._bus.delete(self._serving.table, list(self._bus.items(self._serving.table)))

    @property
    def is_complete(self) -> bool:
        """Whether every task has begun."""
        return len(self._known) == self._serving.tasks

    @property
    def silent_seconds(self) -> float:
        """The longest time since a task that has begun last reported."""
        return time.monotonic() - min(self._heard.values(), default=time.monotonic())

    def news(self) -> tuple[int, Done]:
        """The number of steps, and their results, since the last call."""
        steps, counts = 0, Counter[str]()
        suspended: dict[str, str] = {}
        for key, content in self._bus.items(self._serving.table).items():
            if not key.startswith(f"{self._serving.run_id}/"):
                continue
            told = json.loads(content)
            if told == self._known.get(key):
                continue
            known = self._known.get(key, {"steps": 0, "counts": {}, "suspended": {}})
            steps += told["steps"] - known["steps"]
            counts.update({name: count - known["counts"].get(name, 0) for name, count in told["counts"].items()})
            suspended |= dict(told["suspended"].items() - known["suspended"].items())
            self._known[key] = told
            self._heard[key] = time.monotonic()
        return steps, Done(counts, suspended)
