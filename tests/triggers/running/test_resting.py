"""Waiting patterns share one check of new rows: each fires as if it received every row."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from candlewright_cep import Events, TriggerStream, limits
from candlewright_cep.matching import bulk, distances
from candlewright_cep.streaming.patterns import match_stream
from protobuf import records_pb2 as records
from tests.rounds import seeds
from tests.triggers.trigger_records import OTHER, TICKER, bar, batch, clock, prices, register, remove, rows
from triggers.partition import TriggerPartition
from triggers.running import resting, shares
from triggers.texts import check
from triggers.texts.check import TriggerRules

SECOND = 1_000_000_000
NAN = float("nan")
TICKERS = (TICKER, OTHER, "SOL/USDT.BINANCE")
MATCH = (
    "SELECT * FROM {source} MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY {time} MEASURES MATCH_NUMBER() AS number, "
    "FIRST({price}) AS first, LAST({price}) AS last, PREV(FIRST({price})) AS before, COUNT(*) AS n {rest}) AS m"
)
#: What follows the measures, with `x` and `y` as numbers.
PATTERNS = (
    "PATTERN (B) DEFINE B AS price > {x} AND PREV(price) <= {x}",
    "PATTERN (B) DEFINE B AS price < PREV(price) * {y}",
    "PATTERN (B) DEFINE B AS PREV(price) * {y} > price AND price < {x}",
    "PATTERN (B) DEFINE B AS price < PREV(price, 1) - {y} AND price < {x}",
    "PATTERN (B) DEFINE B AS ABS(price - PREV(price, 2)) > {y} OR price = {x}",
    "PATTERN (B) DEFINE B AS NOT (price <= PREV(price) + {y}) AND COALESCE(PREV(price, 3), {x}) > 2",
    "PATTERN (B) DEFINE B AS PREV(price) IS NULL AND price < {x}",
    "PATTERN (B) DEFINE B AS price / PREV(price) - 1 > {y} AND price <> {x}",
    "PATTERN (A+ B) DEFINE A AS price > {x}, B AS price < PREV(price) * {y}",
    "PATTERN (A B) DEFINE A AS price > {x}, B AS price < PREV(price)",
    "AFTER MATCH SKIP TO NEXT ROW "
    "PATTERN (A B C) DEFINE A AS price > {x}, B AS price < PREV(price) * {y}, C AS price > {x}",
    "AFTER MATCH SKIP TO LAST B "
    "PATTERN (A{{1,3}} B) DEFINE A AS price BETWEEN {x} AND {x} + 2, B AS price > PREV(price)",
    "PATTERN (A B*) DEFINE A AS price > {x}, B AS price > PREV(price)",
    "PATTERN (A (B B B | C)) DEFINE A AS price < {x}, B AS price >= PREV(price), C AS price >= {x}",
    "PATTERN (A+? B) WITHIN INTERVAL '5' SECOND DEFINE A AS price >= {x}, B AS price < PREV(price) * {y}",
    "PATTERN (A B*) WITHIN INTERVAL '6' SECOND DEFINE A AS price > {x}, B AS price > {x}",
    "PATTERN (A B B | A) WITHIN INTERVAL '6' SECOND DEFINE A AS price < {x}, B AS price < {x}",
    "PATTERN (A+? B) WITHIN INTERVAL '3' SECOND FROM PREVIOUS ROW "
    "DEFINE A AS price >= {x}, B AS price < PREV(price) * {y}",
    "PATTERN (A B*) WITHIN INTERVAL '3' SECOND FROM PREVIOUS ROW DEFINE A AS price > {x}, B AS price > {x}",
    "PATTERN (A X{{2}} B | A) WITHIN INTERVAL '9' SECOND, INTERVAL '4' SECOND FROM PREVIOUS ROW "
    "DEFINE A AS price < {x}, B AS price < {x}",
    "PATTERN (A+ B) DEFINE A AS price > {y} - 0.5, B AS price < PREV(price) * {y}",
    "PATTERN (A+? B) DEFINE A AS price > {y}, B AS price > {x}",
    "PATTERN (S A* B) DEFINE A AS price > PREV(price) - {x} AND side = 'buy', B AS price < A.price",
    "PATTERN (S A* B) DEFINE A AS NOT price > {x} + 1, B AS price >= PREV(price)",
    "AFTER MATCH SKIP TO NEXT ROW PATTERN (A+ B* C) DEFINE A AS price > {y}, B AS price < {x}, C AS price = 3",
    "PATTERN (A+ B?) DEFINE A AS price > {y}, B AS price > {x}",
    "PATTERN (S X*? B) DEFINE B AS price > {x} + {y}",
    "PATTERN (S X*? B) DEFINE B AS price > S.price + {x}",
    "PATTERN (A B) DEFINE A AS price < {x}, B AS price > A.price * {y}",
    "PATTERN (A X B) DEFINE A AS price < {x}, B AS price > A.price AND price > {x}",
    "AFTER MATCH SKIP TO LAST B PATTERN (A B) DEFINE B AS price > A.price * (1 + {y})",
    "AFTER MATCH SKIP TO NEXT ROW PATTERN (A X B) DEFINE B AS price > FIRST(A.price) + {x} AND X.price < {x}",
    "PATTERN (A+ B) DEFINE A AS price > {y}, B AS price < LAST(A.price) * {y}",
    "PATTERN (A B) DEFINE A AS side = 'buy' AND price < {x}, B AS price > PREV(price) OR price > {x}",
    "PATTERN (S X+? B) DEFINE S AS price > {x}, B AS price > LAST(X.price) + {y}",
    "PATTERN (S A* B C) DEFINE S AS price > {x}, A AS price > {y}, C AS price > B.price + {y}",
    "PATTERN (A X{{17}} B) DEFINE A AS price < {x}, B AS price > A.price * {y}",
)
#: Patterns that do not look back, over the inputs in `FILTERED`.
OVER_FILTERED = (
    "PATTERN (A B) DEFINE A AS price > {x}, B AS price < {y} + 2",
    "PATTERN (A+ B) DEFINE A AS price > {y}, B AS price >= {x}",
    "PATTERN (A+? B) DEFINE A AS price < {x} + 2, B AS price > A.price * {y}",
    "PATTERN (A+ B) DEFINE A AS price < {x} + 2, B AS price > A.price * {y}",
    "PATTERN (A B) DEFINE A AS price > {x}, B AS price < A.price * {y}",
    "PATTERN (A B) DEFINE B AS price > A.price * (1 + {y})",
    "PATTERN (A B*) WITHIN INTERVAL '6' SECOND DEFINE A AS price > {x}, B AS price > {x}",
    "PATTERN (S A* B) DEFINE A AS price > {y}, B AS price = {x}",
)
FILTERED = (
    "(SELECT * FROM ticks WHERE side = 'buy')",
    "(SELECT ts, price * 1 AS price, ticker FROM ticks WHERE price > {x} - 1)",
    "(SELECT ticker, ts, price FROM (SELECT * FROM ticks WHERE size < 10) WHERE price <> {y} + 2)",
)

LAG = "LAG(price{0}) OVER (PARTITION BY ticker ORDER BY ts)"
#: Texts without a pattern, which look back with LAG.
LAGS = (
    f"price > {{x}} AND {LAG.format('')} <= {{x}}",
    f"price < {LAG.format('')} * {{y}} OR {LAG.format(', 3')} IS NULL",
    f"SELECT * FROM (SELECT *, {LAG.format(', 2')} AS b, {LAG.format('')} AS c FROM ticks) "
    "WHERE b - price > {y} AND side = 'buy' AND c < {x}",
    f"SELECT price, {LAG.format('')} AS before FROM ticks QUALIFY before * {{y}} > price AND price < {{x}}",
    f"price > {{x}} AND {LAG.format(', 1, 0.0')} <= {{x}}",
)


def texts(chance: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """Id and SQL; each pattern several times, with other numbers."""
    for number in range(count):
        x, y = chance.choice([2.0, 3.0, 4.0, 5.5]), chance.choice([0.5, 0.75, 1.0, 1.5])
        if number % 4 == 0:
            rest = chance.choice(OVER_FILTERED).format(x=x, y=y)
            source = chance.choice(FILTERED).format(x=x, y=y)
            sql = MATCH.format(source=source, time="ts", price="price", rest=rest)
            yield f"t{number}", sql.replace("PREV(FIRST(price))", "LAST(price, 1)")
            continue
        if number % 4 == 1:
            rest = chance.choice([one for one in PATTERNS if "side" not in one]).format(x=x, y=y)
            source = chance.choice(FILTERED).format(x=chance.choice([1.5, 3.5]), y=chance.choice([0.5, 1.0]))
            yield f"t{number}", MATCH.format(source=source, time="ts", price="price", rest=rest)
            continue
        place = number % (len(PATTERNS) + len(LAGS))
        if place < len(LAGS):
            yield f"t{number}", LAGS[place].format(x=x, y=y)
            continue
        rest = PATTERNS[place - len(LAGS)].format(x=x, y=y)
        yield f"t{number}", MATCH.format(source="ticks", time="ts", price="price", rest=rest)


class Both:
    """A partition in which streams may skip rows, and one in which they receive all; their events must be equal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rules: TriggerRules) -> None:
        self._monkeypatch, self._rules = monkeypatch, rules
        self._partitions = {few: TriggerPartition(rules) for few in (1, 10**6)}
        self.events = 0

    def process(self, *values: Any, **named: Any) -> None:
        said = []
        for few, partition in self._partitions.items():
            self._monkeypatch.setattr(resting, "_FEW_ENTRIES", few)
            output = partition.process(*values, **named)
            said.append(sorted((event.trigger_id, event.SerializeToString()) for event in output.events))
            assert [report.state for report in output.reports if report.state == "suspended"] == []
        assert said[0] == said[1]
        self.events += len(said[0])

    def save(self) -> None:
        self._saved = {few: partition.save() for few, partition in self._partitions.items()}

    def restart(self) -> None:
        for few, saved in self._saved.items():
            self._monkeypatch.setattr(resting, "_FEW_ENTRIES", few)
            self._partitions[few] = TriggerPartition.load(saved, self._rules)


def trades(chance: random.Random, second: float, first: int, *, ticker: str, count: int) -> tuple[bytes, float]:
    """Trades along a random walk, sometimes out of order or without a number."""
    made = []
    for number in range(count):
        second += chance.choice([0.0, 0.5, 1.0, 1.0, 3.0])
        late = chance.choice([0.0] * 6 + [2.5])
        price = chance.choice([1.0, 2.0, 2.5, 3.0, 3.0, 4.0, 5.0, 6.0] + [NAN] * (chance.random() < 0.05))
        made.append((max(0.0, second - late), f"{ticker}{first + number}", price))
    return batch(first, *made, ticker=ticker), second


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each call that feeds a stream."""
    found: list[int] = []
    feed = TriggerStream.feed

    def counted(self: TriggerStream, table: pa.Table, *rest: Any, **named: Any) -> Events:
        found.append(table.num_rows)
        return feed(self, table, *rest, **named)

    monkeypatch.setattr(TriggerStream, "feed", counted)
    return found


@pytest.mark.parametrize("seed", seeds(12))
def test_streams_that_miss_rows_give_the_same_events(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    delay, idle = chance.choice([0, 2 * SECOND]), chance.choice([0, 20 * SECOND])
    kept = chance.choice([1_000_000, 9])
    monkeypatch.setattr(resting, "_MOST_FILTERS", chance.choice([2, 100]))
    monkeypatch.setattr(bulk, "FEWEST_ROWS", chance.choice([0, 4000]))
    both = Both(monkeypatch, TriggerRules(watermark_delay_ns=delay, idle_ns=idle, retained_rows=kept))
    named = list(texts(chance, 62))
    chance.shuffle(named)
    waiting, running, version = named[40:], named[:40], 1
    controls = [register(name, sql, chance.choice(TICKERS)) for name, sql in running]
    both.process([], controls=controls, now_ns=1)
    firsts, seconds, now = dict.fromkeys(TICKERS, 1), dict.fromkeys(TICKERS, 0.0), 1
    for _ in range(10):
        values = []
        for ticker in chance.sample(TICKERS, chance.choice([0, 1, 2, 3])):
            count = chance.choice([1, 1, 2, 3, 12])
            value, seconds[ticker] = trades(chance, seconds[ticker], firsts[ticker], ticker=ticker, count=count)
            firsts[ticker] += count
            values.append(value)
        marks = [clock(seconds[ticker], firsts[ticker] - 1, ticker) for ticker in TICKERS if chance.random() < 0.2]
        controls = []
        if waiting and chance.random() < 0.5:
            name, sql = waiting.pop()
            running.append((name, sql))
            version += 1
            controls.append(register(name, sql, *chance.sample(TICKERS, chance.choice([1, 2])), version=version))
        if chance.random() < 0.2:
            controls.append(remove(running.pop(chance.randrange(len(running)))[0]))
        now += chance.choice([1, 5, 30]) * SECOND
        both.process(values, (), marks, controls=controls, now_ns=now)
        if chance.random() < 0.3:
            both.save()
            both.restart()
    assert both.events


@contextmanager
def older_form() -> Iterator[None]:
    """References at a fixed distance are tested in the search, as in older versions."""
    with patch.object(distances, "_MOST_ROWS", -1), patch.object(match_stream, "_FORM", 0):
        check._compiled.cache_clear()
        yield
    check._compiled.cache_clear()


@pytest.mark.parametrize(
    ("rest", "rows"),
    [
        ("PATTERN (S X*? B) DEFINE S AS price = 2, B AS price > {x}", 0),
        ("PATTERN (S X*? B) WITHIN INTERVAL '60' SECOND DEFINE S AS price = 2, B AS price > {x}", 2),
        ("PATTERN (S X+? B) DEFINE S AS price = 2, B AS price > LAST(X.price) + {x}", 0),
        ("PATTERN (S X{{17}} B) DEFINE S AS price = 2, B AS price > S.price + {x}", 16),
    ],
)
@pytest.mark.parametrize("restarts", [1, 2])
def test_an_open_attempt_of_an_older_form_is_completed(rest: str, rows: int, restarts: int) -> None:
    sqls = [MATCH.format(source="ticks", time="ts", price="price", rest=rest.format(x=x)) for x in range(100, 109)]
    with older_form():
        partition = TriggerPartition()
        partition.process([], controls=[register(f"t{x}", sql, TICKER) for x, sql in enumerate(sqls)])
        partition.process([prices(1, 2.0)])
        assert partition.process([prices(2, 1.0)]).events == []
        saved = partition.save()
    for _ in range(restarts):
        partition = TriggerPartition.load(saved)
        saved = partition.save()
    for number in range(rows):
        assert partition.process([prices(3 + number, 1.0)]).events == []
    events = partition.process([prices(3 + rows, 200.0)]).events
    assert sorted(event.trigger_id for event in events) == [f"t{x}" for x in range(9)]


def test_a_deadline_completes_an_attempt_of_an_older_form() -> None:
    rest = "PATTERN (A B*) WITHIN INTERVAL '6' SECOND DEFINE A AS price > {x}, B AS price > {x}"
    sqls = [MATCH.format(source="ticks", time="ts", price="price", rest=rest.format(x=x)) for x in range(9)]
    with older_form():
        partition = TriggerPartition()
        partition.process([], controls=[register(f"t{x}", sql, TICKER) for x, sql in enumerate(sqls)])
        partition.process([batch(1, (1, "1", 7.5))])
        saved = partition.save()
    partition = TriggerPartition.load(saved)
    assert partition.process([], (), [clock(6.5, 1)]).events == []
    events = partition.process([], (), [clock(7.5, 1)]).events
    assert sorted(event.trigger_id for event in events) == [f"t{x}" for x in range(8)]


@pytest.mark.parametrize("seed", seeds(12))
def test_streams_of_an_older_form_give_the_same_events(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    both = Both(monkeypatch, TriggerRules(watermark_delay_ns=chance.choice([0, 2 * SECOND])))
    with older_form():
        both.process([], controls=[register(name, sql, chance.choice(TICKERS)) for name, sql in texts(chance, 40)])
        walk(both, chance, 1, steps=chance.randrange(1, 7))
        both.save()
    both.restart()
    walk(both, chance, 1_000, steps=4)


def walk(both: Both, chance: random.Random, first: int, *, steps: int) -> None:
    for step in range(first, first + steps):
        values = [trades(chance, step, 20 * step, ticker=ticker, count=chance.choice([1, 2, 3, 12]))[0]
                  for ticker in chance.sample(TICKERS, chance.choice([1, 2, 3]))]  # fmt: skip
        both.process(values, now_ns=step)


def test_a_deadline_that_only_time_passes_completes_a_match() -> None:
    rest = "PATTERN (A B*) WITHIN INTERVAL '6' SECOND DEFINE A AS price > {x}, B AS price > {x}"
    sqls = [MATCH.format(source="ticks", time="ts", price="price", rest=rest.format(x=x)) for x in range(9)]
    partition = TriggerPartition()
    partition.process([], controls=[register(f"t{x}", sql, TICKER) for x, sql in enumerate(sqls)])
    partition.process([batch(1, (1, "1", 7.5))])
    assert partition.process([], (), [clock(6.5, 1)]).events == []
    events = partition.process([], (), [clock(7.5, 1)]).events
    assert sorted(event.trigger_id for event in events) == [f"t{x}" for x in range(8)]


def test_open_attempts_are_fed_once_a_row_can_end_them(fed: list[int]) -> None:
    rest = "PATTERN (A+ B) DEFINE A AS price > {x}, B AS price < PREV(price)"
    sqls = [MATCH.format(source="ticks", time="ts", price="price", rest=rest.format(x=x)) for x in range(9)]
    partition = TriggerPartition()
    partition.process([], controls=[register(f"t{x}", sql, TICKER) for x, sql in enumerate(sqls)])
    partition.process([batch(1, (1, "1", 20.0))])
    assert fed == [1] * 9
    before = partition.segments()
    for number in range(2, 40):
        partition.process([batch(number, (number, str(number), 20.0 + number % 3))])
        partition = TriggerPartition.load(partition.save())
    assert fed == [1] * 9
    written = {name for name, part in partition.segments().items() if before.get(name) != part}
    assert all(name.startswith(("recent-", "meta", "counted/")) for name in written)
    (event,) = partition.process([batch(40, (40, "40", 7.5))]).events
    assert (event.trigger_id, fed[9:]) == ("t8", [39])


def test_a_condition_with_lag_is_fed_once_rows_may_meet_it(fed: list[int]) -> None:
    partition = TriggerPartition()
    controls = [register(f"t{x}", LAGS[0].format(x=x), TICKER) for x in range(100, 120)]
    partition.process([], controls=controls, now_ns=1)
    partition.process([prices(1, 50.0)])
    assert fed == [1] * len(controls)
    del fed[:]
    # Above no level, then above one that the previous row also exceeded.
    assert partition.process([prices(2, 99.0, 60.0, 99.5)]).events == []
    assert fed == []
    events = partition.process([prices(5, 101.5)]).events
    assert sorted(event.trigger_id for event in events) == ["t100", "t101"]
    assert fed == [1, 1]
    assert partition.process([prices(6, 101.7)]).events == []
    assert len(fed) == 2


def test_a_pattern_is_fed_once_rows_may_begin_it(fed: list[int]) -> None:
    partition = TriggerPartition()
    sql = MATCH.format(source="ticks", time="ts", price="price", rest=PATTERNS[8].format(x="{x}", y="{y}"))
    levels = range(100, 120)
    controls = [register(f"t{x}", sql.replace("{x}", str(x)).replace("{y}", "0.99"), TICKER) for x in levels]
    partition.process([], controls=controls, now_ns=1)
    # The first row of each, so that PREV of its next one is the row that is kept for all.
    partition.process([prices(1, 50.0)])
    assert fed == [1] * len(levels)
    del fed[:]
    partition.process([prices(2, 99.0, 60.0, 100.0)])
    assert fed == []
    partition.process([prices(5, 101.5)])
    assert fed == [1, 1]
    events = partition.process([prices(6, 101.6, 99.4)]).events
    assert {event.trigger_id: rows(event) for event in events} == {
        name: [{"ticker": TICKER, "number": 1, "first": 101.5, "last": 99.4, "before": 100.0, "n": 3}]
        for name in ("t100", "t101")
    }


def test_a_pattern_whose_rows_are_always_as_far_apart_is_fed_once_rows_may_complete_it(fed: list[int]) -> None:
    rest = "AFTER MATCH SKIP TO LAST B PATTERN (A B) DEFINE B AS price > A.price * {x}"
    sql = MATCH.format(source="ticks", time="ts", price="price", rest=rest)
    partition = TriggerPartition()
    controls = [register(f"t{x}", sql.format(x="{x}").replace("{x}", f"1.{x}"), TICKER) for x in range(10, 30)]
    partition.process([], controls=controls, now_ns=1)
    partition.process([prices(1, 50.0, 51.0)])
    del fed[:]
    for number in range(3, 40):
        assert partition.process([prices(number, 50.0 + number % 2)]).events == []
    assert fed == []
    events = partition.process([prices(40, 56.4)]).events
    assert sorted(event.trigger_id for event in events) == ["t10"]


def test_a_pattern_over_filtered_rows_is_fed_once_rows_may_complete_it(fed: list[int]) -> None:
    partition = TriggerPartition()
    rest = "PATTERN (B) DEFINE B AS price > {x} AND PREV(price) <= {x}"
    sources = {"a": "(SELECT ts, price, ticker FROM ticks WHERE price < 500)", "v": "calm"}
    controls = [
        records.TriggerControl(
            register=records.TriggerRegistration(
                trigger_id=f"{name}{x}",
                sql=MATCH.format(source=source, time="ts", price="price", rest=rest.format(x=x)),
                tickers=[TICKER],
                version=1,
                views={"calm": "SELECT * FROM ticks WHERE price < 500"},
            )
        ).SerializeToString()
        for name, source in sources.items()
        for x in range(100, 120)
    ]
    partition.process([], controls=controls, now_ns=1)
    partition.process([prices(1, 50.0)])
    assert fed == [1] * len(controls)
    assert len([name for name in partition.segments() if name.startswith("recent-")]) == 1
    del fed[:]
    # Above all levels, but filtered, so that the row before is the one before that.
    for number in range(2, 6):
        assert partition.process([prices(number, 600.0)]).events == []
    partition = TriggerPartition.load(partition.save())
    assert fed == []
    events = partition.process([prices(6, 600.0, 101.5)]).events
    assert sorted(event.trigger_id for event in events) == ["a100", "a101", "v100", "v101"]
    assert [row["before"] for event in events for row in rows(event)] == [50.0] * 4
    assert fed == [2] * 4


def test_a_filter_that_fails_suspends_only_the_triggers_on_its_ticker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MADE_TEXTS", 100)
    monkeypatch.setattr(limits, "MADE_A_ROW", 0)
    partition = TriggerPartition()
    rest = "PATTERN (B) DEFINE B AS price > {x} AND PREV(price) <= {x}"
    source = "(SELECT * FROM ticks WHERE CONCAT(side, 'x') <> 'a')"
    sqls = [MATCH.format(source=source, time="ts", price="price", rest=rest.format(x=x)) for x in range(10)]
    controls = [register(f"{ticker}{x}", sql, ticker) for x, sql in enumerate(sqls) for ticker in (TICKER, OTHER)]
    partition.process([], controls=controls, now_ns=1)
    partition.process([prices(1, 1), prices(1, 1, ticker=OTHER)])
    output = partition.process([prices(2, *[0] * 40), prices(2, 0, ticker=OTHER)])
    assert sorted(report.trigger_id for report in output.reports) == sorted(f"{TICKER}{x}" for x in range(10))
    output = partition.process([prices(3, 7.5, ticker=OTHER)])
    assert sorted(event.trigger_id for event in output.events) == [f"{OTHER}{x}" for x in range(8)]


@pytest.mark.parametrize("tickers", [((TICKER, OTHER),), ((TICKER,), (OTHER,))])
def test_a_stream_that_falls_behind_or_is_split_gets_its_missed_rows(
    monkeypatch: pytest.MonkeyPatch, tickers: tuple[tuple[str, ...], ...]
) -> None:
    monkeypatch.setattr(resting, "_FEW_ENTRIES", 1)
    monkeypatch.setattr(shares, "_ROW_NS", 0)
    partition = TriggerPartition(TriggerRules(share_ns=1))
    sql = MATCH.format(source="ticks", time="ts", price="price", rest=PATTERNS[9].format(x=100.0, y=1))
    partition.process([], controls=[register(f"t{place}", sql, *own) for place, own in enumerate(tickers)])
    partition.process([prices(1, 50.0), prices(1, 50.0, ticker=OTHER)])
    # Nothing can end with this row, which begins a match.
    partition.process([prices(2, 101.0, ticker=OTHER)])
    # The second step that is too slow.
    partition.process([prices(2, 40.0)])
    events = list(partition.process([prices(3, 90.0, ticker=OTHER)]).events)
    while partition.is_behind:
        partition = TriggerPartition.load(partition.save(), TriggerRules(share_ns=1))
        events += partition.process([]).events
    assert [(row["first"], row["last"]) for event in events for row in rows(event)] == [(101.0, 90.0)]


def test_patterns_over_bars_miss_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)
    both = Both(monkeypatch, TriggerRules())
    controls = []
    for number in range(12):
        rest = PATTERNS[number % 12].format(x=chance.choice([2.0, 3.0]), y=chance.choice([0.75, 1.0]))
        sql = MATCH.format(source="ohlc", time="open_time", price="close", rest=rest.replace("price", "close"))
        period = {"period_seconds": "60"} if number % 3 else {}
        if number in (1, 2):
            sql = LAGS[2].format(x=4.0, y=0.25)
            words = {"price": "close", "BY ts": "BY open_time", "FROM ticks": "FROM ohlc", "side = 'buy'": "open > 0"}
            for word, other in words.items():
                sql = sql.replace(word, other)
        controls.append(register(f"t{number}", sql, chance.choice(TICKERS), **period))
    both.process([], controls=controls, now_ns=1)
    for minute in range(24):
        values = [
            bar(minute, chance.choice([1.0, 2.0, 2.5, 3.0, 4.0]), period, ticker=ticker)
            for ticker in TICKERS
            for period in (60, 120)
            if period == 60 or minute % 2 == 0
        ]
        both.process([], values, now_ns=1)
        if minute % 8 == 5:
            both.save()
            both.restart()
    assert both.events > 20
