"""Accepted requests, the pieces that they are cut into, and the jobs that pieces become."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from broker.collected import Collected
from broker.commands import Dispatch, DispatchedRequest
from broker.events import (
    AcceptedPiece,
    Connection,
    Demand,
    Final,
    Kind,
    LeaseNote,
    PieceResult,
    ProvenRange,
    Range,
    RealtimeAccepted,
)
from broker.ranges import describe_ranges, merge
from bus.topics import KEEP_PREFIX
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import grid
from candlewright.wire import ingestor_pb2 as ing
from core.failures import Failure, FailureCode

PAGES_PER_PIECE = 10
#: After this many permanently failed pieces, the rest of a request is given up.
MAX_FAILED_PIECES = 10
_NOBODY: frozenset[Connection] = frozenset()
_FOUND = Final.OK, ""
_NOTHING_FOUND = Final.NOT_FOUND, ""


@dataclass(kw_only=True, slots=True)
class VenueFacts:
    """`ahead_ns`: the most that the venue's clock was ahead of ours (a sandbox may run fast), never negative.
    `behind_ns`: how far it may be behind ours, by the best result so far.
    """

    candles_per_page: int = 1_000
    candles_per_piece: int = 1_000 * PAGES_PER_PIECE
    depth_candles: int = 0
    ahead_ns: int = 0
    behind_ns: int | None = None
    is_known: bool = False
    #: No ingestor has described the venue on the bus.
    is_bare: bool = False
    asked_at: float = float("-inf")

    def exchange_ns(self, wall_ns: int) -> int:
        """A time (ns) that the venue's clock had reached at `wall_ns`, as far as known."""
        return wall_ns - (self.behind_ns or 0)


class Piece:
    """One unit of work. `banned` connections never get it again; `avoided` ones get it only if no other connection can.

    `is_rest`: it requests candles that an earlier piece could not prove closed. `room`: the bytes that its pages may
    take, once they are known. As in `Job`, most attributes of most pieces have these values, and the class holds them.
    """

    is_whole = True
    is_rest = False
    attempts = 0
    waits = 0
    banned: frozenset[Connection] = _NOBODY
    avoided: frozenset[Connection] = _NOBODY
    job: "Job | None" = None
    room: int | None = None

    def __init__(
        self, request: "Request", number: int, *, start: int = 0, end: int = 0, limit: int | None = None
    ) -> None:
        self.request = request
        self.number = number
        self.start = start
        self.end = end
        self.limit = limit

    @property
    def dispatched_id(self) -> str:
        name = self.request.dispatch_name
        return name if self.is_whole else f"{name}#{self.number}"

    @property
    def is_live(self) -> bool:
        """False once the piece is settled or its request has ended, even if a queue still has it."""
        return self.request.outstanding.get(self.number) is self


class Job:
    """A piece that was dispatched to an ingestor at `dispatched_ns` (wall clock).

    `connection` None: taken over from an earlier run of the broker or from a lost connection, and not named by an
    ingestor since. `is_adopted`: frames of this job may have been lost with the previous connection. `is_publishing`:
    the ingestor is done, but its results are not on the bus yet. `newest_trade`: the latest time (ns) of trades
    received over the socket, 0 before the first; `trades_at`: when they were received (monotonic).
    """

    dispatched_ns = 0
    is_adopted = False
    is_publishing = False
    is_proven = False
    progress = 0
    result: PieceResult | None = None
    collected: Collected | None = None
    snapshot: cw.Snapshot | None = None
    newest_trade = 0
    trades_at = 0.0

    def __init__(self, job_id: str, piece: Piece, connection: Connection | None, *, lease_until: float) -> None:
        self.job_id = job_id
        self.piece = piece
        self.connection = connection
        self.lease_until = lease_until


@lru_cache(maxsize=10_000)
def _key_of(venue: str, kind: Kind) -> tuple[str, Kind]:
    return venue, kind


class Request:
    """The common part of all requests: pieces to hand out, and pieces that are running."""

    kind = Kind.HISTORICAL

    __slots__ = (
        "client_id",
        "deadline_ns",
        "dispatch_name",
        "is_background",
        "is_queued",
        "key",
        "lane",
        "offset",
        "outstanding",
        "ready",
        "request_id",
        "ticker",
        "venue",
        "was_dispatched",
    )

    def __init__(
        self, request_id: str, ticker: str, venue: str, *, client_id: str, deadline_ns: int, offset: int
    ) -> None:
        self.request_id = request_id
        self.dispatch_name = request_id
        self.ticker = ticker
        self.venue = venue
        self.key = _key_of(venue, self.kind)
        self.client_id = client_id
        #: Sender, connection and client, which take turns.
        self.lane: tuple[str, ...] = ("", "", client_id)
        self.deadline_ns = deadline_ns
        self.offset = offset
        #: A request of the platform itself, to keep candles fresh; clients' requests come first.
        self.is_background = request_id.startswith(KEEP_PREFIX)
        self.is_queued = False
        self.was_dispatched = False
        self.ready: list[Piece] = []
        #: Every piece that was cut and is not settled: ready, waiting for a time or another slot, or running.
        self.outstanding: dict[int, Piece] = {}

    def take(self, wall_ns: int) -> Piece | None:
        """Take the next piece to hand out, if there is one."""
        while self.ready:
            piece = self.ready.pop(0)
            if piece.is_live:
                return piece
        return None

    def has_more(self, wall_ns: int) -> bool:
        """Whether a piece could be handed out now."""
        return bool(self.ready)

    def dispatch(self, connection: Connection, job_id: str, piece: Piece) -> Dispatch:
        raise TypeError(f"{type(self).__name__} has no dispatch")


class SnapshotRequest(Request):
    __slots__ = ()

    def __init__(
        self, request_id: str, ticker: str, venue: str, *, client_id: str, deadline_ns: int, offset: int
    ) -> None:
        super().__init__(request_id, ticker, venue, client_id=client_id, deadline_ns=deadline_ns, offset=offset)
        piece = Piece(self, 0)
        self.outstanding[0] = piece
        self.ready.append(piece)

    def dispatch(self, connection: Connection, job_id: str, piece: Piece) -> Dispatch:
        note = LeaseNote(self.request_id, piece.attempts, piece.dispatched_id)
        asked = DispatchedRequest(ing.DataRequest.TICKER_SNAPSHOT, self.ticker, self.client_id)
        return Dispatch(connection, job_id, note, asked)


class RealtimeRequest(Request):
    """The one job of a ticker, shared by all requests (`subscribers`) for it."""

    kind = Kind.REALTIME

    __slots__ = ("failure", "subscribers")

    def __init__(self, request_id: str, ticker: str, venue: str, *, client_id: str) -> None:
        super().__init__(request_id, ticker, venue, client_id=client_id, deadline_ns=0, offset=-1)
        self.subscribers: dict[str, Demand] = {}
        #: Why the last job ended, until a later one delivers.
        self.failure = ""
        piece = Piece(self, 0)
        self.outstanding[0] = piece
        self.ready.append(piece)

    @property
    def piece(self) -> Piece:
        return self.outstanding[0]

    def subscribe(self, asked: RealtimeAccepted) -> None:
        periods = asked.ohlc_period_seconds if asked.include_ohlc else ()
        self.subscribers[asked.request_id] = Demand(asked.stores_ticks, periods)

    def wants(self) -> Demand:
        each = self.subscribers.values()
        periods = {period for wants in each for period in wants.period_seconds}
        return Demand(any(wants.ticks for wants in each), tuple(sorted(periods)))

    def dispatch(self, connection: Connection, job_id: str, piece: Piece) -> Dispatch:
        note = LeaseNote(self.request_id, piece.attempts, piece.dispatched_id, realtime_ticker=self.ticker)
        periods = self.wants().period_seconds
        asked = DispatchedRequest(
            ing.DataRequest.REALTIME_TICKS, self.ticker, self.client_id, ohlc_period_seconds=periods
        )
        return Dispatch(connection, job_id, note, asked)


class HistoricalRequest(Request):
    """A range of candles, cut lazily on the absolute grid, and totalled as its pieces are accepted."""

    __slots__ = (
        "_closed_until",
        "_next_number",
        "_uncut",
        "abandoned",
        "awaits_proof",
        "confirmed",
        "end",
        "expected",
        "facts",
        "failed",
        "holes",
        "limit",
        "period_seconds",
        "rows",
        "start",
    )

    def __init__(
        self,
        request_id: str,
        ticker: str,
        venue: str,
        *,
        client_id: str,
        deadline_ns: int,
        offset: int,
        period_seconds: int,
        start: int,
        end: int,
        limit: int | None,
        facts: VenueFacts,
    ) -> None:
        super().__init__(request_id, ticker, venue, client_id=client_id, deadline_ns=deadline_ns, offset=offset)
        self.period_seconds = period_seconds
        self.start = start
        self.end = end
        self.limit = limit
        self.facts = facts
        self.rows = 0
        self.expected = 0
        self.holes: list[Range] = []
        self.failed: tuple[tuple[int, int, Failure], ...] = ()
        #: Ranges that were given up without an attempt.
        self.abandoned: tuple[Range, ...] = ()
        #: While True, nothing is cut, because it is not known yet what the table proves.
        self.awaits_proof = False
        self._uncut: list[Range] = [(start, end)]
        self._next_number = 0
        self._closed_until = 0
        #: Accepted pieces whose outcomes are on the bus.
        self.confirmed: list[AcceptedPiece] = []

    # ---- cutting

    def take(self, wall_ns: int) -> Piece | None:
        piece = super().take(wall_ns) if self.ready else None
        if piece is None and self._uncut and self._can_cut(wall_ns):
            piece = self._cut(wall_ns)
        return piece

    def has_more(self, wall_ns: int) -> bool:
        return bool(self.ready or (self._uncut and self._can_cut(wall_ns)))

    def is_settled(self, wall_ns: int) -> bool:
        return not (self.outstanding or self.awaits_proof or (self._uncut and self._can_cut(wall_ns)))

    def _can_cut(self, wall_ns: int) -> bool:
        """Whether the next piece may be cut now. Requires that part of the range is uncut."""
        if self.awaits_proof:
            return False
        if self.limit is not None and (self.outstanding or self.rows >= self.limit):
            return False
        # A piece that starts in the future of every known clock is requested only once, to learn the venue's time.
        return self._next_number == 0 or self._uncut[0][0] < wall_ns + self.facts.ahead_ns

    def _cut(self, wall_ns: int) -> Piece:
        start, end = self._uncut[0]
        facts = self.facts
        # At most one page, so that a client waits for no more than a page of a background request.
        candles = facts.candles_per_page if self.is_background else facts.candles_per_piece
        span = candles * self.period_seconds * grid.SECOND
        if facts.depth_candles:
            cut = max(start, wall_ns + facts.ahead_ns) + span
        else:
            # Cut at absolute multiples of the span, so that every run cuts identically.
            cut = start - (start - grid.origin_of(self.period_seconds)) % span + span
        if cut < end:
            self._uncut[0] = (cut, end)
        else:
            cut = end
            del self._uncut[0]
        return self._piece(start, cut, is_whole=cut == self.end and start == self.start)

    def _piece(self, start: int, end: int, *, is_whole: bool = False, is_rest: bool = False) -> Piece:
        limit = None if self.limit is None else self.limit - self.rows
        number = self._next_number
        self._next_number = number + 1
        piece = self.outstanding[number] = Piece(self, number, start=start, end=end, limit=limit)
        if not is_whole:
            piece.is_whole = False
        if is_rest:
            piece.is_rest = True
        return piece

    # ---- proven parts

    def uncut(self) -> tuple[Range, ...]:
        return tuple(self._uncut)

    def take_proven(self, proven: Iterable[ProvenRange]) -> list[tuple[AcceptedPiece, PieceResult]]:
        """Count proven parts as accepted pieces; parts that are already cut are skipped."""
        taken = []
        for each in proven:
            if not self._is_exact(each) or not self._saves_calls(each):
                continue
            if self.limit is not None and (self.outstanding or not self._uncut or self._uncut[0][0] != each.start):
                # With a limit, only the next part in order counts.
                break
            number = self._next_number
            if self.take_out(each.start, each.end, number):
                self._add_up(each.rows, each.expected, each.holes)
                piece = AcceptedPiece(number, *each)
                taken.append(
                    (
                        piece,
                        PieceResult(partition=0, spans=(), rows=each.rows, expected=each.expected, holes=each.holes),
                    )
                )
        return taken

    def _is_exact(self, proven: ProvenRange) -> bool:
        missing = sum(grid.count_opens(start, end, self.period_seconds) for start, end in proven.holes)
        is_whole = proven.expected == grid.count_opens(proven.start, proven.end, self.period_seconds)
        is_wanted = self.limit is None or proven.rows <= self.limit - self.rows
        return is_whole and is_wanted and proven.expected == proven.rows + missing > 0

    def _saves_calls(self, proven: ProvenRange) -> bool:
        """Whether skipping this part saves calls; less than a page between two fetched parts would cost a call
        instead.
        """
        is_at_border = any(proven.start <= start or proven.end >= end for start, end in self._uncut)
        is_long = not self.facts.is_known or proven.expected >= self.facts.candles_per_page
        return is_at_border or is_long

    # ---- restart

    def restore(self, accepted: Iterable[AcceptedPiece]) -> None:
        for piece in accepted:
            # Parts that its saved progress also contains are not counted twice.
            if self.take_out(piece.start, piece.end, piece.number):
                self._add_up(piece.rows, piece.expected, piece.holes)
                self.confirmed.append(piece)

    def take_out(self, start: int, end: int, number: int) -> bool:
        """Remove [start, end) from the uncut ranges; False if part of it is not uncut."""
        for index, (low, high) in enumerate(self._uncut):
            if low <= start and end <= high:
                rest = [(low, start), (end, high)]
                self._uncut[index : index + 1] = [part for part in rest if part[0] < part[1]]
                self._next_number = max(self._next_number, number + 1)
                return True
        return False

    def adopt(self, note: LeaseNote) -> Piece | None:
        """The piece of a job that outlived the broker; None if it is running or done already."""
        if note.number in self.outstanding:
            return None
        # With a limit, only the next piece in order was given the right number of candles.
        start, end = note.part
        if self.limit is not None and (self.outstanding or not self._uncut or start != self._uncut[0][0]):
            return None
        if not self.take_out(start, end, note.number):
            return None
        limit = None if self.limit is None else self.limit - self.rows
        is_whole = note.dispatched_id == self.dispatch_name
        piece = Piece(self, note.number, start=start, end=end, limit=limit)
        piece.is_whole, piece.attempts = is_whole, note.attempts
        self.outstanding[piece.number] = piece
        return piece

    # ---- results

    def accept(self, piece: Piece, result: PieceResult, exchange_ns: int) -> Piece | None:
        """Count `result`; returns the piece that must follow, if any. `exchange_ns`: a time that the venue's clock had
        reached.
        """
        del self.outstanding[piece.number]
        self._add_up(result.rows, result.expected, result.holes)
        return self._rest(piece, result.closed_until, exchange_ns) if result.closed_until else None

    def _rest(self, piece: Piece, closed_until: int, exchange_ns: int) -> Piece | None:
        """A piece for the candles that `piece` could not prove closed: if they have closed since, or if later candles
        were requested too. Otherwise the request ends there.
        """
        end = piece.end
        if end in (self.end, self._closed_until) or (end, self.end) in self._uncut:
            closed = grid.closed_end(end, self.period_seconds, exchange_ns)
            end = closed_until if piece.is_rest else max(closed, closed_until)
            if end < piece.end:
                self._closed_until = end
                self._uncut = [part for part in self._uncut if part[0] < end]
        return self._piece(closed_until, end, is_rest=True) if end > closed_until else None

    @property
    def closed_until(self) -> int:
        """The open time (ns) of the first candle that had not closed, once the request is settled; 0 = all had."""
        if self._closed_until or not self._uncut or (self.limit is not None and self.rows >= self.limit):
            return self._closed_until
        return self._uncut[0][0]

    def _add_up(self, rows: int, expected: int, holes: Iterable[Range]) -> None:
        self.rows += rows
        self.expected += expected
        self.holes.extend(holes)

    def confirm(self, piece: AcceptedPiece) -> None:
        self.confirmed.append(piece)

    def halve(self, piece: Piece) -> None:
        """Cut the second half off `piece`, to be handed out later."""
        opens = grid.count_opens(piece.start, piece.end, self.period_seconds)
        if opens > 1:
            first = grid.first_open_from(piece.start, self.period_seconds)
            middle = first + opens // 2 * self.period_seconds * grid.SECOND
            self._uncut = sorted([*self._uncut, (middle, piece.end)])
            piece.end, piece.is_whole, piece.room = middle, False, None

    def fail(self, piece: Piece, failure: Failure) -> None:
        """Settle `piece` without rows, and also the rest of the request if trying it is pointless."""
        del self.outstanding[piece.number]
        self.failed += ((piece.start, piece.end, failure),)
        is_hopeless = failure.code.is_final and failure.code is not FailureCode.DEPTH
        if is_hopeless or self.limit is not None or len(self.failed) >= MAX_FAILED_PIECES:
            idle = [piece for piece in self.outstanding.values() if piece.job is None]
            self.abandoned += (*self._uncut, *((piece.start, piece.end) for piece in idle))
            self._uncut = []
            for piece in idle:
                del self.outstanding[piece.number]

    def verdict(self) -> tuple[Final, str]:
        """The status and error message of a settled request."""
        if not self.failed:
            return _FOUND if self.rows else _NOTHING_FOUND
        text = str(self.failed[0][2])
        if self.rows == 0 and all(failure.code is FailureCode.UNKNOWN_TICKER for _, _, failure in self.failed):
            return Final.NOT_FOUND, text
        missing = [(start, end) for start, end, _ in self.failed] + [*self.abandoned]
        return Final.ERROR, f"{text}; missing {describe_ranges(missing)}"

    def unfinished_ranges(self) -> list[Range]:
        pieces = [(piece.start, piece.end) for piece in self.outstanding.values()]
        return pieces + [(start, end) for start, end, _ in self.failed] + [*self.abandoned] + self._uncut

    def merged_holes(self) -> tuple[Range, ...]:
        return merge(self.holes) if len(self.holes) > 1 else tuple(self.holes)

    def done_candles(self) -> int:
        return self.rows + sum(piece.job.progress for piece in self.outstanding.values() if piece.job is not None)

    def dispatch(self, connection: Connection, job_id: str, piece: Piece) -> Dispatch:
        part = piece.start, piece.end
        note = LeaseNote(self.request_id, piece.attempts, piece.dispatched_id, piece.number, part)
        asked = _historical(self.ticker, self.client_id, self.period_seconds)
        return Dispatch(connection, job_id, note, asked, piece.limit)


@lru_cache(maxsize=10_000)
def _historical(ticker: str, client_id: str, period_seconds: int) -> DispatchedRequest:
    return DispatchedRequest(ing.DataRequest.HISTORICAL_OHLC, ticker, client_id, period_seconds)


def joined(pieces: Iterable[AcceptedPiece]) -> list[AcceptedPiece]:
    """The pieces, with touching ones joined."""
    found: list[AcceptedPiece] = []
    for piece in sorted(pieces, key=lambda piece: piece.start):
        if found and found[-1].end == piece.start:
            last = found.pop()
            rows, expected = last.rows + piece.rows, last.expected + piece.expected
            number, holes = max(last.number, piece.number), last.holes + piece.holes
            piece = AcceptedPiece(number, last.start, piece.end, rows, expected, holes)
        found.append(piece)
    return found
