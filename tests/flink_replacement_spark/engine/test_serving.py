"""Steps of owners, and tasks that serve them."""

import gc
import json
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import pyarrow as pa
import pytest

from bus import Record, StoredRecord, TopicPartition
from bus.roles import DRIVER, Roles
from candlewright.wire.errors import BusError, BusFull, BusUnavailable, OffsetOutOfRange
from core.background import start_thread
from flink_replacement_spark.engine import serving as engine_serving
from flink_replacement_spark.engine import steps as engine_steps
from flink_replacement_spark.engine.bus_source import NOTHING_KNOWN, Awaited, KnownRecords
from flink_replacement_spark.engine.serving import Chain, Reports, Serving, serve, task
from flink_replacement_spark.engine.steps import NO_STEP, Course, Done, Held, News, Owner, Step, Steps, commit
from flink_replacement_spark.engine.writes import MOST_BYTES, Outdated, Writes
from tests.flink_replacement_spark.harness import wait_for
from tests.fresh_bus import FreshBus


def step(number: int, end: int) -> Step:
    return Step(number, {"t": {"0": end - 1}}, {"t": {"0": end}}, 7)


def ignore(query: str, done: Done) -> None:
    pass


def serve_one(owner: Owner, steps: Steps, stopping: threading.Event) -> None:
    serve([owner], {owner.query: steps}, stopping, on_done=ignore)


def carried_out(course: Course, planned: Step) -> bool:
    course.run(planned, NOTHING_KNOWN)
    return commit([course])


def test_one_of_two_tasks_plans_a_step_and_both_carry_it_out() -> None:
    steps = Steps(FreshBus(), "q")
    assert steps.advance("0", NO_STEP, step(0, 1)) == step(0, 1)
    assert steps.advance("0", NO_STEP, step(0, 9)) == step(0, 1)
    assert steps.advance("0", step(0, 1), step(1, 2)) == step(1, 2)
    assert steps.newest("0") == step(1, 2)
    # A task that lags far behind continues with the newest step.
    steps.advance("0", step(1, 2), step(2, 3))
    assert steps.advance("0", step(0, 1), step(1, 8)) == step(2, 3)
    assert steps.newest("1") is NO_STEP


def test_a_task_ahead_of_a_bus_that_went_back_does_not_continue() -> None:
    steps = Steps(FreshBus(), "q")
    steps.put("0", step(4, 5))
    with pytest.raises(BusError, match="has lost steps"):
        steps.advance("0", step(6, 7), step(7, 8))


@dataclass(kw_only=True)
class _Counting:
    """Has ten steps, each of which writes something; the fifth fails once."""

    name: str = "0"
    query: str = "q"
    given: TopicPartition | None = None
    may_rest: bool = False
    done: list[int] = field(default_factory=list)
    ran: list[int] = field(default_factory=list)
    fails: bool = True
    stopping: threading.Event = field(default_factory=threading.Event)

    def of(self, url: str, query_id: str) -> Self:
        return self

    def is_done(self, step: Step) -> bool:
        return step.number in self.done

    def resume(self, step: Step) -> None:
        pass

    def awaits(self, before: Step, *, written: Step | None = None) -> Awaited:
        return Awaited({}, 0.0)

    def take(self, before: Step, news: News) -> Step | None:
        if before.number == 9:
            self.stopping.set()
            return None
        return step(before.number + 1, before.number + 2)

    def takes_long(self, step: Step) -> bool:
        return False

    def is_quiet(self, found: Iterable[StoredRecord]) -> bool:
        return False

    def run(self, step: Step, writes: Writes | None = None, known: KnownRecords = NOTHING_KNOWN) -> Done:
        if step.number == 4 and self.fails:
            self.fails = False
            raise BusError("it failed")
        self.ran.append(step.number)
        self.done.append(step.number)
        if writes is not None and step.records:
            writes.replace(f"done {self.query}", str(step.number), None, new=b"")
        return Done({"records": 1})


def test_a_step_that_failed_is_the_first_of_the_next_task_and_a_step_that_was_done_is_not() -> None:
    steps, owner = Steps(FreshBus(), "q"), _Counting()
    with pytest.raises(BusError, match="it failed"):
        serve_one(owner, steps, owner.stopping)
    serve_one(owner, steps, owner.stopping)
    assert owner.ran == list(range(10))


@dataclass
class _Writing(_Counting):
    """Each step publishes its number."""

    def run(self, step: Step, writes: Writes | None = None, known: KnownRecords = NOTHING_KNOWN) -> Done:
        assert writes is not None
        self.ran.append(step.number)
        writes.publish_as("t", [Record(b"%d" % step.number)], writer="w", number=step.number)
        return Done()


def test_one_of_two_tasks_carries_out_a_step_and_the_other_continues_after_it() -> None:
    bus = FreshBus(1)
    bus.create_topic("t", 1)
    steps, owner = Steps(bus, "q"), _Writing()
    one, other = Course(owner, steps, ignore), Course(owner, steps, ignore)
    assert carried_out(one, step(0, 1))
    assert not carried_out(other, step(0, 9))
    assert steps.newest("0") == step(0, 1)
    other = Course(owner, steps, ignore)
    assert carried_out(other, step(1, 2)) and steps.newest("0") == step(1, 2)
    assert [record.value for record in bus.read("t", 0, 0)] == [b"0", b"1"]
    steps.put("0", step(6, 7))
    ahead = Course(owner, steps, ignore)
    steps.put("0", step(1, 2))
    with pytest.raises(BusError, match="has lost steps"):
        carried_out(ahead, step(7, 8))


def test_nothing_is_written_where_only_the_clock_moves() -> None:
    steps, owner, told = Steps(FreshBus(), "q"), _Counting(fails=False), list[tuple[str, Done]]()
    course = Course(owner, steps, lambda *done: told.append(done))
    assert carried_out(course, step(0, 1))
    assert carried_out(course, Step(1, {"t": {"0": 1}}, {"t": {"0": 1}}, 9))
    assert steps.newest("0") == step(0, 1) and told == [("q", Done({"records": 1}))] * 2


@dataclass
class _Quiet(_Counting):
    """Only the steps that end at one of `results` publish; the other ones change a state. `ends`: of the steps."""

    results: tuple[int, ...] = ()
    ends: list[int] = field(default_factory=list)
    seconds: float = 0.0
    written: list[Step | None] = field(default_factory=list)
    changed: int = 0
    saved: list[int] = field(default_factory=list)

    def awaits(self, before: Step, *, written: Step | None = None) -> Awaited:
        self.written.append(written)
        return Awaited({}, self.seconds if self.next_end(before) is None else 0.0)

    def take(self, before: Step, news: News) -> Step | None:
        if (end := self.next_end(before)) is None:
            return None
        return Step(before.number + 1, {"t": dict(before.end.get("t", {"0": 0}))}, {"t": {"0": end}}, 7)

    def next_end(self, before: Step) -> int | None:
        at = before.end["t"]["0"] if before.end else 0
        return next((end for end in self.ends if end > at), None)

    def run(self, step: Step, writes: Writes | None = None, known: KnownRecords = NOTHING_KNOWN) -> Done:
        end = step.end["t"]["0"]
        self.ran.append(end)
        self.changed += step.records
        if end in self.results and writes is not None:
            writes.publish_as("t", [Record(b"%d" % end)], writer="w", number=step.number)
        if writes is None or not writes.may_wait:
            self.saved.append(self.changed)
            self.done.append(step.number)
            if writes is not None:
                writes.replace("state", self.name, b"%d" % self.saved[-2] if self.saved[1:] else None, new=b"%d" % end)
        return Done()


def test_a_step_without_results_is_written_with_the_next_that_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_steps, "UNWRITTEN_SECONDS", 60.0)
    bus = FreshBus(1)
    bus.create_topic("t", 1)
    steps, owner = Steps(bus, "q"), _Quiet(ends=[1, 2, 3, 5, 6], results=(5,))
    serve_one(owner, steps, _StopAfter(owner, 6))
    first, last = Step(0, {"t": {"0": 0}}, {"t": {"0": 1}}, 7), Step(3, {"t": {"0": 1}}, {"t": {"0": 5}}, 7)
    assert owner.ran == [1, 2, 3, 5, 6] and owner.saved == [1, 5], "the first step is written, and that with results"
    assert steps.newest("0") == last and owner.written == [NO_STEP, first, first, first, last, last]
    assert [record.value for record in bus.read("t", 0, 0)] == [b"5"]
    # The next task takes the records after the written step again.
    again = _Quiet(ends=[8], results=(8,), done=[0, 3], saved=[1, 5], changed=5)
    serve_one(again, steps, _StopAfter(again, 2))
    assert steps.newest("0") == Step(4, {"t": {"0": 5}}, {"t": {"0": 8}}, 7)


@pytest.mark.parametrize(("most", "longest"), [(3, 0.4), (3 + engine_steps.FEW_RECORDS, 0.1)])
def test_steps_without_results_are_written_when_they_are_due(
    monkeypatch: pytest.MonkeyPatch, most: int, longest: float
) -> None:
    """Few records may wait longer."""
    monkeypatch.setattr(engine_steps, "UNWRITTEN_SECONDS", 0.1)
    bus, waits = FreshBus(1), list[float]()
    steps, owner = Steps(bus, "q"), _Quiet(ends=[1, 2, most], seconds=20.0)
    states_after = bus.states_after

    def wait(after: Mapping[TopicPartition, int], seconds: float, **named: Any) -> object:
        waits.append(seconds)
        if seconds > 10:
            owner.stopping.set()
            seconds = 0.0
        return states_after(after, seconds, **named)

    monkeypatch.setattr(bus, "states_after", wait)
    serve_one(owner, steps, owner.stopping)
    assert owner.ran == [1, 2, most, most] and owner.saved == [1, most]
    assert steps.newest("0") == Step(3, {"t": {"0": 1}}, {"t": {"0": most}}, 7)
    assert longest / 2 < waits[3] <= longest and waits[-1] > 10


def test_steps_without_results_are_written_before_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_steps, "UNWRITTEN_SECONDS", 60.0)
    steps, owner = Steps(FreshBus(1), "q"), _Quiet(ends=[1, 2, 3, 5_000])
    serve_one(owner, steps, _StopAfter(owner, 6))
    assert owner.ran == [1, 2, 3, 3, 5_000] and owner.saved == [1, 3, 5_000]
    assert steps.newest("0") == Step(4, {"t": {"0": 3}}, {"t": {"0": 5_000}}, 7)


@dataclass
class _Voluminous(_Quiet):
    """Results need several calls. `taken`: the records of each step with results."""

    taken: list[tuple[int, int]] = field(default_factory=list)

    def run(self, step: Step, writes: Writes | None = None, known: KnownRecords = NOTHING_KNOWN) -> Done:
        start, end = step.start["t"]["0"], step.end["t"]["0"]
        self.ran.append(end)
        if end in self.results:
            self.taken.append((start, end))
            if writes is not None:
                writes.publish_as("t", [Record(bytes(MOST_BYTES + 1))], writer="w", number=step.number)
        return Done()


def test_a_step_that_needs_several_calls_is_repeated_with_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_steps, "UNWRITTEN_SECONDS", 60.0)
    bus = FreshBus(1)
    bus.create_topic("t", 1)

    def fail(*values: object, **named: object) -> object:
        raise BusUnavailable("it was killed")

    steps, owner = Steps(bus, "q"), _Voluminous(ends=[1, 2, 3, 5], results=(5,), done=[0, 1, 2])
    with monkeypatch.context() as patched, pytest.raises(BusUnavailable):
        patched.setattr(bus, "publish_as", fail)
        serve_one(owner, steps, _StopAfter(owner, 20))
    assert owner.ran == [1, 2, 3, 5, 2, 3, 5, 3, 5], "each attempt begins with a step that is written"
    again = _Voluminous(ends=[5], results=(5,))
    serve_one(again, steps, _StopAfter(again, 1))
    assert again.taken == owner.taken[-1:]


class _StopAfter(threading.Event):
    """Set once the owner was asked this many times what it awaits."""

    def __init__(self, owner: _Quiet, asked: int) -> None:
        super().__init__()
        self._owner, self._asked = owner, asked

    def is_set(self) -> bool:
        return len(self._owner.written) >= self._asked


def test_a_task_of_an_earlier_run_changes_nothing() -> None:
    bus, owner = FreshBus(1), _Writing()
    bus.create_topic("t", 1)
    early, late = Steps(bus, "q", "1"), Steps(bus, "q", "2")
    early.begin_run()
    course = Course(owner, early, ignore)
    assert carried_out(course, step(0, 1))
    late.begin_run()
    assert not carried_out(course, step(1, 2))
    with pytest.raises(BusError, match="has been started again"):
        serve_one(owner, early, threading.Event())
    assert carried_out(Course(owner, late, ignore), step(1, 2))
    assert bus.state("t")[0].end == 2


def test_a_task_fails_with_the_first_of_its_owners() -> None:
    bus = FreshBus()
    serving = Serving(bus.url, "live", "run", tasks=2, interval_seconds=0.01)
    serving.begin(bus.url, {"q": "q"})
    rows = [pa.RecordBatch.from_pydict({"value": [3]})]
    owners = [_Counting(name=str(number)) for number in range(4)]
    with pytest.raises(BusError, match="it failed"):
        list(task(serving, [[owner] for owner in owners])(rows))
    assert [len(owner.ran) for owner in owners[::2]] == [0, 0], "row 3 is for the second of two tasks"


def test_tasks_wait_for_orders_of_their_run() -> None:
    bus, owner = FreshBus(), _Counting()
    waiting = Serving(bus.url, "live", "standby", tasks=1, interval_seconds=0.01)
    Serving(bus.url, "live", "holder", tasks=1, interval_seconds=0.01).begin(bus.url, {"q": "earlier"})
    rows = [pa.RecordBatch.from_pydict({"value": [0]})]
    failures: list[BaseException] = []
    serving = start_thread("task", lambda: list(task(waiting, [[owner]])(rows)), on_failure=failures.append)
    serving.join(0.3)
    assert serving.is_alive() and not owner.ran
    waiting.begin(bus.url, {"q": "q"})
    serving.join(10)
    assert [str(error) for error in failures] == ["it failed"]
    assert Steps(bus, "q").newest("0") == step(3, 4) and Steps(bus, "earlier").newest("0") is NO_STEP


@dataclass
class _Large(_Counting):
    """Takes until `resumed` to read its state."""

    resumed: threading.Event = field(default_factory=threading.Event)

    def resume(self, step: Step) -> None:
        assert self.resumed.wait(10)


def test_a_task_counts_as_serving_once_its_owners_have_their_state() -> None:
    bus, owner = FreshBus(), _Large()
    serving = Serving(bus.url, "live", "run", tasks=1, interval_seconds=0.01)
    serving.begin(bus.url, {"q": "q"})
    reports = Reports(bus, serving)
    rows = [pa.RecordBatch.from_pydict({"value": [0]})]
    failures: list[BaseException] = []
    thread = start_thread("task", lambda: list(task(serving, [[owner]])(rows)), on_failure=failures.append)
    thread.join(0.3)
    assert reports.news() == {} and not reports.is_complete and not owner.ran
    owner.resumed.set()
    thread.join(10)
    reports.news()
    assert reports.is_complete and [str(error) for error in failures] == ["it failed"]


@dataclass
class _Lasting(_Counting):
    """Ends its task once `is_over` is set."""

    fails: bool = False
    is_over: threading.Event = field(default_factory=threading.Event)

    def awaits(self, before: Step, *, written: Step | None = None) -> Awaited:
        if self.is_over.is_set():
            raise BusUnavailable("it is over")
        return Awaited({}, 0.01)


@dataclass
class _Resting(_Lasting):
    """While `error` is set, its calls fail with it."""

    may_rest: bool = True
    error: Exception | None = None
    raised: list[Exception] = field(default_factory=list)

    def resume(self, step: Step) -> None:
        self.fail()

    def run(self, step: Step, writes: Writes | None = None, known: KnownRecords = NOTHING_KNOWN) -> Done:
        self.fail()
        return super().run(step, writes, known)

    def fail(self) -> None:
        if self.error is not None:
            self.raised.append(self.error)
            raise self.error


@contextmanager
def task_of(*chains: Chain) -> Iterator[Reports]:
    """A task, until an owner is over, and its reports."""
    bus = FreshBus()
    serving = Serving(bus.url, "live", "run", tasks=1, interval_seconds=0.01)
    serving.begin(bus.url, {"q": "q", "r": "r"})
    rows = [pa.RecordBatch.from_pydict({"value": [0]})]
    failures: list[BaseException] = []
    thread = start_thread("task", lambda: list(task(serving, chains)(rows)), on_failure=failures.append)
    yield Reports(bus, serving)
    thread.join(30)
    assert [str(error) for error in failures] == ["it is over"]


FULL, GONE = BusFull("t", 9, 9), OffsetOutOfRange("t", 0, 1, first=2, end=3)


@pytest.mark.parametrize("error", [ValueError("broken"), FULL, GONE], ids=["error", "full", "gone"])
def test_an_owner_that_may_rest_is_alone_when_it_fails(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_serving, "_FIRST_REST_SECONDS", 0.01)
    bars, joint = _Lasting(), _Resting(query="r", error=error)
    with task_of([bars], [joint]) as reports:
        wait_for(lambda: (reports.news(), reports.problem)[1] or None)
        assert reports.problem == f"the r of partition 0 stopped: {type(error).__name__}: {error}"
        wait_for(lambda: len(bars.ran) == 10 or None)
        assert reports.is_complete and not joint.ran
        joint.error = None
        wait_for(lambda: len(joint.ran) == 10 or None)
        wait_for(lambda: (reports.news(), not reports.problem)[1] or None)
        bars.is_over.set()
    joint.is_over.set()


def test_an_owner_that_is_well_again_has_no_problem_even_if_another_task_has_advanced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_serving, "_FIRST_REST_SECONDS", 0.01)
    bars, joint = _Lasting(), _Resting(query="r", error=ValueError("broken"))
    with task_of([bars], [joint]) as reports:
        wait_for(lambda: (reports.news(), reports.problem)[1] or None)
        joint.error = outdated = Outdated("another task has advanced")
        wait_for(lambda: outdated in joint.raised or None)
        joint.error = None
        wait_for(lambda: (reports.news(), not reports.problem)[1] or None)
        bars.is_over.set()
    joint.is_over.set()


class _State:
    """Only the collector frees it."""

    def __init__(self) -> None:
        self.own = self


@dataclass
class _Stateful(_Resting):
    """Makes a state for each attempt."""

    states: list["weakref.ref[_State]"] = field(default_factory=list)

    def resume(self, step: Step) -> None:
        self.states.append(weakref.ref(_State()))
        self.fail()


def test_the_states_of_failed_attempts_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_serving, "_FIRST_REST_SECONDS", 0.001)
    bars, joint = _Lasting(), _Stateful(query="r", error=ValueError("broken"))
    with task_of([bars], [joint]):
        wait_for(lambda: len(joint.states) > 5 or None)
        bars.is_over.set()
    gc.collect()
    kept = [state for state in joint.states if state() is not None]
    gc.unfreeze()
    assert len(kept) <= 1, "only what was there when the task began"


def test_owners_do_not_wait_until_another_that_may_rest_has_its_state() -> None:
    bars, joint = _Lasting(), _Large(query="r", may_rest=True)
    with task_of([joint], [bars]) as reports:
        wait_for(lambda: len(bars.ran) == 10 or None)
        assert reports.news() == {} and not reports.is_complete
        joint.resumed.set()
        wait_for(lambda: (reports.news(), reports.is_complete)[1] or None)
        bars.is_over.set()


@dataclass
class _Flooded(_Lasting):
    """Takes one large step after another."""

    def awaits(self, before: Step, *, written: Step | None = None) -> Awaited:
        return replace(super().awaits(before, written=written), seconds=0.0)

    def take(self, before: Step, news: News) -> Step | None:
        end = 2_000 * (before.number + 2)
        return Step(before.number + 1, {"t": {"0": end - 2_000}}, {"t": {"0": end}}, 7)


def test_the_second_owner_takes_turns_with_large_steps_of_the_first() -> None:
    bars, triggers = _Flooded(), _Resting(query="r", given=("t", 0))
    with task_of([bars, triggers]):
        wait_for(lambda: len(triggers.ran) == 10 or None)
        bars.is_over.set()


def test_the_error_of_a_chain_does_not_wait_for_a_step_of_its_second_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_serving, "_END_SECONDS", 0.05)
    steps = {query: Steps(FreshBus(1), query) for query in ("q", "r")}
    bars, triggers = _Counting(), _Large(query="r", may_rest=True, given=("t", 0))
    chain = partial(serve, [bars, triggers], steps, threading.Event(), on_done=ignore)
    failures: list[BaseException] = []
    thread = start_thread("chain", chain, on_failure=failures.append)
    thread.join(9)
    assert [str(error) for error in failures] == ["it failed"]
    triggers.resumed.set()


def test_orders_name_the_term_and_no_password() -> None:
    bus = FreshBus()
    serving = Serving(bus.url, "live", "run", tasks=1, interval_seconds=1)
    term = Roles(bus.url).acquire(DRIVER, "one", 60)
    assert term is not None
    serving.begin(term.address(bus.url), {"live": "q"})
    assert serving.orders() == (term.address(bus.url), {"live": "q"})
    orders = [json.loads(content) for content in bus.items("serving_orders").values()]
    assert orders == [["run", "driver=1", {"live": "q"}]]


def test_the_driver_gets_the_progress_of_each_task_since_its_last_call() -> None:
    bus = FreshBus()
    serving = Serving(bus.url, "live", "run", tasks=2, interval_seconds=5)
    reports = Reports(bus, serving)
    bus.put(serving.table, {"earlier/0": b"{}"})
    reports.clear()

    def say(task: int, steps: int, events: int, **suspended: str) -> None:
        own = {"steps": steps, "counts": {"events": events}, "suspended": suspended}
        told = {"queries": {"q": own}, "problems": {}, "at": steps}
        bus.put(serving.table, {f"run/{task}": json.dumps(told).encode(), "earlier/1": b"late"})

    say(0, 3, 1, bad="why")
    assert reports.news() == {"q": (3, Done({"events": 1}, {"bad": "why"}))} and not reports.is_complete
    say(0, 4, 1, bad="why")
    say(1, 2, 5)
    assert reports.news() == {"q": (3, Done({"events": 5}))} and reports.is_complete
    silent = reports.silent_seconds
    say(0, 5, 1, bad="why")
    assert reports.news() == {"q": (1, Done({"events": 0}))}
    assert reports.silent_seconds >= silent >= 0, "the other task has said nothing since"


def test_unread_records_are_held_and_the_hold_moves_once_a_second() -> None:
    bus = FreshBus(2)
    bus.create_topic("t")
    held = Held(bus, "new", "old")
    bus.hold("t", "old", {1: 0})
    assert held.first("t", [0, 1]) == {"0": 0, "1": 0}
    held.move({"t": {"0": 0, "1": 0}})
    held.move({"t": {"0": 5, "1": 0}})
    assert bus.holds("t", "new") == {0: 0, 1: 0}
    assert 0 < held.seconds_left(5.0) <= 1.0
    held.move({"t": {"0": 6, "1": 0}}, at_once=True)
    assert bus.holds("t", "new") == {0: 6, 1: 0}
    assert held.seconds_left(5.0) == 5.0


def test_an_owner_that_has_held_its_first_record_writes_no_hold_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bus, written = FreshBus(2), list[Mapping[int, int]]()
    bus.create_topic("t")
    hold = bus.hold
    monkeypatch.setattr(bus, "hold", lambda topic, reader, at: (written.append(at), hold(topic, reader, at)))
    held = Held(bus, "new")
    for _ in range(3):
        held.move({"t": held.first("t", [0, 1])})
    assert written == [{0: 0, 1: 0}] * 2
    held.move({"t": {"0": 4, "1": 0}}, at_once=True)
    assert held.first("t", [0, 1]) == {"0": 4, "1": 0}
