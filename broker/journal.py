"""What a broker that starts finds on the bus: the work that earlier runs accepted and have not finished."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError

from broker import records
from broker.events import (
    AcceptedPiece,
    ControlAsked,
    Event,
    FinalSeen,
    HistoricalAccepted,
    LeaseFound,
    RealtimeAccepted,
    SnapshotAccepted,
    WantedFound,
)
from broker.instruments import NOTES
from broker.writer import TABLE_REALTIME, TABLE_WANTED
from bus import topics
from bus.api import Bus, StoredRecord
from core.log import get_logger
from protobuf import candlewright_pb2 as cw
from protobuf import ingestor_pb2 as ing
from protobuf import records_pb2 as rec

log = get_logger()

_TOPICS = (
    topics.HISTORY,
    topics.HISTORY_OUTCOMES,
    topics.NOTIFICATIONS,
    topics.SNAPSHOTS,
    topics.TICKS,
    topics.TICK_MARKS,
)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where the other topics ended, at the latest, when the request at `offset` had had no effect yet."""

    offset: int
    outcomes: dict[int, int]
    history: dict[int, int]


@dataclass(frozen=True, slots=True)
class Replay:
    """`next_offset`: where to read `requests` on; `notifications`: where to read finals on."""

    events: list[Event]
    next_offset: int
    notifications: dict[int, int]
    outcome_ends: dict[int, int]
    mark: Mark


def replay(bus: Bus, at: float) -> Replay:
    """Read the journal from the broker's holds on, and take the holds where there are none."""
    bus.create_topic(topics.REQUESTS, 1)
    for topic in _TOPICS:
        bus.create_topic(topic)
    requests_from = _held_from(bus, topics.REQUESTS)
    outcomes_from = _held_from(bus, topics.HISTORY_OUTCOMES)
    history_from = _held_from(bus, topics.HISTORY)
    notifications = {partition: state.end for partition, state in enumerate(bus.state(topics.NOTIFICATIONS))}
    pieces, done, outcome_ends = _read_outcomes(bus, outcomes_from)
    stored = list(_read(bus, topics.REQUESTS, 0, requests_from[0]))
    events: list[Event] = []
    for value in bus.items(TABLE_REALTIME).values():
        event = records.realtime_event(value)
        if event is not None:
            events.append(event)
    events.extend(_requests(stored, pieces, done))
    events = _without_finished(bus, events)
    events.extend(_finals(bus, events))
    events.extend(WantedFound(ticker) for ticker in bus.items(TABLE_WANTED))
    events.extend(LeaseFound(job_id, records.note_of(note), at) for job_id, note in bus.leases().items())
    next_offset = stored[-1].offset + 1 if stored else requests_from[0]
    log.info("journal_replayed", requests=len(stored), from_offset=requests_from[0], next_offset=next_offset)
    mark = Mark(requests_from[0], outcomes_from, history_from)
    return Replay(events, next_offset, notifications, outcome_ends, mark)


def _held_from(bus: Bus, topic: str) -> dict[int, int]:
    held = bus.holds(topic, topics.READER_BROKER)
    positions = {}
    for partition, state in enumerate(bus.state(topic)):
        kept = held.get(partition, state.first)
        # Behind the end only where the store has lost records, and a broker that had not noticed it held them.
        positions[partition] = state.first if kept > state.end else max(state.first, kept)
    bus.hold(topic, topics.READER_BROKER, positions)
    return positions


def _read(bus: Bus, topic: str, partition: int, offset: int) -> Iterator[StoredRecord]:
    while found := bus.read(topic, partition, offset):
        yield from found
        offset = found[-1].offset + 1


def _read_outcomes(
    bus: Bus, positions: dict[int, int]
) -> tuple[dict[str, dict[int, AcceptedPiece]], set[str], dict[int, int]]:
    pieces: dict[str, dict[int, AcceptedPiece]] = defaultdict(dict)
    done: set[str] = set()
    ends = dict(positions)
    for partition, offset in positions.items():
        for record in _read(bus, topics.HISTORY_OUTCOMES, partition, offset):
            ends[partition] = record.offset + 1
            outcome = rec.HistoryOutcome.FromString(record.value)
            if outcome.HasField("piece"):
                piece = records.accepted_piece(outcome.piece)
                pieces[outcome.piece.request_id][piece.start] = piece
            else:
                done.add(outcome.request.request_id)
                pieces.pop(outcome.request.request_id, None)
    return pieces, done, ends


def _requests(
    stored: list[StoredRecord], pieces: dict[str, dict[int, AcceptedPiece]], done: set[str]
) -> Iterator[Event]:
    for record in stored:
        event = decode(record)
        if isinstance(event, HistoricalAccepted):
            accepted = tuple(pieces.get(event.request_id, {}).values())
            yield replace(event, accepted=accepted, is_decided=event.request_id in done)
        elif event is not None and not isinstance(event, ControlAsked):
            # A shutdown or new configuration was told to the ingestors of its time.
            yield event


def decode(record: StoredRecord) -> Event | None:
    """The event of a record of `requests`, counted where it is none."""
    event = records.event_of(record)
    if event is None:
        NOTES["record_skipped"].inc()
        log.warning("record_skipped", topic=record.topic, offset=record.offset)
    return event


def _without_finished(bus: Bus, events: list[Event]) -> list[Event]:
    """Leave out snapshots and realtime requests that ended: their state says so."""
    names = [event.request_id for event in events if isinstance(event, SnapshotAccepted | RealtimeAccepted)]
    if not names:
        return events
    finished = set()
    for name, value in zip(names, bus.get(topics.TABLE_REQUEST_STATES, names), strict=True):
        if value is not None and cw.RequestState.FromString(value).state == "done":
            finished.add(name)
    return [
        event
        for event in events
        if not (isinstance(event, SnapshotAccepted | RealtimeAccepted) and event.request_id in finished)
    ]


def _finals(bus: Bus, events: list[Event]) -> Iterator[Event]:
    names = [event.request_id for event in events if isinstance(event, HistoricalAccepted) and event.is_decided]
    yield from finals_known(bus, names)


def finals_known(bus: Bus, names: list[str]) -> list[FinalSeen]:
    """Those of `names` whose final notification is out."""
    found = bus.recall(topics.REGISTRY_FINALS, names) if names else []
    return [FinalSeen(name) for name, content in zip(names, found, strict=True) if content is not None]


def final_of(record: StoredRecord) -> FinalSeen | None:
    """The event of a record of `notifications`."""
    try:
        return FinalSeen(ing.HistoryReadyNotification.FromString(record.value).request_id)
    except DecodeError:
        NOTES["record_skipped"].inc()
        return None
