"""Losses that readers found, kept on the bus for a day: the process that found one usually exits, and another one
reports it."""

import contextlib
import json
import time

from bus.api import KeyedTables
from bus.topics import TABLE_LOST_RECORDS
from candlewright.wire.errors import BusError, RecordsLost

__all__ = ["alarms", "report"]

KEEP_SECONDS = 86_400.0


def report(bus: KeyedTables, lost: RecordsLost) -> None:
    """Best effort: does not wait again for a bus that is down."""
    found = {"partition": lost.partition, "read_to": lost.offset, "kept_to": lost.kept, "at": time.time()}
    with contextlib.suppress(BusError):
        bus.put(TABLE_LOST_RECORDS, {lost.topic: json.dumps(found).encode()}, keep_seconds=KEEP_SECONDS)


def alarms(bus: KeyedTables) -> list[str]:
    """A sentence for each topic that lost records within a day. Raises BusError."""
    texts = []
    for topic, value in sorted(bus.items(TABLE_LOST_RECORDS).items()):
        found = json.loads(value)
        minutes = max(0.0, time.time() - found["at"]) / 60
        texts.append(
            f"Redis lost records of {topic}/{found['partition']} {minutes:.0f} min ago: offsets {found['kept_to']} to"
            f" {found['read_to'] - 1} had been read; readers continued at {found['kept_to']}"
        )
    return texts
