"""Which records the client has, which it gets next, and why: pure."""

import heapq
from collections.abc import Iterable, Sequence
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


@dataclass(slots=True)
class SourceState:
    """`redeliver_seconds`: when another replica's records are taken over. Times are monotonic seconds."""

    redeliver_seconds: float
    _outstanding: dict[RecordId, int] = field(default_factory=dict)
    _refused: dict[RecordId, int] = field(default_factory=dict)
    _due: list[tuple[float, RecordId]] = field(default_factory=list)
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

    def session_opened(self, at: float) -> None:
        """A newly connected client has nothing: every record this replica was ever given is sent again."""
        self._outstanding.clear()
        self._refused.clear()
        self._due.clear()
        self._opened_at = at
        self._has_backlog = True

    def room(self, asked: int) -> int:
        """How many records a read of `asked` may return now."""
        return max(0, min(asked, BATCHES_OUTSTANDING * asked - len(self._outstanding)))

    def fetches(self, at: float) -> Sequence[type[Fetch]]:
        """The fetches to try for one read, in order, until it has enough."""
        kinds: list[type[Fetch]] = []
        if self._has_backlog:
            kinds.append(FetchOwn)
        if self._due and self._due[0][0] <= at:
            kinds.append(FetchAgain)
        if at >= self._claims_at and not self._has_backlog:
            kinds.append(FetchExpired)
        return [*kinds, FetchNew]

    def fetch(self, kind: type[Fetch], count: int, at: float) -> Fetch | None:
        """The fetch of `kind` for at most `count` records; None if there is nothing more to try."""
        if count <= 0:
            return None
        if kind is FetchOwn:
            idle = max(0.0, at - self._opened_at - CLOCK_SECONDS)
            return FetchOwn(idle, count) if self._has_backlog else None
        if kind is FetchAgain:
            return FetchAgain(tuple(self._take_due(count, at))) if self._due and self._due[0][0] <= at else None
        if kind is FetchExpired:
            return FetchExpired(self.redeliver_seconds, count) if at >= self._claims_at else None
        return FetchNew(count)

    def fetched(self, fetch: Fetch, found: Sequence[Found], at: float) -> list[RecordId]:
        """Those of `found` to send now: without records that the client already has, or gave back for later."""
        if isinstance(fetch, FetchOwn) and not found:
            self._has_backlog = False
        if isinstance(fetch, FetchExpired) and len(found) < fetch.count:
            # Records expire one by one, so checking a few times per period is enough.
            self._claims_at = at + min(1.0, self.redeliver_seconds / 4)
        chosen = []
        for each in found:
            if each.record in self._outstanding or each.record in self._refused:
                continue
            if each.wait_seconds > 0:
                self._put_off(each.record, each.deliveries - 1, at + each.wait_seconds)
                continue
            self._outstanding[each.record] = each.deliveries
            chosen.append(each.record)
        return chosen

    def acknowledged(self, records: Iterable[RecordId]) -> None:
        for record in records:
            self._outstanding.pop(record, None)
            self._refused.pop(record, None)

    def judged(self, records: Iterable[RecordId], max_deliveries: int) -> tuple[list[Found], list[RecordId]]:
        """(records to give back, each with its deliveries so far; records that used up `max_deliveries` and are not
        offered again, 0 = no limit). Skips records that the client does not have.
        """
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
        return again, given_up

    def refused(self, records: Iterable[RecordId], due_at: float) -> None:
        """Offer the records again at `due_at`, except those acknowledged meanwhile."""
        for record in records:
            deliveries = self._outstanding.pop(record, None)
            if deliveries is not None:
                self._put_off(record, deliveries, due_at)

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
