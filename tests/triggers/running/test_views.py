"""Views that several triggers read are computed once, and each trigger's events are those that it has alone."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from candlewright.wire.grid import SECOND
from candlewright_cep import TriggerRejected
from candlewright_cep.streaming.rows.release import Clock, Rows
from candlewright_cep.streaming.stages.group_stage import GroupStage
from candlewright_cep.streaming.stages.stages import OverStage
from protobuf import records_pb2 as records
from tests.rounds import seeds
from tests.triggers.records.test_asked_for import WALL, asked, seconds
from tests.triggers.trigger_records import OTHER, TICKER, bar, batch, candle, prices, register, remove, rows
from triggers.partition import TriggerOutput, TriggerPartition
from triggers.running import registry, shares, trigger, views
from triggers.texts.check import CompiledTrigger, TriggerRules, compile_trigger

pytestmark = pytest.mark.timeout(120)

_THIRD = "SOL/USDT.BINANCE"
_LAG = "LAG(price) OVER (PARTITION BY ticker ORDER BY ts)"
_VIEWS = {
    "large": "SELECT * FROM ticks WHERE price >= 2",
    "moves": f"SELECT ticker, ts, price, price - {_LAG} AS step FROM large",
    "fast": "SELECT ticker, ts, price, step FROM moves WHERE step > 0",
    "smooth": "SELECT ticker, ts, price, EMA(price, 2) OVER (PARTITION BY ticker ORDER BY ts) AS mean FROM ticks",
    "sums": (
        "SELECT ticker, ts, price, SUM(price) OVER (PARTITION BY ticker ORDER BY ts ROWS UNBOUNDED PRECEDING) AS total "
        "FROM large"
    ),
    "near": (
        "SELECT ticker, ts, price, COUNT(*) OVER (PARTITION BY ticker ORDER BY ts "
        "RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW) AS n FROM ticks"
    ),
    "grid": (
        "SELECT ticker, window_start, window_end, MAX(price) AS price, COUNT(*) AS n FROM "
        "TABLE(TUMBLE(TABLE large, DESCRIPTOR(ts), INTERVAL '3' SECOND)) GROUP BY ticker, window_start, window_end"
    ),
    "hops": (
        "SELECT ticker, window_start, window_end, SUM(price) AS price, COUNT(*) AS n FROM "
        "TABLE(HOP(TABLE ticks, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '4' SECOND)) "
        "GROUP BY ticker, window_start, window_end"
    ),
    "rises": (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts "
        "MEASURES A.ts AS ts, A.price AS low, LAST(B.price) AS price PATTERN (A B+) "
        "DEFINE B AS price > PREV(price)) AS m"
    ),
    "fifths": "SELECT ticker, open_time, close AS price, volume FROM ticks BARS BY TRADES 3",
    "mixed": "SELECT ticker, ts, price, LAG(price) OVER (ORDER BY ts) AS other FROM ticks",
    "keyed": (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker, price ORDER BY ts MEASURES A.ts AS ts, "
        "B.size AS size PATTERN (A B) DEFINE A AS price > 0) AS m"
    ),
    "high": "SELECT * FROM keyed WHERE price > 1",
    "trend": (
        "SELECT ticker, open_time, close AS price, period_seconds, "
        "EMA(close, 3) OVER (PARTITION BY ticker, period_seconds ORDER BY open_time) AS mean FROM ohlc"
    ),
    "ups": "SELECT ticker, open_time, price, mean FROM trend WHERE price > mean",
    "closes": "SELECT ticker, open_time, close AS price, LAG(close) OVER (ORDER BY open_time) AS other FROM ohlc",
}
_READERS = [
    "SELECT ticker, price FROM {view} WHERE price > {level}",
    "SELECT ticker, price * 2 AS twice FROM {view} AS v",
    "SELECT ticker, price, LAG(price) OVER (PARTITION BY ticker ORDER BY {time}) AS before FROM {view}",
    "SELECT ticker, price, RANK() OVER (PARTITION BY window_start ORDER BY price) AS r FROM {view}",
    "SELECT * FROM {view} MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY {time} MEASURES MATCH_NUMBER() AS n, "
    "LAST(price) AS p PATTERN (A B+ C) DEFINE B AS price >= {level}, C AS price < {level}) AS m",
    "SELECT * FROM {view} MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY {time} MEASURES SUM(A.price) AS p ALL ROWS PER "
    "MATCH PATTERN (A+ B) WITHIN INTERVAL '3' SECOND DEFINE A AS price > {level}) AS m",
    "SELECT ticker, COUNT(*) AS n FROM {view} GROUP BY ticker, TUMBLE({time}, INTERVAL '5' SECOND)",
    "SELECT ticker, SUM(price) AS total FROM {view} GROUP BY ticker, window_start, window_end",
    "SELECT ticker, n FROM {view} WHERE n > 1",
    "SELECT ticker, MAX(price) AS top FROM {view} GROUP BY ticker EMIT CHANGES",
    "SELECT ticker, COUNT(*) AS n FROM {view} GROUP BY ticker, TUMBLE({time}, INTERVAL '3' SECOND) "
    "HAVING COUNT(*) >= {level}",
    "SELECT ticker, price, mean FROM (SELECT *, AVG(price) OVER (PARTITION BY ticker ORDER BY {time} "
    "ROWS 2 PRECEDING) AS mean FROM {view}) AS v WHERE price > mean + {level} / 2",
]


def _reading(view: str, chance: random.Random) -> tuple[str, dict[str, str]]:
    """A text that may run, over a view, and its parameters."""
    while True:
        time = chance.choice(["ts", "window_start", "open_time"])
        sql = chance.choice(_READERS).format(view=view, level=chance.choice([1, 2, 3, 4]), time=time)
        parameters = {"revisions": "true"} if chance.random() < 0.2 else {}
        parameters |= {"period_seconds": "60"} if chance.random() < 0.2 else {}
        try:
            compile_trigger(sql, parameters, TriggerRules(), views=_VIEWS)
        except TriggerRejected:
            continue
        return sql, parameters


def _register(trigger_id: str, sql: str, *tickers: str, version: int = 1, at: int = 0, **parameters: str) -> bytes:
    registration = records.TriggerRegistration(
        trigger_id=trigger_id, sql=sql, tickers=tickers, version=version, views=_VIEWS, registered_at=at,
        parameters=parameters,
    )  # fmt: skip
    return records.TriggerControl(register=registration).SerializeToString()


def _fired(output: TriggerOutput, column: str = "price") -> list[tuple[str, Any]]:
    return [(event.trigger_id, row[column]) for event in output.events for row in rows(event)]


@dataclass
class Step:
    """A micro-batch, and the triggers that are registered or removed after it."""

    ticks: list[bytes] = field(default_factory=list)
    bars: list[bytes] = field(default_factory=list)
    controls: list[tuple[str, bytes]] = field(default_factory=list)
    now_ns: int = 1


Found = tuple[dict[str, list[bytes]], list[tuple[str, str, str]]]


def _run(steps: list[Step], rules: TriggerRules, wanted: str = "", restarts: random.Random | None = None) -> Found:
    """The events by trigger, and the reports, with all triggers or only the wanted one."""
    partition = TriggerPartition(rules)
    # So that rows have the same numbers in every run.
    controls = [_register("every", "price > 1e9"), _register("bars", "close > 1e9", period_seconds="60")]
    partition.process([], controls=controls, now_ns=1)
    events: dict[str, list[bytes]] = {}
    reports: list[tuple[str, str, str]] = []
    for step in steps:
        controls = [control for trigger_id, control in step.controls if wanted in ("", trigger_id)]
        output = partition.process(step.ticks, step.bars, controls=controls, now_ns=step.now_ns)
        # Windows of several tickers that end together come in no particular order.
        for event in sorted(output.events, key=lambda event: event.context["ticker"]):
            events.setdefault(event.trigger_id, []).append(event.SerializeToString(deterministic=True))
        reports += [(one.trigger_id, one.state, one.reason) for one in output.reports]
        if restarts is not None and restarts.random() < 0.3:
            partition = TriggerPartition.load(partition.save(), rules)
    return events, reports


def _steps(chance: random.Random) -> list[Step]:
    """Trades and bars of three tickers, some of them late or revised, and triggers over views that come and go."""
    now = dict.fromkeys((TICKER, OTHER, _THIRD), 0.0)
    numbers = dict.fromkeys(now, 0)
    minutes = dict.fromkeys(now, 0)
    views = chance.sample([*sorted(_VIEWS), "ticks"], chance.choice([1, 2, 3]))
    registered: list[str] = []
    steps = []
    for number in range(chance.randint(6, 14)):
        step = Step(now_ns=1 + (number * SECOND if chance.random() < 0.3 else 0))
        for ticker in now:
            trades = []
            for _ in range(chance.choice([0, 1, 1, 2, 5])):
                now[ticker] += chance.choice([0, 0, 1, 1, 2, 6])
                numbers[ticker] += 1
                time = now[ticker] - chance.choice([0, 0, 0, 1, 2])
                trades.append((max(0.0, time), str(numbers[ticker]), float(chance.randint(1, 5))))
            if trades:
                step.ticks.append(batch(numbers[ticker] - len(trades) + 1, *trades, ticker=ticker))
            for _ in range(chance.choice([0, 0, 1, 2])):
                minutes[ticker] += chance.choice([1, 1, 2])
                for revision in range(chance.choice([1, 1, 2])):
                    close = float(chance.randint(1, 5))
                    step.bars.append(bar(minutes[ticker], close, revision=revision, ticker=ticker))
                if minutes[ticker] % 5 == 0:
                    step.bars.append(bar(minutes[ticker] - 5, float(chance.randint(1, 5)), 300, ticker=ticker))
        for _ in range(chance.choice([0, 0, 1, 2, 3]) if number else 4):
            trigger_id = f"t{number}.{len(step.controls)}"
            if registered and chance.random() < 0.3:
                trigger_id = chance.choice(registered)
            tickers = chance.choice([(), (TICKER,), (OTHER,), (TICKER, OTHER)])
            sql, parameters = _reading(chance.choice(views), chance)
            control = _register(trigger_id, sql, *tickers, version=number + 1, **parameters)
            step.controls.append((trigger_id, control))
            registered.append(trigger_id)
        if registered and chance.random() < 0.3:
            gone = registered.pop(chance.randrange(len(registered)))
            step.controls.append((gone, remove(gone)))
        steps.append(step)
    return [*steps, Step(now_ns=1 + 100 * SECOND), Step(now_ns=1 + 200 * SECOND)]


@pytest.mark.parametrize("seed", seeds(36))
def test_triggers_over_shared_views_have_the_events_that_each_has_alone(seed: int) -> None:
    chance = random.Random(seed)
    steps = _steps(chance)
    rules = TriggerRules(
        watermark_delay_ns=chance.choice([0, 2 * SECOND]),
        idle_ns=chance.choice([0, 20 * SECOND]),
        kept_partitions=chance.choice([5, 1_000]),
    )
    together, reports = _run(steps, rules, restarts=chance if chance.random() < 0.5 else None)
    for trigger_id in {name for step in steps for name, _ in step.controls}:
        alone, own = _run(steps, rules, wanted=trigger_id)
        assert together.get(trigger_id, []) == alone.get(trigger_id, [])
        assert [one for one in reports if one[0] == trigger_id] == [one for one in own if one[0] == trigger_id]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """The number of rows that OVER was computed for, by the number of its functions."""
    found: Counter[int] = Counter()
    feed = OverStage.feed

    def counted(self: OverStage, given: Rows, clock: Clock) -> Rows:
        found[len(self.node.functions)] += given.length
        return feed(self, given, clock)

    monkeypatch.setattr(OverStage, "feed", counted)
    return found


def _pattern(view: str, condition: str) -> str:
    return (
        f"SELECT * FROM {view} MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES B.price AS price "
        f"PATTERN (A B) DEFINE B AS {condition}) AS m"
    )


def test_texts_over_one_view_compute_it_once(computed: Counter[int]) -> None:
    partition = TriggerPartition()
    texts = [_pattern("smooth", f"price > {n} * A.mean") for n in (0.5, 0.25)]
    texts += ["SELECT ticker, price FROM smooth WHERE price > mean", "SELECT price, ts FROM smooth WHERE mean > 0"]
    controls = [_register(f"t{n}", sql, TICKER) for n, sql in enumerate(texts)]
    partition.process([], controls=[*controls, _register("other", texts[0], OTHER)])
    assert partition.views == 1
    output = partition.process([prices(1, 1, 2, 3, 4), prices(1, 5, ticker=OTHER)])
    assert {trigger_id for trigger_id, _ in _fired(output)} == {"t0", "t1", "t2", "t3"}
    assert computed == {1: 5}
    partition = TriggerPartition.load(partition.save())
    partition.process([prices(5, 5, 6)])
    assert (partition.views, computed) == (1, {1: 7})
    assert len({name for name in partition.segments() if name.startswith("view-")}) == 2


def test_a_view_that_others_build_on_is_computed_once_for_all_of_them(computed: Counter[int]) -> None:
    partition = TriggerPartition(TriggerRules(idle_ns=SECOND))
    texts = ["SELECT price, step FROM moves WHERE step > 1", "SELECT price FROM fast", "SELECT COUNT(*) AS n FROM fast "
             "GROUP BY ticker, TUMBLE(ts, INTERVAL '1' MINUTE)"]  # fmt: skip
    partition.process([], controls=[_register(f"t{n}", sql, TICKER) for n, sql in enumerate(texts)])
    assert partition.views == 4  # large, moves and fast, and the windows over it
    assert _fired(partition.process([prices(1, 1, 2, 3, 5)])) == [("t0", 5), ("t1", 3), ("t1", 5)]
    assert computed == {1: 3}


_BUSY = (
    "SELECT ticker, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '5' SECOND)) "
    "GROUP BY ticker, window_start, window_end HAVING COUNT(*) > {}"
)


def test_windows_that_texts_compare_with_other_numbers_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    feed = GroupStage.feed

    def counted(self: GroupStage, given: Rows, clock: Clock) -> Rows:
        found.append(given.length)
        return feed(self, given, clock)

    monkeypatch.setattr(GroupStage, "feed", counted)
    partition = TriggerPartition()
    controls = [_register(f"{n}{ticker}", _BUSY.format(n), ticker) for ticker in (TICKER, OTHER) for n in (0, 1, 2)]
    partition.process([], controls=controls)
    output = partition.process([prices(1, 1, 1), prices(1, 1, ticker=OTHER), prices(9, 1), prices(9, 1, ticker=OTHER)])
    assert sorted(_fired(output, "n")) == [(f"0{TICKER}", 2), (f"0{OTHER}", 1), (f"1{TICKER}", 2)]
    assert found == [5]


def test_averages_that_texts_compare_with_other_numbers_are_computed_once(computed: Counter[int]) -> None:
    average = "SELECT *, AVG(price) OVER (PARTITION BY ticker ORDER BY ts ROWS 1 PRECEDING) AS mean FROM ticks"
    partition = TriggerPartition()
    texts = [f"SELECT price FROM ({average}) AS v WHERE price > mean * {factor}" for factor in (1.0, 1.25, 1.5)]
    partition.process([], controls=[_register(f"t{n}", sql, TICKER) for n, sql in enumerate(texts)])
    output = partition.process([prices(1, 1, 2, 7)])
    assert _fired(output) == [("t0", 2), ("t0", 7), ("t1", 2), ("t1", 7), ("t2", 7)]
    assert computed == {1: 3}


def test_streams_over_one_view_become_one_when_triggers_begin_at_different_times() -> None:
    rules = TriggerRules(idle_ns=1_000 * SECOND)
    partition = TriggerPartition(rules)
    fired: Counter[str] = Counter()
    for number in range(1, 60):
        for trigger_id, _ in _fired(partition.process([prices(number, 2.0), prices(number, 2.0, ticker=OTHER)]), "n"):
            fired[trigger_id] += 1
        if number % 10 == 1 and number < 42:
            ticker = (TICKER, OTHER)[number // 10 % 2]
            partition.process([], controls=[_register(f"t{number}", _BUSY.format(number // 20), ticker)])
        partition = TriggerPartition.load(partition.save(), rules)
    # As many as a ticker has triggers.
    assert (partition.shards, partition.views) == (3, 1)
    assert fired == {"t1": 11, "t11": 9, "t21": 7, "t31": 5, "t41": 3}


def test_triggers_that_begin_later_share_a_view_once_its_state_is_equal() -> None:
    """A window has ended, rows that a frame reached are gone; a sum from the start stays different."""
    rules = TriggerRules(idle_ns=1_000 * SECOND)
    united: dict[str, list[int]] = {}
    for view in ("moves", "near", "grid", "sums", "rises"):
        partition = TriggerPartition(rules)
        united[view] = []
        for number in range(1, 40, 2):
            controls = (
                [_register(f"t{number}", f"SELECT ticker, price FROM {view}", TICKER)] if number in (1, 5) else []
            )
            partition.process([prices(number, 2.0 + number % 3, 3.0)], controls=controls)
            partition = TriggerPartition.load(partition.save(), rules)
            # A view that reads `large` shares that one first.
            united[view].append(partition.views)
    assert {view: counts[-1] for view, counts in united.items()} == {
        "moves": 2, "near": 1, "grid": 2, "sums": 3, "rises": 2
    }  # fmt: skip
    assert max(united["moves"]) == 4


def test_rows_from_before_a_registration_that_still_wait_are_seen_by_older_triggers_alone() -> None:
    partition = TriggerPartition(TriggerRules(watermark_delay_ns=5 * SECOND))
    sql = "SELECT ticker, price FROM moves"
    partition.process([], controls=[_register("old", sql, TICKER)])
    partition.process([prices(1, *[2.0] * 8)], controls=[_register("new", sql + " WHERE price > 0", TICKER)])
    found = [each for n in range(9, 30) for each in _fired(partition.process([prices(n, float(n))]))]
    assert partition.views == 2
    assert [price for trigger_id, price in found if trigger_id == "new"] == [float(n) for n in range(9, 24)]
    assert found.count(("old", 2.0)) == 5 + 1  # Three had been released, one of them as a row before the first.


def test_a_view_that_fails_over_one_ticker_suspends_only_its_triggers() -> None:
    views = {"trades": "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker, price ORDER BY ts "
             "MEASURES A.size AS size PATTERN (A B) DEFINE A AS price > 0) AS m"}  # fmt: skip
    partition = TriggerPartition(TriggerRules(kept_partitions=100))

    def registered(trigger_id: str, sql: str, *tickers: str) -> bytes:
        registration = records.TriggerRegistration(
            trigger_id=trigger_id, sql=sql, tickers=tickers, version=1, views=views
        )
        return records.TriggerControl(register=registration).SerializeToString()

    texts = ["SELECT * FROM trades", "SELECT price FROM trades WHERE price > 1"]
    controls = [registered(f"t{n}{ticker}", sql, ticker) for ticker in (TICKER, OTHER) for n, sql in enumerate(texts)]
    partition.process([], controls=controls)
    assert partition.views == 1
    partition.process([batch(1, (1, "x", 5.0), ticker=OTHER)])
    output = partition.process([prices(1, *range(1, 120)), batch(2, (2, "y", 5.0), ticker=OTHER)])
    assert sorted(one.trigger_id for one in output.reports) == [f"t0{TICKER}", f"t1{TICKER}"]
    assert "the pattern keeps more than 100 partitions at a time" in output.reports[0].reason
    assert _fired(output) == [(f"t0{OTHER}", 5.0), (f"t1{OTHER}", 5.0)]


def test_a_trigger_that_is_registered_again_begins_afresh_while_others_continue() -> None:
    partition = TriggerPartition()
    texts = {"a": "SELECT total FROM sums", "b": "SELECT total FROM sums WHERE total > 0"}
    partition.process([], controls=[_register(name, sql, TICKER) for name, sql in texts.items()])
    assert _fired(partition.process([prices(1, 2)]), "total") == [("a", 2), ("b", 2)]
    partition.process([], controls=[remove("a"), _register("a", texts["a"], TICKER, version=2)])
    assert _fired(partition.process([prices(2, 3)]), "total") == [("b", 5), ("a", 3)]
    partition.process([], controls=[remove("a"), remove("b")])
    partition.process([])
    assert partition.views == 0


def test_triggers_whose_registration_hides_other_late_trades_have_separate_views() -> None:
    partition = TriggerPartition()
    texts = {30: "SELECT total FROM sums", 10: "SELECT total FROM sums WHERE total > 0"}
    controls = [_register(f"t{at}", sql, TICKER, at=WALL + at * SECOND) for at, sql in texts.items()]
    partition.process([], controls=controls)
    assert partition.views == 2  # large and sums
    output = partition.process([asked(1, *seconds(29, 31), until=31)])
    assert _fired(output, "total") == [("t30", 30), ("t30", 61), ("t10", 29), ("t10", 59), ("t10", 90)]
    assert partition.views == 3  # large keeps no state


def test_a_slow_trigger_falls_behind_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "_ROW_NS", 0)
    rules = TriggerRules(share_ns=1, waiting_rows=1_000)
    partition = TriggerPartition(rules)
    texts = {"a": "SELECT total FROM sums", "b": "SELECT total FROM sums WHERE total > 0", "c": "price > 0"}
    partition.process([], controls=[_register(name, sql, TICKER) for name, sql in texts.items()])
    totals: dict[str, list[float]] = {"a": [], "b": []}
    for number in range(1, 9):
        output = partition.process([prices(number, 2.0, 2.0)] if number < 4 else [])
        for event in output.events:
            if event.trigger_id in totals:
                totals[event.trigger_id] += [row["total"] for row in rows(event)]
        if number >= 3:
            partition = TriggerPartition.load(partition.save(), rules)
            assert partition.views == 4
        assert number != 3 or partition.is_behind
    assert not partition.is_behind
    assert totals["a"] == totals["b"] == [2, 4, 6, 8]


def test_the_cost_of_a_view_is_divided_among_its_triggers() -> None:
    def cost(*names: str) -> records.TriggerCost:
        partition = TriggerPartition()
        texts = [f"SELECT total FROM sums WHERE total > 0 OR ticker = '{name}'" for name in names]
        partition.process([], controls=[_register(name, sql, TICKER) for name, sql in zip(names, texts, strict=True)])
        partition.process([prices(1, 2, 3, 4)])
        partition.segments()
        return partition.costs().costs[0]

    alone, together = cost("a"), cost("a", "bb", "ccc", "dddd")
    assert alone.partitions == together.partitions == 1
    assert together.state_bytes < alone.state_bytes


def test_a_state_from_before_views_were_shared_is_read() -> None:
    sql = "SELECT total FROM sums"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trigger, "_views", lambda compiled: ())
        partition = TriggerPartition()
        partition.process([], controls=[_register("a", sql, TICKER)])
        partition.process([prices(1, 2)])
        saved = partition.save()
    partition = TriggerPartition.load(saved)
    partition.process([], controls=[_register("b", sql, TICKER)])
    assert _fired(partition.process([prices(2, 3)]), "total") == [("a", 5), ("b", 3)]
    partition = TriggerPartition.load(partition.save())
    assert _fired(partition.process([prices(3, 4)]), "total") == [("a", 9), ("b", 7)]


def test_bars_of_every_period_are_kept_apart() -> None:
    views = {
        "closes": "SELECT ticker, close, LAG(close) OVER (PARTITION BY ticker ORDER BY open_time) AS old FROM ohlc"
    }
    partition = TriggerPartition()

    def registered(trigger_id: str, sql: str) -> bytes:
        registration = records.TriggerRegistration(trigger_id=trigger_id, sql=sql, version=1, views=views)
        return records.TriggerControl(register=registration).SerializeToString()

    texts = {"a": "SELECT close, old FROM closes", "b": "SELECT close, old FROM closes WHERE close > old"}
    partition.process([], controls=[registered(name, sql) for name, sql in texts.items()])
    partition.process([], bars=[bar(0, 2.0), bar(0, 5.0, 300)])
    output = partition.process([], bars=[bar(1, 3.0), bar(5, 4.0, 300)])
    assert partition.views == 1
    assert _fired(output, "old") == [("a", 2.0), ("b", 2.0), ("a", 5.0)]


def test_texts_over_a_built_in_view_compute_it_once(computed: Counter[int]) -> None:
    texts = {
        "hammers": "SELECT ticker, value FROM hammer",
        "low": "SELECT ticker, value FROM hammer WHERE close < 99",
        "both": "SELECT ticker, hammer AS value FROM candle_patterns WHERE doji > 0 OR hammer > 0",
        "turned": "SELECT ticker, doji AS value FROM candle_patterns WHERE hammer < doji",
        "written": "SELECT ticker, value FROM (SELECT *, CDL_HAMMER(open, high, low, close) OVER (PARTITION BY ticker "
        "ORDER BY open_time) AS value FROM ohlc) WHERE value > 0",
    }
    partition = TriggerPartition()
    partition.process([], controls=[register(name, sql, TICKER) for name, sql in texts.items()])
    found = []
    for minute in range(60):
        # Now and then a hammer, or a doji.
        high, low, close = {5: (100.0, 90.0, 99.2), 6: (101.0, 99.0, 100.0)}.get(minute % 7, (101.0, 99.0, 101.0))
        output = partition.process([], bars=[candle(minute, 100.0, high, low=low, close=close)])
        found += _fired(output, "value")
        partition = TriggerPartition.load(partition.save())
    counts = Counter(name for name, value in found if value)
    assert counts["hammers"] == counts["written"] > 3
    assert computed == {1: 2 * 60, 2: 60}


def test_windows_that_a_clock_ends_without_rows_reach_their_trigger() -> None:
    """Even if only another ticker's rows make the view compute."""
    partition = TriggerPartition()
    texts = {TICKER: "SELECT ticker, n FROM grid", OTHER: "SELECT ticker, n FROM grid WHERE n > 0"}
    partition.process([], controls=[_register(ticker, sql, ticker) for ticker, sql in texts.items()])
    partition.process([prices(1, 2, 2), prices(1, 2, ticker=OTHER)])
    # After a time without records.
    partition.prime([batch(3, (50, "50", 2.0), ticker=OTHER)], 1)
    output = partition.process([batch(3, (60, "60", 2.0))])
    assert {event.trigger_id for event in output.events} == {TICKER, OTHER}


def test_a_view_is_not_shared_while_rows_are_held_that_one_of_its_triggers_must_not_see() -> None:
    """The older view may have got the ticker later."""
    partition = TriggerPartition(TriggerRules(watermark_delay_ns=3 * SECOND))
    sql = "SELECT price, LAG(price, {}) OVER (PARTITION BY ticker ORDER BY ts) AS before FROM large"
    older = [_register("other", sql.format(1), OTHER), _register("gone", sql.format(2), TICKER)]
    partition.process([], controls=older)
    partition.process([prices(1, 2.0)], controls=[_register("early", sql.format(3), TICKER)])
    partition.process([prices(2, 2.0)], controls=[remove("gone")])
    partition.process([prices(3, 3.0)])
    partition.process([], controls=[_register("late", sql.format(4), TICKER)])
    found = [fired for n in range(4, 20) for fired in _fired(partition.process([prices(n, float(n))]))]
    assert partition.views == 4  # large, and OVER of each text
    assert [price for trigger_id, price in found if trigger_id == "early"] == [2.0, *map(float, range(3, 16))]
    assert [price for trigger_id, price in found if trigger_id == "late"] == [float(n) for n in range(4, 16)]


def test_a_view_that_fails_for_one_trigger_has_its_state_of_before_that_for_the_others() -> None:
    """Even if what it reads is shared more widely than it is itself."""
    keyed = (
        "SELECT * FROM moves MATCH_RECOGNIZE (PARTITION BY ticker, price ORDER BY ts "
        "MEASURES A.ts AS ts, B.step AS step PATTERN (A B) DEFINE A AS price > 0) AS m"
    )

    def registered(trigger_id: str, sql: str) -> bytes:
        registration = records.TriggerRegistration(
            trigger_id=trigger_id, sql=sql, tickers=[TICKER], version=1, views=_VIEWS | {"keyed": keyed}
        )
        return records.TriggerControl(register=registration).SerializeToString()

    partition = TriggerPartition(TriggerRules(kept_partitions=100))
    texts = {"a": "SELECT price FROM moves WHERE step > 1000", "b": "SELECT price FROM keyed"}
    partition.process([], controls=[registered(name, sql) for name, sql in texts.items()])
    # Sixty prices are kept; sixty more are too many, but not alone.
    partition.process([prices(1, *range(2, 62))])
    output = partition.process([prices(61, *range(102, 162))])
    assert [(one.trigger_id, one.state) for one in output.reports] == [("b", "suspended")]


def test_views_are_restored_if_this_version_refuses_the_trigger_that_began_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partition = TriggerPartition()
    texts = {"a": "SELECT step FROM moves WHERE step < 9", "b": "SELECT step FROM moves"}
    partition.process([], controls=[_register(name, sql, TICKER) for name, sql in texts.items()])
    partition.process([prices(1, 2)])
    saved = partition.save()

    def refusing(sql: str, *given: Any, **named: Any) -> CompiledTrigger:
        if sql in refused:
            raise TriggerRejected("not any more")
        return compile_trigger(sql, *given, **named)

    monkeypatch.setattr(registry, "compile_trigger", refusing)
    refused = {texts["a"]}
    output = TriggerPartition.load(saved).process([prices(2, 5)])
    assert [(one.trigger_id, one.state) for one in output.reports] == [("a", "suspended")]
    assert "not any more" in output.reports[0].reason
    assert _fired(output, "step") == [("b", 3)]
    refused = set(texts.values())
    output = TriggerPartition.load(saved).process([prices(2, 5)])
    assert [(one.trigger_id, one.state) for one in output.reports] == [("a", "suspended"), ("b", "suspended")]


def test_rows_of_a_view_that_a_clock_causes_reach_their_trigger_once() -> None:
    partition = TriggerPartition()
    texts = {TICKER: "SELECT ticker, n FROM grid", OTHER: "SELECT ticker, n FROM grid WHERE n > 0"}
    controls = [_register(ticker, sql, ticker) for ticker, sql in texts.items()]
    partition.process([], controls=[*controls, _register("every", "price > 1e9")])
    partition.process([prices(1, 2, 2), prices(1, 2, ticker=OTHER)])
    partition.prime([batch(3, (50, "50", 2.0), ticker=OTHER)], 1)
    output = partition.process([batch(3, (60, "60", 2.0)), batch(1, (60, "1", 2.0), ticker=_THIRD)])
    assert sorted(event.context["ticker"] for event in output.events) == [TICKER, OTHER]


def test_many_views_that_never_become_equal_are_compared_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    is_like = views.View.is_like

    def counted(self: views.View, other: views.View) -> bool:
        compared.append(other.number)
        return is_like(self, other)

    monkeypatch.setattr(views.View, "is_like", counted)
    partition = TriggerPartition()
    for number in range(1, 61):
        control = _register(f"t{number}", "SELECT total FROM sums", TICKER)
        partition.process([prices(number, 2.0)], controls=[control])
    partition = TriggerPartition.load(partition.save())
    counts = []
    for number in range(61, 70):
        compared.clear()
        partition.process([prices(number, 2.0)])
        counts.append(len(compared))
    assert partition.views == 61  # large and sums
    assert 0 < max(counts) <= 17
    assert sum(counts) > 60


def test_later_views_share_although_the_oldest_stays_different(monkeypatch: pytest.MonkeyPatch) -> None:
    top = "MAX(price) OVER (PARTITION BY ticker ORDER BY ts ROWS UNBOUNDED PRECEDING) AS top"
    monkeypatch.setitem(_VIEWS, "tops", f"SELECT ticker, ts, price, {top} FROM ticks")
    partition = TriggerPartition()
    sql = "SELECT price, top FROM tops WHERE price > 1000"
    partition.process([], controls=[_register("old", sql, TICKER)])
    partition.process([prices(1, 100)], controls=[_register("a", sql, TICKER)])
    partition.process([prices(2, 9)], controls=[_register("b", sql, TICKER)])
    partition.process([prices(3, 8)])
    assert partition.views == 3
    for number in range(4, 13):
        partition.process([prices(number, 10)])
    assert partition.views == 2


def test_a_failure_over_one_ticker_below_a_view_does_not_suspend_triggers_on_others() -> None:
    keyed = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker, price ORDER BY ts "
        "MEASURES A.ts AS ts, B.size AS size PATTERN (A B) DEFINE A AS price > 0) AS m"
    )
    views = {"keyed": keyed, "high": "SELECT * FROM keyed WHERE price > 1"}

    def registered(view: str, ticker: str) -> bytes:
        registration = records.TriggerRegistration(
            trigger_id=ticker, sql=f"SELECT price FROM {view}", tickers=[ticker], version=1, views=views
        )
        return records.TriggerControl(register=registration).SerializeToString()

    partition = TriggerPartition(TriggerRules(kept_partitions=100))
    partition.process([], controls=[registered("keyed", TICKER), registered("high", OTHER)])
    output = partition.process([prices(1, *range(1, 120)), prices(1, 5, 5, ticker=OTHER)])
    assert [one.trigger_id for one in output.reports] == [TICKER]
    assert _fired(output) == [(OTHER, 5.0)]


def test_a_trigger_continues_after_the_only_other_one_of_its_stream_left() -> None:
    partition = TriggerPartition()
    sql = "SELECT price, mean FROM smooth"
    partition.process([], controls=[_register("a", sql, TICKER), _register("b", sql, OTHER)])
    partition.process([prices(1, 2, 3, 4)], controls=[remove("a")])
    partition.process([])
    partition = TriggerPartition.load(partition.save())
    output = partition.process([prices(1, 2, 4, ticker=OTHER)])
    assert _fired(output, "mean") == [("b", None), ("b", 3.0)]
