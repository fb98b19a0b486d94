"""The life of a historical or snapshot request: admitted, settled piece by piece, ended exactly once."""

import heapq

from broker.commands import DropState, PublishRequestDone, PutState
from broker.desk import Desk
from broker.dispatching import Dispatching
from broker.events import Final, FinalSeen, HistoricalAccepted, SnapshotAccepted
from broker.ranges import describe_ranges, merge
from broker.requests import HistoricalRequest, RealtimeRequest, Request, SnapshotRequest
from broker.venue_book import VenueBook
from venues import grid

#: So many deadlines of ended requests are kept before they are cleared away.
_MANY_DEADLINES = 10_000


class Lifecycle:
    def __init__(self, desk: Desk, venues: VenueBook, dispatching: Dispatching) -> None:
        self._desk = desk
        self._venues = venues
        self._dispatching = dispatching
        #: Historical requests whose RequestDone is out and whose final notification was not seen yet -> offset.
        self.decided: dict[str, int] = {}
        self.deadlines: list[tuple[int, str]] = []

    # ---- in

    def on_historical(self, event: HistoricalAccepted) -> None:
        if event.request_id in self._desk.requests or event.request_id in self.decided:
            self._desk.note("duplicate_request", request_id=event.request_id)
            return
        if event.is_decided:
            self.decided[event.request_id] = event.offset
            return
        if event.period_seconds <= 0 or event.start >= event.end or event.limit == 0:
            # The relay refuses these; a record that came past it must not stop the broker.
            self.decided[event.request_id] = event.offset
            self._desk.say(_refusal(event))
            return
        request = HistoricalRequest(
            event.request_id,
            event.ticker,
            event.venue,
            event.client_id,
            event.deadline_ns,
            event.offset,
            period_seconds=event.period_seconds,
            start=event.start,
            end=event.end,
            limit=event.limit,
            facts=self._venues.facts(event.venue),
        )
        request.restore(event.accepted)
        self._admit(request)

    def on_snapshot_request(self, event: SnapshotAccepted) -> None:
        if event.request_id in self._desk.requests:
            self._desk.note("duplicate_request", request_id=event.request_id)
            return
        self._admit(
            SnapshotRequest(
                event.request_id, event.ticker, event.venue, event.client_id, event.deadline_ns, event.offset
            )
        )

    def _admit(self, request: Request) -> None:
        self._desk.requests[request.request_id] = request
        if len(self.deadlines) > 2 * len(self._desk.requests) + _MANY_DEADLINES:
            open_ones = self._desk.requests.values()
            self.deadlines = [(each.deadline_ns, each.request_id) for each in open_ones if _has_deadline(each)]
            heapq.heapify(self.deadlines)
        else:
            heapq.heappush(self.deadlines, (request.deadline_ns, request.request_id))
        self.proceed(request)

    # ---- on

    def proceed(self, request: Request) -> None:
        """After anything that may have settled `request` or made a piece of it ready."""
        if isinstance(request, HistoricalRequest) and request.is_settled(self._desk.wall_ns):
            status, message = request.verdict()
            self.finish(request, status, message)
        elif request.has_more(self._desk.wall_ns):
            self._dispatching.offer(request)

    def expire(self) -> None:
        """End what was not finished in time."""
        desk = self._desk
        while self.deadlines and self.deadlines[0][0] <= desk.wall_ns:
            _, request_id = heapq.heappop(self.deadlines)
            request = desk.requests.get(request_id)
            # An id may have been given anew since; a realtime request has no deadline.
            if request is None or not _has_deadline(request) or request.deadline_ns > desk.wall_ns:
                continue
            text = "not finished in time"
            if not request.was_dispatched:
                text += f": no ingestor had a free slot for {request.venue}"
            if isinstance(request, HistoricalRequest):
                text += f"; missing {describe_ranges(request.unfinished_ranges())}"
            self.finish(request, Final.TIMEOUT, text)

    # ---- out

    def finish(self, request: Request, status: Final, message: str) -> None:
        """Publish the end of a historical or snapshot request, and stop what still runs for it."""
        desk = self._desk
        del desk.requests[request.request_id]
        if isinstance(request, HistoricalRequest):
            desk.out.append(
                PublishRequestDone(
                    request.request_id,
                    request.ticker,
                    request.period_seconds,
                    request.start,
                    request.end,
                    status,
                    message,
                    request.rows,
                    self._expected(request, status),
                    request.merged_holes(),
                    request.client_id,
                )
            )
            self.decided[request.request_id] = request.offset
        else:
            self.close_state(request.request_id, request.ticker, message)
        desk.end(request)

    def _expected(self, request: HistoricalRequest, status: Final) -> int:
        """Candles that an ended request should have had: where it failed, those of what it never got as well."""
        if status is Final.OK or status is Final.NOT_FOUND:
            return request.expected
        now = self._desk.wall_ns + request.facts.ahead_ns
        missing = sum(
            grid.expected_candles(start, end, request.period_seconds, now)
            for start, end in merge(request.unfinished_ranges())
        )
        most = missing if request.limit is None else max(0, request.limit - request.rows)
        return request.expected + min(missing, most)

    def close_state(self, request_id: str, ticker: str, failure: str) -> None:
        self._desk.shown.discard(request_id)
        self._desk.say(PutState(request_id, "done", ticker=ticker, failure=failure))

    def on_final(self, event: FinalSeen) -> None:
        desk = self._desk
        request = desk.requests.get(event.request_id)
        if isinstance(request, HistoricalRequest):
            # Another run of the broker must have decided it; its final stands, so nothing here can matter any more.
            desk.note("final_of_running", request_id=event.request_id)
            desk.end(request)
            del desk.requests[event.request_id]
        self.decided.pop(event.request_id, None)
        if event.request_id in desk.shown:
            desk.shown.discard(event.request_id)
            desk.say(DropState(event.request_id))

    def oldest_offsets(self) -> tuple[int | None, int | None]:
        """Offset in `requests` of the oldest unfinished request, and of the oldest unfinished historical one."""
        oldest = min(self.decided.values(), default=None)
        oldest_of_all = oldest
        # They stand in the order of their offsets, so that the first ones are enough; realtime ones have none.
        for request in self._desk.requests.values():
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
        event.request_id,
        event.ticker,
        event.period_seconds,
        event.start,
        event.end,
        Final.ERROR,
        "REFUSED: not a range of candles",
        0,
        0,
        (),
        event.client_id,
    )
