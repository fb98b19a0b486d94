"""However the records of a partition are cut into micro-batches, and wherever it restarts, the events are those of one
evaluation over all rows, under the same ids, each once.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from candlewright_cep import evaluate
from tests.rounds import rounds
from tests.triggers.trigger_records import (
    OTHER,
    T0,
    TICKER,
    V_SHAPE,
    bar,
    batch,
    clock,
    register,
    rows,
)
from triggers.partition import TriggerPartition
from triggers.running import shares
from triggers.texts.check import INPUTS, TriggerRules

pytestmark = pytest.mark.timeout(120)

_SETTINGS = settings(max_examples=rounds(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
_RULES = TriggerRules(idle_ns=SECOND)
_TICKERS = (TICKER, OTHER, "SOL/USDT.BINANCE")


def _pattern(clauses: str, partition: str = "PARTITION BY ticker") -> str:
    return f"SELECT * FROM ticks MATCH_RECOGNIZE ({partition} ORDER BY ts {clauses}) AS m"


#: Name -> text; those that end in "1" name one ticker, those that end in "2" two.
TEXTS = {
    "condition": "price > 2",
    "condition1": "price > 2",
    "select": "SELECT ticker, ts, price * size AS value FROM ticks WHERE price <> 3",
    "shape": V_SHAPE,
    "shape1": V_SHAPE,
    "like shape": V_SHAPE,
    "like shape1": V_SHAPE,
    "rows": _pattern(
        "MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH WITH UNMATCHED ROWS "
        "PATTERN (A B C D | A B) DEFINE A AS price < 3, B AS price > 2, C AS price < 4, D AS price > 3"
    ),
    "path": _pattern(
        "MEASURES SUM(A.price) AS total, COUNT(*) AS n AFTER MATCH SKIP TO NEXT ROW "
        "PATTERN (A+ B) DEFINE A AS SUM(A.price) < 9, B AS price > AVG(A.price)"
    ),
    "ahead": _pattern("MEASURES A.price AS p, NEXT(A.price) AS n PATTERN (A) DEFINE A AS NEXT(price) > price"),
    "within": _pattern(
        "MEASURES A.price AS p, B.price AS q ONE ROW PER MATCH WITH TIMEOUT ROWS "
        "PATTERN (A X*? B) WITHIN INTERVAL '3' SECOND DEFINE A AS price > 3, B AS price < 2"
    ),
    "pause": _pattern(
        "MEASURES A.price AS p, B.price AS q, COUNT(*) AS n ONE ROW PER MATCH WITH TIMEOUT ROWS "
        "PATTERN (A X*? B) WITHIN INTERVAL '2' SECOND FROM PREVIOUS ROW DEFINE A AS price > 3, B AS price < 2"
    ),
    "side": _pattern(
        "MEASURES A.price AS p PATTERN (A B) DEFINE B AS price >= PREV(price)", "PARTITION BY ticker, side"
    ),
    "window": (
        "SELECT ticker, COUNT(*) AS n, MAX(price) AS top FROM ticks GROUP BY ticker, TUMBLE(ts, INTERVAL '2' SECOND)"
    ),
    "alike": "SELECT COUNT(*) AS n FROM ticks GROUP BY ticker, trade_id, TUMBLE(ts, INTERVAL '2' SECOND)",
    "over": (
        "SELECT ts, price, AVG(price) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) "
        "AS mean FROM ticks"
    ),
    "mixed2": _pattern("MEASURES A.ticker AS a, B.ticker AS b PATTERN (A B) DEFINE B AS price > A.price", ""),
    "spread2": "SELECT a.ts, a.price - b.price AS s FROM ticks a JOIN ticks b ON a.ts = b.ts AND a.ticker < b.ticker",
}


def _named(name: str) -> tuple[str, ...]:
    return _TICKERS[: int(name[-1])] if name[-1].isdigit() else ()


@dataclass(frozen=True)
class Trade:
    ticker: str
    second: int
    price: int


#: Trades in order of arrival: time does not go backwards within a ticker.
trades = st.lists(
    st.tuples(st.sampled_from(_TICKERS), st.sampled_from([0, 0, 1, 1, 2, 7]), st.integers(1, 5)), max_size=30
)


def _arrivals(steps: Sequence[tuple[str, int, int]]) -> list[Trade]:
    now = dict.fromkeys(_TICKERS, 0)
    found = []
    for ticker, step, price in steps:
        now[ticker] += step
        found.append(Trade(ticker, now[ticker], price))
    return found


def _record(arrived: Sequence[Trade], place: int) -> bytes:
    trade = arrived[place]
    number = sum(other.ticker == trade.ticker for other in arrived[: place + 1])
    return batch(number, (trade.second, str(number), trade.price), ticker=trade.ticker)


def _table(arrived: Sequence[Trade]) -> pa.Table:
    numbers: Counter[str] = Counter()
    found = []
    for trade in arrived:
        numbers[trade.ticker] += 1
        time = T0 + trade.second * SECOND
        found.append(
            {
                "ticker": trade.ticker, "trade_id": str(numbers[trade.ticker]), "ts": time, "ts_ns": time,
                "price": float(trade.price), "size": 0.5, "side": "buy", "received_at": 1,
            }
        )  # fmt: skip
    schema = INPUTS["ticks"].schema
    return pa.Table.from_arrays([pa.array([row[f.name] for row in found], f.type) for f in schema], schema=schema)


def _streamed(
    arrived: Sequence[Trade],
    cuts: Sequence[int],
    *,
    restarts: bool,
    repeats: bool,
    rules: TriggerRules = _RULES,
    saves: int = 1,
) -> list[CEPTriggerEvent]:
    """`saves`: with `restarts`, the state is saved after so many steps; a restart repeats the others."""
    partition = TriggerPartition(rules)
    controls = [register(name, sql, *_named(name)) for name, sql in TEXTS.items()]
    output = partition.process([], controls=controls, now_ns=1)
    assert [report.state for report in output.reports] == ["active"] * len(TEXTS), output.reports
    events: list[CEPTriggerEvent] = []
    saved, since = partition.save(), list[tuple[list[bytes], list[bytes]]]()
    for start, end in zip([0, *cuts], [*cuts, len(arrived)], strict=True):
        # Repeated records are left out; a valid clock changes no event.
        first = max(0, start - 3) if repeats else start
        counts = Counter(trade.ticker for trade in arrived[:end])
        marks = [clock(t.second, counts[t.ticker], t.ticker) for t in arrived[:end][-1:]] if repeats else []
        ticks = [_record(arrived, place) for place in range(first, end)]
        output = partition.process(ticks, marks=marks, now_ns=1)
        assert not output.reports
        events += output.events
        if restarts:
            since.append((ticks, marks))
            if len(since) >= saves:
                saved, since = partition.save(), []
            partition = TriggerPartition.load(saved, rules)
            for own, marked in since:
                partition.replay(own, [], marked, now_ns=1, events=[])
    events += partition.process([], now_ns=1 + 10 * SECOND).events
    while partition.is_behind:
        events += partition.process([], now_ns=1 + 10 * SECOND).events
        if restarts:
            partition = TriggerPartition.load(partition.save(), rules)
    return events


def _as_dictionary(table: pa.Table) -> list[dict[str, Any]]:
    """The row as a dictionary, with times as numbers, as in events."""
    for place, part in enumerate(table.schema):
        if pa.types.is_timestamp(part.type):
            table = table.set_column(place, part.name, table.column(place).cast(pa.int64()))
    return list(table.to_pylist())


def _cuts(cuts: Sequence[int], size: int) -> list[int]:
    return sorted({cut for cut in cuts if cut <= size})


@_SETTINGS
@given(trades, st.lists(st.integers(0, 30), max_size=8), st.booleans(), st.integers(1, 4))
def test_any_batching_and_restart_gives_the_same_events_once(
    steps: list[tuple[str, int, int]], cuts: list[int], repeats: bool, saves: int
) -> None:
    arrived = _arrivals(steps)
    whole = _streamed(arrived, [], restarts=False, repeats=False)
    cut = _streamed(arrived, _cuts(cuts, len(arrived)), restarts=True, repeats=repeats, saves=saves)
    ids = Counter(event.context["event_id"] for event in cut)
    assert max(ids.values(), default=1) == 1
    wanted = {event.context["event_id"]: event for event in whole}
    assert len(wanted) == len(whole)
    assert {event.context["event_id"]: event for event in cut} == wanted


@settings(_SETTINGS, max_examples=rounds(60))
@given(trades, st.lists(st.integers(0, 30), max_size=8), st.booleans())
def test_triggers_that_fall_behind_give_the_same_events_later(
    steps: list[tuple[str, int, int]], cuts: list[int], restarts: bool
) -> None:
    """Each trigger that keeps state falls behind immediately, and then takes its rows one by one."""
    arrived = _arrivals(steps)
    whole = _streamed(arrived, [], restarts=False, repeats=False)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shares, "_ROW_NS", 0)
        patched.setattr(shares, "_SLOW_STEPS", 1)
        rules = replace(_RULES, share_ns=1)
        behind = _streamed(arrived, _cuts(cuts, len(arrived)), restarts=restarts, repeats=True, rules=rules)
    assert _by_trigger(behind) == _by_trigger(whole)


def _by_trigger(events: Sequence[CEPTriggerEvent]) -> dict[str, list[CEPTriggerEvent]]:
    """The events by trigger, in the order of the ids."""
    found: dict[str, list[CEPTriggerEvent]] = {}
    for event in sorted(events, key=lambda event: event.context["event_id"]):
        found.setdefault(event.trigger_id, []).append(event)
    return found


@_SETTINGS
@given(trades, st.lists(st.integers(0, 30), max_size=8))
def test_events_are_the_rows_of_one_evaluation(steps: list[tuple[str, int, int]], cuts: list[int]) -> None:
    arrived = _arrivals(steps)
    table = _table(arrived)
    events = _streamed(arrived, _cuts(cuts, len(arrived)), restarts=True, repeats=False)
    for name, sql in TEXTS.items():
        own = _named(name)
        seen = table.filter(pa.array([ticker in own for ticker in table.column("ticker").to_pylist()], pa.bool_()))
        found = [row for event in events if event.trigger_id == name for row in rows(event)]
        expected = _as_dictionary(evaluate(sql, seen if own else table))
        assert sorted(found, key=repr) == sorted(expected, key=repr), name


_BY_PARITY = "FROM (SELECT *, CAST(price AS BIGINT) % 2 AS odd FROM ticks)"
#: Several partitions or groups of a ticker, whose results may be decided in any order.
COOLED = {
    "greedy": (
        f"SELECT * {_BY_PARITY} MATCH_RECOGNIZE (PARTITION BY ticker, odd ORDER BY ts MEASURES A.price AS p, "
        "COUNT(*) AS n PATTERN (A B*) DEFINE B AS price >= PREV(price)) AS m"
    ),
    "late": (
        f"SELECT * {_BY_PARITY} MATCH_RECOGNIZE (PARTITION BY ticker, odd ORDER BY ts MEASURES A.price AS p "
        "ONE ROW PER MATCH WITH TIMEOUT ROWS PATTERN (A B) WITHIN INTERVAL '3' SECOND DEFINE B AS price > A.price) AS m"
    ),
    "ahead": (
        "SELECT ticker, ts, price, LEAD(price) OVER (PARTITION BY ticker, odd ORDER BY ts) AS later " + _BY_PARITY
    ),
    "windows": (
        f"SELECT ticker, odd, COUNT(*) AS n {_BY_PARITY} GROUP BY ticker, odd, SESSION(ts, INTERVAL '2' SECOND)"
    ),
}


@pytest.mark.parametrize("name", COOLED)
@settings(_SETTINGS, max_examples=rounds(40))
@given(trades, st.lists(st.integers(0, 30), max_size=8))
@example([(TICKER, 0, 3), (TICKER, 0, 4), (TICKER, 1, 2), (TICKER, 0, 1)], [3])
@example([(TICKER, 0, 1), (TICKER, 0, 2), (TICKER, 1, 4), (TICKER, 0, 3)], [3])
@example([(TICKER, 0, 1), (TICKER, 0, 2), (TICKER, 1, 1), (TICKER, 2, 2), (TICKER, 7, 1)], [4])
def test_a_cooldown_keeps_the_same_events_however_rows_are_cut(
    name: str, steps: list[tuple[str, int, int]], cuts: list[int]
) -> None:
    arrived = _arrivals(steps)

    def kept(places: Sequence[int]) -> set[str]:
        partition = TriggerPartition(_RULES)
        partition.process([], controls=[register("cool", COOLED[name], cooldown_seconds="4")], now_ns=1)
        events: list[CEPTriggerEvent] = []
        for start, end in zip([0, *places], [*places, len(arrived)], strict=True):
            events += partition.process([_record(arrived, place) for place in range(start, end)], now_ns=1).events
            if places:
                partition = TriggerPartition.load(partition.save(), _RULES)
        events += partition.process([], now_ns=1 + 10 * SECOND).events
        return {event.context["event_id"] for event in events}

    assert kept(_cuts(cuts, len(arrived))) == kept([])


@_SETTINGS
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=25), st.lists(st.integers(0, 25), max_size=6))
def test_bars_give_the_same_events_however_they_are_cut(steps: list[tuple[int, int]], cuts: list[int]) -> None:
    opened = 0
    bars: list[bytes] = []
    for step, close in steps:
        opened += step
        bars.append(bar(opened, close, revision=0 if step or not bars else 1))
    texts: dict[str, tuple[str, dict[str, Any]]] = {
        "plain": ("close > 2", {"period_seconds": "60"}),
        "revised": ("close > 2", {"period_seconds": "60", "revisions": "true"}),
        "cool": ("close > 1", {"period_seconds": "60", "cooldown_seconds": "180"}),
        "rising": (
            "SELECT * FROM ohlc MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time "
            "MEASURES COUNT(*) AS n PATTERN (A B+) DEFINE B AS close > PREV(close))",
            {},
        ),
    }

    def streamed(places: Sequence[int]) -> dict[str, CEPTriggerEvent]:
        partition = TriggerPartition(_RULES)
        partition.process([], controls=[register(name, sql, **given) for name, (sql, given) in texts.items()])
        events: list[CEPTriggerEvent] = []
        for start, end in zip([0, *places], [*places, len(bars)], strict=True):
            events += partition.process([], bars=bars[start:end], now_ns=1).events
            if places:
                partition = TriggerPartition.load(partition.save(), _RULES)
        events += partition.process([], now_ns=200 * SECOND).events
        found = {event.context["event_id"]: event for event in events}
        assert len(found) == len(events)
        return found

    assert streamed(_cuts(cuts, len(bars))) == streamed([])


def test_a_state_of_other_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="not the state"):
        TriggerPartition.load(b"PK nothing")
