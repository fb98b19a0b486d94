"""Realtime requests: one job a ticker, shared by all who ask, and what they want together."""

from broker.board import Board
from broker.commands import ForgetRealtime, PublishClock, PublishMark, SaveRealtime
from broker.events import MarksRefused, RealtimeAccepted, WantedFound, Wants
from broker.requests.lifecycle import Lifecycle
from broker.slots.dispatching import Dispatching
from broker.work import RealtimeRequest
from candlewright.wire.grid import SECOND

#: Trades over the socket that stay away for this long let time go on without them, so much behind.
QUIET_SECONDS = 10.0


class Realtime:
    def __init__(self, board: Board, dispatching: Dispatching, lifecycle: Lifecycle) -> None:
        self._board = board
        self._dispatching = dispatching
        self._lifecycle = lifecycle
        self.by_ticker: dict[str, RealtimeRequest] = {}
        self._running = 0
        #: What the pipeline knows of each ticker that a request wants; None where that is not certain.
        self._told: dict[str, Wants | None] = {}
        self._untold: set[str] = set()

    def on_request(self, event: RealtimeAccepted) -> None:
        board = self._board
        if event.request_id in board.requests:
            return
        if self._running >= board.settings.max_slots:
            # They run until they are cancelled: without a bound they would fill the broker's memory and its table.
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
        self._tell_wants(event.ticker)
        if is_new:
            self._dispatching.offer(request)

    def cancel(self, request_id: str, request: RealtimeRequest) -> None:
        """One who asked is gone; the job ends with the last of them."""
        board = self._board
        del request.subscribers[request_id]
        del board.requests[request_id]
        self._running -= 1
        board.say(ForgetRealtime(request_id))
        self._lifecycle.close_state(request_id, request.ticker, "")
        if not request.subscribers:
            board.end(request)
            del self.by_ticker[request.ticker]
        self._tell_wants(request.ticker)

    # ---- what the pipeline learns

    def _tell_wants(self, ticker: str) -> None:
        """Let the pipeline know when what all requests of `ticker` want together has changed."""
        request = self.by_ticker.get(ticker)
        wants = request.wants() if request is not None else Wants()
        if self._told.get(ticker, Wants()) == wants:
            return
        if wants == Wants():
            del self._told[ticker]
        else:
            self._told[ticker] = wants
        self._board.say(PublishMark(ticker, wants))

    def on_wanted_found(self, event: WantedFound) -> None:
        if event.ticker not in self._told:
            self._told[event.ticker] = None
            self._tell_wants(event.ticker)

    def on_marks_refused(self, event: MarksRefused) -> None:
        self._told.update(dict.fromkeys(event.tickers))
        self._untold.update(event.tickers)

    def tell_time(self) -> None:
        """Foreign ingestors do not say how late it is at their exchange: while one holds its job and sends nothing,
        time continues from its newest trade, so that the bars of a market that fell silent end.
        """
        for ticker, request in self.by_ticker.items():
            job = request.piece.job
            if job is None or not job.newest_trade:
                continue
            quiet = self._board.at - job.trades_at - QUIET_SECONDS
            if quiet > 0:
                self._board.say(PublishClock(ticker, job.newest_trade + int(quiet * SECOND)))

    def tell_again(self) -> None:
        """Publish what could not be published before."""
        for ticker in self._untold:
            self._tell_wants(ticker)
        self._untold.clear()
