"""Triggers that join inputs by time, over the records of bus partitions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from candlewright_cep import TriggerRejected
from tests.rounds import rounds
from tests.triggers.trigger_records import OTHER, T0, TICKER, bar, batch, register, remove, rows
from triggers.partition import TriggerPartition
from triggers.running.outcome import TriggerOutput
from triggers.texts.check import TriggerRules, compile_trigger, is_joint

LAST_BAR = """SELECT t.ticker, t.price, o.close FROM ticks t ASOF JOIN ohlc o
    ON t.ticker = o.ticker AND t.ts >= o.close_time WHERE t.price > o.close"""
SPREAD = f"""SELECT a.price - b.price AS spread FROM ticks a ASOF JOIN ticks b
    ON a.ts >= b.ts AND b.ticker = '{OTHER}' AND b.ts >= a.ts - INTERVAL '10' SECOND WHERE a.ticker = '{TICKER}'"""


def told(output: TriggerOutput, column: str) -> list[object]:
    return [row[column] for event in output.events for row in rows(event)]


def trades(first: int, *trades_of: tuple[float, float], ticker: str = TICKER) -> bytes:
    """(second, price)."""
    each = [(second, str(first + place), price) for place, (second, price) in enumerate(trades_of)]
    return batch(first, *each, ticker=ticker)


def test_a_trade_meets_the_last_bar_that_has_closed() -> None:
    partition = TriggerPartition()
    partition.process([], controls=[register("up", LAST_BAR, TICKER, period_seconds="60")])
    # The first trades wait: no bar has arrived, and the one that opened at 0 closes at 60.
    assert partition.process([trades(1, (10, 5), (61, 7), (119, 4))]).events == []
    output = partition.process([], bars=[bar(0, 6)])
    assert told(output, "close") == [6]
    (event,) = output.events
    assert event.context["ticker"] == TICKER
    # Trades before the next bar's close are decided immediately; bars of other periods are not among its inputs.
    assert told(partition.process([trades(4, (119.5, 8))], bars=[bar(0, 1, period=300)]), "price") == [8]
    assert told(partition.process([trades(5, (121, 8))]), "price") == []
    assert told(partition.process([], bars=[bar(1, 7)]), "close") == [7]


def test_rows_from_before_the_registration_are_not_joined() -> None:
    partition = TriggerPartition()
    partition.process([], controls=[register("other", "price > 0")])
    partition.process([trades(1, (61, 9))], bars=[bar(0, 6)])
    partition.process([], controls=[register("up", LAST_BAR, TICKER, period_seconds="60")])
    output = partition.process([trades(2, (70, 9), (130, 9))], bars=[bar(1, 7)])
    assert [(event.trigger_id, rows(event)[0]["price"]) for event in output.events if event.trigger_id == "up"] == [
        ("up", 9)
    ]
    partition.process([], controls=[remove("up")])
    assert [event.trigger_id for event in partition.process([trades(4, (180, 9))], bars=[bar(2, 1)]).events] == [
        "other"
    ]


def test_a_spread_of_two_tickers_runs_where_both_are_seen() -> None:
    rules = TriggerRules(partitions=8)
    compiled = compile_trigger(SPREAD, {}, rules)
    assert is_joint(compiled, [TICKER, OTHER], 8)
    assert not is_joint(compile_trigger(LAST_BAR, {"period_seconds": "60"}, rules), [TICKER, OTHER], 8)
    joint, own = TriggerPartition(rules, 8), TriggerPartition(rules, 0)
    for partition in (joint, own):
        partition.process([], controls=[register("s", SPREAD, TICKER, OTHER)])
        both = [trades(1, (1, 50), (5, 51), (30, 52)), trades(1, (2, 40), (4, 41), (31, 42), ticker=OTHER)]
        output = partition.process(both)
        # At 1 the other input has no row yet, at 30 its row is too old.
        assert told(output, "spread") == ([10] if partition is joint else [])


@settings(max_examples=rounds(30), deadline=None)
@given(st.lists(st.integers(0, 12), max_size=4), st.booleans())
def test_events_are_the_same_however_records_are_cut(cuts: list[int], restarts: bool) -> None:
    """Their ids are the same, too."""
    records: list[tuple[str, bytes]] = []
    for minute in range(4):
        records.append(("ticks", trades(3 * minute + 1, (60 * minute + 5, 2), (60 * minute + 30, 1 + minute % 2))))
        records.append(("ticks", trades(3 * minute + 3, (60 * minute + 59, 3))))
        records.append(("bars", bar(minute, 1.5)))

    def run(places: list[int], *, restart: bool) -> list[tuple[str, int]]:
        partition = TriggerPartition()
        partition.process([], controls=[register("up", LAST_BAR, TICKER, period_seconds="60")])
        found: list[CEPTriggerEvent] = []
        for start, end in zip([0, *places], [*places, len(records)], strict=True):
            part = records[start:end]
            ticks, bars = ([value for kind, value in part if kind == wanted] for wanted in ("ticks", "bars"))
            found += partition.process(ticks, bars=bars).events
            if restart:
                partition = TriggerPartition.load(partition.save())
        return [(event.context["event_id"], event.timestamp) for event in found]

    wanted = run([], restart=False)
    assert len({event_id for event_id, _ in wanted}) == len(wanted) == 8
    assert run(sorted(cuts), restart=restarts) == wanted


def test_options_for_a_single_input_are_refused() -> None:
    for name in ("deadman_seconds", "lookback_seconds"):
        with pytest.raises(TriggerRejected, match=f"{name} is not possible for a text that joins inputs by time"):
            compile_trigger(LAST_BAR, {"period_seconds": "60", name: "60"}, TriggerRules())


def test_inputs_are_named_in_the_order_of_the_text() -> None:
    compiled = compile_trigger(LAST_BAR, {"period_seconds": "300"}, TriggerRules())
    assert (compiled.labels, compiled.periods, compiled.reads_trades) == ((0, 300), (0, 300), True)
    assert compile_trigger("close > 1", {"period_seconds": "300"}, TriggerRules()).labels == ()
    assert T0 % (300 * SECOND) == 0
