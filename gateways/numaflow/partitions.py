"""Numaflow's partitions and offsets: each partition of a topic has a permanent number."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from bus.api import Bus, Log, Record
from candlewright.wire.errors import ConfigurationError

#: A log of names. A partition's number is the offset of the first record that names it, so that processes adding
#: partitions at the same time agree.
LOG = "__numaflow_partitions"
READER = "numaflow"
MAX_PARTITIONS = 1 << 16
_OFFSET = re.compile(rb"(\d{1,5}):(\d{1,19})(?::([0-9a-z-]{1,64}))?")


class RecordId(NamedTuple):
    """The permanent identity of a record: Numaflow's partition, the bus's offset in it, and the life of the store
    (`GroupRecord.life`), which distinguishes it from a record that has its offset after the store lost it.
    """

    partition_id: int
    offset: int
    life: str = ""


class SourcePartition(NamedTuple):
    partition_id: int
    topic: str
    partition: int


def wire_offset(record: RecordId) -> bytes:
    """What Numaflow gets, and returns byte for byte. It includes the partition, so it is complete on its own."""
    place = b"%d:%d" % record[:2]
    return place + b":" + record.life.encode() if record.life else place


def record_id(wire: bytes) -> RecordId | None:
    """None if `wire_offset` did not make it."""
    match = _OFFSET.fullmatch(wire)
    return RecordId(int(match[1]), int(match[2]), (match[3] or b"").decode()) if match else None


def number_partitions(bus: Bus, topics: Iterable[str]) -> tuple[SourcePartition, ...]:
    """All partitions of `topics`, which must exist, in the order of their numbers.

    Raises ConfigurationError if no number is left.
    """
    bus.create_topic(LOG, 1)
    bus.hold(LOG, READER, {0: 0})
    wanted = [(topic, partition) for topic in topics for partition in range(bus.partitions(topic))]
    numbers = _numbers(bus)
    missing = [Record(_name(*each), partition=0) for each in wanted if _name(*each) not in numbers]
    if missing:
        bus.publish(LOG, missing)
        numbers = _numbers(bus)
    found = sorted(SourcePartition(numbers[_name(*each)], *each) for each in wanted)
    if found[-1].partition_id >= MAX_PARTITIONS:
        raise ConfigurationError(f"all {MAX_PARTITIONS} partition numbers that Numaflow allows are in use")
    return tuple(found)


def _name(topic: str, partition: int) -> bytes:
    return f"{topic}/{partition}".encode()


def _numbers(bus: Log) -> dict[bytes, int]:
    numbers: dict[bytes, int] = {}
    at = 0
    while records := bus.read(LOG, 0, at):
        for record in records:
            numbers.setdefault(record.value, record.offset)
        at = records[-1].offset + 1
    return numbers
