"""The life of a historical or snapshot request: admission, settling piece by piece, and exactly one end."""

import heapq
from collections import deque

from broker.board import Board
from broker.commands import AskProof, DropState, PublishPieceDone, PublishRequestDone, PutState
from broker.events import AcceptedPiece, Final, FinalSeen, HistoricalAccepted, ProofFound, SnapshotAccepted
from broker.ranges import describe_ranges, merge
from broker.requests.asking import Asking
from broker.slots.dispatching import Dispatching
from broker.slots.venue_book import VenueBook
from broker.work import HistoricalRequest, RealtimeRequest, Request, SnapshotRequest, joined
from candlewright.wire import grid

#: The ends of requests without a failure. Looking up a member of an enumeration costs as much as a call.
_SETTLED = frozenset((Final.OK, Final.NOT_FOUND))
#: Deadlines of ended requests are removed once there are this many.
_MANY_DEADLINES = 10_000
#: Questions that may wait for the driver's answer; beyond this, clients take turns.
MAX_QUESTIONS = 256


class Lifecycle:
    def __init__(self, board: Board, venues: VenueBook, dispatching: Dispatching) -> None:
        self._board = board
        self._venues = venues
        self._dispatching = dispatching
        #: Offsets of historical requests whose RequestDone is published but whose final notification was not seen yet.
        self.decided: dict[str, int] = {}
        self.deadlines: list[tuple[int, str]] = []
        #: Requests that are to ask what the table proves of them.
        self._to_ask = Asking(self._is_open)
        #: Those of them that do not ask.
        self._refreshing: set[str] = set()
        #: Requests that have asked, and until when they wait for the answer.
        self._asking: deque[tuple[float, str]] = deque()
        self._unanswered: set[str] = set()
        #: Requests that could not ask, and proven candles, not yet counted in the metrics.
        self.unasked = self.proven_candles = 0
        #: The last state of requests whose range extended beyond the closed candles; it says so and outlives them.
        self._cut_short: dict[str, PutState] = {}

    # ---- admission

    def on_historical(self, event: HistoricalAccepted) -> None:
        if event.request_id in self._board.requests or event.request_id in self.decided:
            self._board.note("duplicate_request", request_id=event.request_id)
            return
        if event.is_decided:
            self.decided[event.request_id] = event.offset
            return
        if event.period_seconds <= 0 or event.start >= event.end or event.limit == 0:
            # The relay refuses these; a record that bypassed it must not stop the broker.
            self.decided[event.request_id] = event.offset
            self._board.say(_refusal(event))
            return
        request = HistoricalRequest(
            event.request_id,
            event.ticker,
            event.venue,
            client_id=event.client_id,
            deadline_ns=event.deadline_ns,
            offset=event.offset,
            period_seconds=event.period_seconds,
            start=event.start,
            end=event.end,
            limit=event.limit,
            facts=self._venues.facts(event.venue),
        )
        request.restore(event.accepted)
        self._admit(request, event)

    def on_snapshot_request(self, event: SnapshotAccepted) -> None:
        if event.request_id in self._board.requests:
            self._board.note("duplicate_request", request_id=event.request_id)
            return
        self._admit(
            SnapshotRequest(
                event.request_id,
                event.ticker,
                event.venue,
                client_id=event.client_id,
                deadline_ns=event.deadline_ns,
                offset=event.offset,
            ),
            event,
        )

    def _admit(self, request: Request, event: HistoricalAccepted | SnapshotAccepted) -> None:
        request.lane = (event.sender, event.connection, event.client_id)
        self._board.requests[request.request_id] = request
        if len(self.deadlines) > 2 * len(self._board.requests) + _MANY_DEADLINES:
            open_ones = self._board.requests.values()
            self.deadlines = [(each.deadline_ns, each.request_id) for each in open_ones if _has_deadline(each)]
            heapq.heapify(self.deadlines)
        else:
            heapq.heappush(self.deadlines, (request.deadline_ns, request.request_id))
        if isinstance(request, HistoricalRequest) and isinstance(event, HistoricalAccepted):
            self._await_proof(request, refresh=event.refresh)
        self.proceed(request)

    # ---- proofs

    def _await_proof(self, request: HistoricalRequest, *, refresh: bool) -> None:
        """Hold `request` back until it is known what the table proves, for a bounded time. A refresh does not ask, but
        also waits for its turn.
        """
        board = self._board
        if not board.settings.proof_seconds or not request.has_more(board.wall_ns):
            return
        if not board.has_prover:
            self.unasked += not refresh
            return
        request.awaits_proof = True
        if refresh:
            self._refreshing.add(request.request_id)
        self._to_ask.add(request, board.at)
        self._ask_next()

    def _ask_next(self) -> None:
        """Ask a few questions at a time: the driver answers them in order, so clients can take turns only here."""
        at = self._board.at
        while len(self._unanswered) < MAX_QUESTIONS and (request := self._to_ask.next(at)) is not None:
            if request.request_id in self._refreshing:
                self._begin(request)
            else:
                self._ask(request)

    def _begin(self, request: HistoricalRequest) -> None:
        """Begin a request without asking."""
        self._refreshing.discard(request.request_id)
        request.awaits_proof = False
        self.proceed(request)

    def _is_open(self, request: HistoricalRequest) -> bool:
        return self._board.requests.get(request.request_id) is request

    def _ask(self, request: HistoricalRequest) -> None:
        board = self._board
        seconds = board.settings.proof_seconds
        limit = None if request.limit is None else request.limit - request.rows
        deadline = board.wall_ns + int(seconds * grid.SECOND)
        self._unanswered.add(request.request_id)
        self._asking.append((board.at + seconds, request.request_id))
        board.say(
            AskProof(request.request_id, request.ticker, request.period_seconds, request.uncut(), limit, deadline)
        )

    def on_proof(self, event: ProofFound) -> None:
        self._take_proof(event)
        self._unanswered.discard(event.request_id)
        self._ask_next()

    def _take_proof(self, event: ProofFound) -> None:
        request = self._board.requests.get(event.request_id)
        # No request waits for an answer that is late or repeated.
        if not isinstance(request, HistoricalRequest) or not request.awaits_proof:
            return
        request.awaits_proof = False
        for piece, result in request.take_proven(event.ranges):
            self._board.say(
                PublishPieceDone(
                    request_id=request.request_id,
                    number=piece.number,
                    job_id=f"proof:{request.request_id}:{piece.number}",
                    ticker=request.ticker,
                    period_seconds=request.period_seconds,
                    start=piece.start,
                    end=piece.end,
                    result=result,
                    is_proven=True,
                )
            )
            self._board.room.accept(request, piece, result)
            self._board.dirty[request.request_id] = None
            self.proven_candles += piece.rows
        self.proceed(request)

    def stop_asking(self) -> None:
        """Fetch the ranges for which no answer arrived in time."""
        board = self._board
        while self._asking and self._asking[0][0] <= board.at:
            _, request_id = self._asking.popleft()
            self._unanswered.discard(request_id)
            request = board.requests.get(request_id)
            if isinstance(request, HistoricalRequest) and request.awaits_proof:
                request.awaits_proof = False
                board.note("proof_unanswered", request_id=request_id)
                self.proceed(request)
        if not board.has_prover:
            for request in self._to_ask.take_all():
                self.unasked += request.request_id not in self._refreshing
                self._begin(request)
        self._ask_next()

    # ---- progress

    def proceed(self, request: Request) -> None:
        """After anything that may have settled `request` or made a piece of it ready."""
        if isinstance(request, HistoricalRequest) and request.is_settled(self._board.wall_ns):
            status, message = request.verdict()
            self.finish(request, status, message)
        elif request.has_more(self._board.wall_ns):
            self._dispatching.offer(request)

    def expire(self) -> None:
        """End the requests that were not finished in time."""
        board = self._board
        while self.deadlines and self.deadlines[0][0] <= board.wall_ns:
            _, request_id = heapq.heappop(self.deadlines)
            request = board.requests.get(request_id)
            # The id may have been reused since; a realtime request has no deadline.
            if request is None or not _has_deadline(request) or request.deadline_ns > board.wall_ns:
                continue
            text = "not finished in time"
            if not request.was_dispatched:
                text += f": no ingestor had a free slot for {request.venue}"
            if isinstance(request, HistoricalRequest):
                text += f"; missing {describe_ranges(request.unfinished_ranges())}"
            self.finish(request, Final.TIMEOUT, text)

    # ---- end

    def finish(self, request: Request, status: Final, message: str) -> None:
        """Publish the end of a historical or snapshot request, and stop what still runs for it."""
        board = self._board
        del board.requests[request.request_id]
        self._refreshing.discard(request.request_id)
        if isinstance(request, HistoricalRequest):
            # Unfetched parts of an unsettled request do not show what had closed.
            closed_until = request.closed_until if status in _SETTLED else 0
            board.out.append(
                PublishRequestDone(
                    request_id=request.request_id,
                    ticker=request.ticker,
                    period_seconds=request.period_seconds,
                    start=request.start,
                    end=request.end,
                    status=status,
                    error_message=message,
                    rows=request.rows,
                    expected=self._expected(request, status),
                    holes=request.merged_holes(),
                    client_id=request.client_id,
                    closed_until=closed_until,
                )
            )
            self.decided[request.request_id] = request.offset
            if closed_until:
                self._cut_short[request.request_id] = PutState(
                    request_id=request.request_id,
                    state="done",
                    done_candles=request.rows,
                    expected_candles=request.expected,
                    ticker=request.ticker,
                    closed_until=closed_until,
                )
        else:
            self.close_state(request.request_id, request.ticker, message)
        board.end(request)
        if self._to_ask:
            self._ask_next()

    def _expected(self, request: HistoricalRequest, status: Final) -> int:
        """The candles that an ended request should have had, including those that a failed request never got."""
        if status in _SETTLED:
            return request.expected
        now = self._board.wall_ns + request.facts.ahead_ns
        missing = sum(
            grid.expected_candles(start, end, request.period_seconds, exchange_time=now)
            for start, end in merge(request.unfinished_ranges())
        )
        most = missing if request.limit is None else max(0, request.limit - request.rows)
        return request.expected + min(missing, most)

    def close_state(self, request_id: str, ticker: str, failure: str) -> None:
        self._board.shown.discard(request_id)
        self._board.say(PutState(request_id=request_id, state="done", ticker=ticker, failure=failure))

    def on_final(self, event: FinalSeen) -> None:
        board = self._board
        request = board.requests.get(event.request_id)
        if isinstance(request, HistoricalRequest):
            # Another run of the broker decided it, and its final stands, so nothing is left to do.
            board.note("final_of_running", request_id=event.request_id)
            board.end(request)
            del board.requests[event.request_id]
            self._refreshing.discard(event.request_id)
        self.decided.pop(event.request_id, None)
        self._to_ask.ended(event.request_id, board.at)
        if self._to_ask:
            self._ask_next()
        last_state = self._cut_short.pop(event.request_id, None)
        if last_state is not None:
            board.shown.discard(event.request_id)
            board.say(last_state)
        elif event.request_id in board.shown:
            board.shown.discard(event.request_id)
            board.say(DropState(event.request_id))

    def confirmed(self) -> dict[str, list[AcceptedPiece]]:
        """The accepted pieces of unfinished requests whose outcomes are on the bus."""
        found = {}
        for name, request in self._board.requests.items():
            if isinstance(request, HistoricalRequest) and request.confirmed:
                found[name] = request.confirmed = joined(request.confirmed)
        return found

    def oldest_offsets(self) -> tuple[int | None, int | None]:
        """Offset in `requests` of the oldest unfinished request, and of the oldest unfinished historical one."""
        oldest = min(self.decided.values(), default=None)
        oldest_of_all = oldest
        # Requests are in the order of their offsets, so the first ones suffice; realtime requests have no offset.
        for request in self._board.requests.values():
            if request.offset < 0:
                continue
            if oldest_of_all is None or request.offset < oldest_of_all:
                oldest_of_all = request.offset
            if isinstance(request, HistoricalRequest):
                oldest = request.offset if oldest is None else min(oldest, request.offset)
                break
        return oldest_of_all, oldest


def _has_deadline(request: Request) -> bool:
    return not isinstance(request, RealtimeRequest)


def _refusal(event: HistoricalAccepted) -> PublishRequestDone:
    return PublishRequestDone(
        request_id=event.request_id,
        ticker=event.ticker,
        period_seconds=event.period_seconds,
        start=event.start,
        end=event.end,
        status=Final.ERROR,
        error_message="REFUSED: not a range of candles" if event.ticker else "REFUSED: the request cannot be read",
        rows=0,
        expected=0,
        holes=(),
        client_id=event.client_id,
    )
