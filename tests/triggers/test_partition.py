import json
import math
from typing import Any

import pytest

from bus.api import partition_of
from candlewright.wire.candlewright_pb2 import Tick
from candlewright.wire.grid import SECOND, first_open_from
from candlewright_cep import TriggerRejected, TriggerStream
from candlewright_cep.streaming import slots
from protobuf import records_pb2 as records
from tests.triggers.trigger_records import (
    IN_ORDER,
    OTHER,
    T0,
    TICKER,
    V_SHAPE,
    bar,
    batch,
    clock,
    prices,
    register,
    remove,
    rows,
)
from triggers.events.firings import firings
from triggers.partition import TriggerOutput, TriggerPartition
from triggers.texts.check import TriggerRules

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def partition() -> TriggerPartition:
    return TriggerPartition()


RISE = """
SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY ts MEASURES B.price AS price PATTERN (A B) DEFINE B AS price > A.price) AS m"""


def fired(output: TriggerOutput, column: str = "price") -> list[tuple[str, Any]]:
    return [(event.trigger_id, row[column]) for event in output.events for row in rows(event)]


def states(output: TriggerOutput) -> list[tuple[str, str]]:
    return [(report.trigger_id, report.state) for report in output.reports]


def test_a_condition_fires_for_each_row_that_it_holds_for(partition: TriggerPartition) -> None:
    output = partition.process([], controls=[register("a", "price > :limit", TICKER, limit="10")])
    assert states(output) == [("a", "active")]
    assert fired(partition.process([prices(1, 9, 11, 12, 8)])) == [("a", 11), ("a", 12)]


BY_TRADE = """
SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker, trade_id ORDER BY ts MEASURES A.price AS price PATTERN (A B) DEFINE A AS price > :limit) AS m"""


def test_only_a_trigger_with_too_many_partitions_is_suspended() -> None:
    """Even if it shares its stream with others."""
    partition = TriggerPartition(TriggerRules(kept_partitions=100))
    greedy, modest = register("greedy", BY_TRADE, TICKER, limit="0"), register("modest", BY_TRADE, OTHER, limit="0")
    partition.process([], controls=[greedy, modest, register("other", "price > 89", TICKER)])
    assert partition.shards == 2
    found, said = [], []
    for first in range(1, 300, 30):
        output = partition.process([prices(first, *range(60, 90)), prices(first // 10 + 1, 1.0, ticker=OTHER)])
        found += fired(output)
        said += [(report.trigger_id, report.reason) for report in output.reports]
        partition = TriggerPartition.load(partition.save(), TriggerRules(kept_partitions=100))
    assert [trigger_id for trigger_id, _ in said] == ["greedy"]
    assert "the pattern keeps more than 100 partitions at a time" in said[0][1]
    assert partition.triggers["modest"].is_active
    assert found == []


def test_rows_of_a_new_ticker_older_than_the_common_clock_are_counted_as_late(
    partition: TriggerPartition,
) -> None:
    sql = "SELECT price, LAG(price) OVER (ORDER BY ts) AS before FROM ticks"
    partition.process([], controls=[register("all", sql)])
    assert fired(partition.process([prices(1, 1, 2, 3, 4)]), "before") == [("all", None), ("all", 1), ("all", 2)]
    output = partition.process([prices(2, 20, 21, 22, 23, ticker=OTHER)])
    assert output.late_rows == {OTHER: 2}
    assert fired(output) == []
    assert fired(partition.process([prices(5, 5, 6)])) == [("all", 4), ("all", 22)]


def test_rows_that_waited_for_others_of_their_time_go_with_the_trigger(partition: TriggerPartition) -> None:
    """Also if it shared its stream, so that the next one on the ticker does not see them."""
    sql = (
        "SELECT price, COUNT(*) OVER (PARTITION BY ticker ORDER BY ts "
        "RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW) AS n FROM ticks"
    )
    partition.process([], controls=[register("a", sql, TICKER), register("b", sql, OTHER)])
    assert fired(partition.process([prices(1, 1, 2)]), "n") == [("a", 1)]
    partition.process([], controls=[remove("a"), register("a", sql, TICKER, version=2)])
    assert fired(partition.process([prices(3, 3, 4)]), "n") == [("a", 1)]


def test_the_cost_of_a_trigger_is_known_after_each_save() -> None:
    partition = TriggerPartition()
    partition.process([], controls=[register("a", BY_TRADE, TICKER, limit="0"), register("b", "price > 5", TICKER)])
    partition.process([prices(1, *range(1, 30))])
    partition.segments()
    (cost,) = partition.costs().costs
    assert (cost.trigger_id, cost.partitions) == ("a", 29)
    assert cost.state_bytes > 1_000
    assert cost.steps > 0
    partition = TriggerPartition.load(partition.save())
    partition.segments()
    assert list(partition.costs().costs) == [cost]
    partition.process([], controls=[register("other", BY_TRADE, OTHER, limit="7")])
    partition.process([prices(30, 1), prices(1, *range(1, 14), ticker=OTHER)])
    partition.segments()
    costs = {cost.trigger_id: cost.partitions for cost in partition.costs().costs}
    assert costs == {"a": 22, "other": 22}  # 30 and 13 in one stream, rounded up


def test_branches_that_one_trade_meets_are_separate_events_with_stable_ids() -> None:
    sql = "SELECT price, 'a' AS why FROM ticks WHERE price > 5 UNION ALL SELECT price, 'b' FROM ticks WHERE price > 7"
    runs = []
    for _ in range(2):
        partition = TriggerPartition()
        partition.process([], controls=[register("u", sql, TICKER)])
        output = partition.process([prices(1, 9, 6, 4, 8)])
        assert fired(output, "why") == [("u", "a"), ("u", "b"), ("u", "a"), ("u", "a"), ("u", "b")]
        runs.append([event.context["event_id"] for event in output.events])
    assert len(set(runs[0])) == 5 and runs[0] == runs[1]


def test_an_event_has_types_values_time_and_context(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("v", V_SHAPE)])
    (event,) = partition.process([prices(1, 5, 4, 6, 7, 7, 7)]).events
    assert rows(event) == [{"ticker": TICKER, "top": 5.0, "bottom": 4.0, "back": 7.0}]
    assert list(event.schema.column_types) == ["STRING", "DOUBLE", "DOUBLE", "DOUBLE"]
    assert event.timestamp == T0 + 4 * SECOND
    assert (event.context["ticker"], event.context["match_number"]) == (TICKER, "1")
    assert len(event.context["event_id"]) == 32


def test_times_are_nanoseconds_and_unknown_values_have_no_member(partition: TriggerPartition) -> None:
    sql = "SELECT ts, NULLIF(price, price) AS nothing, ticker = 'x' AS flag, ts_ns FROM ticks"
    partition.process([], controls=[register("a", sql)])
    event = partition.process([prices(1, 5, 6)]).events[0]
    assert rows(event) == [{"ts": T0 + SECOND, "nothing": None, "flag": False, "ts_ns": T0 + SECOND}]
    assert list(event.schema.column_types) == ["TIMESTAMP_LTZ(9)", "DOUBLE", "BOOLEAN", "BIGINT"]


def test_an_event_carries_a_decimal_as_text(partition: TriggerPartition) -> None:
    sql = "SELECT CAST(price AS DECIMAL(20, 8)) / 3 AS third, CAST(NULL AS DECIMAL(4, 2)) AS nothing FROM ticks"
    partition.process([], controls=[register("a", sql)])
    event = partition.process([prices(1, 1)]).events[0]
    assert rows(event) == [{"third": "0.3333333333", "nothing": None}]
    assert list(event.schema.column_types) == ["DECIMAL(22, 10)", "DECIMAL(4, 2)"]


def test_all_rows_of_a_match_are_one_event(partition: TriggerPartition) -> None:
    sql = V_SHAPE.replace("PATTERN", "ALL ROWS PER MATCH PATTERN")
    partition.process([], controls=[register("v", sql)])
    (event,) = partition.process([prices(1, 5, 4, 6, 6, 6)]).events
    assert [row["price"] for row in rows(event)] == [5, 4, 6]


def test_a_match_comes_with_the_trade_that_decides_it(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("a", RISE), register("b", IN_ORDER)])
    assert fired(partition.process([prices(1, 5)])) == [("b", 5)]
    assert fired(partition.process([prices(2, 6)])) == [("a", 6), ("b", 6)]


def test_peers_of_a_range_wait_for_the_exchanges_clock(partition: TriggerPartition) -> None:
    sql = "SELECT price, COUNT(*) OVER (PARTITION BY ticker ORDER BY ts) AS n FROM ticks"
    partition.process([], controls=[register("a", sql)])
    assert partition.process([batch(1, (1, "1", 5)), batch(2, (1, "2", 6))]).events == []
    assert partition.process([], marks=[clock(2, 3)]).events == []  # of a trade that has not arrived
    assert fired(partition.process([], marks=[clock(2, 2)]), "n") == [("a", 2), ("a", 2)]


def test_with_a_delay_rows_at_the_watermark_wait_for_the_exchanges_clock() -> None:
    partition = TriggerPartition(TriggerRules(watermark_delay_ns=SECOND))
    partition.process([], controls=[register("a", IN_ORDER)])
    assert partition.process([prices(1, 5)]).events == []
    assert partition.process([], marks=[clock(3, 2)]).events == []  # of a trade that has not come
    assert fired(partition.process([], marks=[clock(3, 1)])) == [("a", 5)]


@pytest.mark.parametrize("delay", [0, 3])
def test_a_trade_that_decides_alone_fires_as_it_comes_however_old_it_is(delay: int) -> None:
    partition = TriggerPartition(TriggerRules(watermark_delay_ns=delay * SECOND))
    partition.process([], controls=[register("a", "price > 1")])
    found = partition.process([batch(1, (5, "1", 2), (3, "2", 3), (1, "3", 4))])
    assert fired(found) == [("a", 2), ("a", 3), ("a", 4)]
    assert partition.process([], marks=[clock(60, 3)]).events == []


def test_a_trade_before_the_watermark_is_reported_and_a_tie_in_order_is_not_late(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("a", IN_ORDER)])
    partition.process([batch(1, (5, "1", 1))])
    output = partition.process([batch(2, (5, "2", 2), (4, "3", 3), (6, "4", 4))])
    assert fired(output) == [("a", 2), ("a", 4)]
    assert output.late_rows == {TICKER: 1}


@pytest.mark.parametrize("is_cut", [False, True])
def test_without_delay_a_tie_that_sorts_before_an_evaluated_trade_is_late(is_cut: bool) -> None:
    """This holds however the records are cut, and after a restart."""
    partition = TriggerPartition()
    partition.process([], controls=[register("a", IN_ORDER)])
    trades = [(5, "7", 1), (5, "9", 2), (5, "x-1", 3), (5, "8", 4), (5, "10", 5), (6, "2", 6), (6, "1", 7), (7, "3", 8)]
    values = [batch(place, trade) for place, trade in enumerate(trades, start=1)]
    found, late = [], 0
    for part in [[value] for value in values] if is_cut else [values]:
        output = partition.process(part)
        found += [price for _, price in fired(output)]
        late += output.late_rows.get(TICKER, 0)
        partition = TriggerPartition.load(partition.save())
    assert found == [1, 2, 3, 5, 6, 8]
    assert late == 2


def test_with_a_delay_ties_are_ordered_by_number_and_never_late() -> None:
    partition = TriggerPartition(TriggerRules(watermark_delay_ns=SECOND))
    partition.process([], controls=[register("a", IN_ORDER)])
    output = partition.process([batch(1, (5, "10", 1), (5, "9", 2)), batch(3, (5, "8", 3), (7, "11", 4))])
    assert fired(output) == [("a", 3), ("a", 2), ("a", 1)]
    assert output.late_rows == {}


def test_a_delay_puts_trades_in_order() -> None:
    partition = TriggerPartition(TriggerRules(watermark_delay_ns=3 * SECOND))
    partition.process([], controls=[register("a", IN_ORDER)])
    output = partition.process([batch(1, (5, "1", 1), (4, "2", 2), (9, "3", 3))])
    assert fired(output) == [("a", 2), ("a", 1)]


def test_a_trade_that_comes_twice_counts_once(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("a", IN_ORDER)])
    partition.process([prices(1, 1, 2), batch(3, (3, "x-1", 3))])
    tick = Tick(ticker=TICKER, trade_id="x-1", timestamp=T0 + 3 * SECOND, price=3, size=1).SerializeToString()
    output = partition.process([prices(1, 1, 2), tick, batch(4, (9, "9", 4))])
    assert fired(output) == [("a", 4)]
    assert partition.duplicates == 3


def test_broken_records_are_counted_and_cost_nothing_else(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("a", IN_ORDER), b"\xff"])
    output = partition.process([b"\xff\xff", prices(1, 1, float("nan"), 3)], bars=[b"\xff"], marks=[b"\xff"])
    assert fired(output) == [("a", 1), ("a", 3)]
    assert partition.bad_records == 5


def test_a_trigger_sees_nothing_from_before_its_registration(partition: TriggerPartition) -> None:
    partition.process([prices(1, 5, 4)], controls=[register("late", IN_ORDER), register("v", V_SHAPE)])
    output = partition.process([prices(3, 6, 5, 5)])
    assert fired(output) == [("late", 6), ("late", 5), ("late", 5)]


def test_only_named_tickers_are_seen(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("a", IN_ORDER, TICKER), register("b", IN_ORDER, OTHER)])
    output = partition.process([prices(1, 1, 2), prices(1, 3, 4, ticker=OTHER)])
    assert fired(output) == [("a", 1), ("a", 2), ("b", 3), ("b", 4)]


def test_triggers_that_differ_in_their_tickers_share_a_stream(partition: TriggerPartition) -> None:
    names = [f"T{i}" for i in range(20)]
    partition.process([], controls=[register(name, V_SHAPE, name) for name in names])
    assert partition.shards == 1
    partition.process([prices(1, 5, ticker="T3")])
    partition.process([], controls=[register("again", V_SHAPE, "T3")])
    assert partition.shards == 2
    output = partition.process([prices(2, 5, 4, 6, 6, 6, ticker="T3")])
    assert sorted(event.trigger_id for event in output.events) == ["T3", "again"]


ALIKE = {
    "pattern": (V_SHAPE, (TICKER,)),
    "window": (
        "SELECT ticker, COUNT(*) AS n FROM ticks GROUP BY ticker, TUMBLE(ts, INTERVAL '2' SECOND)",
        (TICKER, OTHER),
    ),
    "every": ("SELECT price, COUNT(*) OVER (PARTITION BY ticker ORDER BY ts) AS n FROM ticks", ()),
    "condition": ("price > 4", (TICKER,)),
}
_PRICES = (5, 4, 6, 6, 3, 7, 2, 9, 9)


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize("removed", [None, "a", "b", "c"])
def test_triggers_that_are_alike_run_once_and_have_the_events_of_separate_ones(name: str, removed: str | None) -> None:
    sql, tickers = ALIKE[name]

    def run(*ids: str) -> tuple[set[tuple[str, str]], int]:
        partition, found = TriggerPartition(), []
        for trigger_id in ids:
            partition.process([], controls=[register(trigger_id, sql, *tickers)])
        shards = partition.shards
        for place in range(0, len(_PRICES), 3):
            values = [prices(place + 1, *_PRICES[place : place + 3], ticker=ticker) for ticker in (TICKER, OTHER)]
            controls = [remove(removed)] if place == 3 and removed in ids else []
            found += partition.process(values, controls=controls).events
            partition = TriggerPartition.load(partition.save())
        return {(event.trigger_id, event.context["event_id"]) for event in found}, shards

    together, shards = run("a", "b", "c")
    assert shards == 1
    assert together == set[tuple[str, str]]().union(*(run(each)[0] for each in "abc"))
    assert {trigger_id for trigger_id, _ in together} == {"a", "b", "c"}


def test_triggers_that_are_alike_fail_together_and_alone_may_be_replaced(
    partition: TriggerPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = TriggerStream.feed

    def breaking(self: TriggerStream, released: Any, now: Any, **rest: Any) -> Any:
        if TICKER in released.column("ticker").to_pylist():
            raise ArithmeticError("out of range")
        return feed(self, released, now, **rest)

    controls = [register("a", V_SHAPE, TICKER), register("b", V_SHAPE, TICKER), register("c", V_SHAPE, OTHER)]
    partition.process([], controls=controls)
    with monkeypatch.context() as patched:
        patched.setattr(TriggerStream, "feed", breaking)
        output = partition.process([prices(1, 5, 4), prices(1, 5, 4, ticker=OTHER)])
    assert states(output) == [("a", "suspended"), ("b", "suspended")]
    partition.process([], controls=[register("b", V_SHAPE, TICKER, version=2)])
    output = partition.process([prices(3, 5, 4, 6, 6, 6), prices(3, 6, 6, 6, ticker=OTHER)])
    assert sorted(event.trigger_id for event in output.events) == ["b", "c"]


def test_each_of_triggers_that_are_alike_reports_a_silence(partition: TriggerPartition) -> None:
    controls = [register(name, V_SHAPE, TICKER, deadman_seconds="10") for name in "ab"]
    partition.process([], controls=controls, now_ns=SECOND)
    assert partition.shards == 1
    output = partition.process([], now_ns=12 * SECOND)
    assert [event.trigger_id for event in output.events] == ["a", "b"]


def test_a_removed_trigger_is_silent_and_leaves_nothing_to_the_next(partition: TriggerPartition) -> None:
    sql = (
        "SELECT price, COUNT(*) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 5 PRECEDING AND CURRENT ROW) AS n "
        "FROM ticks"
    )
    partition.process([], controls=[register("a", sql, TICKER), register("b", sql, OTHER)])
    partition.process([prices(1, 1, 2, 3)])
    output = partition.process([], controls=[remove("a"), register("c", sql, TICKER)])
    assert states(output) == [("a", "removed"), ("c", "active")]
    assert fired(partition.process([prices(4, 4, 5)]), "n") == [("c", 1), ("c", 2)]


def test_a_larger_version_starts_afresh_and_a_repeated_one_changes_nothing(partition: TriggerPartition) -> None:
    control = register("v", V_SHAPE, TICKER)
    partition.process([], controls=[control])
    partition.process([prices(1, 5, 4)], controls=[control])
    (first,) = partition.process([prices(3, 6, 6, 6)]).events
    partition.process([prices(6, 5, 4)], controls=[register("v", V_SHAPE, TICKER, version=2)])
    assert partition.process([prices(8, 6, 6, 6)]).events == []
    (second,) = partition.process([prices(11, 5, 7, 7, 7)]).events
    assert second.context["match_number"] == "1"
    assert first.context["event_id"] != second.context["event_id"]


def test_a_refused_text_is_suspended_and_the_others_continue(partition: TriggerPartition) -> None:
    output = partition.process([], controls=[register("bad", "prise > 0"), register("good", IN_ORDER)])
    assert states(output) == [("bad", "suspended"), ("good", "active")]
    assert "INVALID_SQL 1:1" in output.reports[0].reason
    assert fired(partition.process([prices(1, 1, 2)])) == [("good", 1), ("good", 2)]


def test_only_the_failing_trigger_is_suspended_even_if_it_shares_a_stream(
    partition: TriggerPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = TriggerStream.feed

    def breaking(self: TriggerStream, released: Any, now: Any, **rest: Any) -> Any:
        found = feed(self, released, now, **rest)
        if self.tickers and OTHER in self.tickers and OTHER in released.column("ticker").to_pylist():
            raise ArithmeticError("out of range")
        return found

    partition.process([], controls=[register("a", V_SHAPE, TICKER), register("b", V_SHAPE, OTHER)])
    partition.process([prices(1, 5, 4)])
    monkeypatch.setattr(TriggerStream, "feed", breaking)
    output = partition.process([prices(3, 6, 6, 6), prices(1, 5, 4, ticker=OTHER)])
    assert [event.trigger_id for event in output.events] == ["a"]
    assert [(r.trigger_id, r.state, r.reason) for r in output.reports] == [("b", "suspended", "out of range")]
    assert partition.process([prices(3, 6, 6, 6, ticker=OTHER)]).events == []
    assert partition.triggers["b"].reason == "out of range"


def test_results_that_cannot_be_written_suspend_their_trigger_alone(
    partition: TriggerPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaking(events: Any, *others: Any, **named: Any) -> Any:
        if OTHER in events.ticker:
            raise ValueError("not a text")
        return firings(events, *others, **named)

    monkeypatch.setattr("triggers.partition.firings", breaking)
    partition.process([], controls=[register("a", V_SHAPE, TICKER), register("b", V_SHAPE, OTHER)])
    partition.process([prices(1, 5, 4)])
    output = partition.process([prices(3, 6, 6, 6), prices(1, 5, 4, 6, 6, 6, ticker=OTHER)])
    assert [event.trigger_id for event in output.events] == ["a"]
    assert states(output) == [("b", "suspended")]


def test_a_cool_down_keeps_events_apart_for_each_ticker(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("a", IN_ORDER, cooldown_seconds="3")])
    output = partition.process([prices(1, 1, 2, 3, 4, 5, 6), prices(1, 11, 12, ticker=OTHER)])
    assert fired(output) == [("a", 1), ("a", 4), ("a", 11)]
    assert partition.triggers["a"].suppressed == 5


def test_a_dead_man_fires_once_for_each_silence(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("d", "FALSE", TICKER, deadman_seconds="10")], now_ns=100 * SECOND)
    assert partition.process([], now_ns=109 * SECOND).events == []
    (never,) = partition.process([], now_ns=110 * SECOND).events
    assert rows(never) == [{"ticker": TICKER, "last_time": None, "silent_seconds": 10.0}]
    partition.process([prices(1, 1)], now_ns=201 * SECOND)
    assert partition.process([], now_ns=210 * SECOND).events == []
    (event,) = partition.process([], now_ns=212 * SECOND).events
    assert rows(event) == [{"ticker": TICKER, "last_time": T0 + SECOND, "silent_seconds": 11.0}]
    assert event.context["deadman"] == "true"
    assert partition.process([], now_ns=300 * SECOND).events == []
    partition.process([prices(2, 1)], now_ns=301 * SECOND)
    (again,) = partition.process([], now_ns=400 * SECOND).events
    assert len({found.context["event_id"] for found in (never, event, again)}) == 3


def test_the_partition_knows_when_a_silence_is_due(partition: TriggerPartition) -> None:
    assert partition.due_after(0) is None
    partition.process([], controls=[register("d", "FALSE", TICKER, deadman_seconds="10")], now_ns=100 * SECOND)
    assert partition.due_after(100 * SECOND) == 110 * SECOND
    partition.process([prices(1, 1)], now_ns=105 * SECOND)
    assert partition.due_after(105 * SECOND) == 115 * SECOND
    partition.process([], now_ns=115 * SECOND)
    assert partition.due_after(115 * SECOND) is None


def test_the_partition_knows_when_a_ticker_becomes_idle() -> None:
    partition = TriggerPartition(TriggerRules(idle_ns=20 * SECOND))
    partition.process([], controls=[register("v", V_SHAPE, TICKER)], now_ns=100 * SECOND)
    partition.process([prices(1, 3, 2)], now_ns=101 * SECOND)
    assert partition.due_after(101 * SECOND) == 121 * SECOND
    partition.process([], now_ns=121 * SECOND)
    assert partition.due_after(0) is None


def test_a_dead_man_over_all_tickers_waits_for_a_first_row(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("d", "FALSE", deadman_seconds="10")], now_ns=100 * SECOND)
    partition.process([prices(1, 1)], now_ns=200 * SECOND)
    assert len(partition.process([], now_ns=210 * SECOND).events) == 1


def _partitions(count: int, *controls: bytes) -> list[TriggerPartition]:
    rules = TriggerRules(partitions=count)
    found = [TriggerPartition(rules, number) for number in range(count + 1)]
    for partition in found:
        partition.process([], controls=controls)
    return found


def test_a_trigger_runs_in_the_partitions_of_its_tickers() -> None:
    spread = (
        f"SELECT a.price - b.price AS s FROM ticks a JOIN ticks b ON a.ts = b.ts AND a.ticker = '{TICKER}' "
        f"AND b.ticker = '{OTHER}'"
    )
    home, other = (partition_of(ticker.encode(), 5) for ticker in (TICKER, OTHER))
    assert home != other
    found = _partitions(
        5,
        register("one", IN_ORDER, TICKER),
        register("two", IN_ORDER, TICKER, OTHER),
        register("all", V_SHAPE),
        register("apart", spread, TICKER, OTHER),
        register("together", spread, TICKER),
        register("any", spread),
        register("bad", "prise > 0", TICKER),
    )
    placed = {
        name: {place for place, partition in enumerate(found) if name in partition.triggers}
        for name in ("one", "two", "all", "apart", "together", "any", "bad")
    }
    assert placed == {
        "one": {home}, "two": {home, other}, "all": {0, 1, 2, 3, 4}, "apart": {5}, "together": {home}, "any": {5},
        "bad": {home},
    }  # fmt: skip
    assert not found[5].process([prices(1, 5, 6, 7), prices(1, 1, ticker=OTHER)]).events
    output = found[5].process([prices(2, 1, 1, ticker=OTHER)])
    assert sorted(fired(output, "s")) == [("any", 4), ("any", 5), ("apart", 4), ("apart", 5)]
    found[5].process([], controls=[register("apart", IN_ORDER, TICKER, version=2)])
    assert "apart" not in found[5].triggers


def test_tickers_without_triggers_are_skipped_and_known_later(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("a", IN_ORDER, TICKER)])
    assert partition.process([prices(1, 1, 2), prices(1, 8, 9, ticker=OTHER)]).events != []
    partition.process([], controls=[register("b", IN_ORDER, OTHER)])
    output = partition.process([prices(1, 8, 9, 10, 11, ticker=OTHER)])
    assert fired(output) == [("b", 10), ("b", 11)]
    assert partition.duplicates == 2


def test_records_from_before_the_first_trigger_are_recognised_by_the_last_ones(partition: TriggerPartition) -> None:
    assert not partition.is_active
    partition.process([], controls=[register("a", IN_ORDER, TICKER)])
    partition.prime([prices(1, 1, 2)], 5)
    assert partition.is_active
    output = partition.process([prices(1, 1, 2), prices(3, 3, 4), batch(5, (1, "x", 7))])
    assert fired(output) == [("a", 3), ("a", 4)]
    assert output.late_rows == {TICKER: 1}


def test_a_clock_of_trades_from_before_the_first_record_is_true(partition: TriggerPartition) -> None:
    sql = """SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts
             MEASURES COUNT(*) AS n ONE ROW PER MATCH WITH TIMEOUT ROWS
             PATTERN (A B) WITHIN INTERVAL '3' SECOND DEFINE B AS price > 5)"""
    partition.process([], controls=[register("t", sql, TICKER)])
    partition.process([], marks=[clock(10, 500)])
    output = partition.process([batch(501, (9, "501", 1), (10, "502", 2))], marks=[clock(20, 502)])
    assert output.late_rows == {TICKER: 1}
    assert fired(output, "n") == [("t", 1)]


def test_nothing_new_leaves_the_state_unchanged(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("a", IN_ORDER, TICKER)], now_ns=1)
    assert partition.process([prices(1, 1)], now_ns=2).is_changed
    assert not partition.process([], now_ns=3).is_changed


def test_a_text_that_is_no_longer_accepted_is_suspended_when_its_state_is_read() -> None:
    before = TriggerPartition(TriggerRules(idle_ns=SECOND))
    ends = "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts PATTERN (A $) DEFINE A AS price > 1)"
    before.process([], controls=[register("bad", ends), register("good", IN_ORDER)])
    after = TriggerPartition.load(before.save())
    output = after.process([prices(1, 1, 2)])
    assert states(output) == [("bad", "suspended")]
    assert fired(output) == [("good", 1), ("good", 2)]
    again = TriggerPartition.load(after.save())
    assert again.triggers["bad"].reason.startswith("INVALID_SQL")
    assert states(again.process([])) == []


def test_a_text_that_no_longer_runs_is_suspended_with_its_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    before = TriggerPartition()
    before.process([], controls=[register("bad", IN_ORDER, OTHER), register("good", "price > 1", TICKER)])

    def refuse(*_: object, **__: object) -> None:
        raise TriggerRejected("not in this version")

    monkeypatch.setattr("candlewright_cep.streaming.stages.stages.OverStage.__init__", refuse)
    after = TriggerPartition.load(before.save())
    output = after.process([prices(1, 1, 2, 3), prices(1, 1, ticker=OTHER)])
    assert states(output) == [("bad", "suspended")]
    assert fired(output) == [("good", 2), ("good", 3)]
    assert "not in this version" in after.triggers["bad"].reason


def test_an_event_of_too_many_rows_is_marked_as_truncated(partition: TriggerPartition) -> None:
    sql = """SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts
             MEASURES REPEAT('x', 1000) AS more, REPEAT('y', 1000) AS text ALL ROWS PER MATCH PATTERN (A{900}))"""
    partition.process([], controls=[register("big", sql, TICKER)])
    (event,) = partition.process([prices(1, *range(1, 903))]).events
    assert event.ByteSize() < 1 << 21
    assert 100 < len(event.rows) < 900
    assert (event.context["truncated"], event.context["rows"]) == ("true", "900")


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_skip_to_a_row_that_is_missing_in_the_match_is_reported_once_and_counted(*, is_shared: bool) -> None:
    skips = """MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES A.trade_id AS a
               AFTER MATCH SKIP TO B PATTERN (A B? C) DEFINE A AS price = 1, B AS price = 2, C AS price = 3)"""
    texts = {"x": "SELECT a FROM found", "y": "SELECT a, ticker FROM found"}
    names = list(texts) if is_shared else ["x"]
    views = {"found": f"SELECT ticker, a FROM ticks {skips}"} if is_shared else {}
    asked = [
        records.TriggerRegistration(
            trigger_id=n,
            sql=texts[n] if is_shared else f"SELECT * FROM ticks {skips}",
            tickers=[TICKER],
            version=1,
            views=views,
        )
        for n in names
    ]
    partition = TriggerPartition()
    partition.process([], controls=[records.TriggerControl(register=each).SerializeToString() for each in asked])
    output = partition.process([prices(1, 1, 3)])
    assert [(each.trigger_id, each.context["skip_degraded"]) for each in output.events] == [(n, "true") for n in names]
    assert output.degraded_skips == len(names)
    output = TriggerPartition.load(partition.save()).process([prices(3, 1, 2, 3)])
    assert [(each.trigger_id, "skip_degraded" in each.context) for each in output.events] == [(n, False) for n in names]
    assert output.degraded_skips == 0


def test_a_quiet_tickers_partition_closes() -> None:
    partition = TriggerPartition(TriggerRules(idle_ns=5 * SECOND))
    partition.process([], controls=[register("v", V_SHAPE)], now_ns=SECOND)
    partition.process([prices(1, 5, 4, 6)], now_ns=2 * SECOND)
    assert partition.process([], now_ns=6 * SECOND).events == []
    assert fired(partition.process([], now_ns=7 * SECOND), "back") == [("v", 6)]


def test_rows_of_several_tickers_together_wait_for_the_slowest(partition: TriggerPartition) -> None:
    sql = "SELECT a.price AS p, a.price - b.price AS spread FROM ticks a JOIN ticks b ON a.ts = b.ts "
    sql += f"AND a.ticker = '{TICKER}' AND b.ticker = '{OTHER}'"
    partition.process([], controls=[register("s", sql, TICKER, OTHER)])
    assert partition.process([prices(1, 5, 6, 7)]).events == []
    output = partition.process([prices(1, 1, 1, 1, ticker=OTHER), prices(1, 9, 9, ticker="third")])
    assert fired(output, "spread") == [("s", 4), ("s", 5)]


def test_a_bar_fires_when_it_comes(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("b", "close > open * 1.02", period_seconds="60")])
    output = partition.process([], bars=[bar(0, 1.01), bar(1, 1.5), bar(0, 9, period=300)])
    assert fired(output, "close") == [("b", 1.5)]


def test_bars_without_period_are_partitioned_by_it(partition: TriggerPartition) -> None:
    sql = """SELECT * FROM ohlc MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time
             MEASURES B.close AS c, B.period_seconds AS p PATTERN (A B) DEFINE B AS close > PREV(close))"""
    partition.process([], controls=[register("b", sql)])
    output = partition.process([], bars=[bar(0, 1), bar(0, 2, period=300), bar(1, 3), bar(5, 4, period=300)])
    assert sorted((row["p"], row["c"]) for event in output.events for row in rows(event)) == [(60, 3), (300, 4)]
    assert len({event.context["event_id"] for event in output.events}) == 2


def test_corrected_bars_are_delivered_on_request(partition: TriggerPartition) -> None:
    both = [
        register("first", "close > 0", period_seconds="60"),
        register("every", "close > 0", period_seconds="60", revisions="true"),
    ]
    partition.process([], controls=both)
    output = partition.process([], bars=[bar(0, 1), bar(1, 2), bar(0, 3, revision=1), bar(2, 4), bar(2, 4)])
    assert fired(output, "close") == [
        ("every", 1), ("every", 2), ("every", 3), ("every", 4), ("every", 4),
        ("first", 1), ("first", 2), ("first", 4),
    ]  # fmt: skip


def test_windows_over_bars_close_with_their_last_bar(partition: TriggerPartition) -> None:
    sql = """SELECT ticker, SUM(close) AS total FROM ohlc
             GROUP BY ticker, TUMBLE(open_time, INTERVAL '5' MINUTE)"""
    partition.process([], controls=[register("w", sql, period_seconds="60")])
    opened = -(T0 // (60 * SECOND)) % 5
    found = [fired(partition.process([], bars=[bar(opened + i, 1)]), "total") for i in range(5)]
    assert found == [[], [], [], [], [("w", 5)]]


def test_a_deadline_over_bars_passes_by_the_exchanges_clock(partition: TriggerPartition) -> None:
    sql = """SELECT * FROM ohlc MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time
             MEASURES A.close AS c ONE ROW PER MATCH WITH TIMEOUT ROWS
             PATTERN (A B) WITHIN INTERVAL '3' MINUTE DEFINE B AS close > 5)"""
    partition.process([], controls=[register("t", sql, period_seconds="60")])
    assert partition.process([], bars=[bar(0, 1)], marks=[clock(60, 0)]).events == []
    (event,) = partition.process([], marks=[clock(300, 0)]).events
    assert (rows(event)[0]["c"], event.context["timed_out"]) == (1, "true")


def test_a_window_over_bars_waits_for_the_bars_of_trades_that_came(partition: TriggerPartition) -> None:
    """The exchange's clock closes no window before them, however long the pipeline was down."""
    sql = """SELECT ticker, COUNT(*) AS n FROM ohlc GROUP BY ticker, TUMBLE(open_time, INTERVAL '2' MINUTE)"""
    partition.process([], controls=[register("w", sql, period_seconds="60")])
    first = T0 // (60 * SECOND) % 2
    trade = batch(1, ((first + 1) * 60 + 5, "1", 5))
    output = partition.process([trade], bars=[bar(first, 1)], marks=[clock(1_000, 1)])
    output = partition.process([], marks=[clock(1_001, 1)])
    assert output.events == []
    assert fired(partition.process([], bars=[bar(first + 1, 2)]), "n") == [("w", 2)]


def test_a_corrected_bar_does_not_reopen_a_closed_window(partition: TriggerPartition) -> None:
    sql = """SELECT ticker, SUM(close) AS total FROM ohlc GROUP BY ticker, TUMBLE(open_time, INTERVAL '2' MINUTE)"""
    partition.process([], controls=[register("w", sql, period_seconds="60", revisions="true")])
    first = T0 // (60 * SECOND) % 2
    output = partition.process([], bars=[bar(first, 1), bar(first, 2, revision=1), bar(first + 1, 4)])
    assert fired(output, "total") == [("w", 7)]
    assert partition.process([], bars=[bar(first + 1, 9, revision=1)]).events == []


def test_ids_of_any_kind_and_width_come_once(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("a", "SELECT trade_id FROM ticks", OTHER)])
    ids = ["7", "8", "9", "10", "12", "11", "12", "a1", "", "10", "9" * 18, "9" * 19, "1\x002", "9" * 19, "12"]
    records = [batch(place + 1, (place, text, 1.0), ticker=OTHER) for place, text in enumerate(ids)]
    together = batch(1, *((place, text, 1.0) for place, text in enumerate(ids)), ticker=TICKER)
    output = partition.process([*records, together, prices(1, 5, ticker=TICKER)], marks=[clock(50, len(ids), OTHER)])
    found = [text for _, text in fired(output, "trade_id")]
    # A zero byte is not a digit; an id that occurs as text and as number is one of each kind.
    assert found == ["7", "8", "9", "10", "12", "11", "a1", "", "9" * 18, "9" * 19, "1\x002"]


def test_triggers_that_differ_in_numbers_share_a_stream_and_keep_their_own(partition: TriggerPartition) -> None:
    controls = [
        register("a", "price > :limit", TICKER, limit="10"),
        register("b", "price > 3.5", OTHER),
        register("c", "price > :other", TICKER, OTHER, other="11"),
        register("d", "price >= 3.5", TICKER),
    ]
    partition.process([], controls=controls)
    assert partition.shards == 3
    partition = TriggerPartition.load(partition.save())
    output = partition.process([prices(1, 9, 11, 12, 8), prices(1, 3, 4, 12, 1, ticker=OTHER)])
    assert sorted(fired(output)) == [
        ("a", 11), ("a", 12), ("b", 4), ("b", 12), ("c", 12), ("c", 12), ("d", 8), ("d", 9), ("d", 11), ("d", 12),
    ]  # fmt: skip


def test_triggers_that_differ_in_a_decimal_share_a_stream_and_keep_their_own(partition: TriggerPartition) -> None:
    exact = "CAST(price AS DECIMAL(20, 8))"
    pattern = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES B.price AS price "
        f"PATTERN (A B) DEFINE B AS {exact} > PREV({exact}) + {{}})"
    )
    controls = [
        register("a", f"{exact} > 10.5", TICKER),
        register("b", f"{exact} > :limit", OTHER, limit="3.25"),
        register("c", pattern.format("0.5"), TICKER),
        register("d", pattern.format("10.25"), OTHER),
    ]
    partition.process([], controls=controls)
    assert partition.shards == 2
    partition = TriggerPartition.load(partition.save())
    output = partition.process([prices(1, 9, 10.5, 11, 12), prices(1, 3, 4, 14.25, 24.75, ticker=OTHER)])
    assert sorted(fired(output)) == [
        ("a", 11), ("a", 12), ("b", 4), ("b", 14.25), ("b", 24.75), ("c", 10.5), ("c", 12), ("d", 24.75),
    ]  # fmt: skip


def test_percentiles_of_all_trades_continue_after_each_restart(partition: TriggerPartition) -> None:
    above = (
        "SELECT price FROM ticks QUALIFY price > APPROX_PERCENTILE(price, {}) OVER (PARTITION BY ticker ORDER BY ts "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    controls = [register("a", above.format(0.5), TICKER, OTHER), register("b", above.format(1), TICKER)]
    partition.process([], controls=controls)
    found: list[tuple[str, Any]] = []
    past: list[float] = []
    wanted: list[tuple[str, Any]] = []
    for step in range(30):
        new = [float((step * 10 + number) * 37 % 301) for number in range(10)]
        output = partition.process([prices(step * 10 + 1, *new), prices(step * 10 + 1, *new, ticker=OTHER)])
        found += fired(output)
        partition = TriggerPartition.load(partition.save())
        for price in new:
            if past:
                wanted += [("a", price)] * 2 * (price > sorted(past)[math.ceil(len(past) / 2) - 1])
                wanted += [("b", price)] * (price > max(past))
            past.append(price)
    assert sorted(found) == sorted(wanted)


def test_a_new_trigger_does_not_get_the_state_of_a_removed_one(partition: TriggerPartition) -> None:
    window = "SELECT COUNT(*) AS n FROM ticks GROUP BY ticker, TUMBLE(ts, INTERVAL '1' MINUTE) HAVING COUNT(*) > {}"
    partition.process([], controls=[register("a", window.format(0), TICKER), register("v", V_SHAPE, TICKER)])
    partition.process([prices(1, 5, 4, 3)])
    partition.process([], controls=[remove("a"), remove("v")])
    partition.process([], controls=[register("b", window.format(1), TICKER), register("w", V_SHAPE, TICKER)])
    output = partition.process([prices(4, 4, 5, 6, 6)], marks=[clock(200, 7)])
    assert [(event.trigger_id, rows(event)[0].get("n")) for event in output.events] == [("b", 4)]


def test_a_spread_of_two_tickers_bars_and_a_pattern_over_it(partition: TriggerPartition) -> None:
    spread = (
        "SELECT a.open_time AS t, a.close - b.close AS spread FROM ohlc a, ohlc b WHERE a.open_time = b.open_time "
        f"AND a.ticker = '{TICKER}' AND b.ticker = '{OTHER}'"
    )
    pattern = (
        f"SELECT * FROM ({spread}) MATCH_RECOGNIZE (ORDER BY t MEASURES MAX(spread) AS widest, FIRST(t) AS since "
        "PATTERN (A B{2,} C) DEFINE B AS spread > PREV(spread), C AS spread < PREV(spread)) AS m"
    )
    texts = {"s": f"{spread} AND a.close - b.close > 2", "m": pattern}
    partition.process(
        [], controls=[register(name, sql, TICKER, OTHER, period_seconds="60") for name, sql in texts.items()]
    )
    found: list[tuple[int, str, dict[str, Any]]] = []
    for minute, close in enumerate([5, 6, 7, 8, 4, 5]):
        bars = [[bar(minute, close)], [bar(minute, 5, ticker=OTHER)]]
        for one in bars if minute % 2 else reversed(bars):
            events = partition.process([], bars=one).events
            found += [(minute, event.trigger_id, rows(event)[0]) for event in events]
        partition = TriggerPartition.load(partition.save())
    assert found == [
        (3, "s", {"t": T0 + 180 * SECOND, "spread": 3.0}),
        (4, "m", {"widest": 3.0, "since": T0}),
    ]


def test_a_state_whose_numbers_another_version_took_out_is_read_again(
    partition: TriggerPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = "SELECT COUNT(*) AS n FROM ticks GROUP BY ticker, TUMBLE(ts, INTERVAL '1' MINUTE) HAVING COUNT(*) > {}"
    controls = [register("a", window.format(1), TICKER), register("b", window.format(2), OTHER)]
    with monkeypatch.context() as older:
        older.setattr(slots, "_written_once", lambda part: f"older {part!r}")
        partition.process([], controls=controls)
        partition.process([prices(1, 5, 6), prices(1, 5, 6, ticker=OTHER)])
        state = partition.save()
    partition = TriggerPartition.load(state)
    assert partition.shards == 1
    output = partition.process([prices(3, 7, ticker=OTHER)], marks=[clock(200, 2), clock(200, 3, OTHER)])
    assert not output.reports
    assert sorted(fired(output, "n")) == [("a", 2), ("b", 3)]
    partition.process([], controls=[register("c", window.format(0), "SOL/USDT.BINANCE")])
    assert partition.shards == 1


def test_unwanted_periods_are_dropped(partition: TriggerPartition) -> None:
    def wanted(*periods: int) -> bytes:
        return records.TickMark(ticker=TICKER, wanted=records.Wanted(period_seconds=periods)).SerializeToString()

    named = register("n", "close > 10", TICKER, period_seconds="120")
    partition.process([], controls=[register("a", "SELECT close FROM ohlc WHERE close > 10"), named])
    on_demand = [120, 180, 240]
    partition.process([], [bar(0, 1.0)], [wanted(*on_demand)], now_ns=T0)
    partition.process([], [bar(_first(period), 11.0, period) for period in on_demand], now_ns=T0 + SECOND)
    before = len(partition.save())
    partition.process([], [bar(1, 1.0)], [wanted(240)], now_ns=T0 + 2 * SECOND)
    for minute in range(2, 30):
        partition.process([], [bar(minute, 1.0)], now_ns=T0 + minute * 60 * SECOND)
    clocks = partition._intake.clocks
    assert set(clocks.bars) == clocks.arrivals.keys() - {0} == set(partition._intake.candles.reached) == {60, 120, 240}
    assert {label for shard in partition._registry.shards.values() for label in shard.streams} == {60, 120, 240}
    assert len(partition.save()) < before
    partition = TriggerPartition.load(partition.save())
    # A period that is wanted again begins with its next bar.
    output = partition.process([], [bar(_first(180) + 30, 12.0, 180)], [wanted(180, 240)], now_ns=T0 + 1_990 * SECOND)
    assert fired(output, "close") == [("a", 12.0)]


def test_a_period_of_unknown_demand_is_kept(partition: TriggerPartition) -> None:
    partition.process([], controls=[register("a", "SELECT close FROM ohlc WHERE close > 10")])
    partition.process([], [bar(_first(120), 1.0, 120)], now_ns=T0)
    partition.process([], [bar(30, 1.0)], now_ns=T0 + 86_400 * SECOND)
    assert set(partition._intake.clocks.bars) == {60, 120}


def _first(period: int) -> int:
    """The minute after T0 with which a bar of `period` opens."""
    return (first_open_from(T0, period) - T0) // (60 * SECOND)


def test_arrays_and_structs_are_json_in_an_event() -> None:
    text = """SELECT at, path, sides FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts
        MEASURES ROW(B.ts, B.price) AS at, ARRAY_AGG(ROW(ts, price / (price - 5) AS x)) AS path,
        ARRAY_AGG(side) AS sides PATTERN (A B) DEFINE B AS B.price > A.price)"""
    partition = TriggerPartition()
    partition.process([], controls=[register("t", text)])
    (event,) = partition.process([batch(1, (0, "1", 5.0), (0.000000001, "2", 6.0))]).events
    (row,) = rows(event)
    assert json.loads(row["at"]) == {"ts": "2023-11-14T22:15:00.000000001Z", "price": 6.0}
    assert json.loads(row["path"])[1] == {"ts": "2023-11-14T22:15:00.000000001Z", "x": 6.0}
    assert json.loads(row["sides"]) == ["buy", "buy"]
