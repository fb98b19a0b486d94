"""A stand-in for the pipeline in the life of a trigger: it reads controls and reports its progress."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bus import topics as bus_topics
from bus.api import Bus, Record, SequenceStamp
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire import streams
from protobuf import records_pb2 as rec


def controls(bus: Bus) -> list[rec.TriggerControl]:
    records = bus.read(bus_topics.TRIGGER_CONTROLS, 0, 0, max_records=100_000)
    return [rec.TriggerControl.FromString(record.value) for record in records]


def registrations(bus: Bus) -> list[tuple[str, int]]:
    """Id and version of each published registration."""
    found = [control.register for control in controls(bus) if control.HasField("register")]
    return [(each.trigger_id, each.version) for each in found]


def entries(bus: Bus) -> dict[str, rec.TriggerEntry]:
    items = bus.items(bus_topics.TABLE_TRIGGERS)
    return {name: rec.TriggerEntry.FromString(value) for name, value in items.items()}


def report(bus: Bus, partition: int, controls_end: int, *suspended: rec.TriggerSuspended) -> None:
    progress = rec.TriggerProgress(partition=partition, controls_end=controls_end, suspended=suspended)
    bus.publish(bus_topics.TRIGGER_PROGRESS, [Record(progress.SerializeToString())])


def report_all(bus: Bus, controls_end: int | None = None) -> None:
    """All partitions, the joint one too, have carried out these controls (None: all there are)."""
    end = bus.state(bus_topics.TRIGGER_CONTROLS)[0].end if controls_end is None else controls_end
    for partition in range(bus.partitions(bus_topics.TICKS) + 1):
        report(bus, partition, end)


def fire(bus: Bus, trigger_id: str, number: int, *, ticker: str = "") -> None:
    bus.publish(bus_topics.TRIGGER_EVENTS, [fired(trigger_id, number, ticker)])


def fired(trigger_id: str, number: int, ticker: str = "") -> Record:
    """One event, in the partition of its ticker."""
    event = ing.CEPTriggerEvent(trigger_id=trigger_id, timestamp=number, context={"event_id": f"e{number}"})
    stamp = SequenceStamp(streams.trigger(trigger_id), context_tag=streams.TRIGGERS.tag)
    key = trigger_id.encode()
    place = ticker.encode() or key
    return Record(event.SerializeToString(), key=key, partition_key=place, sequence=stamp)


@contextmanager
def running(bus: Bus) -> Iterator[None]:
    """A pipeline that carries out every control immediately."""
    stop = threading.Event()
    # As the relay does; the first one makes them.
    bus.create_topic(bus_topics.TRIGGER_CONTROLS, 1)
    bus.create_topic(bus_topics.TRIGGER_PROGRESS, 1)
    bus.create_topic(bus_topics.TICKS)

    def run() -> None:
        done = 0
        while not stop.is_set():
            if bus.wait({(bus_topics.TRIGGER_CONTROLS, 0): done}, 0.05):
                done = bus.state(bus_topics.TRIGGER_CONTROLS)[0].end
                report_all(bus, done)

    thread = threading.Thread(target=run, name="pipeline")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
