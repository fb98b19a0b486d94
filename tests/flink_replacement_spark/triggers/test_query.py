"""Triggers through real Spark, Redis and tables."""

import json
import threading
from typing import Any

import pyarrow as pa
import pytest

from bus import Record
from bus import topics as bus_topics
from bus.api import partition_of
from candlewright.wire.grid import SECOND
from flink_replacement_spark.cep import evaluate
from flink_replacement_spark.tables.appended import AppendedTable
from flink_replacement_spark.tables.follower import Follower
from flink_replacement_spark.tables.trigger_events import APPENDED_EVENTS
from iceberg import OHLC, TRIGGER_EVENTS, append_or_find, load_table, open_catalog
from iceberg.filters import equal
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.running import Platform
from tests.flink_replacement_spark.trigger_walks import table_of, walk
from tests.triggers.trigger_records import V_SHAPE, bar, rows

pytestmark = pytest.mark.timeout(300)


def stored(platform: Platform, trigger_id: str) -> list[dict[str, object]]:
    table = load_table(open_catalog(platform.settings), TRIGGER_EVENTS)
    found = table.scan(row_filter=equal("trigger_id", trigger_id)).to_arrow()
    return list(found.sort_by("fired_at").to_pylist())


def test_a_pattern_on_the_stream_agrees_with_stored_rows(platform: Platform) -> None:
    ticker, bus = "SHAPE/USDT.BINANCE", platform.bus
    prices = walk(1, 2_000)
    feed.trades(bus, ticker, 1, prices=[100, 99, 98])
    feed.register(bus, "shape", V_SHAPE, ticker)
    expected = evaluate(V_SHAPE, table_of(ticker, 4, prices)).to_pylist()
    for start in range(0, len(prices), 100):
        feed.trades(bus, ticker, 4 + start, prices=prices[start : start + 100])
    feed.clock(bus, ticker, 10_000, sequence=3 + len(prices))
    found = feed.wait_for_events(bus, len(expected) - 1, "shape")
    assert [row for event in found for row in rows(event)] == expected[: len(found)]
    assert len(expected) - len(found) <= 1  # the last match may still grow
    assert [int(event.context["sequence"]) for event in found] == list(range(1, len(found) + 1))
    assert [int(event.context["match_number"]) for event in found] == list(range(1, len(found) + 1))
    in_table = wait_for(lambda: s if len(s := stored(platform, "shape")) >= len(found) else None, 60)
    assert {row["event_id"] for row in in_table} == {event.context["event_id"] for event in found}
    assert len(in_table) == len(found)


def test_a_trigger_sees_rows_from_its_registration_to_its_removal(platform: Platform) -> None:
    ticker, bus = "SPAN/USDT.BINANCE", platform.bus
    feed.trades(bus, ticker, 1, prices=[1, 2, 3])
    feed.register(bus, "span", "price > :least", ticker, least="0")
    feed.trades(bus, ticker, 4, prices=[4, 5, 6, 7])
    found = feed.wait_for_events(bus, 4, "span")
    feed.remove(bus, "span")
    feed.trades(bus, ticker, 8, prices=[8, 9, 10])
    feed.register(bus, "after", "price > 0", ticker)
    feed.trades(bus, ticker, 11, prices=[11, 12])
    after = feed.wait_for_events(bus, 2, "after")
    assert [row["price"] for event in [*found, *after] for row in rows(event)] == [4, 5, 6, 7, 11, 12]
    assert len(feed.events(bus, "span")) == 4


def test_a_trigger_that_looks_back_continues_from_stored_bars(platform: Platform) -> None:
    ticker, bus = "PAST/USDT.BINANCE", platform.bus
    sql = """SELECT * FROM ohlc MATCH_RECOGNIZE (
      PARTITION BY ticker ORDER BY open_time MEASURES FIRST(close) AS first, LAST(close) AS last
      PATTERN (A B{2}) DEFINE B AS close > PREV(close)) AS m"""
    opens = [(feed.T0 + minute * 60 * SECOND) // 1_000 for minute in range(2)]
    past = [
        {"ticker": ticker, "period_seconds": 60, "open_time": time, "open": 1.0, "high": 9.0, "low": 1.0,
         "close": close, "volume": 1.0, "source": "exchange", "complete": True, "updated_at": time}
        for time, close in zip(opens, (2.0, 3.0), strict=True)
    ]  # fmt: skip
    table = load_table(open_catalog(platform.settings), OHLC)
    with platform.driver.locks.writing(OHLC, "test"):
        append_or_find(table, pa.Table.from_pylist(past, schema=OHLC.arrow_schema), {})
    feed.register(bus, "fresh", sql, ticker, period_seconds="60")
    feed.register(bus, "past", sql, ticker, period_seconds="60", lookback_seconds="300000000")
    for minute, close in enumerate((3.0, 4.0, 1.0, 2.0), start=1):
        bus.publish(bus_topics.OHLC, [Record(bar(minute, close, ticker=ticker), key=ticker.encode())])
    for minute, close in enumerate((5.0, 6.0), start=5):
        bus.publish(bus_topics.OHLC, [Record(bar(minute, close, ticker=ticker), key=ticker.encode())])
    found = feed.wait_for_events(bus, 3, "fresh", "past")
    given = [(event.trigger_id, row["first"], row["last"]) for event in found for row in rows(event)]
    assert given == [("fresh", 1, 5), ("past", 2, 4), ("past", 1, 5)]


def test_a_trigger_that_cannot_run_is_suspended_and_reported_while_others_continue(platform: Platform) -> None:
    ticker, bus = "FAIL/USDT.BINANCE", platform.bus
    version = feed.register(bus, "bad", "prise > 0", ticker)
    feed.register(bus, "good", "price > 0", ticker)
    feed.trades(bus, ticker, 1, prices=[1, 2])
    feed.wait_for_events(bus, 1, "good")
    said = [entry for progress in feed.progress(bus) for entry in progress.suspended if entry.trigger_id == "bad"]
    assert [(entry.version, entry.reason.startswith("INVALID_SQL 1:1")) for entry in said] == [(version, True)]
    wait_for(lambda: platform.driver.status().details["triggers"]["suspended"] >= 1 or None, 60)


def test_rows_of_two_partitions_of_the_bus_are_taken_together(platform: Platform) -> None:
    bus = platform.bus
    count = bus.partitions(bus_topics.TICKS)
    one, other = "NEAR/USDT.BINANCE", next(
        f"FAR{n}/USDT.BINANCE" for n in range(99)
        if partition_of(f"FAR{n}/USDT.BINANCE".encode(), count) != partition_of(b"NEAR/USDT.BINANCE", count)
    )  # fmt: skip
    sql = "SELECT a.ts_ns, a.price - b.price AS spread FROM ticks a JOIN ticks b ON a.ts = b.ts "
    feed.register(bus, "spread", f"{sql} AND a.ticker = '{one}' AND b.ticker = '{other}'", one, other)
    feed.trades(bus, one, 1, prices=[10, 11, 12, 13])
    feed.trades(bus, other, 1, prices=[1, 1, 1, 1])
    found = feed.wait_for_events(bus, 3, "spread")
    assert [row["spread"] for event in found for row in rows(event)] == [9, 10, 11]
    feed.remove(bus, "spread")


def test_a_dead_man_needs_no_data(platform: Platform) -> None:
    ticker = "SILENT/USDT.BINANCE"
    feed.register(platform.bus, "silent", "FALSE", ticker, deadman_seconds="1")
    (event,) = feed.wait_for_events(platform.bus, 1, "silent")
    assert [(row["ticker"], row["last_time"]) for row in rows(event)] == [(ticker, None)]
    feed.remove(platform.bus, "silent")


def test_a_query_that_is_started_again_gives_no_event_twice(platform: Platform) -> None:
    ticker, bus = "AGAIN2/USDT.BINANCE", platform.bus
    feed.register(bus, "again", V_SHAPE, ticker)
    prices = walk(2, 300)
    feed.trades(bus, ticker, 1, prices=prices[:200])
    before = feed.wait_for_events(bus, 5, "again")
    wait_for(lambda: len(stored(platform, "again")) >= len(before) or None, 60)
    running = platform.driver.queries[2].query
    assert running is not None
    running.stop()
    feed.trades(bus, ticker, 201, prices=prices[200:])
    feed.clock(bus, ticker, 10_000, sequence=len(prices))
    expected = evaluate(V_SHAPE, table_of(ticker, 1, prices)).to_pylist()
    found = feed.wait_for_events(bus, len(expected) - 1, "again", timeout=90)
    assert [row for event in found for row in rows(event)] == expected[: len(found)]
    assert [int(event.context["sequence"]) for event in found] == list(range(1, len(found) + 1))
    in_table = wait_for(lambda: s if len(s := stored(platform, "again")) >= len(found) else None, 60)
    assert sorted(row["event_id"] for row in in_table) == sorted(event.context["event_id"] for event in found)


def test_a_commit_of_events_that_was_not_known_to_be_done_is_found(platform: Platform) -> None:
    ticker, bus = "FOUND/USDT.BINANCE", platform.bus
    feed.register(bus, "found", "price > 0", ticker)
    feed.trades(bus, ticker, 1, prices=[1, 2, 3])
    feed.wait_for_events(bus, 2, "found")
    wait_for(lambda: len(stored(platform, "found")) >= 2 or None, 60)
    stopping = threading.Event()
    store = AppendedTable(open_catalog(platform.settings), platform.driver.locks, APPENDED_EVENTS).store
    table = Follower(bus, APPENDED_EVENTS.followed, store, stopping=stopping)

    def taken() -> dict[str, Any]:
        (record,) = bus.get("trigger_table", ["taken"])
        assert record is not None
        return dict(json.loads(record))

    record = wait_for(lambda: found if (found := taken())["done"] else None, 60)
    bus.put("trigger_table", {"taken": json.dumps(record | {"done": False}).encode()})
    table.step()
    assert taken() == record
    assert [row["event_id"] for row in stored(platform, "found")] == [
        event.context["event_id"] for event in feed.events(bus, "found")
    ]
