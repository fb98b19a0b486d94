"""Callbacks of triggers, for a relay without the registry: read from the table when an event needs one."""

import time

from cachetools import LRUCache
from google.protobuf.message import DecodeError

from bus import KeyedTables
from bus import topics as bus_topics
from protobuf import records_pb2 as rec

_KEPT = 20_000
_FRESH_SECONDS = 1.0


class Callbacks:
    """For use by one thread. `of` raises BusError."""

    def __init__(self, bus: KeyedTables) -> None:
        self._bus = bus
        self._known: LRUCache[str, tuple[str, float]] = LRUCache(_KEPT)

    def of(self, trigger_id: str) -> str:
        """The trigger's callback; empty if it has none. After a removal, the last known one, for earlier events."""
        known, fresh_until = self._known.get(trigger_id, ("", 0.0))
        if time.monotonic() < fresh_until:
            return known
        (found,) = self._bus.get(bus_topics.TABLE_TRIGGERS, [trigger_id])
        callback = known if found is None else _callback(found)
        self._known[trigger_id] = callback, time.monotonic() + _FRESH_SECONDS
        return callback


def _callback(entry: bytes) -> str:
    try:
        return rec.TriggerEntry.FromString(entry).registration.callback_id
    except DecodeError:
        return ""
