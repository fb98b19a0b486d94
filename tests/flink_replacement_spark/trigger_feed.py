"""Publishes what relay and ingestors publish for triggers, and reads the results."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from bus import Bus, Record, SequenceStamp
from bus import topics as bus_topics
from candlewright.wire import tick_columns
from candlewright.wire.candlewright_pb2 import TriggerRemove
from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from core.background import start_thread
from protobuf import records_pb2 as records
from tests.flink_replacement_spark.harness import wait_for

T0 = 1_700_000_100 * SECOND
_VERSIONS = itertools.count(1)


def register(bus: Bus, trigger_id: str, sql: str, *tickers: str, **parameters: str) -> int:
    """Register a trigger; returns its version once all partitions run it."""
    version = next(_VERSIONS)
    registration = records.TriggerRegistration(
        trigger_id=trigger_id,
        sql=sql,
        tickers=tickers,
        parameters=parameters,
        version=version,
        registered_at=time.time_ns(),
    )
    offset = control(bus, records.TriggerControl(register=registration))
    entry = records.TriggerEntry(registration=registration, control_offset=offset)
    bus.put(bus_topics.TABLE_TRIGGERS, {trigger_id: entry.SerializeToString()})
    wait_for(lambda: is_carried_out(bus, offset) or None, 200)
    return version


def remove(bus: Bus, trigger_id: str) -> None:
    bus.delete(bus_topics.TABLE_TRIGGERS, [trigger_id])
    offset = control(bus, records.TriggerControl(remove=TriggerRemove(trigger_id=trigger_id)))
    wait_for(lambda: is_carried_out(bus, offset) or None, 200)


def control(bus: Bus, body: records.TriggerControl) -> int:
    (place,) = bus.publish(bus_topics.TRIGGER_CONTROLS, [Record(body.SerializeToString(), partition=0)])
    return place.offset


def progress(bus: Bus) -> list[records.TriggerProgress]:
    first = bus.state(bus_topics.TRIGGER_PROGRESS)[0].first
    found = bus.read(bus_topics.TRIGGER_PROGRESS, 0, first, max_records=100_000)
    return [records.TriggerProgress.FromString(record.value) for record in found]


def is_carried_out(bus: Bus, offset: int) -> bool:
    """Whether every partition, and the joint one, has passed the control at `offset`."""
    passed = {said.partition for said in progress(bus) if said.controls_end > offset}
    return passed == set(range(bus.partitions(bus_topics.TICKS) + 1))


def columns(ticker: str, first_id: int, prices: Sequence[float]) -> tick_columns.TickColumns:
    """One trade a second of event time; second and id are the number in the topic."""
    count = len(prices)
    numbers = np.arange(first_id, first_id + count)
    times = T0 + numbers * SECOND
    return tick_columns.TickColumns(
        ticker=ticker,
        first_sequence=0,
        timestamp=times,
        price=np.array(prices, float),
        size=np.full(count, 0.5),
        side=np.ones(count, np.uint8),
        trade_id=numbers.astype("S"),
        received_at=times,
    )


def trades(bus: Bus, ticker: str, first_id: int, *, prices: Sequence[float]) -> None:
    value = tick_columns.encode(columns(ticker, first_id, prices))
    stamp = SequenceStamp(f"TICKS:{ticker}", len(prices), b"\x10")
    bus.publish(bus_topics.TICKS, [Record(value, key=ticker.encode(), sequence=stamp)])


def clock(bus: Bus, ticker: str, second: float, *, sequence: int) -> None:
    body = records.Clock(exchange_time=T0 + round(second * SECOND), sequence=sequence)
    mark = records.TickMark(ticker=ticker, clock=body)
    bus.publish(bus_topics.TICK_MARKS, [Record(mark.SerializeToString(), key=ticker.encode())])


def events(bus: Bus, *trigger_ids: str) -> list[CEPTriggerEvent]:
    """The events of these triggers on the topic, in the order of their numbers."""
    found = []
    for partition, state in enumerate(bus.state(bus_topics.TRIGGER_EVENTS)):
        offset = state.first
        while records_read := bus.read(bus_topics.TRIGGER_EVENTS, partition, offset, max_records=10_000):
            found += [CEPTriggerEvent.FromString(record.value) for record in records_read]
            offset = records_read[-1].offset + 1
    mine = [event for event in found if event.trigger_id in trigger_ids]
    return sorted(mine, key=lambda event: (event.trigger_id, int(event.context["sequence"])))


def first_events(bus: Bus, count: int, *trigger_ids: str) -> list[CEPTriggerEvent] | None:
    """All events, once there are this many."""
    return found if len(found := events(bus, *trigger_ids)) >= count else None


def wait_for_events(bus: Bus, count: int, *trigger_ids: str, timeout: float = 120) -> list[CEPTriggerEvent]:
    return wait_for(lambda: first_events(bus, count, *trigger_ids), timeout)


@contextmanager
def repeated(work: Callable[[], object], pause_seconds: float) -> Iterator[None]:
    """Do `work` on a thread after each pause, until the end of the block."""

    def run(stopping: threading.Event) -> None:
        while not stopping.wait(pause_seconds):
            work()

    with beside("repeated", run):
        yield


@contextmanager
def beside(name: str, run: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run this on a thread, which must end once the event is set, at the end of the block."""
    stopping, failures = threading.Event(), list[BaseException]()
    thread = start_thread(name, partial(run, stopping), on_failure=failures.append)
    try:
        yield
    finally:
        stopping.set()
        thread.join()
    assert not failures
