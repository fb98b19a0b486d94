"""Tables of the bus whose rows never expire: each keeps no more than a few rows, however long it is filled.

`OF_ONE_KEY` are written only under fixed keys; `FILLED_BY` names the tests that fill a table through its own part.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bus import topics
from bus.api import Record
from bus.dead_letters import MAX_KINDS, Letter, put_aside
from bus.origin import announce_origin, settle_origin
from core.origin import Origin
from flink_replacement_spark.engine.bus_source import TABLE_PLANNED, remember_plan
from flink_replacement_spark.engine.checkpoints import TABLE_CHECKPOINTS, SharedCheckpoint
from flink_replacement_spark.engine.steps import NO_STEP, Step, Steps
from flink_replacement_spark.live.store import StateStore, drop_outdated
from flink_replacement_spark.triggers.store import PartStore, Stored
from gateways.numaflow_sources import journal as numaflow_journal
from gateways.numaflow_sources.journal import Journal
from gateways.numaflow_sources.protocol import Result
from protobuf import records_pb2 as records
from protobuf.source_superset_pb2 import Offset
from relay.store import RelayStore
from relay.triggers.store import TABLE_PROGRESS, TriggerStore
from tests.fresh_bus import FreshBus
from tests.relay.harness import config

ROOT = Path(__file__).parents[1]
#: Rounds of filling: the second number leaves no more rows than the first.
ROUNDS = (100, 200)

#: By table the source that writes it, and the keys that it uses: constants, partitions, queries or topics.
OF_ONE_KEY = {
    "alerts": ("alerts/feed.py", 'TABLE_ALERTS, {"positions"'),
    "bar_table": ("flink_replacement_spark/tables/follower.py", '{"taken"'),
    "broker": ("broker/part.py", "TABLE_BROKER, {SERVING_KEY"),
    "delivery_table": ("flink_replacement_spark/tables/follower.py", '{"identity"'),
    "history_written": ("flink_replacement_spark/history/writer.py", "TABLE_HISTORY_WRITTEN, {p:"),
    "revision_table": ("flink_replacement_spark/tables/follower.py", '{"taken"'),
    "serving": ("flink_replacement_spark/engine/serving_query.py", "put_new(TABLE_SERVING, name"),
    "serving_orders": ("flink_replacement_spark/engine/serving.py", "put(_ORDERS, {self.name:"),
    "serving_runs": ("flink_replacement_spark/engine/steps.py", "put(_RUNS, {self._query_id: self._run_id})"),
    "tick_table": ("flink_replacement_spark/tables/follower.py", '{"taken"'),
    "trigger_functions": ("flink_replacement_spark/tables/follower.py", '{"taken"'),
    "trigger_costs": ("flink_replacement_spark/triggers/rows.py", "TABLE_TRIGGER_COSTS, {str(plan.owner)"),
    "trigger_table": ("flink_replacement_spark/tables/follower.py", '{"taken"'),
}
FILLED_BY = {
    "alerts_again": "tests/alerts/test_state.py::test_at_the_bound_the_oldest_is_given_up",
    "alerts_waiting": "tests/alerts/test_state.py::test_at_the_bound_the_oldest_is_given_up",
    "broker_realtime": "tests/broker/test_live.py::"
    "test_realtime_requests_that_are_never_cancelled_fill_neither_memory_nor_their_table",
    "broker_wanted": "tests/broker/test_live.py::"
    "test_realtime_requests_that_are_never_cancelled_fill_neither_memory_nor_their_table",
    "function_states": "tests/flink_replacement_spark/triggers/test_functions.py::"
    "test_ended_triggers_are_forgotten_after_an_hour",
    "joint_triggers": "tests/relay/test_triggers.py::test_too_many_triggers_are_refused",
    "triggers": "tests/relay/test_triggers.py::test_too_many_triggers_are_refused",
}
#: Configured tables: a row for each rule, for each series of a rule, and for each view.
CONFIGURED = {"keep_rules", "keep_series", "views"}


def live_state(bus: FreshBus, rounds: int) -> str:
    store = StateStore(bus, "q")
    for batch in range(rounds):
        (store.append if batch % 65 else store.save)(batch % 2, batch, b"x")
    return "live_state:q"


def live_state_queries(bus: FreshBus, rounds: int) -> str:
    for number in range(rounds):
        StateStore(bus, f"q{number}").save(0, 0, b"x")
        drop_outdated(bus, f"q{number}")
    assert bus.items(f"live_state:q{rounds - 2}") == {}
    return "live_state_queries"


def trigger_state(bus: FreshBus, rounds: int) -> str:
    store, stored = PartStore(bus, "q"), Stored()
    for batch in range(rounds):
        parts = {f"part{number}": b"%d" % (batch if number == batch % 5 else 0) for number in range(5)}
        stored = store.save(0, batch, stored, parts=parts)
    return "trigger_state:q"


def planned_offsets(bus: FreshBus, rounds: int) -> str:
    for number in range(rounds):
        remember_plan(bus, "history-writer", {"0": number})
    return TABLE_PLANNED


def checkpoints(bus: FreshBus, rounds: int) -> str:
    checkpoint = SharedCheckpoint(bus, "file:/nowhere/q")
    for batch in range(rounds):
        checkpoint.keep(batch)
    (content,) = bus.items(TABLE_CHECKPOINTS).values()
    assert len(json.loads(content)[1]) <= 4
    return TABLE_CHECKPOINTS


def steps(bus: FreshBus, rounds: int) -> str:
    own, step = Steps(bus, "q"), NO_STEP
    for number in range(rounds):
        step = own.advance("0", step, Step(number, {}, {}))
    return "steps:q"


def dead_letters(bus: FreshBus, rounds: int) -> str:
    for number in range(rounds // 3):
        word = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        put_aside(bus, "part", [Letter("topic", b"%d" % number, f"reason {word}")])
    assert len(bus.items(topics.TABLE_DEAD_LETTERS)) == MAX_KINDS + 1
    return topics.TABLE_DEAD_LETTERS


def numaflow_sources(bus: FreshBus, rounds: int) -> str:
    """Start one source repeatedly."""
    for number in range(rounds):
        journal = Journal(bus, "source", "t", dead_letters="t.dead")
        journal.begin()
        journal.write_down(number, [Result(payload=b"x", offset=Offset(offset=b"%d" % number))])
        journal.close()
    return numaflow_journal.TABLE


def platform(bus: FreshBus, rounds: int) -> str:
    for _ in range(rounds):
        announce_origin(bus, Origin.SANDBOX)
        settle_origin(bus, Origin.SANDBOX)
    return topics.TABLE_PLATFORM


def relay_trigger_progress(bus: FreshBus, rounds: int) -> str:
    """Also for partitions that do not exist, as a hostile sender would name them."""
    store = TriggerStore(bus, RelayStore(bus, config()))
    store.load()
    for number in range(rounds):
        progress = records.TriggerProgress(partition=number, controls_end=0)
        bus.publish(topics.TRIGGER_PROGRESS, [Record(progress.SerializeToString(), partition=0)])
        store.read_progress()
        store.commit_progress(0)
    return TABLE_PROGRESS


FILLED_HERE: dict[str, Callable[[FreshBus, int], str]] = {
    "checkpoints": checkpoints,
    "dead_letters": dead_letters,
    "live_state": live_state,
    "live_state_queries": live_state_queries,
    "numaflow_sources": numaflow_sources,
    "planned_offsets": planned_offsets,
    "platform": platform,
    "relay_trigger_progress": relay_trigger_progress,
    "steps": steps,
    "trigger_state": trigger_state,
    "trigger_state_queries": live_state_queries,
}


@pytest.mark.parametrize("name", FILLED_HERE)
def test_a_table_without_expiry_stays_as_small_as_it_was(name: str) -> None:
    sizes = []
    for rounds in ROUNDS:
        bus = FreshBus()
        sizes.append(len(bus.items(FILLED_HERE[name](bus, rounds))))
        bus.close()
    assert 0 < sizes[1] <= sizes[0] + 2


def test_every_table_without_expiry_is_filled_by_a_test_or_has_fixed_keys() -> None:
    table = (ROOT / "docs/operations.md").read_text().partition("### Keyed tables")[2].partition("\n## ")[0]
    unexpiring: set[str] = set()
    for line in table.splitlines():
        cells = line.split(" | ")
        if len(cells) == 4 and cells[2].startswith(("never", "when ")):
            unexpiring |= set(re.findall(r"`([a-z_]+)(?:[:/]\*)?`", cells[0]))
    assert unexpiring == {*OF_ONE_KEY, *FILLED_BY, *CONFIGURED, *FILLED_HERE}
    for source, keys in OF_ONE_KEY.values():
        assert keys in (ROOT / source).read_text(), source
    for test in FILLED_BY.values():
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(), test
