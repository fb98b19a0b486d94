"""Triggers that look back over real tables and a real Redis, without Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bus import Bus, Record
from bus import topics as bus_topics
from bus.api import partition_of
from bus.redis.embedded import EmbeddedRedis
from candlewright.wire.grid import SECOND
from core.settings import Settings
from flink_replacement_spark.triggers import lookback as trigger_lookback
from iceberg import OHLC, TICKS, TableDefinition, append_or_find, create_tables, load_table, open_catalog
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.trigger_batches import ONE, PARTITIONS, Query, bus_for_triggers, register, seen
from tests.triggers.trigger_records import T0, bar

pytestmark = pytest.mark.timeout(60)

PAST = "300000000"
SUM = """SELECT SUM(price) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS total
FROM ticks"""
THREE_UP = """SELECT * FROM ohlc MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY open_time MEASURES FIRST(close) AS price, LAST(close) AS last
  PATTERN (A B{2}) DEFINE B AS close > PREV(close)) AS m"""


@pytest.fixture
def bus(redis: EmbeddedRedis) -> Iterator[Bus]:
    with bus_for_triggers(redis.url) as bus:
        yield bus


@pytest.fixture
def query(redis: EmbeddedRedis, bus: Bus, tmp_path: Path) -> Iterator[Query]:
    found = Query(redis.url)
    found.settings = Settings.model_validate({"data_dir": tmp_path, "bus": {"url": redis.url}})
    create_tables(open_catalog(found.settings))
    yield found
    found.reader.stop()


def store(query: Query, definition: TableDefinition, *rows: dict[str, Any]) -> None:
    assert query.settings is not None
    table = load_table(open_catalog(query.settings), definition)
    append_or_find(table, pa.Table.from_pylist(list(rows), schema=definition.arrow_schema), {})


def trade(number: int, price: float) -> dict[str, Any]:
    """A trade as `feed.trades` publishes it."""
    time_ns = T0 + number * SECOND
    return {"ticker": ONE, "trade_id": str(number), "ts": time_ns // 1000, "ts_ns": time_ns, "price": price,
            "size": 0.5, "side": "buy", "received_at": time_ns // 1000}  # fmt: skip


def candle(minute: int, close: float) -> dict[str, Any]:
    time_us = (T0 + minute * 60 * SECOND) // 1000
    return {"ticker": ONE, "period_seconds": 60, "open_time": time_us, "open": 1.0, "high": close, "low": 1.0,
            "close": close, "volume": 1.0, "source": "ticks", "complete": True, "updated_at": time_us}  # fmt: skip


def publish_bar(bus: Bus, minute: int, close: float) -> None:
    bus.publish(bus_topics.OHLC, [Record(bar(minute, close, ticker=ONE), key=ONE.encode())])


def suspended(bus: Bus) -> list[str]:
    return [entry.reason for said in feed.progress(bus) for entry in said.suspended]


def test_trades_of_table_and_bus_meet_without_a_hole_or_a_double(bus: Bus, query: Query) -> None:
    for number, price in enumerate((1, 2, 4, 8), start=1):
        feed.trades(bus, ONE, number, prices=[price])
    bus.hold(bus_topics.TICKS, bus_topics.READER_BAR_MAKER, {partition_of(ONE.encode(), PARTITIONS): 2})
    register(bus, "t", SUM, ONE, lookback_seconds=PAST)
    register(bus, "none", SUM, ONE)
    query.plan()
    feed.trades(bus, ONE, 5, prices=[16])
    # The table already has the third trade and the first live one.
    store(query, TICKS, trade(1, 1), trade(2, 2), trade(3, 4), trade(5, 16))
    query.again()
    feed.trades(bus, ONE, 6, prices=[32, 64])
    query.run()
    assert seen(bus, "t", "total") == [28, 56, 112]
    assert seen(bus, "none", "total") == [16, 48, 112]


def test_trades_that_are_not_stored_are_searched_on_the_bus(
    bus: Bus, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_lookback, "_KEPT_STEP", 2)
    for number, price in enumerate((1, 2, 4, 8), start=1):
        feed.trades(bus, ONE, number, prices=[price])
    bus.hold(bus_topics.TICKS, bus_topics.READER_BAR_MAKER, {partition_of(ONE.encode(), PARTITIONS): 4})
    register(bus, "t", SUM, ONE, lookback_seconds=PAST)
    query.run()
    feed.trades(bus, ONE, 5, prices=[16, 32])
    query.run()
    assert seen(bus, "t", "total") == [28, 56]


def test_a_batch_that_looks_back_again_over_another_table_changes_no_event(bus: Bus, query: Query) -> None:
    store(query, OHLC, candle(1, 2), candle(2, 3))
    publish_bar(bus, 2, 3)
    publish_bar(bus, 3, 4)
    register(bus, "t", THREE_UP, ONE, lookback_seconds=PAST, period_seconds="60")
    query.run()
    store(query, OHLC, candle(3, 4), candle(0, 9))
    query.again()
    assert feed.events(bus, "t") == []  # all of the first match is past
    publish_bar(bus, 4, 1)
    publish_bar(bus, 5, 2)
    publish_bar(bus, 6, 3)
    query.run()
    before = feed.events(bus, "t")
    assert seen(bus, "t", "last") == [3]
    assert [event.context["match_number"] for event in before] == ["2"]
    store(query, OHLC, candle(4, 1), candle(5, 2))
    query.again()
    assert feed.events(bus, "t") == before


def test_a_pattern_begins_in_a_stored_bar_and_ends_in_a_live_one(bus: Bus, query: Query) -> None:
    store(query, OHLC, candle(1, 2), candle(2, 3), {**candle(3, 9), "period_seconds": 300})
    register(bus, "t", THREE_UP, ONE, lookback_seconds=PAST, period_seconds="60")
    register(bus, "none", THREE_UP, ONE, period_seconds="60")
    query.run()
    publish_bar(bus, 3, 4)
    publish_bar(bus, 4, 1)
    query.run()
    assert seen(bus, "t") == [2]
    assert seen(bus, "none") == []


def test_only_requested_data_is_examined(bus: Bus, query: Query) -> None:
    assert query.settings is not None
    store(query, TICKS, trade(1, 1), trade(2, 2))
    register(bus, "t", SUM, ONE, lookback_seconds="1")
    query.run()
    feed.trades(bus, ONE, 3, prices=[4, 8])
    query.run()
    assert seen(bus, "t", "total") == [4, 12]


def test_a_past_that_is_too_long_suspends_with_a_reason(
    bus: Bus, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_lookback, "_ROWS", 2)
    store(query, TICKS, trade(1, 1), trade(2, 2), trade(3, 4))
    register(bus, "t", SUM, ONE, lookback_seconds=PAST)
    register(bus, "other", SUM, ONE)
    query.run()
    (reason,) = suspended(bus)
    assert "more than 2 rows" in reason
    feed.trades(bus, ONE, 4, prices=[8, 16])
    query.run()
    assert seen(bus, "other", "total") == [8, 24]
    assert seen(bus, "t", "total") == []


def test_unreachable_tables_suspend_a_trigger_that_looks_back(bus: Bus, query: Query) -> None:
    assert query.settings is not None
    open_catalog(query.settings).drop_table(TICKS.identifier)
    register(bus, "t", SUM, ONE, lookback_seconds=PAST)
    query.run()
    (reason,) = suspended(bus)
    assert reason.startswith("the stored rows could not be read")
