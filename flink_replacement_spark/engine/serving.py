"""Tasks that do not end: each serves some owners of bus partitions (`engine.steps`), and takes their records as they
arrive.

Such a query has one micro-batch, which lasts as long as the query, so no record waits for a plan, a task or a commit.
Two owners of the same records form a chain, which takes one pass: the results of the first one reach the second one in
memory, and one call to the bus writes both steps. Records that have no results for the first one, it takes a little
later, many at once, so that the second one need not wait for it. If the second one takes long or fails, it is served
apart until it is well again. An owner outside such a chain may rest after an error too; no other owner waits for it.
"""

import json
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import pyarrow as pa

from bus import KeyedTables, Lives, StoredRecord, TopicPartition
from candlewright.wire.errors import BusFull, BusUnavailable
from core.background import collect_rarely, loading, start_thread, switch_often
from core.log import get_logger
from flink_replacement_spark.engine.bus_source import Awaited, KnownRecords, read_range, worker_bus
from flink_replacement_spark.engine.steps import (
    SMALL_RECORDS,
    UNWRITTEN_SECONDS,
    Course,
    Done,
    News,
    Owner,
    OwnerFailed,
    Step,
    Steps,
    are_small,
    commit,
    look,
)
from flink_replacement_spark.engine.writes import NO_ENDS, Outdated

__all__ = ["Chain", "Reports", "Serving", "serve", "serve_all", "task"]

#: How long (s) a failing task waits for the current steps of its other owners.
_END_SECONDS = 2.0
#: Query -> run, term and query ids of what its tasks serve.
_ORDERS = "serving_orders"
#: How often a task without orders looks for them, and one whose owners read their state whether they have.
_LOOK_SECONDS, _RESUMING_SECONDS = 0.2, 0.01
#: How long (s) an owner that has failed waits before it continues, at first and at most.
_FIRST_REST_SECONDS, _MAX_REST_SECONDS = 0.5, 15.0
#: The most records that are taken later.
_LATER_RECORDS = 50
#: How long (s) results are not passed on after others have published to their partition.
_SHARED_SECONDS = 60.0
#: The most records that are read once for both owners.
_SHARED_RECORDS = 250
#: How long (s) an owner that is served apart waits for records at a time, and the first one meanwhile.
_APART_SECONDS, _BESIDE_SECONDS = 0.5, 0.1
#: Suspended triggers in one report.
_NAMED = 100
log = get_logger()

#: Owners of the same records; results of the first one are records of the second one, if there is one.
Chain = Sequence[Owner]


def serve(
    chain: Chain,
    steps: Mapping[str, Steps],
    stopping: threading.Event,
    *,
    on_done: Callable[[str, Done], object],
    on_resumed: Callable[[Owner], object] = lambda owner: None,
    on_problem: Callable[[Owner, str], object] = lambda owner, problem: None,
) -> None:
    """Serve the owners until `stopping` is set. `steps`: by query. Raises the error of a failed step; another call
    continues with that step.

    Of an owner that `may_rest`: `on_resumed` is called once its state is read, or could not be; `on_problem` with why
    it is not served, and with an empty text once it is.
    """
    heard = _Heard(on_resumed, on_problem)
    lives, ends = Lives(), _Ends()
    while not stopping.is_set():
        for each in steps.values():
            each.check_run()
        courses = [Course(owner, steps[owner.query], on_done) for owner in chain]
        try:
            if chain[0].may_rest:
                _Alone(courses[0], heard, stopping, lives=lives, is_new=True).run()
            else:
                _Pass(courses, lives=lives, ends=ends, stopping=stopping, heard=heard).run()
        except OwnerFailed as failed:
            assert failed.__cause__ is not None
            raise failed.__cause__ from None
        except Outdated as error:
            log.warning("step_outdated", owner=chain[0].name, error=str(error))


@dataclass(frozen=True, slots=True)
class _Heard:
    """Called about an owner that `may_rest`; see `serve`."""

    resumed: Callable[[Owner], object]
    problem: Callable[[Owner, str], object]


class _Pass:
    """Serves a chain from its newest steps on the bus."""

    def __init__(
        self,
        courses: Sequence[Course],
        *,
        lives: Lives,
        ends: "_Ends",
        stopping: threading.Event,
        heard: _Heard,
    ) -> None:
        self._first, *others = courses
        self._second = others[0] if others else None
        self._lives = lives
        self._stopping = stopping
        self._heard = heard
        self._apart: _Apart | None = None
        self._later = _Later()
        self._ends = ends
        ends.forget()

    def run(self) -> None:
        """Until `stopping` is set, or another task has advanced. Raises BusError, Outdated, or OwnerFailed of the first
        owner.
        """
        self._first.complete()
        try:
            if self._second is not None:
                # Its state may take seconds to read.
                self._apart = self._separated(self._second, is_new=True)
            while not self._stopping.is_set():
                second = self._joined()
                with self._separating():
                    awaited = [self._later.past(self._first.awaits())]
                    if second is not None:
                        awaited.append(second.awaits())
                    elif self._apart is not None:
                        # No thread serves the second owner from when it is well until this wait ends.
                        awaited = [replace(awaited[0], seconds=min(awaited[0].seconds, _BESIDE_SECONDS))]
                    news = look(self._first.bus, awaited, self._lives)
                    if self._stopping.is_set() or not self._turn(second, awaited[-1], news):
                        return
        finally:
            if self._apart is not None:
                self._apart.stop()

    def _joined(self) -> Course | None:
        """The second owner, unless it is served apart. Raises Outdated if it was, and another task has advanced."""
        if self._apart is not None and (course := self._apart.ended()) is not None:
            self._apart, self._second = None, course
        if self._apart is None and self._second is not None and self._second.is_heavy:
            self._apart = self._separated(self._second)
        return self._second if self._apart is None else None

    @contextmanager
    def _separating(self) -> Iterator[None]:
        """Have an error of the second owner stop only that one."""
        try:
            yield
        except OwnerFailed as failed:
            if failed.course is not self._second:
                raise
            self._apart = self._separated(self._second, failed.__cause__)

    def _separated(self, second: Course, error: BaseException | None = None, *, is_new: bool = False) -> "_Apart":
        return _Apart(second, error, is_new=is_new, stopping=self._stopping, heard=self._heard)

    def _turn(self, second: Course | None, awaited: Awaited, news: News) -> bool:
        """Carry out the next steps; False if another task has advanced. `awaited`: by the second owner."""
        first, later = self._first, self._later
        planned = first.take(news)
        given = None if second is None else second.owner.given
        self._ends.see(given, news)
        if planned is not None and planned.records > SMALL_RECORDS:
            self._ends.forget()
            later.clear()
            if not first.carry_out(planned):
                return False
            planned = None
        ran: list[Course] = []
        ends: Mapping[TopicPartition, int] = {}
        if planned is not None and second is not None:
            news = self._completed(planned, news)
        is_quiet = planned is not None and self._is_quiet(planned, news)
        if planned is not None and not is_quiet:
            self._run_first(planned, news)
            ran.append(first)
            if given is not None and self._ends.may_pass(awaited.after.get(given)) and first.is_small:
                ends = {given: news.states[given].end}
                news = news.and_results(given, first.results(given[0]))
        if second is not None:
            try:
                then = second.take(news)
                # A long one is carried out apart.
                if then is not None and not second.is_heavy:
                    second.run(then, news.few_records)
                    ran.append(second)
            except OwnerFailed:
                commit(ran)
                raise
        if planned is not None and is_quiet:
            later.add(news.of(planned))
            if later.is_due or first.is_due:
                if second in ran and second.has_results:
                    if not self._commit(ran):
                        return False
                    ran = []
                self._run_first(planned, news)
                ran.append(first)
        results = len(first.results(given[0])) if given is not None and first in ran else 0
        self._ends.expect(results)
        return self._commit(ran, ends if second in ran and results else {}, results)

    def _completed(self, planned: Step, news: News) -> News:
        """With the new records of the step unless they are many, since both owners take them."""
        missing: dict[TopicPartition, tuple[int, int]] = {}
        for topic, own in planned.end.items():
            for partition, end in own.items():
                place = topic, int(partition)
                first = self._later.end_of(place, planned.start[topic].get(partition, 0))
                if first < end and place not in news.few_records:
                    missing[place] = first, end - 1
        if not missing or sum(last + 1 - first for first, last in missing.values()) > _SHARED_RECORDS:
            return news
        found = {
            place: [record for part in read_range(self._first.bus, *place, first=first, last=last) for record in part]
            for place, (first, last) in missing.items()
        }
        return News(news.states, {**news.few_records, **found})

    def _is_quiet(self, planned: Step, news: News) -> bool:
        """Whether the step would have no results. Its new records must be known."""
        found = [record for records in news.of(planned).values() for record in records]
        return self._later.count + len(found) == planned.records and self._first.is_quiet(found)

    def _run_first(self, planned: Step, news: News) -> None:
        self._later.add(news.of(planned))
        self._first.run(planned, self._later.known)
        if planned.records:
            self._later.clear()

    def _commit(self, ran: Sequence[Course], ends: Mapping[TopicPartition, int] = NO_ENDS, results: int = 0) -> bool:
        try:
            if ends and not are_small(ran):
                after = {place: end + results for place, end in ends.items()}
                is_done = commit(ran[:1], ends) and commit(ran[1:], after)
            else:
                is_done = commit(ran, ends)
        except BusFull as error:
            if self._second is None or self._second not in ran:
                raise
            # If the first owner's topic is the full one, its next commit, without the second owner, fails as well.
            self._first = self._first.anew()
            self._first.complete()
            self._later.clear()
            raise OwnerFailed(self._second) from error
        if ends and not is_done:
            self._ends.note_others()
        return is_done


class _Later:
    """Records that the first owner takes later, all at once, because they have no results."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, list[StoredRecord]] = {}
        self._due = math.inf

    @property
    def known(self) -> KnownRecords:
        return self._known

    @property
    def count(self) -> int:
        return sum(map(len, self._known.values()))

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due or self.count > _LATER_RECORDS

    def add(self, found: KnownRecords) -> None:
        for place, records in found.items():
            own = self._known.setdefault(place, [])
            # In a step that is run after all, they were added before.
            own += [record for record in records if not own or record.offset > own[-1].offset]
        if self.count:
            self._due = min(self._due, time.monotonic() + UNWRITTEN_SECONDS)

    def clear(self) -> None:
        self._known, self._due = {}, math.inf

    def past(self, awaited: Awaited) -> Awaited:
        """What is to be waited for besides these records."""
        after = {place: self.end_of(place, offset) for place, offset in awaited.after.items()}
        return Awaited(after, min(awaited.seconds, max(0.0, self._due - time.monotonic())), awaited.also)

    def end_of(self, place: TopicPartition, offset: int) -> int:
        """Where the records after these start; `offset` if there are none of the partition."""
        own = self._known.get(place)
        return max(offset, own[-1].offset + 1) if own else offset


class _Ends:
    """Where the partition ends whose records are the first owner's results, and whether a gateway publishes to it
    as well: then results are not passed on for a while, because the call that writes them fails if another record has
    come first.
    """

    def __init__(self) -> None:
        self._end: int | None = None
        self._shared_until = -math.inf

    def forget(self) -> None:
        self._end = None

    def note_others(self) -> None:
        """Others have published to the partition."""
        self._shared_until = time.monotonic() + _SHARED_SECONDS

    def see(self, place: TopicPartition | None, news: News) -> None:
        state = None if place is None else news.states.get(place)
        if state is not None and self._end is not None and state.end != self._end:
            self.note_others()
        self._end = None if state is None else state.end

    def may_pass(self, taken_to: int | None) -> bool:
        """Whether results follow directly on what was taken."""
        return self._end is not None and self._end == taken_to and time.monotonic() >= self._shared_until

    def expect(self, results: int) -> None:
        """So many results are published."""
        self._end = None if self._end is None else self._end + results


class _Alone:
    """Serves an owner by itself. After an error of its own it rests, and continues from its newest step on the bus.
    `is_new`: its state must be read, and its newest step done.
    """

    def __init__(self, course: Course, heard: _Heard, *stopping: threading.Event, lives: Lives, is_new: bool) -> None:
        self.course = course
        self._heard = heard
        self._stopping = stopping
        self._lives = lives
        self._must_resume = is_new
        # An earlier pass may have reported one.
        self._has_problem = True
        self._has_failed = False
        self._rest_seconds = _FIRST_REST_SECONDS

    def run(self, error: BaseException | None = None, *, is_apart: bool = False) -> None:
        """Until one of `stopping` is set; `is_apart`: or it is well and not heavy. `error`: with which it has failed.
        Raises BusError, and Outdated if another task has advanced.
        """
        while not self._must_stop:
            try:
                if error is not None:
                    self._rest(error)
                    self.course, self._must_resume, error = self.course.anew(), True, None
                if self._must_resume:
                    self._resume()
                self._serve(is_apart=is_apart)
                return
            except OwnerFailed as failed:
                error = failed.__cause__

    @property
    def _must_stop(self) -> bool:
        return any(each.is_set() for each in self._stopping)

    def _rest(self, error: BaseException) -> None:
        owner = self.course.owner
        log.error("owner_failed", query=owner.query, owner=owner.name, error=f"{type(error).__name__}: {error}")
        self._heard.problem(owner, f"{type(error).__name__}: {error}")
        self._has_problem = self._has_failed = True
        self._stopping[0].wait(self._rest_seconds)
        self._rest_seconds = min(2 * self._rest_seconds, _MAX_REST_SECONDS)

    def _resume(self) -> None:
        try:
            # After a failure, the state of the failed attempt would be kept from the collector as well.
            with nullcontext() if self._has_failed else loading():
                self.course.resume()
        finally:
            self._heard.resumed(self.course.owner)
        self.course.complete()
        self._must_resume = False

    def _serve(self, *, is_apart: bool) -> None:
        while not self._must_stop:
            awaited = self.course.awaits()
            if is_apart:
                awaited = replace(awaited, seconds=min(awaited.seconds, _APART_SECONDS))
            news = look(self.course.bus, [awaited], self._lives)
            if self._must_stop:
                return
            if not _advance(self.course, news):
                raise Outdated("another task has advanced")
            if self._has_problem:
                self._heard.problem(self.course.owner, "")
                self._has_problem, self._rest_seconds = False, _FIRST_REST_SECONDS
            if is_apart and not self.course.is_heavy:
                return


class _Apart:
    """Serves the second owner of a chain on a thread of its own: one that `is_new`, until its state is read and its
    newest step is done; one that is heavy; or one that has failed with `error`.
    """

    def __init__(
        self,
        course: Course,
        error: BaseException | None = None,
        *,
        is_new: bool,
        stopping: threading.Event,
        heard: _Heard,
    ) -> None:
        self._stopping = threading.Event()
        self._alone = _Alone(course, heard, self._stopping, stopping, lives=Lives(), is_new=is_new)
        self._is_outdated = False
        self._failures: list[BaseException] = []
        self._thread = start_thread(
            f"{course.owner.query}-{course.owner.name}", partial(self._run, error), on_failure=self._failures.append
        )

    def ended(self) -> Course | None:
        """The owner's course, once it is well. Raises what ended the thread otherwise."""
        if self._thread.is_alive():
            return None
        for failure in self._failures:
            raise failure
        if self._is_outdated:
            raise Outdated("another task has advanced")
        return self._alone.course

    def stop(self) -> None:
        """Does not wait for a step that takes long: it changes nothing once another task has advanced."""
        self._stopping.set()
        self._thread.join(_END_SECONDS)

    def _run(self, error: BaseException | None) -> None:
        try:
            self._alone.run(error, is_apart=True)
        except Outdated:
            self._is_outdated = True


def _advance(course: Course, news: News) -> bool:
    """Carry out the owner's next step; False if another task has advanced."""
    planned = course.take(news)
    if planned is None:
        return True
    if planned.records > SMALL_RECORDS:
        return course.carry_out(planned)
    course.run(planned, news.few_records)
    try:
        return commit([course])
    except BusFull as error:
        raise OwnerFailed(course) from error


# ---- a task
class _Tally:
    """The results of a task's owners since it began, by query, and why some are not served."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: Counter[str] = Counter()
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._suspended: dict[str, dict[str, str]] = defaultdict(dict)
        self._problems: dict[str, str] = {}

    def add(self, query: str, done: Done) -> None:
        with self._lock:
            self._steps[query] += 1
            self._counts[query].update(done.counts)
            suspended = self._suspended[query]
            suspended |= done.suspended
            for trigger_id in list(suspended)[:-_NAMED]:
                del suspended[trigger_id]

    def note(self, owner: Owner, problem: str) -> None:
        with self._lock:
            name = f"{owner.query} of partition {owner.name}"
            if problem:
                self._problems[name] = problem
            else:
                self._problems.pop(name, None)

    def packed(self) -> bytes:
        with self._lock:
            told = {
                query: {"steps": steps, "counts": self._counts[query], "suspended": self._suspended[query]}
                for query, steps in self._steps.items()
            }
            return json.dumps({"queries": told, "problems": self._problems, "at": time.time()}).encode()


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

    def begin(self, url: str, query_ids: Mapping[str, str]) -> None:
        """Let the tasks serve these queries over `url`, which names the term; tasks of earlier runs no longer have any
        effect. `query_ids`: by name.
        """
        bus = worker_bus(url)
        for query_id in query_ids.values():
            Steps(bus, query_id, self.run_id).begin_run()
        bus.put(_ORDERS, {self.name: json.dumps([self.run_id, url.partition("#")[2], query_ids]).encode()})

    def orders(self) -> tuple[str, dict[str, str]]:
        """Address and query ids, once `begin` was called."""
        while True:
            # The driver of a standby waits for its bus as well.
            with suppress(BusUnavailable):
                (found,) = worker_bus(self.url).get(_ORDERS, [self.name])
                if found is not None:
                    run_id, term, query_ids = json.loads(found)
                    if run_id == self.run_id:
                        return f"{self.url.partition('#')[0]}#{term}", query_ids
            time.sleep(_LOOK_SECONDS)


def task(serving: Serving, chains: Sequence[Chain]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task's function; each task gets one row, with its number as `value`."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for value in batch.column("value").to_pylist():
                serve_all(serving, value % serving.tasks, chains)
        yield from ()

    return run


def serve_all(serving: Serving, number: int, chains: Sequence[Chain]) -> None:
    """Serve the owners of task `number`, each chain on a thread, until one fails; raises its error."""
    switch_often()
    collect_rarely()
    url, query_ids = serving.orders()
    bus = worker_bus(url)
    steps = {query: Steps(bus, query_id, serving.run_id) for query, query_id in query_ids.items()}
    served = [[owner.of(url, query_ids[owner.query]) for owner in chain] for chain in chains[number :: serving.tasks]]
    with loading():
        for first, *_ in served:
            if not first.may_rest:
                first.resume(steps[first.query].newest(first.name))
    # The others read theirs while these are served.
    waiting = {id(owner) for chain in served for owner in chain if owner.may_rest}
    tally, stopping = _Tally(), threading.Event()
    failures: SimpleQueue[BaseException] = SimpleQueue()

    threads = [
        start_thread(
            f"{serving.name}-{chain[0].name}",
            partial(
                serve,
                chain,
                steps,
                stopping,
                on_done=tally.add,
                on_resumed=lambda owner: waiting.discard(id(owner)),
                on_problem=tally.note,
            ),
            on_failure=failures.put,
        )
        for chain in served
    ]
    try:
        while True:
            if not waiting:
                bus.put(serving.table, {f"{serving.run_id}/{number}": tally.packed()})
            try:
                raise failures.get(timeout=_RESUMING_SECONDS if waiting else serving.interval_seconds)
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

    @property
    def problem(self) -> str:
        """Why some owner is not served, as a sentence; empty if all are."""
        found = {name: text for told in self._known.values() for name, text in told["problems"].items()}
        return next((f"the {name} stopped: {text}" for name, text in found.items()), "")

    def news(self) -> dict[str, tuple[int, Done]]:
        """By query, the number of steps, and their results, since the last call."""
        steps: Counter[str] = Counter()
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        suspended: dict[str, dict[str, str]] = defaultdict(dict)
        for key, content in self._bus.items(self._serving.table).items():
            if not key.startswith(f"{self._serving.run_id}/"):
                continue
            told = json.loads(content)
            if told == self._known.get(key):
                continue
            for query, own in told["queries"].items():
                known = self._known.get(key, {"queries": {}})["queries"].get(query, _NO_NEWS)
                steps[query] += own["steps"] - known["steps"]
                counts[query].update({name: n - known["counts"].get(name, 0) for name, n in own["counts"].items()})
                suspended[query] |= dict(own["suspended"].items() - known["suspended"].items())
            self._known[key] = told
            self._heard[key] = time.monotonic()
        return {query: (count, Done(counts[query], suspended[query])) for query, count in steps.items()}


_NO_NEWS: Mapping[str, Any] = {"steps": 0, "counts": {}, "suspended": {}}
