"""Replays the journal at the start: finds the work on the bus that earlier runs accepted and did not finish."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from google.protobuf.message import DecodeError

from broker.events import (
    AcceptedPiece,
    ControlAsked,
    Event,
    FinalSeen,
    HistoricalAccepted,
    HistoryMeasured,
    LeaseFound,
    ProofFound,
    RealtimeAccepted,
    SnapshotAccepted,
    WantedFound,
)
from broker.journal import records
from broker.journal.writer import PART, TABLE_REALTIME, TABLE_WANTED
from broker.metrics import NOTES
from broker.slots.room import Unwritten
from bus import KeyedTables, Log, Registries, topics
from bus.api import Bus, Lives, StoredRecord
from bus.dead_letters import Letter, put_aside
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BadFrame
from core.log import get_logger
from core.poison import is_poison, reason_of
from protobuf import records_pb2 as rec
from venues import sound

log = get_logger()

_TOPICS = (
    topics.HISTORY,
    topics.HISTORY_OUTCOMES,
    topics.NOTIFICATIONS,
    topics.SNAPSHOTS,
    topics.TICKS,
    topics.TICK_MARKS,
)


_NAMES_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in the outcomes before any effect of the request at `offset`."""

    offset: int
    outcomes: dict[int, int]


@dataclass(kw_only=True, frozen=True, slots=True)
class Replay:
    """`next_offset` and `notifications`: where to continue reading `requests` and finals."""

    events: list[Event]
    next_offset: int
    notifications: dict[int, int]
    outcome_ends: dict[int, int]
    mark: Mark
    measured: HistoryMeasured
    unwritten: list[Unwritten]
    lives: Lives
    #: Where to continue reading proofs; earlier ones answer questions of earlier runs.
    proofs: int = 0


def replay(bus: Bus, at: float) -> Replay:
    """Read the journal from the broker's holds on, and create missing holds."""
    for topic in (topics.REQUESTS, topics.PROOF_QUESTIONS, topics.PROOFS):
        bus.create_topic(topic, 1)
    for topic in _TOPICS:
        bus.create_topic(topic)
    lives = Lives()
    for topic in (topics.REQUESTS, topics.NOTIFICATIONS, topics.PROOFS):
        lives.start(topic, bus.state(topic))
    requests_from = _held_from(bus, topics.REQUESTS)
    outcomes_from = _held_from(bus, topics.HISTORY_OUTCOMES)
    history_from = _held_from(bus, topics.HISTORY)
    notifications = {partition: state.end for partition, state in enumerate(bus.state(topics.NOTIFICATIONS))}
    written = written_of(bus)
    # An older history writer shows its position only by its hold.
    for partition, offset in bus.holds(topics.HISTORY_OUTCOMES, topics.READER_HISTORY_WRITER).items():
        written[partition] = max(written.get(partition, 0), offset)
    found = _read_outcomes(bus, outcomes_from, written)
    stored = list(_read(bus, topics.REQUESTS, 0, requests_from[0]))
    events: list[Event] = []
    for value in bus.items(TABLE_REALTIME).values():
        event = _realtime_event(value)
        if event is not None:
            events.append(event)
    events.extend(_requests(bus, stored, found))
    events = _without_finished(bus, events)
    events.extend(_finals(bus, events))
    events.extend(WantedFound(ticker) for ticker in bus.items(TABLE_WANTED))
    events.extend(LeaseFound(job_id, records.note_of(note), at) for job_id, note in bus.leases().items())
    next_offset = stored[-1].offset + 1 if stored else requests_from[0]
    log.info("journal_replayed", requests=len(stored), from_offset=requests_from[0], next_offset=next_offset)
    mark = Mark(requests_from[0], outcomes_from)
    measured = HistoryMeasured(0, history_from, written, at, has_prover(bus))
    (proofs,) = bus.state(topics.PROOFS)
    return Replay(
        events=events,
        next_offset=next_offset,
        notifications=notifications,
        outcome_ends=found.ends,
        mark=mark,
        measured=measured,
        unwritten=found.unwritten,
        lives=lives,
        proofs=proofs.end,
    )


def has_prover(bus: KeyedTables) -> bool:
    """Whether a driver has announced that it answers `proof_questions`."""
    return bus.get(topics.TABLE_PROVER, [topics.PROVER_KEY])[0] is not None


def written_of(bus: KeyedTables) -> dict[int, int]:
    """The history writer's position, by partition of `history_outcomes`."""
    return {int(partition): int(end) for partition, end in bus.items(topics.TABLE_HISTORY_WRITTEN).items()}


def _held_from(bus: Bus, topic: str) -> dict[int, int]:
    held = bus.holds(topic, topics.READER_BROKER)
    positions = {}
    for partition, state in enumerate(bus.state(topic)):
        kept = held.get(partition, state.first)
        # A hold is after the end only if the store lost records and a broker held them without noticing.
        positions[partition] = state.first if kept > state.end else max(state.first, kept)
    bus.hold(topic, topics.READER_BROKER, positions)
    return positions


def _read(bus: Log, topic: str, partition: int, offset: int) -> Iterator[StoredRecord]:
    while found := bus.read(topic, partition, offset):
        yield from found
        offset = found[-1].offset + 1


@dataclass(slots=True)
class _Outcomes:
    """`pieces`: accepted pieces of unfinished requests, by start; `unwritten`: pages that the history writer must still
    read.
    """

    ends: dict[int, int]
    pieces: dict[str, dict[int, AcceptedPiece]] = field(default_factory=lambda: defaultdict(dict))
    done: set[str] = field(default_factory=set)
    unwritten: list[Unwritten] = field(default_factory=list)


def _read_outcomes(bus: Bus, positions: dict[int, int], written: dict[int, int]) -> _Outcomes:
    found = _Outcomes(dict(positions))
    for partition, offset in positions.items():
        for record in _read(bus, topics.HISTORY_OUTCOMES, partition, offset):
            end = found.ends[partition] = record.offset + 1
            outcome = _outcome(record)
            if outcome is None:
                continue
            if outcome.HasField("piece"):
                piece = records.accepted_piece(outcome.piece)
                found.pieces[outcome.piece.request_id][piece.start] = piece
                if outcome.piece.spans and end > written.get(partition, 0):
                    first = outcome.piece.spans[0].first_offset
                    found.unwritten.append(Unwritten(outcome.piece.partition, first, partition, end))
            else:
                found.done.add(outcome.request.request_id)
                found.pieces.pop(outcome.request.request_id, None)
    return found


def _outcome(record: StoredRecord) -> rec.HistoryOutcome | None:
    """The outcome in a record; None if it cannot be read, since the history writer, which owns the topic, puts it
    aside.
    """
    try:
        outcome = rec.HistoryOutcome.FromString(record.value)
    except DecodeError:
        return None
    if outcome.HasField("piece"):
        return None if sound.problem_with_piece(outcome.piece) else outcome
    return outcome if outcome.HasField("request") else None


def _realtime_event(value: bytes) -> Event | None:
    try:
        return records.realtime_event(value)
    except DecodeError:
        NOTES["record_skipped"].inc()
        return None


def _requests(bus: Bus, stored: list[StoredRecord], found: _Outcomes) -> Iterator[Event]:
    saved = bus.items(topics.TABLE_BROKER_PROGRESS)
    for record in stored:
        event = decode(bus, record)
        if isinstance(event, HistoricalAccepted):
            name = event.request_id
            accepted = (*records.progress_of(saved.get(name)), *found.pieces.get(name, {}).values())
            yield replace(event, accepted=accepted, is_decided=name in found.done)
        elif event is not None and not isinstance(event, ControlAsked):
            # A shutdown or new configuration was sent to the ingestors of its time.
            yield event


def decode(bus: Bus, record: StoredRecord) -> Event | None:
    """The event of a record of `requests`. A record that the broker cannot use is put aside, and the request named by
    its key ends with an error. Raises BusUnavailable.
    """
    try:
        event, reason = records.event_of(record), "not a request that the broker knows"
    except Exception as error:  # No record may stop those after it.
        if not is_poison(error):
            raise
        event, reason = None, reason_of(error)
    if event is not None:
        return event
    NOTES["record_skipped"].inc()
    put_aside(bus, PART, [Letter.of(record, reason)])
    request_id = (record.key or b"").decode(errors="replace")
    return records.unreadable(request_id, record.offset) if request_id else None


def _without_finished(bus: KeyedTables, events: list[Event]) -> list[Event]:
    """The events without snapshots and realtime requests that have ended, according to their state."""
    names = [event.request_id for event in events if isinstance(event, SnapshotAccepted | RealtimeAccepted)]
    if not names:
        return events
    finished = set()
    for name, value in zip(names, bus.get(topics.TABLE_REQUEST_STATES, names), strict=True):
        if value is not None and _is_done(value):
            finished.add(name)
    return [
        event
        for event in events
        if not (isinstance(event, SnapshotAccepted | RealtimeAccepted) and event.request_id in finished)
    ]


def _is_done(state: bytes) -> bool:
    try:
        return cw.RequestState.FromString(state).state == "done"
    except DecodeError:
        return False


def _finals(bus: Registries, events: list[Event]) -> Iterator[Event]:
    """The known finals of these requests. Requests that seem unfinished are checked too, since outcomes of a finished
    request may be gone.
    """
    names = [event.request_id for event in events if isinstance(event, HistoricalAccepted)]
    for at in range(0, len(names), _NAMES_AT_ONCE):
        yield from finals_known(bus, names[at : at + _NAMES_AT_ONCE])


def finals_known(bus: Registries, names: list[str]) -> list[FinalSeen]:
    """The requests among `names` whose final notification is published."""
    found = bus.recall(topics.REGISTRY_FINALS, names) if names else []
    return [FinalSeen(name) for name, content in zip(names, found, strict=True) if content is not None]


def proof_of(bus: Bus, record: StoredRecord) -> ProofFound | None:
    """The event of a record of `proofs`; None for an unreadable one, which is put aside; its request stops waiting by
    itself.
    """
    try:
        return records.proof_event(record)
    except BadFrame as error:
        NOTES["record_skipped"].inc()
        put_aside(bus, PART, [Letter.of(record, error.text)])
        return None


def final_of(record: StoredRecord) -> FinalSeen | None:
    """The event of a record of `notifications`."""
    try:
        return FinalSeen(ing.HistoryReadyNotification.FromString(record.value).request_id)
    except DecodeError:
        NOTES["record_skipped"].inc()
        return None
