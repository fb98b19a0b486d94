"""Triggers that look back: rows from before the registration, each once, and events only of what came after it."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.api import partition_of
from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from candlewright_cep.engine import evaluate
from tests.rounds import rounds
from tests.triggers.trigger_records import (
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
)  # fmt: skip
from triggers.partition import TriggerOutput, TriggerPartition
from triggers.records.lookback import past_bars, past_ticks
from triggers.records.rows import BarIntake, TickIntake
from triggers.texts.check import INPUTS, TriggerRules

pytestmark = pytest.mark.timeout(30)

NOW = T0 + 10_000 * SECOND
THREE_UP = """
SELECT * FROM ohlc MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY open_time
  MEASURES FIRST(close) AS first, LAST(close) AS last, MATCH_NUMBER() AS number
  PATTERN (A B{2}) DEFINE B AS close > PREV(close)
) AS m"""
MEAN = """
SELECT ts_ns, SUM(price) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS total
FROM ticks"""
NO_TICKS, NO_BARS = (INPUTS[name].schema.empty_table() for name in ("ticks", "ohlc"))


def ticks_of(*values: bytes) -> pa.Table:
    return TickIntake().rows(values).select(INPUTS["ticks"].schema.names)


def bars_of(*values: bytes) -> pa.Table:
    runs = [bars.every for bars in BarIntake().rows(values).values()]
    return pa.concat_tables(runs).select(INPUTS["ohlc"].schema.names)


def begin(partition: TriggerPartition, sql: str, past: pa.Table, *tickers: str, **parameters: str) -> TriggerOutput:
    parameters = {"lookback_seconds": "100000"} | parameters
    control = register("t", sql, *(tickers or (TICKER,)), **parameters)
    output = partition.process([], controls=[control], now_ns=NOW)
    (request,) = output.lookbacks
    assert (request.trigger_id, request.since_ns) == ("t", NOW - 100_000 * SECOND)
    partition.look_back(request, past, output)
    return output


def values(events: Sequence[CEPTriggerEvent]) -> list[dict[str, Any]]:
    """The measures of the patterns' events."""
    return [{n: v for n, v in row.items() if n != "ticker"} for event in events for row in rows(event)]


def test_stored_and_recent_trades_are_one_row_each_and_later_ones_none() -> None:
    stored = ticks_of(prices(8, 8, 9, 10, 11), prices(1, 1, 1, ticker=OTHER))
    found = past_ticks(stored, ticks_of(prices(10, 10, 11, 12)), ticks_of(prices(11, 11)), since_ns=T0 + 9 * SECOND)
    assert [(row["ticker"], row["trade_id"]) for row in found.to_pylist()] == [(TICKER, i) for i in ("9", "10", "12")]


def test_trades_of_one_time_are_in_the_order_of_their_ids() -> None:
    found = past_ticks(ticks_of(batch(1, (1, "10", 2.0), (1, "9", 1.0))), NO_TICKS, NO_TICKS, since_ns=0)
    assert found["trade_id"].to_pylist() == ["9", "10"]


def test_stored_and_recent_bars_are_one_row_each_and_those_in_progress_none() -> None:
    stored = bars_of(bar(1, 1), bar(2, 2), bar(3, 3), bar(4, 4), bar(6, 6))
    recent = bars_of(bar(3, 3), bar(5, 5), bar(5, 5.5, revision=1))
    found = past_bars(stored, recent, bars_of(bar(4, 4)), since_ns=T0 + 2 * 60 * SECOND, now_ns=T0 + 6 * 60 * SECOND)
    assert found["close"].to_pylist() == [2, 3, 5.5]


def test_a_pattern_that_begins_in_past_bars_ends_in_a_live_one_once() -> None:
    partition = TriggerPartition()
    assert begin(partition, THREE_UP, bars_of(bar(1, 2), bar(2, 3)), period_seconds="60").events == []
    found = partition.process([], [bar(2, 3), bar(3, 4), bar(4, 1)]).events
    assert values(found) == [{"first": 2, "last": 4, "number": 1}]


def test_a_match_that_is_all_past_is_counted_and_not_sent() -> None:
    partition = TriggerPartition()
    past = bars_of(bar(1, 1), bar(2, 2), bar(3, 3), bar(4, 1))
    assert begin(partition, THREE_UP, past, period_seconds="60").events == []
    found = partition.process([], [bar(5, 2), bar(6, 3)]).events
    assert values(found) == [{"first": 1, "last": 3, "number": 2}]


def test_a_past_match_that_only_a_live_row_makes_final_is_not_sent() -> None:
    partition = TriggerPartition()
    begin(partition, V_SHAPE, ticks_of(prices(1, 5, 4, 5)))
    (found,) = partition.process([prices(4, 3, 4, 2, 1, 9, 8)], marks=[clock(100, 9)]).events
    assert values([found]) == [{"top": 4, "bottom": 1, "back": 9}]
    assert found.context["match_number"] == "2"


def test_a_deadline_that_passes_after_the_registration_is_sent() -> None:
    sql = """SELECT * FROM ticks MATCH_RECOGNIZE (
      PARTITION BY ticker ORDER BY ts MEASURES A.price AS a ONE ROW PER MATCH WITH TIMEOUT ROWS
      PATTERN (A B) WITHIN INTERVAL '30' SECOND DEFINE A AS price > 5, B AS price < 5) AS m"""
    partition = TriggerPartition()
    begin(partition, sql, ticks_of(prices(1, 1, 9)))
    assert partition.process([], marks=[clock(10, 2)]).events == []
    assert values(partition.process([], marks=[clock(50, 2)]).events) == [{"a": 9}]


def test_trades_at_the_watermark_precede_live_ones_of_their_time_and_come_once() -> None:
    partition = TriggerPartition()
    begin(partition, MEAN, ticks_of(prices(1, 1, 2, 4)))
    again = batch(3, (3, "3", 4.0), (3, "4", 8.0), (4, "5", 16.0), (5, "6", 1.0))
    found = partition.process([again]).events
    assert [row["total"] for row in values(found)] == [14, 28, 25]


def test_with_a_delay_past_trades_wait_for_the_live_ones_of_their_time() -> None:
    partition = TriggerPartition(TriggerRules(watermark_delay_ns=SECOND))
    begin(partition, MEAN, ticks_of(prices(1, 1, 2, 4)))
    again = batch(3, (2, "4", 8.0), (3, "3", 4.0), (4, "5", 16.0), (6, "6", 1.0))
    found = partition.process([again]).events
    assert [row["total"] for row in values(found)] == [11, 28]


def test_trades_that_other_triggers_have_seen_come_once() -> None:
    partition = TriggerPartition()
    partition.process([], controls=[register("other", MEAN, TICKER)])
    partition.process([prices(1, 1, 2, 4)])
    begin(partition, MEAN, ticks_of(prices(1, 1, 2, 4)))
    found = partition.process([prices(4, 8, 16)]).events
    assert [row["total"] for row in values([event for event in found if event.trigger_id == "t"])] == [14, 28]
    assert [row["total"] for row in values([event for event in found if event.trigger_id == "other"])] == [14, 28]


def test_without_a_past_the_trigger_runs_from_its_registration_on() -> None:
    partition = TriggerPartition()
    begin(partition, MEAN, NO_TICKS)
    assert [row["total"] for row in values(partition.process([prices(1, 1, 2, 4)]).events)] == [1, 3, 7]


def test_a_trigger_that_does_not_ask_sees_nothing_from_before() -> None:
    output = TriggerPartition().process([], controls=[register("t", MEAN, TICKER)], now_ns=NOW)
    assert output.lookbacks == []


def test_a_condition_needs_no_past_rows() -> None:
    controls = [register("t", "price > 0", TICKER, lookback_seconds="60")]
    assert TriggerPartition().process([], controls=controls, now_ns=NOW).lookbacks == []


def test_a_removed_or_replaced_trigger_asks_for_no_past() -> None:
    first = register("t", MEAN, TICKER, lookback_seconds="60")
    for controls in ([first, remove("t")], [first, register("t", MEAN, TICKER, version=2)]):
        assert TriggerPartition().process([], controls=controls, now_ns=NOW).lookbacks == []


def test_a_past_beyond_the_bounds_suspends_the_trigger_alone() -> None:
    partition = TriggerPartition(TriggerRules(retained_rows=4))
    partition.process([], controls=[register("other", MEAN, TICKER)])
    output = begin(partition, MEAN, ticks_of(prices(1, 1, 2, 3, 4, 5)))
    assert [(r.trigger_id, r.state) for r in output.reports] == [("t", "active"), ("t", "suspended")]
    assert "5 rows" in output.reports[-1].reason
    found = partition.process([prices(6, 1, 2)]).events
    assert {event.trigger_id for event in found} == {"other"}


def test_a_spread_joins_a_past_row_with_a_live_one() -> None:
    sql = f"""SELECT a.open_time AS at, a.close - b.close AS spread FROM ohlc AS a JOIN ohlc AS b
      ON a.open_time = b.open_time WHERE a.ticker = '{TICKER}' AND b.ticker = '{OTHER}'"""
    partition = TriggerPartition(TriggerRules(partitions=5), 5)
    assert partition_of(TICKER.encode(), 5) != partition_of(OTHER.encode(), 5)
    past = bars_of(bar(1, 5), bar(2, 7), bar(1, 4, ticker=OTHER))
    begin(partition, sql, past.sort_by([("open_time", "ascending")]), TICKER, OTHER, period_seconds="60")
    found = partition.process([], [bar(2, 4, ticker=OTHER), bar(3, 1), bar(3, 1, ticker=OTHER)]).events
    assert [row["spread"] for row in values(found)] == [3, 0]


SHAPE = """SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY ts MEASURES FIRST(trade_id) AS first, LAST(trade_id) AS last, MATCH_NUMBER() AS number
  PATTERN (S D+ U+) DEFINE D AS price < PREV(price), U AS price > PREV(price)) AS v"""
STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=2, max_size=30)


@settings(deadline=None, max_examples=rounds(40))
@given(STEPS, st.data())
def test_any_cut_between_past_and_live_agrees_with_one_evaluation(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Rows at the boundary occur once, in order, and ids do not change if the state is saved and loaded in between."""
    second, trades = 0, []
    for number, (step, price) in enumerate(steps, start=1):
        second += step
        trades.append((float(second), str(number), float(price)))
    cut = data.draw(st.integers(1, len(trades) - 1), label="past")
    is_watched = data.draw(st.booleans(), label="watched")
    repeated = data.draw(st.integers(0, cut), label="repeated") if is_watched else 0
    sql = SHAPE if data.draw(st.booleans(), label="pattern") else MEAN

    def run(*, restarts: bool) -> list[CEPTriggerEvent]:
        partition = TriggerPartition()
        if is_watched:
            partition.process([], controls=[register("other", MEAN, TICKER)])
            partition.process([batch(1, *trades[:cut])])
        begin(partition, sql, ticks_of(batch(1, *trades[:cut])))
        found = []
        for place in range(cut - repeated, len(trades)):
            if restarts:
                partition = TriggerPartition.load(partition.save())
            found += partition.process([batch(place + 1, trades[place])]).events
        if restarts:
            partition = TriggerPartition.load(partition.save())
        found += partition.process([], marks=[clock(second + 10, len(trades))]).events
        return [event for event in found if event.trigger_id == "t"]

    once, again = run(restarts=False), run(restarts=True)
    assert [event.context["event_id"] for event in once] == [event.context["event_id"] for event in again]
    everything = evaluate(sql, ticks_of(batch(1, *trades))).to_pylist()
    if sql == MEAN:
        assert values(once) == everything[cut:]
    else:
        # The last match may still grow.
        live = [{n: row[n] for n in ("first", "last", "number")} for row in everything if int(row["last"]) > cut]
        assert values(once) in (live, live[:-1])
