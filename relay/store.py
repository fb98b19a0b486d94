"""The relay's reads and writes on the bus. All methods raise BusError."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from bus import topics as bus_topics
from bus.api import Bus, Record, StoredRecord
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.frames import type_id_of
from protobuf import records_pb2 as rec
from relay import metrics
from relay.commands import Enqueue, LookUp, PublishControl
from relay.doors.ownership import client_of, may_publish
from relay.events import Enqueued, LookedUp
from relay.settings import RelayConfig
from relay.venues.venue_book import ALL_VENUES

FINAL_TYPE = bytes((type_id_of(ing.HistoryReadyNotification),))
#: How long (s) the id of a realtime request is remembered, since it must be known when the job is cancelled.
_REALTIME_SECONDS = 365 * 86_400.0
#: How long (s) the id of one of our own requests is remembered, so that its state can be queried; the broker accepts no
#: id twice.
_SUBSCRIPTION_SECONDS = 86_400.0
#: Marks an id in the table before its cancellation is on the bus, so that it is not used again.
_LEAVING = b"-"
#: Separates the name of a relay and a topic; neither contains it.
_RELAY_END = "\t"
Wire = TypeVar("Wire", bound=Message)


def _row_parts(row: str) -> tuple[str, str]:
    """The relay and the topic of a row in the table of subscriptions."""
    relay, separator, topic = row.partition(_RELAY_END)
    return (relay, topic) if separator else ("", row)


@dataclass(frozen=True, slots=True)
class StoredFinal:
    """A final in published form; `body` is the type id and the message."""

    request_id: str
    client_id: str
    body: bytes
    record: StoredRecord
    owner: str = ""


class RelayStore:
    """`relay` is the name of this relay; each relay has its own requests for its subscribers."""

    def __init__(self, bus: Bus, config: RelayConfig, relay: str = "") -> None:
        self._bus = bus
        self._relay = relay
        self._config = config
        self._is_prepared = False

    def prepare(self) -> None:
        """Create the topics whose number of partitions matters; cheap if they exist."""
        if not self._is_prepared:
            for topic in (bus_topics.REQUESTS, bus_topics.TRIGGER_CONTROLS, bus_topics.TRIGGER_PROGRESS):
                self._bus.create_topic(topic, 1)
            self._bus.create_topic(bus_topics.NOTIFICATIONS)
            for topic in (bus_topics.SNAPSHOTS, bus_topics.TICKS, bus_topics.OHLC, bus_topics.TRIGGER_EVENTS):
                self._bus.create_topic(topic)
            self._is_prepared = True

    def forget_preparation(self) -> None:
        """Prepare again at the next call, because after an outage the store may be a new one."""
        self._is_prepared = False

    # ---- requests

    def enqueue(self, command: Enqueue) -> Enqueued:
        """Put the request on the bus; one atomic step decides whether its id is new, and returns the previous entry for
        comparison.
        """
        self.prepare()
        submission = command.submission
        request_id = submission.body.request_id
        is_lasting = submission.request.data.type == ing.DataRequest.REALTIME_TICKS
        once = self._bus.publish_once(
            bus_topics.REQUESTS,
            Record(command.record.SerializeToString(), key=request_id.encode()),
            registry=bus_topics.REGISTRY_REQUESTS,
            name=request_id,
            content=submission.request.SerializeToString(deterministic=True),
            keep_seconds=_REALTIME_SECONDS if is_lasting else self._config.registry_seconds,
        )
        if once.is_first:
            return Enqueued(submission, True, submission.request)
        known = _read(rec.Request, once.content, bus_topics.REGISTRY_REQUESTS)
        return Enqueued(submission, False, known or rec.Request())

    # ---- our own realtime requests, for subscribers

    def live_requests(self) -> tuple[dict[str, str], dict[str, str]]:
        """Request ids by topic: the running ones, and those whose cancellation was begun."""
        running: dict[str, str] = {}
        leaving: dict[str, str] = {}
        for row, value in self._bus.items(bus_topics.TABLE_SUBSCRIPTIONS).items():
            relay, topic = _row_parts(row)
            if relay == self._relay:
                place = leaving if value.startswith(_LEAVING) else running
                place[topic] = value.removeprefix(_LEAVING).decode(errors="replace")
        return running, leaving

    def say_alive(self, keep_seconds: float) -> None:
        """Report that this relay runs, so that no other relay cancels its requests."""
        self._bus.put(bus_topics.TABLE_RELAYS, {self._relay: b""}, keep_seconds=keep_seconds)

    def cancel_orphans(self, at_ns: int) -> int:
        """Cancel the requests of relays that have stopped, and return their number; called by the registry."""
        alive = self._bus.items(bus_topics.TABLE_RELAYS).keys() | {self._relay}
        orphans = {
            row: value.removeprefix(_LEAVING).decode(errors="replace")
            for row, value in self._bus.items(bus_topics.TABLE_SUBSCRIPTIONS).items()
            if _row_parts(row)[0] not in alive
        }
        if orphans:
            self._cancel_rows(orphans, at_ns)
        return len(orphans)

    def _row(self, topic: str) -> str:
        return f"{self._relay}{_RELAY_END}{topic}" if self._relay else topic

    def start_live(self, requests: Mapping[str, ing.DataRequest], at_ns: int) -> None:
        """Request these topics; may be repeated. A reader that finds a topic in the table requests it again."""
        self.prepare()
        ids = {self._row(topic): request.request_id.encode() for topic, request in requests.items()}
        self._bus.put(bus_topics.TABLE_SUBSCRIPTIONS, ids)
        for request in requests.values():
            content = rec.Request(data=request)
            record = rec.Request(data=request, accepted_at=at_ns)
            self._bus.publish_once(
                bus_topics.REQUESTS,
                Record(record.SerializeToString(), key=request.request_id.encode()),
                registry=bus_topics.REGISTRY_REQUESTS,
                name=request.request_id,
                content=content.SerializeToString(deterministic=True),
                keep_seconds=_SUBSCRIPTION_SECONDS,
            )

    def cancel_live(self, request_ids: Mapping[str, str], at_ns: int) -> None:
        """Cancel the requests of these topics; may be repeated."""
        self._cancel_rows({self._row(topic): request_id for topic, request_id in request_ids.items()}, at_ns)

    def _cancel_rows(self, request_ids: Mapping[str, str], at_ns: int) -> None:
        self.prepare()
        leaving = {row: _LEAVING + request_id.encode() for row, request_id in request_ids.items()}
        self._bus.put(bus_topics.TABLE_SUBSCRIPTIONS, leaving)
        records = []
        for request_id in request_ids.values():
            control = ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id=request_id)
            record = rec.Request(control=control, accepted_at=at_ns)
            records.append(Record(record.SerializeToString(), key=request_id.encode()))
        self._bus.publish(bus_topics.REQUESTS, records)
        self._bus.delete(bus_topics.TABLE_SUBSCRIPTIONS, list(request_ids))

    def publish_control(self, command: PublishControl) -> None:
        self.prepare()
        key = command.control.request_id.encode()
        self._bus.publish(bus_topics.REQUESTS, [Record(command.record.SerializeToString(), key=key)])

    def look_up(self, commands: Sequence[LookUp]) -> list[LookedUp]:
        """Look up requests, with four calls to the bus for any number of them."""
        ids = [command.request_id for command in commands]
        requests = self._bus.recall(bus_topics.REGISTRY_REQUESTS, ids)
        finals = self._bus.recall(bus_topics.REGISTRY_FINALS, ids)
        states = self._bus.get(bus_topics.TABLE_REQUEST_STATES, ids)
        served = self.served()
        return [
            LookedUp(
                command.purpose,
                command.request_id,
                _read(rec.Request, request, bus_topics.REGISTRY_REQUESTS),
                _read(cw.RequestState, progress, bus_topics.TABLE_REQUEST_STATES),
                _read(ing.HistoryReadyNotification, final, bus_topics.REGISTRY_FINALS),
                served,
            )
            for command, request, progress, final in zip(commands, requests, states, finals, strict=True)
        ]

    def client_ids(self, request_ids: Sequence[str]) -> list[str]:
        """The client of each request; empty if it has none, or if the request is unknown or forgotten."""
        return [client_of(request) for request in self._requests(request_ids)]

    def _requests(self, request_ids: Sequence[str]) -> list[rec.Request]:
        """The stored requests; empty messages for unknown or forgotten ones."""
        found = self._bus.recall(bus_topics.REGISTRY_REQUESTS, request_ids)
        return [_read(rec.Request, content, bus_topics.REGISTRY_REQUESTS) or rec.Request() for content in found]

    # ---- finals

    def finals_of(self, records: Iterable[StoredRecord]) -> list[StoredFinal]:
        """The finals in these records of `notifications`, each with the client whose request it ends."""
        readable = []
        for record in records:
            try:
                readable.append((record, ing.HistoryReadyNotification.FromString(record.value).request_id))
            except DecodeError:
                metrics.BAD_RECORDS.labels(bus_topics.NOTIFICATIONS).inc()
        requests = self._requests([request_id for _, request_id in readable]) if readable else []
        return [
            StoredFinal(request_id, client_of(request), FINAL_TYPE + record.value, record, request.owner)
            for (record, request_id), request in zip(readable, requests, strict=True)
        ]

    def recall_finals(self, request_ids: Sequence[str]) -> dict[str, bytes]:
        """By request id, the bodies of the known finals that may be published on the topic of that id."""
        if self._config.keys_in is not None:
            requests = zip(request_ids, self._requests(request_ids), strict=True)
            request_ids = [name for name, request in requests if may_publish(request.owner, name)]
        found = self._bus.recall(bus_topics.REGISTRY_FINALS, request_ids)
        return {
            request_id: FINAL_TYPE + content
            for request_id, content in zip(request_ids, found, strict=True)
            if content is not None
        }

    # ---- venues

    def venues(self, names: Sequence[str]) -> dict[str, cw.Venue | None]:
        found = self._bus.get(bus_topics.TABLE_VENUES, names)
        return {
            name: _read(cw.Venue, content, bus_topics.TABLE_VENUES) for name, content in zip(names, found, strict=True)
        }

    def served(self) -> rec.ServedVenues | None:
        """The venues for which ingestors offer slots; None until a broker publishes them."""
        (found,) = self._bus.get(bus_topics.TABLE_SERVED, [bus_topics.SERVED_KEY])
        return _read(rec.ServedVenues, found, bus_topics.TABLE_SERVED)

    def newest_numbers(self, topics: Sequence[str]) -> list[int]:
        """The newest number of each public topic; 0 if nothing was published."""
        return self._bus.last_sequences(topics)

    def venues_for(self, wanted: str) -> Mapping[str, cw.Venue]:
        """The record of one venue, or of all if `wanted` is empty."""
        if wanted:
            found = self.venues([wanted])
        else:
            items = self._bus.items(bus_topics.TABLE_VENUES)
            found = {name: _read(cw.Venue, content, bus_topics.TABLE_VENUES) for name, content in items.items()}
        return {name: record for name, record in found.items() if record is not None and name != ALL_VENUES}


def _read(message: type[Wire], content: bytes | None, place: str) -> Wire | None:
    """The message in `content`; None if it is missing, or unreadable (counted), since one bad value must not stop the
    rest.
    """
    if content is None:
        return None
    try:
        return message.FromString(content)
    except DecodeError:
        metrics.BAD_RECORDS.labels(place).inc()
        return None
