"""Realtime requests: one job per ticker, shared by all its requests, and their combined needs."""

from broker.board import Board
from broker.commands import ForgetRealtime, PublishClock, PublishMark, SaveRealtime
from broker.events import Demand, MarksRefused, RealtimeAccepted, WantedFound
from broker.requests.lifecycle import Lifecycle
from broker.slots.dispatching import Dispatching
from broker.work import RealtimeRequest
from candlewright.wire.grid import SECOND

#: After this long (s) without trades over the socket, clock marks continue, this far behind.
QUIET_SECONDS = 10.0


class Realtime:
    def __init__(self, board: Board, dispatching: Dispatching, lifecycle: Lifecycle) -> None:
        self._board = board
        self._dispatching = dispatching
        self._lifecycle = lifecycle
        self.by_ticker: dict[str, RealtimeRequest] = {}
        self._running = 0
        #: The needs that the pipeline knows for each requested ticker; None if uncertain.
        self._published: dict[str, Demand | None] = {}
        self._unpublished: set[str] = set()

    @property
    def running(self) -> int:
        """The number of requests that are not cancelled."""
        return self._running

    def on_request(self, event: RealtimeAccepted) -> None:
        board = self._board
        if event.request_id in board.requests:
            return
        if self._running >= board.settings.max_slots:
            # Realtime requests run until they are cancelled, so without a bound they would fill the broker's memory and
            # table.
            board.note("realtime_refused", request_id=event.request_id)
            text = f"REFUSED: {self._running} realtime requests run already, and broker.max_slots allows no more"
            self._lifecycle.close_state(event.request_id, event.ticker, text)
            return
        self._running += 1
        request = self.by_ticker.get(event.ticker)
        is_new = request is None
        if request is None:
            request = RealtimeRequest(event.request_id, event.ticker, event.venue, client_id=event.client_id)
            self.by_ticker[event.ticker] = request
        request.subscribe(event)
        board.requests[event.request_id] = request
        board.dirty[event.request_id] = None
        board.say(SaveRealtime(event))
        self._publish_demand(event.ticker)
        if is_new:
            self._dispatching.offer(request)

    def cancel(self, request_id: str, request: RealtimeRequest) -> None:
        """Remove one request; the job ends with the last one."""
        board = self._board
        del request.subscribers[request_id]
        del board.requests[request_id]
        self._running -= 1
        board.say(ForgetRealtime(request_id))
        self._lifecycle.close_state(request_id, request.ticker, "")
        if not request.subscribers:
            board.end(request)
            del self.by_ticker[request.ticker]
        self._publish_demand(request.ticker)

    # ---- marks for the pipeline

    def _publish_demand(self, ticker: str) -> None:
        """Notify the pipeline if the combined needs of all requests for `ticker` have changed."""
        request = self.by_ticker.get(ticker)
        demand = request.wants() if request is not None else Demand()
        if self._published.get(ticker, Demand()) == demand:
            return
        if demand == Demand():
            del self._published[ticker]
        else:
            self._published[ticker] = demand
        self._board.say(PublishMark(ticker, demand))

    def on_wanted_found(self, event: WantedFound) -> None:
        if event.ticker not in self._published:
            self._published[event.ticker] = None
            self._publish_demand(event.ticker)

    def on_marks_refused(self, event: MarksRefused) -> None:
        self._published.update(dict.fromkeys(event.tickers))
        self._unpublished.update(event.tickers)

    def tell_time(self) -> None:
        """Publish clock marks for foreign ingestors, which do not report their exchange's time. While one holds its job
        and sends nothing, time continues from its newest trade, so that the bars of a silent market end.
        """
        for ticker, request in self.by_ticker.items():
            job = request.piece.job
            if job is None or not job.newest_trade:
                continue
            quiet = self._board.at - job.trades_at - QUIET_SECONDS
            if quiet > 0:
                self._board.say(PublishClock(ticker, job.newest_trade + int(quiet * SECOND)))

    def tell_again(self) -> None:
        """Retry marks that could not be published."""
        for ticker in self._unpublished:
            self._publish_demand(ticker)
        self._unpublished.clear()
