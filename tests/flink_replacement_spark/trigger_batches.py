"""Micro-batches of triggers over a real Redis, without Spark, whose calls are made by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bus import Bus
from bus import topics as bus_topics
from bus.redis.redis_bus import RedisBus
from core.settings import Settings
from flink_replacement_spark.triggers import rows as trigger_rows
from flink_replacement_spark.triggers.source import TriggerStreamReader
from protobuf import records_pb2 as records
from tests.flink_replacement_spark import trigger_feed as feed
from tests.triggers.trigger_records import rows
from triggers.texts.check import TriggerRules

PARTITIONS = 5
ONE, OTHER = "BTC/USDT.BINANCE", "ETH/USDT.BINANCE"  # in different ones of the five partitions


@contextmanager
def bus_for_triggers(url: str) -> Iterator[Bus]:
    """An empty bus with the topics that triggers read and write."""
    bus = RedisBus(url)
    bus._store.call("FLUSHALL")
    for topic in (bus_topics.TICKS, bus_topics.TICK_MARKS, bus_topics.OHLC, bus_topics.TRIGGER_EVENTS):
        bus.create_topic(topic, PARTITIONS)
    for topic in (bus_topics.TRIGGER_CONTROLS, bus_topics.TRIGGER_PROGRESS, bus_topics.FUNCTION_ROWS):
        bus.create_topic(topic, 1)
    yield bus
    bus.close()


class Query:
    """`run` carries out the next micro-batch, `again` the last one a second time, as after a lost commit."""

    settings: Settings | None = None

    def __init__(self, url: str, query_id: str = "q") -> None:
        self.url = url
        self.query_id = query_id
        self.reader = TriggerStreamReader({"url": url, "reader": bus_topics.READER_TRIGGERS, "tasks": "2"})
        self.start = self.end = self.reader.initialOffset()
        self.number = -1

    def run(self) -> list[dict[str, Any]]:
        self.plan()
        return self.again()

    def plan(self) -> None:
        self.reader.commit(self.end)
        self.start = self.end
        while (found := self.reader.latestOffset()) == self.end:
            pass
        self.end = found
        self.number += 1

    def again(self) -> list[dict[str, Any]]:
        trigger_rows._CACHE.clear()
        rules = TriggerRules(partitions=PARTITIONS)
        work = trigger_rows.process(self.url, self.query_id, self.number, rules=rules, settings=self.settings)
        parts = self.reader.partitions(self.start, self.end)
        return [row for part in parts for batch in work(self.reader.read(part)) for row in batch.to_pylist()]


def register(bus: Bus, trigger_id: str, sql: str, *tickers: str, version: int = 1, **parameters: str) -> int:
    """Register as the relay does, without waiting; returns the control's offset."""
    registration = records.TriggerRegistration(
        trigger_id=trigger_id, sql=sql, tickers=tickers, parameters=parameters, version=version, registered_at=1
    )
    offset = feed.control(bus, records.TriggerControl(register=registration))
    entry = records.TriggerEntry(registration=registration, control_offset=offset)
    bus.put(bus_topics.TABLE_TRIGGERS, {trigger_id: entry.SerializeToString()})
    return offset


def seen(bus: Bus, trigger_id: str, column: str = "price") -> list[Any]:
    return [row[column] for event in feed.events(bus, trigger_id) for row in rows(event)]
