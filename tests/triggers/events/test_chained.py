"""Triggers over the events of triggers: three alerts on different tickers in ten minutes are one event."""

import random

import pytest

from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerRequest
from candlewright_cep import TriggerRejected
from tests.rounds import seeds
from tests.triggers.trigger_records import OTHER, T0, TICKER, batch, jump, register, remove, rows
from triggers.partition import TriggerOutput, TriggerPartition
from triggers.texts.check import TriggerRules, check_trigger, compile_trigger

THIRD = "SOL/USDT.BINANCE"
THREE = """
SELECT * FROM (SELECT * FROM trigger_events WHERE trigger_id = 'jump') MATCH_RECOGNIZE (
  ORDER BY fired_at
  MEASURES A.ticker AS a, B.ticker AS b, C.ticker AS c, A.fired_at AS first_at, C.fired_at AS last_at
  PATTERN (A X*? B Y*? C) WITHIN INTERVAL '10' MINUTE
  DEFINE B AS B.ticker <> A.ticker, C AS C.ticker <> A.ticker AND C.ticker <> B.ticker
)"""
JUMP = "SELECT ticker, price FROM ticks WHERE price > 100"


def joint(*controls: bytes) -> TriggerPartition:
    partition = TriggerPartition()
    partition.process([], controls=list(controls))
    return partition


def fired(output: TriggerOutput) -> list[tuple[str, ...]]:
    return [tuple(row[name] for name in ("a", "b", "c")) for event in output.events for row in rows(event)]


def test_three_alerts_on_different_tickers_in_ten_minutes_are_one_event() -> None:
    partition = joint(register("three", THREE))
    found = []
    for event in (jump(TICKER, 0), jump(TICKER, 60), jump(OTHER, 120), jump(THIRD, 500), jump(OTHER, 5_000)):
        found += fired(partition.process([], events=[event]))
    assert found == [(TICKER, OTHER, THIRD)]
    # Too far apart.
    late = [jump(TICKER, 10_000), jump(OTHER, 10_100), jump(THIRD, 10_601)]
    assert [fired(partition.process([], events=[event])) for event in late] == [[], [], []]


def test_events_of_a_step_are_taken_by_their_times_and_older_ones_later_at_the_time_reached() -> None:
    text = "SELECT ticker, fired_at, LAG(ticker) OVER (ORDER BY fired_at) AS before FROM trigger_events"
    partition = joint(register("t", text))
    first = partition.process([], events=[jump(OTHER, 5), jump(TICKER, 3)])
    assert [(row["ticker"], row["before"]) for event in first.events for row in rows(event)] == [
        (TICKER, None),
        (OTHER, TICKER),
    ]
    [event] = partition.process([], events=[jump(THIRD, 1)]).events
    [row] = rows(event)
    assert (row["ticker"], row["before"]) == (THIRD, OTHER)
    assert row["fired_at"] == T0 + 5 * SECOND + 1


def test_time_continues_by_the_wall_clock_while_nothing_comes() -> None:
    text = """SELECT window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE trigger_events, DESCRIPTOR(fired_at),
    INTERVAL '1' MINUTE)) GROUP BY window_start, window_end"""
    partition = joint(register("t", text))
    now = T0 + 100 * SECOND
    assert not partition.process([], events=[jump(TICKER, 30)], now_ns=now).events
    assert not partition.process([], now_ns=now + 20 * SECOND).events
    [event] = partition.process([], now_ns=now + 66 * SECOND).events
    assert [row["n"] for row in rows(event)] == [1]


def test_without_names_only_events_of_triggers_over_trades_and_bars_are_seen() -> None:
    text = "SELECT trigger_id, ticker FROM trigger_events"
    partition = joint(register("all", text), register("named", f"{text} WHERE trigger_id IN ('all', 'x')"))
    output = partition.process([], events=[jump(TICKER, 1, "x"), jump(TICKER, 2, "all", chained="true")])
    seen = [(event.trigger_id, row["trigger_id"]) for event in output.events for row in rows(event)]
    assert sorted(seen) == [("all", "x"), ("named", "all"), ("named", "x")]
    assert all(event.context["chained"] == "true" for event in output.events)


def test_a_trigger_sees_events_of_its_tickers_since_its_registration() -> None:
    text = "SELECT ticker, event_id FROM trigger_events"
    partition = joint(register("old", text))
    partition.process([], events=[jump(TICKER, 1)], controls=[register("new", text, OTHER)])
    output = partition.process([], events=[jump(OTHER, 2), jump(TICKER, 3)])
    seen = {(event.trigger_id, event.context["ticker"]) for event in output.events}
    assert seen == {("old", OTHER), ("old", TICKER), ("new", OTHER)}
    assert [report.state for report in partition.process([], controls=[remove("old"), remove("new")]).reports] == [
        "removed",
        "removed",
    ]
    assert not partition.reads_events


@pytest.mark.parametrize("seed", seeds(5))
def test_a_restart_after_any_event_keeps_ids_and_results(seed: int) -> None:
    draw = random.Random(seed)
    tickers = (TICKER, OTHER, THIRD)
    events = [jump(draw.choice(tickers), 30.0 * place + draw.choice((0, 0, -40))) for place in range(40)]

    def run(*, restarts: bool) -> list[bytes]:
        partition = joint(register("three", THREE))
        found = []
        for place, event in enumerate(events):
            output = partition.process([], events=[event], now_ns=T0 + (30 * place + 1) * SECOND)
            found += [each.SerializeToString(deterministic=True) for each in output.events]
            if restarts:
                partition = TriggerPartition.load(partition.save())
        return found

    wanted = run(restarts=False)
    assert wanted
    assert run(restarts=True) == wanted


def test_a_chain_in_one_partition_carries_ids_along() -> None:
    partition = joint(
        register("jump", JUMP),
        register(
            "seen",
            "SELECT event_id, ticker, CAST(JSON_VALUE(columns, '$.price') AS DOUBLE) AS price FROM trigger_events",
            TICKER,
        ),
    )
    source = partition.process([batch(1, (1, "1", 101.0))])
    [jumped] = source.events
    [seen] = partition.process([], events=[jumped.SerializeToString()]).events
    [row] = rows(seen)
    assert row["event_id"] == jumped.context["event_id"]
    assert row["price"] == 101.0
    assert seen.timestamp == jumped.timestamp


def test_an_invalid_event_is_refused_and_harms_nothing() -> None:
    partition = joint(register("t", "SELECT ticker FROM trigger_events"))
    output = partition.process([], events=[b"\xff\xff", jump(TICKER, 4_000), jump(TICKER, 1)], now_ns=T0)
    assert [event.timestamp for event in output.events] == [T0 + SECOND]
    assert [reason[:40] for _, reason in partition.take_refused()] == [
        "not a CEPTriggerEvent whose values can b",
        "an event from more than an hour ahead, a",
    ]


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("trigger_id = 'a'", ("a",)),
        ("'a' = trigger_id AND ticker = 'x'", ("a",)),
        ("trigger_id IN ('b', 'a')", ("a", "b")),
        ("trigger_id = 'a' OR trigger_id = :other", ("a", "o")),
        ("trigger_id = 'a' OR ticker = 'x'", ()),
        ("trigger_id LIKE 'a%'", ()),
        ("trigger_id <> 'a'", ()),
        ("ticker = 'a'", ()),
    ],
)
def test_a_text_knows_the_triggers_that_it_names(condition: str, named: tuple[str, ...]) -> None:
    compiled = compile_trigger(f"SELECT * FROM trigger_events WHERE {condition}", {"other": "o"}, TriggerRules())
    assert compiled.sources == named


@pytest.mark.parametrize(
    ("sql", "parameters", "said"),
    [
        ("SELECT * FROM trigger_events WHERE trigger_id = 't'", {}, "reads its own events"),
        ("SELECT * FROM trigger_events", {"lookback_seconds": "5"}, "lookback_seconds is not possible"),
        ("SELECT * FROM trigger_events", {"deadman_seconds": "5"}, "deadman_seconds is not possible"),
    ],
)
def test_options_that_a_trigger_over_events_cannot_have_are_refused(
    sql: str, parameters: dict[str, str], said: str
) -> None:
    with pytest.raises(TriggerRejected, match=said):
        check_trigger(CEPTriggerRequest(trigger_id="t", sql_pattern=sql, parameters=parameters))
