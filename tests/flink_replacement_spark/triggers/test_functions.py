"""Triggers whose rows go through an external function: over a real Redis and real processes, without Spark."""

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from bus import Bus, Record
from bus import topics as bus_topics
from bus.redis.embedded import EmbeddedRedis
from candlewright.wire.candlewright_pb2 import TriggerRemove
from candlewright.wire.errors import BusUnavailable
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from core import metrics
from core.settings import Settings
from core.settings_gateways import KapacitorFunctionSettings
from flink_replacement_spark.engine.steps import Owner
from flink_replacement_spark.tables.follower import Follower, Taken
from flink_replacement_spark.triggers import functions as trigger_functions
from flink_replacement_spark.triggers import rows as trigger_rows
from flink_replacement_spark.triggers import served as trigger_served
from flink_replacement_spark.triggers.functions import FOLLOWED_ROWS, FunctionOutcome, TriggerFunctions
from flink_replacement_spark.triggers.served import TriggerOwner
from protobuf import records_pb2 as records
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.serving import Deaths, OwnCache, pause, served
from tests.flink_replacement_spark.trigger_batches import ONE, OTHER, PARTITIONS, Query, bus_for_triggers, register
from tests.triggers.trigger_records import rows
from triggers.texts.check import TriggerRules
from triggers.udf.rows import chunks_of

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests" / "triggers" / "udf" / "function.py"
#: The function sums the field x by group.
WHOLE = "SELECT ticker, CAST(price AS BIGINT) AS x FROM ticks WHERE price > 0"
DROPS = """SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts
  MEASURES CAST(price AS BIGINT) AS x ALL ROWS PER MATCH PATTERN (A B) DEFINE B AS price < PREV(price))"""


def _function(mode: str = "", note: Path | None = None) -> KapacitorFunctionSettings:
    arguments = (str(SCRIPT), mode, *([str(note)] if note else []))
    return KapacitorFunctionSettings(
        prog=sys.executable, args=arguments, env={"PYTHONPATH": str(ROOT)}, timeout_seconds=20
    )


class _Driver:
    """A driver's micro-batches, each followed by the functions. `run` is the next one, `again` the last one a second
    time.
    """

    def __init__(self, query: Query, bus: Bus, functions: dict[str, KapacitorFunctionSettings]) -> None:
        self.query = query
        self.bus = bus
        self.settings = functions
        self.outcomes: list[FunctionOutcome] = []
        self.taken: Taken | None = None
        self.begin()

    def begin(self, most: int = 100, most_waiting: int = 100_000) -> None:
        self.functions = TriggerFunctions(
            self.bus,
            self.settings,
            most_waiting=most_waiting,
            on_outcome=lambda outcome, _: self.outcomes.append(outcome),
            attempts=2,
            most=most,
        )
        self.follower = Follower(self.bus, FOLLOWED_ROWS, self.store, stopping=threading.Event())

    def store(self, taken: Taken) -> None:
        self.taken = taken
        self.functions.store(taken)

    def run(self) -> None:
        self.query.run()
        while self.follower.step():
            pass

    def again(self) -> None:
        self.query.again()
        assert self.taken is not None
        self.functions.store(self.taken)
        assert not self.follower.step()

    def restart(self) -> None:
        """Another process after a kill: only the stored state is known."""
        for hosted in self.functions._hosted.values():
            hosted._drop()
        self.begin()

    def events(self, *trigger_ids: str) -> list[CEPTriggerEvent]:
        return feed.events(self.bus, *trigger_ids)

    def sums(self, trigger_id: str) -> list[Any]:
        return [row["sum"] for event in self.events(trigger_id) for row in rows(event)]


@pytest.fixture
def bus(redis: EmbeddedRedis) -> Iterator[Bus]:
    with bus_for_triggers(redis.url) as bus:
        yield bus


Start = Callable[..., _Driver]


@pytest.fixture
def start(redis: EmbeddedRedis, bus: Bus) -> Iterator[Start]:
    drivers: list[_Driver] = []

    def begin(**functions: KapacitorFunctionSettings) -> _Driver:
        drivers.append(_Driver(Query(redis.url), bus, functions))
        return drivers[-1]

    yield begin
    for driver in drivers:
        driver.functions.close()
        driver.query.reader.stop()


def _suspended(bus: Bus) -> list[tuple[str, str]]:
    return [(one.trigger_id, one.reason) for said in feed.progress(bus) for one in said.suspended]


def _remove(bus: Bus, trigger_id: str) -> None:
    feed.control(bus, records.TriggerControl(remove=TriggerRemove(trigger_id=trigger_id)))


def test_rows_of_all_tickers_go_through_one_use_and_its_outputs_are_the_events(bus: Bus, start: Start) -> None:
    driver = start(sums=_function())
    register(bus, "t", WHOLE, ONE, OTHER, udf="sums")
    register(bus, "plain", WHOLE, ONE)
    driver.run()
    feed.trades(bus, ONE, 1, prices=[1, -5, 2])
    feed.trades(bus, OTHER, 1, prices=[10])
    driver.run()
    feed.trades(bus, ONE, 4, prices=[3])
    driver.run()
    events = driver.events("t")
    assert sorted((event.context["ticker"], row["x"], row["sum"]) for event in events for row in rows(event)) == [
        (ONE, 1, 1), (ONE, 2, 3), (ONE, 3, 6), (OTHER, 10, 10),
    ]  # fmt: skip
    first = next(event for event in events if event.context["ticker"] == ONE)
    assert first.timestamp == rows(first)[0]["time"] == feed.T0 + feed.SECOND
    assert dict(zip(first.schema.column_names, first.schema.column_types, strict=True)) == {
        "time": "TIMESTAMP_LTZ(9)", "ticker": "STRING", "sum": "BIGINT", "x": "BIGINT",
    }  # fmt: skip
    assert len({event.context["event_id"] for event in events}) == 4
    assert driver.functions.totals["uses"] == 1
    assert [row["x"] for event in driver.events("plain") for row in rows(event)] == [1, 2, 3]


def test_repeated_batch_emits_nothing_twice_and_the_state_continues(bus: Bus, start: Start) -> None:
    driver = start(sums=_function())
    register(bus, "t", WHOLE, ONE, udf="sums")
    driver.run()
    for number, price in enumerate((1, 2, 3)):
        feed.trades(bus, ONE, number, prices=[price])
        driver.run()
        driver.again()
        if number == 1:
            driver.restart()
            driver.again()
    assert driver.sums("t") == [1, 3, 6]


@pytest.mark.parametrize("restarts", [True, False], ids=["killed", "bus away"])
@pytest.mark.parametrize("dies_at", ["put", "publish_as"])
def test_batch_that_breaks_off_gives_each_event_once_when_it_runs_again(
    dies_at: str, restarts: bool, bus: Bus, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object, **__: object) -> None:
        raise Killed

    def store(taken: Taken) -> None:
        patch.setattr(type(bus), dies_at, kill)
        driver.functions.store(taken)

    driver = start(sums=_function())
    register(bus, "t", WHOLE, ONE, udf="sums")
    driver.run()
    feed.trades(bus, ONE, 1, prices=[1])
    driver.run()
    feed.trades(bus, ONE, 2, prices=[2, 3])
    driver.query.run()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(driver.follower, "_store", store)
        driver.follower.step()
    assert driver.sums("t") == [1]
    if restarts:
        driver.restart()
    feed.trades(bus, ONE, 4, prices=[4])
    driver.run()
    assert driver.sums("t") == [1, 3, 6, 10]


def test_function_that_dies_continues_from_its_state(bus: Bus, start: Start, tmp_path: Path) -> None:
    driver = start(sums=_function("crash", tmp_path / "note"))
    register(bus, "t", WHOLE, ONE, udf="sums")
    driver.run()
    for number, price in enumerate((1, 13, 2)):
        feed.trades(bus, ONE, number, prices=[price])
        driver.run()
    assert driver.sums("t") == [1, 14, 16]
    assert (driver.functions.totals["failures"], driver.functions.totals["restarts"]) == (1, 1)


@pytest.mark.parametrize("mode", ["silence", "hang"])
def test_a_function_that_hangs_costs_its_timeout_once_and_suspends_only_its_triggers(
    mode: str, bus: Bus, start: Start
) -> None:
    stuck = _function(mode).model_copy(update={"timeout_seconds": 2.0})
    driver = start(stuck=stuck, sums=_function())
    stuck_ids = [f"stuck {number}" for number in range(4)]
    for trigger_id in stuck_ids:
        register(bus, trigger_id, WHOLE, ONE, udf="stuck")
    register(bus, "good", WHOLE, ONE, udf="sums")
    driver.run()
    feed.trades(bus, ONE, 1, prices=[1])
    driver.run()
    feed.trades(bus, ONE, 2, prices=[13])
    began = time.monotonic()
    driver.run()
    took = time.monotonic() - began
    assert {trigger_id for trigger_id, _ in _suspended(bus)} == set(stuck_ids)
    assert driver.sums("good") == [1, 14]
    assert took < 2 * 2.0 + 8.0
    feed.trades(bus, ONE, 3, prices=[2])
    driver.run()
    assert driver.sums("good") == [1, 14, 16]


def test_an_unreadable_state_costs_only_its_triggers_memory(bus: Bus, start: Start) -> None:
    driver = start(sums=_function())
    register(bus, "t", WHOLE, ONE, udf="sums")
    register(bus, "other", WHOLE, ONE, udf="sums")
    driver.run()
    feed.trades(bus, ONE, 1, prices=[1])
    driver.run()
    bus.put(bus_topics.TABLE_FUNCTION_STATES, {"t": b"\xff\x00"})
    driver.restart()
    feed.trades(bus, ONE, 2, prices=[2])
    driver.run()
    assert driver.sums("t") == [1, 2]
    assert driver.sums("other") == [1, 3]
    assert driver.functions.totals["states_unreadable"] == 1


def test_function_that_fails_each_time_suspends_its_trigger_with_its_words_and_no_other(bus: Bus, start: Start) -> None:
    driver = start(bad=_function("error"), sums=_function())
    register(bus, "bad", WHOLE, ONE, udf="bad")
    register(bus, "good", WHOLE, ONE, udf="sums")
    driver.run()
    feed.trades(bus, ONE, 1, prices=[13])
    driver.run()
    driver.again()
    driver.restart()
    driver.again()
    assert _suspended(bus) == [("bad", "the function bad: it says: no more")]
    feed.trades(bus, ONE, 2, prices=[1])
    driver.run()
    assert driver.sums("good") == [13, 14]
    assert driver.sums("bad") == []
    assert len(_suspended(bus)) == 1


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"udf": "none"}, "there is no function 'none'; the settings of this platform have sums"),
        ({"udf": "sums", "udf.times": "3.0"}, "argument 1 of the option times is DOUBLE, expected INT"),
    ],
)
def test_changed_settings_suspend_a_trigger_with_the_reason(
    parameters: dict[str, str], told: str, bus: Bus, start: Start
) -> None:
    driver = start(sums=_function())
    register(bus, "t", WHOLE, ONE, **parameters)
    driver.run()
    feed.trades(bus, ONE, 1, prices=[1])
    driver.run()
    assert _suspended(bus) == [("t", f"the function {parameters['udf']}: {told}")]


def test_function_that_wants_batches_gets_the_rows_of_each_event(bus: Bus, start: Start) -> None:
    driver = start(sums=_function("batch"))
    register(bus, "t", DROPS, ONE, udf="sums")
    driver.run()
    feed.trades(bus, ONE, 1, prices=[5, 3, 4, 2, 9, 9])
    driver.run()
    told = [[row["sum"] for row in rows(event)] for event in driver.events("t")]
    assert told == [[5, 8], [12, 14]]
    assert driver.events("t")[0].context["ticker"] == ONE


def test_removed_trigger_ends_its_function_and_a_new_one_of_its_id_starts_afresh(bus: Bus, start: Start) -> None:
    driver = start(sums=_function())
    register(bus, "t", WHOLE, ONE, udf="sums")
    driver.run()
    feed.trades(bus, ONE, 1, prices=[1])
    driver.run()
    (hosted,) = driver.functions._hosted.values()
    assert hosted._use is not None
    pid = hosted._use._peer._process.pid  # type: ignore[attr-defined]
    _remove(bus, "t")
    driver.run()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    # As from a task that learns of the removal later.
    late = records.FunctionRows(trigger_id="t", version=1, parameters={"udf": "sums"}, query_id=driver.query.query_id)
    bus.publish(bus_topics.FUNCTION_ROWS, [Record(late.SerializeToString(), partition=0)])
    register(bus, "t", WHOLE, ONE, udf="sums", version=2)
    driver.run()
    assert driver.functions.totals["uses"] == 1
    feed.trades(bus, ONE, 2, prices=[5])
    driver.run()
    assert driver.sums("t") == [1, 5]


def test_ended_triggers_are_forgotten_after_an_hour(bus: Bus, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = start(sums=_function())
    for number in range(3):
        register(bus, f"t{number}", WHOLE, ONE, udf="sums")
    driver.run()
    feed.trades(bus, ONE, 1, prices=[1])
    driver.run()
    for number in range(3):
        _remove(bus, f"t{number}")
    driver.run()
    driver.restart()
    register(bus, "kept", WHOLE, ONE, udf="sums")
    driver.run()
    feed.trades(bus, ONE, 2, prices=[2])
    driver.run()
    assert bus.items(bus_topics.TABLE_FUNCTION_STATES).keys() == {"kept", "t0", "t1", "t2"}
    monkeypatch.setattr(trigger_functions, "_ENDED_SECONDS", 0.0)
    feed.trades(bus, ONE, 3, prices=[3])
    driver.run()
    assert bus.items(bus_topics.TABLE_FUNCTION_STATES).keys() == {"kept"}
    assert driver.sums("kept") == [2, 5]


def test_rows_of_two_versions_that_are_taken_together_go_through_one_function_each(bus: Bus, start: Start) -> None:
    driver = start(sums=_function())
    register(bus, "t", WHOLE, ONE, udf="sums")
    driver.query.run()
    feed.trades(bus, ONE, 1, prices=[1, 2])
    driver.query.run()
    register(bus, "t", WHOLE, ONE, udf="sums", version=2)
    driver.query.run()
    feed.trades(bus, ONE, 3, prices=[3, 4])
    driver.run()
    assert driver.sums("t") == [1, 3, 3, 7]
    driver.restart()
    driver.again()
    assert driver.sums("t") == [1, 3, 3, 7]


def test_the_slowest_function_is_stopped_when_too_many_records_wait(bus: Bus, start: Start) -> None:
    slow = _function().model_copy(update={"settle_seconds": 0.3})
    driver = start(slow=slow, sums=_function())
    driver.begin(most_waiting=2)
    register(bus, "slow", WHOLE, ONE, udf="slow")
    register(bus, "good", WHOLE, ONE, udf="sums")
    driver.query.run()
    for number in range(4):
        feed.trades(bus, ONE, 1 + number, prices=[1])
        driver.query.run()
    driver.follower._followed = replace(FOLLOWED_ROWS, max_records=2)
    driver.run()
    assert driver.sums("good") == [1, 2, 3, 4]
    ((trigger_id, reason),) = _suspended(bus)
    assert trigger_id == "slow"
    assert reason == ("the function slow is too slow: more than triggers.max_waiting_rows = 2 records wait for it")
    assert len(driver.sums("slow")) < 4


def test_events_are_those_of_all_rows_each_once_whichever_process_dies(
    bus: Bus, redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    """Tasks that serve two partitions, the function and its driver."""
    cache, deaths, chance = OwnCache(), Deaths(often=0), random.Random(7)
    monkeypatch.setattr(trigger_rows, "_CACHE", cache)
    monkeypatch.setattr(trigger_served, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(trigger_rows, "publish_events", deaths.around(trigger_rows.publish_events))
    driver = start(sums=_function())
    monkeypatch.setattr(trigger_functions, "publish_events", deaths.around(trigger_functions.publish_events))
    rules = TriggerRules(partitions=PARTITIONS)

    def alone(number: int) -> list[Owner]:
        return [TriggerOwner(url=redis.url, query_id="q", owner=number, rules=rules, settings=Settings())]

    chains = [partial(alone, number) for number in range(PARTITIONS + 1)]
    count, stopping = 150, threading.Event()

    def follow() -> None:
        while not stopping.is_set():
            try:
                if not driver.follower.step():
                    time.sleep(0.002)
                if chance.random() < 0.05:
                    driver.restart()
            except BusUnavailable:
                driver.restart()

    with served(bus, {"triggers": "q"}, cache, chains=chains):
        offset = register(bus, "t", WHOLE, ONE, OTHER, udf="sums")
        wait_for(lambda: feed.is_carried_out(bus, offset) or None)
        following = threading.Thread(target=follow)
        following.start()
        try:
            deaths.often = 8
            for number in range(count):
                for ticker in (ONE, OTHER):
                    feed.trades(bus, ticker, 1 + number, prices=[1 + number])
                    pause(chance)
            feed.wait_for_events(bus, 2 * count, "t", timeout=40)
        finally:
            stopping.set()
            following.join()
    assert deaths.count > 10
    for ticker in (ONE, OTHER):
        events = [event for event in driver.events("t") if event.context["ticker"] == ticker]
        assert [row["sum"] for event in events for row in rows(event)] == list(accumulate(range(1, 1 + count)))
    assert len({event.context["event_id"] for event in driver.events("t")}) == 2 * count


def test_many_rows_go_in_by_chunks_and_each_comes_out_once(
    bus: Bus, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_functions, "chunks_of", partial(chunks_of, size=3))
    driver = start(sums=_function())
    register(bus, "t", WHOLE, ONE, udf="sums")
    driver.run()
    feed.trades(bus, ONE, 1, prices=range(1, 9))
    driver.run()
    driver.restart()
    driver.again()
    feed.trades(bus, ONE, 9, prices=[9])
    driver.run()
    assert driver.sums("t") == [1, 3, 6, 10, 15, 21, 28, 36, 45]
    assert len({event.context["event_id"] for event in driver.events("t")}) == 9


def test_triggers_past_the_bound_of_processes_are_suspended(bus: Bus, start: Start) -> None:
    driver = start(sums=_function())
    driver.begin(most=1)
    register(bus, "a", WHOLE, ONE, udf="sums")
    driver.run()
    feed.trades(bus, ONE, 1, prices=[1])
    driver.run()
    register(bus, "b", WHOLE, ONE, udf="sums")
    driver.run()
    feed.trades(bus, ONE, 2, prices=[2])
    driver.run()
    assert driver.sums("a") == [1, 3]
    assert _suspended(bus) == [("b", "the function sums: 1 triggers have a function already, and each takes a process")]


def test_uses_outputs_and_failures_are_on_the_metrics_page(bus: Bus, start: Start) -> None:
    driver = start(counted=_function())
    register(bus, "t", WHOLE, ONE, udf="counted")
    driver.run()
    feed.trades(bus, ONE, 1, prices=[1, 2])
    driver.run()
    page = metrics.render().decode()
    for what, count in (("points", 2), ("outputs", 2), ("uses", 1)):
        assert f'trigger_functions_total{{function="counted",what="{what}"}} {count}.0' in page
    assert "candlewright_spark_trigger_functions_running 1.0" in page
