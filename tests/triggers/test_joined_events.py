"""Triggers that join events with trades, bars and other events find the same as a batch evaluation."""

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from candlewright.wire.candlewright_pb2 import OHLCV, TickBatch
from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent, CEPTriggerRequest
from candlewright_cep import TriggerRejected
from candlewright_cep.engine import evaluate_named
from protobuf import records_pb2 as records
from tests.rounds import seeds
from tests.triggers import guide
from tests.triggers.trigger_records import OTHER, T0, TICKER, bar, batch, clock, jump, register, rows
from triggers.events.chained import EVENTS
from triggers.events.event_rows import event_rows
from triggers.partition import TriggerPartition
from triggers.texts.check import INPUTS, TriggerRules, check_trigger, compile_trigger, is_joint

AFTER_AN_ALERT = """SELECT t.ticker, t.ts, t.price, e.event_id FROM ticks t ASOF JOIN trigger_events e
    ON t.ticker = e.ticker AND t.ts >= e.fired_at AND e.trigger_id = 'jump'"""
TEXTS = {
    "the last alert before a trade": AFTER_AN_ALERT,
    "the last alert of a minute or none": """SELECT t.ticker, t.ts, e.event_id FROM ticks t
        ASOF LEFT JOIN trigger_events e ON t.ticker = e.ticker AND t.ts > e.fired_at
        AND e.fired_at >= t.ts - INTERVAL '10' SECOND""",
    "trades around an alert": """SELECT e.event_id, t.ts FROM ticks t JOIN trigger_events e ON t.ticker = e.ticker
        AND e.fired_at BETWEEN t.ts - INTERVAL '5' SECOND AND t.ts + INTERVAL '3' SECOND""",
    "alerts with the price": """SELECT e.event_id, t.price FROM trigger_events e ASOF LEFT JOIN ticks t
        ON e.ticker = t.ticker AND e.fired_at >= t.ts WHERE e.trigger_id IN ('jump', 'fall')""",
    "alerts with all trades to come": """SELECT e.event_id, t.price FROM trigger_events e LEFT JOIN ticks t
        ON e.ticker = t.ticker AND t.ts BETWEEN e.fired_at AND e.fired_at + INTERVAL '8' SECOND""",
    "trades and all alerts": """SELECT e.event_id, t.price FROM ticks t RIGHT JOIN trigger_events e
        ON t.ticker = e.ticker AND t.ts BETWEEN e.fired_at - INTERVAL '4' SECOND AND e.fired_at""",
    "all trades and all alerts": """SELECT e.event_id, t.ts FROM ticks t FULL JOIN trigger_events e
        ON t.ticker = e.ticker AND e.fired_at BETWEEN t.ts AND t.ts + INTERVAL '6' SECOND""",
    "bars with their alerts": """SELECT o.ticker, o.open_time, e.event_id FROM ohlc o JOIN trigger_events e
        ON o.ticker = e.ticker AND e.fired_at >= o.open_time AND e.fired_at < o.open_time + INTERVAL '60' SECOND
        AND o.period_seconds = 60""",
    "two kinds of alerts": """SELECT a.event_id, b.event_id AS other FROM trigger_events a JOIN trigger_events b
        ON a.ticker = b.ticker AND b.fired_at BETWEEN a.fired_at - INTERVAL '15' SECOND AND a.fired_at
        AND b.trigger_id = 'fall' WHERE a.trigger_id = 'jump'""",
    "an alert on another ticker": f"""SELECT t.ts, e.event_id FROM ticks t ASOF JOIN trigger_events e
        ON t.ts >= e.fired_at AND e.ticker = '{OTHER}' WHERE t.ticker = '{TICKER}'""",
    "a step over the join": f"""SELECT event_id, price, LAG(price) OVER (PARTITION BY ticker ORDER BY ts) AS before
        FROM ({AFTER_AN_ALERT})""",
    "alerts with the price and the bar": """SELECT e.event_id, e.fired_at, t.price, o.close FROM trigger_events e
        ASOF JOIN ticks t ON e.ticker = t.ticker AND e.fired_at >= t.ts
        ASOF JOIN ohlc o ON e.ticker = o.ticker AND e.fired_at >= o.close_time AND o.period_seconds = 60""",
    "an order of alerts": """SELECT a.event_id, a.before, t.price FROM (SELECT *, LAG(event_id) OVER
        (PARTITION BY ticker ORDER BY fired_at) AS before FROM trigger_events) a
        ASOF LEFT JOIN ticks t ON a.ticker = t.ticker AND a.fired_at >= t.ts""",
    "a view of alerts": """SELECT t.ts, j.event_id FROM ticks t ASOF JOIN jumps j ON t.ticker = j.ticker
        AND t.ts >= j.fired_at""",
    "two views": """SELECT d.ts, j.event_id FROM dear d JOIN jumps j ON d.ticker = j.ticker
        AND j.fired_at BETWEEN d.ts - INTERVAL '9' SECOND AND d.ts""",
}
#: Those of the guide, with constants that the market of this test reaches.
TEXTS |= {
    f"guide {number}": text.sql.replace("t.size > 2", "t.price > 4").replace("eth-jump", "jump")
    for number, text in enumerate(guide.texts())
    if " JOIN " in text.sql and "trigger_events" in text.sql
}
VIEWS = {
    "jumps": "SELECT ticker, fired_at, event_id FROM trigger_events WHERE trigger_id = 'jump'",
    "dear": "SELECT ticker, ts, price FROM ticks WHERE price > 4",
}
#: When a record arrives by the wall clock, in seconds; the argument of `process` to which it belongs.
Arrival = tuple[float, str, bytes]


def registered(sql: str) -> TriggerPartition:
    control = records.TriggerControl.FromString(register("own", sql, TICKER, OTHER))
    control.register.views.update({name: text for name, text in VIEWS.items() if f" {name} " in sql})
    partition = TriggerPartition()
    (report,) = partition.process([], controls=[control.SerializeToString()]).reports
    assert report.state == "active", report
    return partition


@dataclass
class Market:
    """Trades, bars and alerts of two tickers, each alert up to 4 s after the trade that caused it."""

    draw: random.Random
    seconds: int = 150
    arrivals: list[Arrival] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = self.draw
        for ticker in (TICKER, OTHER):
            second, number = 0.0, 1
            while (second := round(second + draw.choice((0.5, 1, 2.25, 6, 14)), 3)) < self.seconds:
                trade = batch(number, (second, str(number), float(draw.randint(1, 8))), ticker=ticker)
                self.arrivals.append((second + 0.01, "ticks", trade))
                for name in ("jump", "fall"):
                    if draw.random() < 0.3:
                        alert = jump(ticker, second, name, event_id=f"{name}{ticker}{number}")
                        self.arrivals.append((second + draw.choice((0.1, 1.5, 4)), "events", alert))
                number += 1
            minutes = range(self.seconds // 60)
            self.arrivals += [(60 * n + 60.1, "bars", bar(n, draw.randint(1, 9), ticker=ticker)) for n in minutes]
        self.arrivals.sort(key=lambda arrival: arrival[0])

    def tables(self) -> dict[str, pa.Table]:
        """The tables that a batch reads."""
        trades, bars = [], []
        for _, kind, value in self.arrivals:
            if kind == "ticks":
                tick = TickBatch.FromString(value)
                trades.append((tick.ticker, tick.timestamp[0], tick.price[0]))
            elif kind == "bars":
                candle = OHLCV.FromString(value)
                bars.append((candle.ticker, candle.open_time, candle.close))
        events = [value for _, kind, value in self.arrivals if kind == "events"]
        tickers, times, prices = zip(*trades, strict=True)
        ticks = table("ticks", ticker=tickers, ts=times, price=prices, size=[0.5] * len(trades))
        tickers, times, closes = zip(*bars, strict=True)
        periods = [60] * len(bars)
        ohlc = table("ohlc", ticker=tickers, open_time=times, close=closes, period_seconds=periods)
        return {"ticks": ticks, "ohlc": ohlc, "trigger_events": event_rows(events, EVENTS.schema)}


def table(name: str, **columns: Any) -> pa.Table:
    schema = INPUTS[name].schema
    count = len(columns["ticker"])
    made = [
        pa.array(columns[part.name]).cast(part.type) if part.name in columns else pa.nulls(count, part.type)
        for part in schema
    ]
    return pa.Table.from_arrays(made, schema=schema).sort_by(INPUTS[name].time_columns[0])


def streamed(sql: str, market: Market, draw: random.Random, *, restarts: bool) -> list[CEPTriggerEvent]:
    """The events of these records, taken in steps of any length."""
    partition = registered(sql)
    found: list[CEPTriggerEvent] = []
    waiting: dict[str, list[bytes]] = {"ticks": [], "bars": [], "events": [], "marks": []}

    def step(second: float) -> None:
        nonlocal partition, waiting
        output = partition.process(**waiting, now_ns=T0 + round(second * SECOND))
        assert not output.late_rows
        assert all(report.state != "suspended" for report in output.reports), output.reports
        found.extend(output.events)
        waiting = {kind: [] for kind in waiting}
        if restarts:
            partition = TriggerPartition.load(partition.save())

    for second, kind, value in market.arrivals:
        waiting[kind].append(value)
        if draw.random() < 0.4:
            step(second)
    end = market.seconds + 100
    far = market.seconds // 60 + 3
    waiting["marks"] = [clock(end, 0, ticker=ticker) for ticker in (TICKER, OTHER)]
    waiting["bars"] += [bar(far, 1, ticker=ticker) for ticker in (TICKER, OTHER)]
    for second in range(market.seconds + 5, market.seconds + 20, 2):
        step(second)
    return found


def told(events: list[CEPTriggerEvent]) -> list[str]:
    return sorted(repr(list(row.values())) for event in events for row in rows(event))


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("seed", seeds(3))
def test_a_running_join_with_events_agrees_with_the_batch(name: str, seed: int) -> None:
    draw = random.Random(f"{name} {seed}")
    market = Market(draw)
    views = {view: text for view, text in VIEWS.items() if f" {view} " in TEXTS[name]}
    wanted = evaluate_named(TEXTS[name], {**market.tables(), **views})
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in wanted.columns]
    expected = sorted(repr(list(row)) for row in zip(*(column.to_pylist() for column in columns), strict=True))
    found = streamed(TEXTS[name], market, draw, restarts=draw.random() < 0.5)
    assert told(found) == expected
    assert expected
    assert all(event.context["chained"] == "true" for event in found)
    assert len({event.context["event_id"] for event in found}) == len(found)


@pytest.mark.parametrize("seed", seeds(3))
def test_ids_are_the_same_however_records_are_cut(seed: int) -> None:
    market = Market(random.Random(seed))
    runs = [
        {event.context["event_id"] for event in streamed(AFTER_AN_ALERT, market, random.Random(cut), restarts=cut > 1)}
        for cut in (1, 2)
    ]
    assert runs[0] == runs[1] != set()


def test_an_event_that_comes_too_late_is_taken_at_the_time_reached_and_counted() -> None:
    partition = registered(AFTER_AN_ALERT)

    def step(second: float, ticks: list[bytes] | None = None, events: list[bytes] | None = None) -> tuple[Any, ...]:
        output = partition.process(ticks or [], events=events or [], now_ns=T0 + round(second * SECOND))
        return [row["price"] for event in output.events for row in rows(event)], dict(output.late_rows)

    assert step(0, [batch(1, (0, "1", 1.0))]) == ([], {})
    # Nothing is decided before events have had five seconds.
    assert step(4, [batch(2, (4, "2", 2.0))]) == ([], {})
    assert step(5) == ([], {})
    assert step(9, [batch(3, (9, "3", 3.0))]) == ([], {})
    # The trade at 4 is decided without an alert; an event from 3 is taken as just after it.
    assert step(9, [], [jump(TICKER, 3)]) == ([], {TICKER: 1})
    assert step(14) == ([3.0], {})


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        # `seconds`: of the event's own time, and of the trade it is joined with.
        ("SELECT e.fired_at AS at, t.ts AS ts, t.ticker FROM ticks t JOIN trigger_events e ON t.ticker = e.ticker "
         "AND e.fired_at BETWEEN t.ts - INTERVAL '9' SECOND AND t.ts WHERE e.trigger_id = 'jump'", [(3, 9)]),
        ("SELECT e.fired_at AS at, t.ts AS ts, t.ticker FROM ticks t JOIN trigger_events e ON t.ticker = e.ticker "
         "AND e.fired_at BETWEEN t.ts - INTERVAL '9' SECOND AND t.ts WHERE e.trigger_id = 'jump' "
         "AND e.fired_at > TIMESTAMP '2000-01-01'", [(4, 9)]),
        ("SELECT e.fired_at AS at, t.ts AS ts, e.ticker FROM trigger_events e ASOF JOIN ticks t ON "
         "t.ticker = e.ticker AND e.fired_at >= t.ts WHERE e.trigger_id = 'jump'", [(3, 4)]),
        ("SELECT e.fired_at AS at, t.ts AS ts, t.ticker FROM ticks t JOIN trigger_events e ON t.ticker = e.ticker "
         "AND e.fired_at BETWEEN t.ts - INTERVAL '9' SECOND AND t.ts AND (e.fired_at > TIMESTAMP '2000-01-01' "
         "OR t.price > 9) WHERE e.trigger_id = 'jump'", [(4, 9)]),
        # More than two inputs: the event is still joined by the time at which it was taken.
        ("SELECT e.fired_at AS at, u.ts AS ts, e.ticker FROM trigger_events e ASOF JOIN ticks t ON "
         "t.ticker = e.ticker AND e.fired_at >= t.ts ASOF JOIN ticks u ON u.ticker = e.ticker AND e.fired_at >= u.ts "
         "WHERE e.trigger_id = 'jump'", [(3, 4)]),
        ("SELECT e.fired_at AS at, t.ts AS ts, t.ticker FROM ticks t JOIN trigger_events e ON t.ticker = e.ticker "
         "AND e.fired_at BETWEEN t.ts - INTERVAL '9' SECOND AND t.ts ASOF JOIN ticks u ON u.ticker = t.ticker "
         "AND t.ts > u.ts WHERE e.trigger_id = 'jump'", [(3, 9)]),
        ("SELECT e.fired_at AS at, e.seen AS ts, t.ticker FROM ticks t ASOF JOIN (SELECT e.ticker, e.fired_at, "
         "u.ts AS seen FROM trigger_events e ASOF JOIN ticks u ON u.ticker = e.ticker AND e.fired_at >= u.ts "
         "WHERE e.trigger_id = 'jump') e ON t.ticker = e.ticker AND t.ts > e.fired_at", [(3, 4)]),
        # An event that may have no trade: the time of the join is that of either side.
        ("SELECT f.fired_at AS at, u.ts AS ts, f.ticker FROM (SELECT COALESCE(e.fired_at, t.ts) AS at, e.fired_at, "
         "e.event_id, COALESCE(e.ticker, t.ticker) AS ticker FROM trigger_events e FULL JOIN ticks t "
         "ON t.ticker = e.ticker AND t.ts BETWEEN e.fired_at AND e.fired_at) f ASOF JOIN ticks u "
         "ON u.ticker = f.ticker AND f.at >= u.ts WHERE f.event_id IS NOT NULL", [(3, 4)]),
    ],
)  # fmt: skip
def test_a_late_event_shows_its_own_time_unless_times_are_compared(sql: str, shown: list[tuple[int, int]]) -> None:
    partition = registered(sql)
    found = []
    steps: list[tuple[float, list[bytes], list[bytes]]] = [
        (0, [batch(1, (0, "1", 1.0))], []), (4, [batch(2, (4, "2", 2.0))], []), (5, [], []),
        (9, [batch(3, (9, "3", 3.0))], []), (9, [], [jump(TICKER, 3)]), (14, [], []), (20, [], []),
    ]  # fmt: skip
    for second, ticks, events in steps:
        output = partition.process(ticks, events=events, now_ns=T0 + round(second * SECOND))
        found += [row for event in output.events for row in rows(event)]
        partition = TriggerPartition.load(partition.save())
    assert [tuple(round((row[name] - T0) / SECOND) for name in ("at", "ts")) for row in found] == shown


def test_a_join_with_events_keeps_only_rows_that_may_still_match() -> None:
    partition = registered(TEXTS["trades around an alert"])
    for second in range(150):
        partition.process(
            [batch(second + 1, (second, str(second), 1.0))],
            events=[jump(TICKER, second)],
            now_ns=T0 + second * SECOND,
        )
    (shard,) = partition._registry.shards.values()
    (stream,) = shard.streams.values()
    # Both sides of the interval, and the time that events may be in transit.
    assert stream.retained_rows < 50


def test_a_join_with_events_runs_where_all_its_tickers_are_seen() -> None:
    rules = TriggerRules(partitions=8)
    assert not is_joint(compile_trigger(AFTER_AN_ALERT, {}, rules), [TICKER, OTHER], 8)
    assert is_joint(compile_trigger(TEXTS["an alert on another ticker"], {}, rules), [TICKER, OTHER], 8)


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        (AFTER_AN_ALERT, ("jump",)),
        (TEXTS["two kinds of alerts"], ("fall", "jump")),
        (TEXTS["alerts with the price"], ("fall", "jump")),
        (TEXTS["trades around an alert"], ()),
    ],
)
def test_a_join_knows_the_triggers_that_it_names(sql: str, named: tuple[str, ...]) -> None:
    compiled = compile_trigger(sql, {}, TriggerRules())
    assert (compiled.sources, compiled.reads_events, compiled.is_on_events) == (named, True, False)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (AFTER_AN_ALERT.replace("'jump'", "'own'"), "reads its own events"),
        (AFTER_AN_ALERT.replace("ASOF JOIN", "ASOF RIGHT JOIN"), "ASOF RIGHT JOIN is not possible"),
        (
            "SELECT t.ts FROM ticks t JOIN trigger_events e ON t.ticker = e.ticker",
            "a join on a stream uses event times, or it would keep every row",
        ),
        (
            "SELECT t.ts FROM ticks t JOIN trigger_events e ON t.ticker = e.ticker AND e.fired_at <= t.ts",
            "a join on a stream uses event times, or it would keep every row",
        ),
        (
            "SELECT t.ts FROM ticks t FULL JOIN trigger_events e ON t.ticker = e.ticker",
            "a join on a stream uses event times, or it would keep every row",
        ),
        (
            "SELECT 1 FROM ticks t ASOF JOIN trigger_events e ON t.ticker = e.ticker AND t.received_at >= e.fired_at",
            "a join on a stream compares the event times of both sides (here ts and fired_at)",
        ),
    ],
)
def test_a_join_with_events_that_cannot_run_is_refused_with_the_reason(sql: str, said: str) -> None:
    with pytest.raises(TriggerRejected) as caught:
        check_trigger(CEPTriggerRequest(trigger_id="own", sql_pattern=sql))
    assert said in str(caught.value)
