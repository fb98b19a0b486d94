"""Room on the topic `history`: which pieces may be dispatched, and from which offset pages are still needed.

A piece is dispatched only when there is room for its pages besides the stored ones and those that running pieces may
still write, so every running piece can be finished. Smaller pieces of other requests may overtake one that does not
fit, for a bounded time. While nothing else runs or waits to be written, any piece may be dispatched, because all older
pages can be trimmed.

Pages are needed from the dispatch of their job until the history writer has written them. A running job therefore
keeps what was published since its dispatch, also pages of other requests, which count as bytes of the topic meanwhile.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from broker.events import AcceptedPiece, HistoryMeasured, OutcomesWritten, PieceResult
from broker.work import PAGES_PER_PIECE, HistoricalRequest, Job, Piece
from bus.api import partition_of
from candlewright.wire import grid

#: The usual maximum size in bytes of a candle in a page, and of a page's overhead.
ROW_BYTES = 66
PAGE_BYTES = 512
#: Pages that nothing needs any more are trimmed at once while the topic has more bytes.
TRIM_BYTES = 64 << 20
#: A piece uses at most this share of the topic, unless one page of its venue is larger.
PIECES_IN_ROOM = 4
#: `at` of events may lag by this much (s).
_TICK_SECONDS = 0.2
#: Pieces that fit overtake one that waits for room for this long (s); after that, room is reserved for it.
OVERTAKING_SECONDS = 5.0
#: The topic must be full for this long (s) before a running job is taken back.
STUCK_SECONDS = 5.0


@dataclass(slots=True)
class _Reserved:
    partition: int
    first: int
    size: int


@dataclass(slots=True)
class _Unpublished:
    """A piece that this run accepted. `first`: the offset of its first page, None without pages."""

    request: HistoricalRequest
    piece: AcceptedPiece
    partition: int
    first: int | None


class Unwritten(NamedTuple):
    """Pages from `first` on that are needed until the history writer has written the outcomes before `end`."""

    partition: int
    first: int
    outcomes: int
    end: int


@dataclass(kw_only=True, slots=True)
class HistoryRoom:
    """`max_bytes`: the size of the topic; 0 = unlimited."""

    max_bytes: int = 0
    partitions: int = 0
    size: int = 0
    #: The ends of the topic when it was last measured, which is before any later dispatch.
    ends: dict[int, int] = field(default_factory=dict)
    #: The history writer's position, by partition of `history_outcomes`.
    written: dict[int, int] = field(default_factory=dict)
    #: All outcomes before these offsets are of confirmed pieces or of ended requests.
    outcome_ends: dict[int, int] = field(default_factory=dict)
    #: The first piece found that does not fit; it has waited since `_waiting_since`.
    waiting: Piece | None = None
    _waiting_since: float = 0.0
    _at: float = 0.0
    _reserved: dict[str, _Reserved] = field(default_factory=dict)
    _reserved_bytes: int = 0
    #: (time, bytes) of jobs that have ended since the topic was measured.
    _unmeasured: deque[tuple[float, int]] = field(default_factory=deque)
    _unmeasured_bytes: int = 0
    _unpublished: deque[_Unpublished] = field(default_factory=deque)
    _unwritten: deque[Unwritten] = field(default_factory=deque)
    _full_since: float | None = None

    def pages_per_piece(self, candles_per_page: int) -> int:
        if not self.max_bytes:
            return PAGES_PER_PIECE
        page = candles_per_page * ROW_BYTES + PAGE_BYTES
        return max(1, min(PAGES_PER_PIECE, self.max_bytes // PIECES_IN_ROOM // page))

    # ---- dispatch

    def fits(self, piece: Piece) -> bool:
        """Whether `piece` may be dispatched now. The first that may not waits for room, unless it is a background
        piece.
        """
        if not self.max_bytes or not isinstance(piece.request, HistoricalRequest):
            return True
        used = self.size + self._reserved_bytes + self._unmeasured_bytes
        if used + _bytes_of(piece) <= self.max_bytes or self._is_empty:
            if piece is self.waiting:
                self.waiting = None
            return True
        if not piece.request.is_background and (self.waiting is None or not self.waiting.is_live):
            self.waiting, self._waiting_since = piece, self._at
        return False

    @property
    def is_kept(self) -> bool:
        """Whether all future room is reserved for the waiting piece."""
        waiting = self.waiting
        return waiting is not None and waiting.is_live and self._at - self._waiting_since >= OVERTAKING_SECONDS

    @property
    def _is_empty(self) -> bool:
        return not (self._reserved or self._unmeasured or self._unpublished or self._unwritten)

    def reserve(self, job: Job) -> None:
        """Reserve room for a job that was dispatched, or taken over from an earlier run."""
        if not isinstance(job.piece.request, HistoricalRequest):
            return
        partition = _partition_of(job.piece.request.ticker, self.partitions)
        size = _bytes_of(job.piece)
        self._reserved[job.job_id] = _Reserved(partition, self.ends.get(partition, 0), size)
        self._reserved_bytes += size

    def accept(self, request: HistoricalRequest, piece: AcceptedPiece, result: PieceResult) -> None:
        first = result.spans[0][0] if result.spans else None
        self._unpublished.append(_Unpublished(request, piece, result.partition, first))

    def release(self, job: Job, at: float) -> None:
        """Release the room of an ended job; what it wrote still counts until the topic is measured again."""
        reserved = self._reserved.pop(job.job_id, None)
        if reserved is not None:
            self._reserved_bytes -= reserved.size
            if self.max_bytes:
                self._unmeasured.append((at + _TICK_SECONDS, reserved.size))
                self._unmeasured_bytes += reserved.size

    # ---- pages on the topic

    def restore(self, unwritten: Iterable[Unwritten], outcome_ends: Mapping[int, int]) -> None:
        """Take over the unwritten pieces that earlier runs accepted."""
        self._unwritten.extend(unwritten)
        self.outcome_ends = dict(outcome_ends)

    def on_outcomes(self, event: OutcomesWritten) -> None:
        """Note that the outcomes of the oldest accepted pieces are on the bus."""
        self.outcome_ends = dict(event.ends)
        for _ in range(event.pieces):
            accepted = self._unpublished.popleft()
            request = accepted.request
            request.confirm(accepted.piece)
            if accepted.first is not None:
                outcomes = _partition_of(request.ticker, len(event.ends))
                self._unwritten.append(Unwritten(accepted.partition, accepted.first, outcomes, event.ends[outcomes]))

    def on_measured(self, event: HistoryMeasured) -> None:
        self._at = event.at
        self.size = event.size
        self.ends = dict(event.ends)
        self.written = dict(event.written)
        while self._unmeasured and self._unmeasured[0][0] < event.at:
            self._unmeasured_bytes -= self._unmeasured.popleft()[1]
        if any(self._is_written(each) for each in self._unwritten):
            self._unwritten = deque(each for each in self._unwritten if not self._is_written(each))
        if not self.is_full:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = event.at

    def _is_written(self, pages: Unwritten) -> bool:
        return self.written.get(pages.outcomes, 0) >= pages.end

    def needed(self) -> dict[int, int]:
        """By partition, the offset from which pages are needed."""
        first = dict(self.ends)
        held: list[_Reserved | _Unpublished | Unwritten] = [
            *self._reserved.values(),
            *self._unpublished,
            *self._unwritten,
        ]
        for each in held:
            if each.first is not None:
                first[each.partition] = min(first.get(each.partition, 0), each.first)
        return first

    # ---- shortage

    @property
    def is_full(self) -> bool:
        return bool(self.max_bytes) and self.size >= self.max_bytes

    @property
    def trims(self) -> bool:
        """Whether to trim unneeded pages now."""
        return self.size > TRIM_BYTES or self.is_full or self.waiting is not None

    def stuck_job(self, at: float) -> str | None:
        """The newest running job, once the topic has been full for long although nothing waits to be written, because
        pages are larger than estimated and jobs wait for each other's room.
        """
        if self._full_since is None or at - self._full_since < STUCK_SECONDS or self._unpublished or self._unwritten:
            return None
        self._full_since = at
        return next(reversed(self._reserved), None)

    @property
    def running(self) -> int:
        return len(self._reserved)

    def sizes(self) -> Mapping[str, int]:
        return {
            "history_bytes": self.size,
            "history_reserved_bytes": self._reserved_bytes,
            "history_unwritten_pieces": len(self._unpublished) + len(self._unwritten),
        }


@lru_cache(maxsize=10_000)
def _partition_of(ticker: str, partitions: int) -> int:
    return partition_of(ticker.encode(), partitions) if partitions else 0


def _bytes_of(piece: Piece) -> int:
    if (room := piece.room) is None:
        request = piece.request
        assert isinstance(request, HistoricalRequest)
        candles_per_page = request.facts.candles_per_page
        room = piece.room = _bytes_in(piece.start, piece.end, request.period_seconds, piece.limit, candles_per_page)
    return room


@lru_cache(maxsize=10_000)
def _bytes_in(start: int, end: int, period_seconds: int, limit: int | None, candles_per_page: int) -> int:
    """The room for a range; pieces of many tickers have the same ones."""
    rows = grid.count_opens(start, end, period_seconds)
    rows = rows if limit is None else min(rows, limit)
    return rows * ROW_BYTES + (rows // max(1, candles_per_page) + 1) * PAGE_BYTES
