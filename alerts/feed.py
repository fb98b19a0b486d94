"""Alerts from topics of the bus, each record once, even over restarts.

The feed holds no records on the bus, because unread alerts must not fill it. Records that the bus dropped before they
were read are counted and reported.
"""

import contextlib
import json
from collections.abc import Iterable, Sequence

from google.protobuf.message import DecodeError

from alerts.alert import Alert
from alerts.message import worded
from alerts.records import READERS
from bus import topics
from bus.api import Bus, Lives, StoredRecord, Swap, TopicPartition
from bus.dead_letters import Letter, put_aside
from bus.lost import report
from candlewright.wire.errors import OffsetOutOfRange, RecordsLost
from core import metrics
from core.log import get_logger
from protobuf import records_pb2 as rec
from triggers.texts.alerts import AlertAsked

__all__ = ["Feed"]

log = get_logger()

_MAX_RECORDS = 1_000
_UNREAD = metrics.Counter(
    "candlewright_alerts_unread_total",
    "Records that the bus dropped before the alerts had read them.",
    ["topic"],
    registry=metrics.REGISTRY,
)


class Feed:
    """Reads the topics of `kinds`, from their ends at the first start. Methods raise BusUnavailable."""

    def __init__(self, bus: Bus, kinds: Iterable[str]) -> None:
        self._bus = bus
        self._readers = {READERS[kind][0]: READERS[kind][1] for kind in kinds if kind in READERS}
        self._next: dict[TopicPartition, int] = {}
        self._saved: bytes | None = None
        self._lives = Lives()
        self.unread = 0

    def open(self) -> None:
        for topic in self._readers:
            self._bus.create_topic(topic)
        (found,) = self._bus.get(topics.TABLE_ALERTS, ["positions"])
        saved = {} if found is None else json.loads(found)
        self._lives = Lives({_place(name): life for name, (_, life) in saved.items()})
        positions = {_place(name): offset for name, (offset, _) in saved.items()}
        for topic in self._readers:
            for partition, state in enumerate(self._bus.state(topic)):
                self._next[topic, partition] = positions.get((topic, partition), state.end)
        self._saved = found
        if found is None:
            self._saved = self._positions()
            self._bus.put(topics.TABLE_ALERTS, {"positions": self._saved})

    def wait(self, seconds: float) -> bool:
        """Whether there is something to read."""
        try:
            return bool(self._bus.wait(self._next, seconds, lives=self._lives))
        except RecordsLost as error:
            self._rewind(error)
            return True

    def read(self) -> list[Alert]:
        """The new alerts, in the order of each partition; `moved` then gives the new positions."""
        found: list[Alert] = []
        ends: dict[TopicPartition, int] = {}
        for (topic, partition), offset in self._next.items():
            if records := self._read(topic, partition, offset):
                found += self._alerts(topic, records)
                ends[topic, partition] = records[-1].offset + 1
        found = self._as_asked(found)
        # Only after the last call to the bus: if one fails, everything is read again.
        self._next |= ends
        return found

    def moved(self) -> Swap:
        """Makes the positions durable, in the step that stores what was read. Call it once for each `read`."""
        old, self._saved = self._saved, self._positions()
        return Swap(topics.TABLE_ALERTS, "positions", old, self._saved, {})

    def _positions(self) -> bytes:
        known = self._lives.known
        places = {f"{place[0]}/{place[1]}": (offset, known.get(place, "")) for place, offset in self._next.items()}
        return json.dumps(places).encode()

    def _read(self, topic: str, partition: int, offset: int) -> Sequence[StoredRecord]:
        try:
            return self._bus.read(topic, partition, offset, max_records=_MAX_RECORDS, lives=self._lives)
        except RecordsLost as error:
            self._rewind(error)
            return []
        except OffsetOutOfRange as error:
            self.unread += max(0, error.first - offset)
            _UNREAD.labels(topic).inc(max(0, error.first - offset))
            log.error("alerts_unread", topic=topic, partition=partition, records=error.first - offset)
            self._next[topic, partition] = error.first
            return []

    def _alerts(self, topic: str, records: Sequence[StoredRecord]) -> list[Alert]:
        found: list[Alert] = []
        for record in records:
            try:
                found += self._readers[topic](record)
            except (DecodeError, ValueError) as error:
                put_aside(self._bus, "alerts", [Letter.of(record, str(error))])
        return found

    def _as_asked(self, alerts: list[Alert]) -> list[Alert]:
        """Sets the destinations and the texts that the events' triggers name."""
        ids = list(dict.fromkeys(each.trigger_id for each in alerts if each.kind == "event"))
        asked: dict[str, AlertAsked] = {}
        for name, entry in zip(ids, self._bus.get(topics.TABLE_TRIGGERS, ids) if ids else (), strict=True):
            if entry is not None:
                with contextlib.suppress(DecodeError):
                    asked[name] = AlertAsked.of(rec.TriggerEntry.FromString(entry).registration.parameters)
        return [worded(each, own) if (own := asked.get(each.trigger_id)) else each for each in alerts]

    def _rewind(self, error: RecordsLost) -> None:
        report(self._bus, error)
        state = self._bus.state(error.topic)[error.partition]
        place = error.topic, error.partition
        self._next[place] = self._lives.rewound(place, self._next[place], state.lives, end=state.end)


def _place(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("/")
    return topic, int(partition)
