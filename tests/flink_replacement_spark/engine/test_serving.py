"""Steps of owners, and tasks that serve them."""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa
import pytest

from bus import Record
from bus.roles import DRIVER, Roles
from candlewright.wire.errors import BusError
from core.background import start_thread
from flink_replacement_spark.engine import serving
from flink_replacement_spark.engine.serving import NO_STEP, Done, Held, Reports, Serving, Step, Steps, serve, task
from flink_replacement_spark.engine.writes import Writes
from tests.fresh_bus import FreshBus


def step(number: int, end: int) -> Step:
    return Step(number, {"t": {"0": end - 1}}, {"t": {"0": end}}, 7)


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


@dataclass
class _Counting:
    """Has ten steps, each of which writes something; the fifth fails once."""

    name: str = "0"
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

    def next(self, before: Step, *, written: Step | None = None, longest_seconds: float = 0.0) -> Step | None:
        if before.number == 9:
            self.stopping.set()
            return None
        return step(before.number + 1, before.number + 2)

    def run(self, step: Step, writes: Writes | None = None) -> Done:
        if step.number == 4 and self.fails:
            self.fails = False
            raise BusError("it failed")
        self.ran.append(step.number)
        self.done.append(step.number)
        if writes is not None and step.records:
            writes.replace("done", str(step.number), None, new=b"")
        return Done({"records": 1})


def test_a_step_that_failed_is_the_first_of_the_next_task_and_a_step_that_was_done_is_not() -> None:
    steps, owner = Steps(FreshBus(), "q"), _Counting()
    with pytest.raises(BusError, match="it failed"):
        serve(owner, steps, owner.stopping, on_done=lambda done: None)
    serve(owner, steps, owner.stopping, on_done=lambda done: None)
    assert owner.ran == list(range(10))


@dataclass
class _Writing(_Counting):
    """Each step publishes its number."""

    def run(self, step: Step, writes: Writes | None = None) -> Done:
        assert writes is not None
        self.ran.append(step.number)
        writes.publish_as("t", [Record(b"%d" % step.number)], writer="w", number=step.number)
        return Done()


def test_one_of_two_tasks_carries_out_a_step_and_the_other_continues_after_it() -> None:
    bus = FreshBus(1)
    bus.create_topic("t", 1)
    steps, owner = Steps(bus, "q"), _Writing()
    one, other = steps.begin(), steps.begin()
    assert steps.carry_out(owner, NO_STEP, step(0, 1), together=one) == (step(0, 1), Done())
    assert steps.carry_out(owner, NO_STEP, step(0, 9), together=other) is None
    assert steps.newest("0") == step(0, 1)
    assert steps.carry_out(owner, step(0, 1), step(1, 2), together=other) == (step(1, 2), Done())
    assert [record.value for record in bus.read("t", 0, 0)] == [b"0", b"1"]
    with pytest.raises(BusError, match="has lost steps"):
        steps.carry_out(owner, step(6, 7), step(7, 8), together=one)


def test_nothing_is_written_where_only_the_clock_moves() -> None:
    steps, owner = Steps(FreshBus(), "q"), _Counting(fails=False)
    together = steps.begin()
    assert steps.carry_out(owner, NO_STEP, step(0, 1), together=together) == (step(0, 1), Done({"records": 1}))
    later = Step(1, {"t": {"0": 1}}, {"t": {"0": 1}}, 9)
    assert steps.carry_out(owner, step(0, 1), later, together=together) == (None, Done({"records": 1}))
    assert steps.newest("0") == step(0, 1)


@dataclass
class _Quiet(_Counting):
    """Only the steps that end at one of `results` publish; the other ones change a state. `ends`: of the steps."""

    results: tuple[int, ...] = ()
    ends: list[int] = field(default_factory=list)
    written: list[Step | None] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    changed: int = 0
    saved: list[int] = field(default_factory=list)

    def next(self, before: Step, *, written: Step | None = None, longest_seconds: float = 0.0) -> Step | None:
        self.written.append(written)
        self.waits.append(longest_seconds)
        if not self.ends:
            # Until unwritten steps are due to be written.
            time.sleep(min(longest_seconds, 0.05))
            if longest_seconds > 10:
                self.stopping.set()
            return None
        at = before.end.get("t", {"0": 0})
        end = self.ends.pop(0)
        planned = Step(before.number + 1, {"t": dict(at)}, {"t": {"0": end}}, 7)
        if planned.records > 1_000 and before is not written:
            self.ends.insert(0, end)
        return planned

    def run(self, step: Step, writes: Writes | None = None) -> Done:
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
    monkeypatch.setattr(serving, "UNWRITTEN_SECONDS", 60.0)
    bus = FreshBus(1)
    bus.create_topic("t", 1)
    steps, owner = Steps(bus, "q"), _Quiet(ends=[1, 2, 3, 5, 6], results=(5,))
    serve(owner, steps, _StopAfter(owner, 6), on_done=lambda done: None)
    first, last = Step(0, {"t": {"0": 0}}, {"t": {"0": 1}}, 7), Step(3, {"t": {"0": 1}}, {"t": {"0": 5}}, 7)
    assert owner.ran == [1, 2, 3, 5, 6] and owner.saved == [1, 5], "the first step is written, and that with results"
    assert steps.newest("0") == last and owner.written == [NO_STEP, first, first, first, last, last]
    assert [record.value for record in bus.read("t", 0, 0)] == [b"5"]
    # The next task takes the records after the written step again.
    again = _Quiet(ends=[8], results=(8,), done=[0, 3], saved=[1, 5], changed=5)
    serve(again, steps, _StopAfter(again, 2), on_done=lambda done: None)
    assert steps.newest("0") == Step(4, {"t": {"0": 5}}, {"t": {"0": 8}}, 7)


@pytest.mark.parametrize(("most", "longest"), [(3, 0.4), (3 + serving.FEW_RECORDS, 0.1)])
def test_steps_without_results_are_written_when_they_are_due(
    monkeypatch: pytest.MonkeyPatch, most: int, longest: float
) -> None:
    """Few records may wait longer."""
    monkeypatch.setattr(serving, "UNWRITTEN_SECONDS", 0.1)
    steps, owner = Steps(FreshBus(1), "q"), _Quiet(ends=[1, 2, most])
    serve(owner, steps, owner.stopping, on_done=lambda done: None)
    assert owner.ran == [1, 2, most, most] and owner.saved == [1, most]
    assert steps.newest("0") == Step(3, {"t": {"0": 1}}, {"t": {"0": most}}, 7)
    assert longest / 2 < owner.waits[3] <= longest and owner.waits[-1] > 10


def test_steps_without_results_are_written_before_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "UNWRITTEN_SECONDS", 60.0)
    steps, owner = Steps(FreshBus(1), "q"), _Quiet(ends=[1, 2, 3, 5_000])
    serve(owner, steps, _StopAfter(owner, 6), on_done=lambda done: None)
    assert owner.ran == [1, 2, 3, 3, 5_000] and owner.saved == [1, 3, 5_000]
    assert steps.newest("0") == Step(4, {"t": {"0": 3}}, {"t": {"0": 5_000}}, 7)


class _StopAfter(threading.Event):
    """Set once the owner has carried out this many steps."""

    def __init__(self, owner: _Quiet, asked: int) -> None:
        super().__init__()
        self._owner, self._asked = owner, asked

    def is_set(self) -> bool:
        return len(self._owner.written) >= self._asked and not self._owner.ends


def test_a_task_of_an_earlier_run_changes_nothing() -> None:
    bus, owner = FreshBus(1), _Writing()
    bus.create_topic("t", 1)
    early, late = Steps(bus, "q", "1"), Steps(bus, "q", "2")
    early.begin_run()
    assert early.carry_out(owner, NO_STEP, step(0, 1), together=early.begin()) == (step(0, 1), Done())
    late.begin_run()
    assert early.carry_out(owner, step(0, 1), step(1, 2), together=early.begin()) is None
    with pytest.raises(BusError, match="has been started again"):
        serve(owner, early, threading.Event(), on_done=lambda done: None)
    assert late.carry_out(owner, step(0, 1), step(1, 2), together=late.begin()) == (step(1, 2), Done())
    assert bus.state("t")[0].end == 2


def test_a_task_fails_with_the_first_of_its_owners() -> None:
    bus = FreshBus()
    serving = Serving(bus.url, "live", "run", tasks=2, interval_seconds=0.01)
    serving.begin(bus.url, "q")
    rows = [pa.RecordBatch.from_pydict({"value": [3]})]
    owners = [_Counting(str(number)) for number in range(4)]
    with pytest.raises(BusError, match="it failed"):
        list(task(serving, owners)(rows))
    assert [len(owner.ran) for owner in owners[::2]] == [0, 0], "row 3 is for the second of two tasks"


def test_tasks_wait_for_orders_of_their_run() -> None:
    bus, owner = FreshBus(), _Counting()
    waiting = Serving(bus.url, "live", "standby", tasks=1, interval_seconds=0.01)
    Serving(bus.url, "live", "holder", tasks=1, interval_seconds=0.01).begin(bus.url, "earlier")
    rows = [pa.RecordBatch.from_pydict({"value": [0]})]
    failures: list[BaseException] = []
    serving = start_thread("task", lambda: list(task(waiting, [owner])(rows)), on_failure=failures.append)
    serving.join(0.3)
    assert serving.is_alive() and not owner.ran
    waiting.begin(bus.url, "q")
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
    serving.begin(bus.url, "q")
    reports = Reports(bus, serving)
    rows = [pa.RecordBatch.from_pydict({"value": [0]})]
    failures: list[BaseException] = []
    thread = start_thread("task", lambda: list(task(serving, [owner])(rows)), on_failure=failures.append)
    thread.join(0.3)
    assert reports.news() == (0, Done()) and not reports.is_complete and not owner.ran
    owner.resumed.set()
    thread.join(10)
    reports.news()
    assert reports.is_complete and [str(error) for error in failures] == ["it failed"]


def test_orders_name_the_term_and_no_password() -> None:
    bus = FreshBus()
    serving = Serving(bus.url, "live", "run", tasks=1, interval_seconds=1)
    term = Roles(bus.url).acquire(DRIVER, "one", 60)
    assert term is not None
    serving.begin(term.address(bus.url), "q")
    assert serving.orders() == (term.address(bus.url), "q")
    assert [json.loads(content) for content in bus.items("serving_orders").values()] == [["run", "driver=1", "q"]]


def test_the_driver_gets_the_progress_of_each_task_since_its_last_call() -> None:
    bus = FreshBus()
    serving = Serving(bus.url, "live", "run", tasks=2, interval_seconds=5)
    reports = Reports(bus, serving)
    bus.put(serving.table, {"earlier/0": b"{}"})
    reports.clear()

    def say(task: int, steps: int, events: int, **suspended: str) -> None:
        told = {"steps": steps, "counts": {"events": events}, "suspended": suspended, "at": steps}
        bus.put(serving.table, {f"run/{task}": json.dumps(told).encode(), "earlier/1": b"late"})

    say(0, 3, 1, bad="why")
    assert reports.news() == (3, Done({"events": 1}, {"bad": "why"})) and not reports.is_complete
    say(0, 4, 1, bad="why")
    say(1, 2, 5)
    assert reports.news() == (3, Done({"events": 5})) and reports.is_complete
    silent = reports.silent_seconds
    say(0, 5, 1, bad="why")
    assert reports.news() == (1, Done({"events": 0}))
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
