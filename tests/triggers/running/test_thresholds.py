"""Alerts on one number: those that no row of a micro-batch can satisfy cost nothing, and the others lose no event."""

import operator
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import TriggerStream
from tests.rounds import seeds
from tests.triggers.trigger_records import OTHER, TICKER, prices, register, rows
from triggers.partition import TriggerPartition

NAN = float("nan")
TICKERS = (TICKER, OTHER, "SOL/USDT.BINANCE")
#: Texts with `x` as their number, and what they mean. NaN compares as it does in numpy.
TEXTS: dict[str, Callable[[float, float], bool]] = {
    "price > {x}": operator.gt,
    "price >= {x} AND size > 0.1": operator.ge,
    "{x} > price": operator.lt,
    "price <= {x}": operator.le,
    "price = {x}": operator.eq,
    "price BETWEEN {x} AND {x} + 1.0": lambda price, x: x <= price <= x + 1,
    "price > {x} OR price = 3.0": lambda price, x: price > x or price == 3,
    "NOT price > {x}": lambda price, x: not price > x,
    "SELECT ts, price FROM ticks WHERE price < {x} AND price > 1.0": lambda price, x: 1 < price < x,
    "SELECT ts, price FROM (SELECT ts, ticker, price * 2 AS price FROM ticks) WHERE price > {x}": (
        lambda price, x: 2 * price > x
    ),
}


@pytest.mark.parametrize("seed", seeds(3))
def test_alerts_fire_for_the_rows_that_meet_them(seed: int) -> None:
    chance = random.Random(seed)
    alerts = [
        (f"{kind}-{number}", text, meaning, chance.choice(TICKERS), chance.choice([0.0, 2.0, 2.5, 4.0, 9.0]))
        for kind, (text, meaning) in enumerate(TEXTS.items())
        for number in range(6)
    ]
    partition = TriggerPartition()
    controls = [register(name, text.format(x=x), ticker) for name, text, _, ticker, x in alerts]
    partition.process([], controls=controls, now_ns=1)
    fired: dict[str, list[float]] = {name: [] for name, *_ in alerts}
    expected: dict[str, list[float]] = {name: [] for name, *_ in alerts}
    number = 1
    for _ in range(12):
        values = {ticker: [chance.choice([1.0, 2.0, 3.0, 4.0, 5.0]) for _ in range(3)] for ticker in TICKERS}
        output = partition.process([prices(number, *own, ticker=ticker) for ticker, own in values.items()])
        number += 3
        for event in output.events:
            fired[event.trigger_id] += [row["price"] for row in rows(event)]
        for name, text, meaning, ticker, x in alerts:
            times = 2 if "* 2" in text else 1
            expected[name] += [times * price for price in values[ticker] if meaning(price, x)]
        partition = TriggerPartition.load(partition.save())
    assert fired == expected
    assert sum(map(len, expected.values())) > 100


def test_an_alert_that_no_row_can_meet_is_not_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[int] = []
    feed = TriggerStream.feed

    def counted(self: TriggerStream, table: pa.Table, *rest: Any, **named: Any) -> Any:
        fed.append(table.num_rows)
        return feed(self, table, *rest, **named)

    monkeypatch.setattr(TriggerStream, "feed", counted)
    partition = TriggerPartition()
    levels = range(100, 150)
    controls = [register(f"{ticker}{x}", f"price > {x}.0", ticker) for ticker in TICKERS[:2] for x in levels]
    partition.process([], controls=controls, now_ns=1)
    assert partition.shards == len(levels)
    partition.process([prices(1, 99.0, 100.0), prices(1, 1.0, ticker=OTHER)])
    assert fed == []
    output = partition.process([prices(3, 99.0, 101.5), prices(2, 1.0, 2.0, ticker=OTHER)])
    assert [event.trigger_id for event in output.events] == [f"{TICKER}100", f"{TICKER}101"]
    assert fed == [2, 2]


def test_a_row_without_a_number_is_examined() -> None:
    partition = TriggerPartition()
    partition.process([], controls=[register("a", "NOT price <= 5.0", TICKER)], now_ns=1)
    partition.process([], controls=[register("b", "price <= 5.0", TICKER)], now_ns=1)
    found = partition.process([prices(1, NAN, 4.0, NAN)]).events
    assert [row["price"] for event in found if event.trigger_id == "b" for row in rows(event)] == [4.0]
