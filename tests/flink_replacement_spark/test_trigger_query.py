"""Triggers through real Spark, Redis and tables."""

import random

import pyarrow as pa
import pytest

from flink_replacement_spark.cep import evaluate
from iceberg import TRIGGER_EVENTS, load_table, open_catalog
from iceberg.filters import equal
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.driver import Platform
from tests.flink_replacement_spark.harness import wait_for
from tests.triggers.trigger_records import T0, V_SHAPE, rows
from triggers.check import INPUTS
from venues.grid import SECOND

pytestmark = pytest.mark.timeout(300)


def table_of(ticker: str, first_id: int, prices: list[float]) -> pa.Table:
    """The trades of `trigger_feed.trades` as the table `ticks`."""
    ids = range(first_id, first_id + len(prices))
    times = [T0 + number * SECOND for number in ids]
    columns = {
        "ticker": [ticker] * len(prices), "trade_id": [str(number) for number in ids], "ts": times, "ts_ns": times,
        "price": prices, "size": [0.5] * len(prices), "side": ["buy"] * len(prices), "received_at": times,
    }  # fmt: skip
    schema = INPUTS["ticks"].schema
    return pa.table([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema=schema)


def stored(platform: Platform, trigger_id: str) -> list[dict[str, object]]:
    table = load_table(open_catalog(platform.settings), TRIGGER_EVENTS)
    found = table.scan(row_filter=equal("trigger_id", trigger_id)).to_arrow()
    return list(found.sort_by("fired_at").to_pylist())


def walk(seed: int, count: int) -> list[float]:
    chance = random.Random(seed)
    price, found = 100.0, []
    for _ in range(count):
        price += chance.choice((-1.0, -0.5, 0.0, 0.5, 1.0))
        found.append(price)
    return found


def test_a_pattern_on_the_stream_gives_what_it_gives_over_the_same_rows(platform: Platform) -> None:
    ticker, bus = "SHAPE/USDT.BINANCE", platform.bus
    prices = walk(1, 2_000)
    feed.trades(bus, ticker, 1, [100, 99, 98])
    feed.register(bus, "shape", V_SHAPE, ticker)
    expected = evaluate(V_SHAPE, table_of(ticker, 4, prices)).to_pylist()
    for start in range(0, len(prices), 100):
        feed.trades(bus, ticker, 4 + start, prices[start : start + 100])
    feed.clock(bus, ticker, 10_000, 3 + len(prices))
    found = feed.wait_for_events(bus, len(expected) - 1, "shape")
    assert [row for event in found for row in rows(event)] == expected[: len(found)]
    assert len(expected) - len(found) <= 1  # the last match may still grow
    assert [int(event.context["sequence"]) for event in found] == list(range(1, len(found) + 1))
    assert [int(event.context["match_number"]) for event in found] == list(range(1, len(found) + 1))
    in_table = wait_for(lambda: s if len(s := stored(platform, "shape")) >= len(found) else None, 60)
    assert {row["event_id"] for row in in_table} == {event.context["event_id"] for event in found}
    assert len(in_table) == len(found)
