"""Which records the client has, which it gets next, and why: events in, commands out. Pure.

Times are monotonic seconds. One read at a time asks for records; acknowledgements come in between.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from gateways.numaflow.partitions import RecordId

#: How many full reads may be unacknowledged.
BATCHES_OUTSTANDING = 4
#: The store's clock has milliseconds and is not ours: a record delivered within this time after a handshake may seem
#: older than it, and is then checked twice.
CLOCK_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Found:
    """A fetched record; `deliveries` counts from 1 and includes this one. `wait_seconds`: the rest of the delay with
    which a client gave it back.
    """

    record: RecordId
    deliveries: int
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FetchOwn:
    """Unacknowledged records that this replica was given at least `idle_seconds` ago."""

    idle_seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class FetchAgain:
    """Records that the client gave back and whose delay is over."""

    records: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class FetchExpired:
    """Unacknowledged records that any replica was given at least `idle_seconds` ago."""

    idle_seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class FetchNew:
    count: int


Fetch = FetchOwn | FetchAgain | FetchExpired | FetchNew


@dataclass(frozen=True, slots=True)
class Send:
    """Those of the fetched records that the client gets."""

    records: tuple[RecordId, ...]


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Note on the bus that these are to come again, each with its deliveries so far."""

    records: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Settle these on the bus: they have come too often."""

    records: tuple[RecordId, ...]


Command = Fetch | Send | GiveBack | GiveUp


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A newly connected client has nothing: every record this replica was ever given is sent again."""

    at: float


@dataclass(frozen=True, slots=True)
class ReadBegan:
    at: float


@dataclass(frozen=True, slots=True)
class RecordsWanted:
    """The read that began has room for `count` more."""

    count: int
    at: float


@dataclass(frozen=True, slots=True)
class RecordsFetched:
    fetch: Fetch
    found: tuple[Found, ...]
    at: float


@dataclass(frozen=True, slots=True)
class RecordsAcknowledged:
    records: tuple[RecordId, ...]


@dataclass(frozen=True, slots=True)
class RecordsRefused:
    """The client wants these again. `max_deliveries`: those that came more often are given up; 0 = no limit."""

    records: tuple[RecordId, ...]
    max_deliveries: int


@dataclass(frozen=True, slots=True)
class RecordsGivenBack:
    """The bus knows that these come again at `due_at`."""

    records: tuple[RecordId, ...]
    due_at: float


Event = (
    SessionOpened | ReadBegan | RecordsWanted | RecordsFetched | RecordsAcknowledged | RecordsRefused | RecordsGivenBack
)


@dataclass(kw_only=True, slots=True)
class SourceState:
    """`redeliver_seconds`: when another replica's records are taken over."""

    redeliver_seconds: float
    _outstanding: dict[RecordId, int] = field(default_factory=dict)
    _refused: dict[RecordId, int] = field(default_factory=dict)
    _due: list[tuple[float, RecordId]] = field(default_factory=list)
    #: Kinds of fetches that the read under way has not tried to the end, the next one last.
    _plan: list[type[Fetch]] = field(default_factory=list)
    _opened_at: float = 0.0
    _has_backlog: bool = False
    _claims_at: float = 0.0

    @property
    def outstanding(self) -> int:
        return len(self._outstanding)

    @property
    def due_at(self) -> float | None:
        """When the next given-back record is due."""
        return self._due[0][0] if self._due else None

    def room(self, asked: int) -> int:
        """How many records a read of `asked` may return now."""
        return max(0, min(asked, BATCHES_OUTSTANDING * asked - len(self._outstanding)))

    def handle(self, event: Event) -> list[Command]:
        match event:
            case SessionOpened(at):
                self._open(at)
            case ReadBegan(at):
                self._plan = self._kinds(at)[::-1]
            case RecordsWanted(count, at):
                fetch = self._next_fetch(count, at)
                return [] if fetch is None else [fetch]
            case RecordsFetched(fetch, found, at):
                return [Send(tuple(self._taken(fetch, found, at)))]
            case RecordsAcknowledged(records):
                for record in records:
                    self._outstanding.pop(record, None)
                    self._refused.pop(record, None)
            case RecordsRefused(records, max_deliveries):
                return self._judged(records, max_deliveries)
            case RecordsGivenBack(records, due_at):
                for record in records:
                    # None if it was acknowledged meanwhile.
                    if (deliveries := self._outstanding.pop(record, None)) is not None:
                        self._put_off(record, deliveries, due_at)
        return []

    def _open(self, at: float) -> None:
        self._outstanding.clear()
        self._refused.clear()
        self._due.clear()
        self._opened_at = at
        self._has_backlog = True

    # ---- reading

    def _kinds(self, at: float) -> list[type[Fetch]]:
        """What to try for one read, in order, until it has enough."""
        kinds: list[type[Fetch]] = []
        if self._has_backlog:
            kinds.append(FetchOwn)
        if self._due and self._due[0][0] <= at:
            kinds.append(FetchAgain)
        if at >= self._claims_at and not self._has_backlog:
            kinds.append(FetchExpired)
        return [*kinds, FetchNew]

    def _next_fetch(self, count: int, at: float) -> Fetch | None:
        while self._plan and count > 0:
            kind = self._plan[-1]
            if kind is FetchNew:
                # Only once: if there are fewer than wanted, there are no more.
                self._plan.pop()
                return FetchNew(count)
            fetch = self._fetch(kind, count, at)
            if fetch is not None:
                return fetch
            self._plan.pop()
        return None

    def _fetch(self, kind: type[Fetch], count: int, at: float) -> Fetch | None:
        """The fetch of `kind` for at most `count` records; None if there is nothing more to try."""
        if kind is FetchOwn:
            idle = max(0.0, at - self._opened_at - CLOCK_SECONDS)
            return FetchOwn(idle, count) if self._has_backlog else None
        if kind is FetchAgain:
            return FetchAgain(tuple(self._take_due(count, at))) if self._due and self._due[0][0] <= at else None
        return FetchExpired(self.redeliver_seconds, count) if at >= self._claims_at else None

    def _taken(self, fetch: Fetch, found: tuple[Found, ...], at: float) -> Iterable[RecordId]:
        """Those of `found` to send now: without records that the client already has, or gave back for later."""
        if isinstance(fetch, FetchOwn) and not found:
            self._has_backlog = False
        if isinstance(fetch, FetchExpired) and len(found) < fetch.count:
            # Records expire one by one, so checking a few times per period is enough.
            self._claims_at = at + min(1.0, self.redeliver_seconds / 4)
        for each in found:
            if each.record in self._outstanding or each.record in self._refused:
                continue
            if each.wait_seconds > 0:
                self._put_off(each.record, each.deliveries - 1, at + each.wait_seconds)
                continue
            self._outstanding[each.record] = each.deliveries
            yield each.record

    # ---- what the client refuses

    def _judged(self, records: Iterable[RecordId], max_deliveries: int) -> list[Command]:
        """Skips records that the client does not have."""
        again: list[Found] = []
        given_up: list[RecordId] = []
        for record in dict.fromkeys(records):
            deliveries = self._outstanding.get(record)
            if deliveries is None:
                continue
            if max_deliveries and deliveries > max_deliveries:
                given_up.append(record)
            else:
                again.append(Found(record, deliveries))
        commands: list[Command] = []
        if again:
            commands.append(GiveBack(tuple(again)))
        if given_up:
            commands.append(GiveUp(tuple(given_up)))
        return commands

    def _put_off(self, record: RecordId, deliveries: int, due_at: float) -> None:
        self._refused[record] = deliveries
        heapq.heappush(self._due, (due_at, record))

    def _take_due(self, count: int, at: float) -> Iterable[Found]:
        while self._due and self._due[0][0] <= at and count:
            record = heapq.heappop(self._due)[1]
            deliveries = self._refused.pop(record, None)
            # None if acknowledged meanwhile.
            if deliveries is not None:
                count -= 1
                yield Found(record, deliveries + 1)
