"""The blocking twin of the client."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import zmq
from google.protobuf.message import Message

from candlewright.client.connection import Connection, end_of, range_of
from candlewright.client.errors import Interruption
from candlewright.client.history.histories import AT_ONCE, Histories, Several, Start
from candlewright.client.history.history import Candles, History
from candlewright.client.history.progress import Progress
from candlewright.client.history.rows import legacy_table
from candlewright.client.history.stored import Stored
from candlewright.client.live.feed import BUFFER_NUMBERS, Feed
from candlewright.client.live.items import Bar, Tick
from candlewright.client.live.realtime import Realtime
from candlewright.client.live.streams import Stream
from candlewright.client.operations import Operations
from candlewright.client.records import Market, Notification, Range, RequestState, Snapshot, Submission, Venue
from candlewright.client.session import sockets
from candlewright.client.session.closing import CLOSED, Closing
from candlewright.client.session.relays import Relays
from candlewright.client.session.session import Operation, Ticket
from candlewright.client.triggers.triggers import Triggers
from candlewright.client.triggers.views import Views
from candlewright.wire.errors import CandlewrightError, InvalidRequest
from candlewright.wire.ticker import Ticker
from candlewright.wire.times import Time

if TYPE_CHECKING:
    import pyarrow as pa

    from candlewright.client.live.chart import Chart

T = TypeVar("T")
#: A thread keeps the sockets this long at most, so that others can see their messages.
SLICE_SECONDS = 0.05


class Client(Closing):
    """A connection to the platform, made by `connect()`. May be shared by threads.

    Every call raises PlatformUnreachable when nothing answers within the client's timeout, PlatformRefused for an
    error that the platform reports, InvalidRequest for a request that can never be served, and ValueError once the
    client is closed.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._forgotten: deque[Ticket[None]] = deque()
        self._lock = threading.Lock()
        self._context = zmq.Context()
        self._relays = Relays(self._context, connection.relays, connection.key)
        self._requests, self._notifications = self._relays.sockets
        self._poller = zmq.Poller()
        for socket in self._relays.descriptors:
            self._poller.register(socket, zmq.POLLIN)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.client_id} of {self._connection.requests}>"

    @property
    def client_id(self) -> str:
        """Finals of this client's requests go to the topic `RESPONSE:{client_id}`."""
        return self._connection.client_id

    def new_request_id(self) -> str:
        """A new id for `history(request_id=…)`, with which a running request can be inspected and cancelled."""
        return self._connection.new_request_id()

    def close(self) -> None:
        """Accepted requests continue without this client."""
        with self._lock:
            if not self._context.closed:
                self._context.destroy(linger=0)

    @overload
    def history(
        self,
        ticker: str,
        period: str | int = "1m",
        *,
        start: Time,
        end: Time | None = None,
        limit: int | None = None,
        refresh: bool = False,
        progress: Progress | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
        as_of: None = None,
    ) -> History: ...

    @overload
    def history(
        self,
        ticker: str,
        period: str | int = "1m",
        *,
        start: Time,
        end: Time | None = None,
        limit: int | None = None,
        as_of: Time,
    ) -> Stored: ...

    @overload
    def history(
        self,
        ticker: list[str] | tuple[str, ...],
        period: str | int = "1m",
        *,
        start: Time,
        end: Time | None = None,
        limit: int | None = None,
        refresh: bool = False,
        progress: Progress | None = None,
        timeout: float | None = None,
        errors: Literal["raise", "keep"] = "raise",
    ) -> Histories: ...

    def history(
        self,
        ticker: str | list[str] | tuple[str, ...],
        period: str | int = "1m",
        *,
        start: Time,
        end: Time | None = None,
        limit: int | None = None,
        refresh: bool = False,
        progress: Progress | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
        as_of: Time | None = None,
        errors: Literal["raise", "keep"] = "raise",
    ) -> History | Stored | Histories:
        """Fetch and store the candles with start <= open time < end, and read them (the first `limit`). Without `end`,
        the range ends now, and `closed_until` of the result is the end of the last closed candle.

        `progress(done, expected)` is called in this thread each time the platform reports progress (every few seconds,
        even without new candles), and when a request has ended. If it has a parameter `note`, it also gets the
        platform's remarks, such as "waiting for a slot of KRAKEN (served now: BINANCE)"; otherwise they are logged as
        warnings of the logger `candlewright`.
        `timeout`: seconds after which RequestTimedOut is raised while the request continues; by default the platform's
        own deadline decides. A `request_id` given again continues the same request. Ranges that the table proves
        complete are not requested from the venue again, unless `refresh`. Raises RequestNotFound, RequestTimedOut or
        RequestFailed according to the final notification, RowsUnavailable if the tables cannot be reached from here.

        A list of tickers gives one table of all of them, read in one scan if the tables can be reached from here. If
        some fail, TickersFailed names them once all have ended, and has the rows of the others; with `errors="keep"`,
        the result has both.

        With `as_of`, nothing is fetched: the candles are read as they were known at that time, and ranges that were not
        known yet are in `unknown` of the result.
        """
        end = end_of(end, as_of, request_id)
        if not isinstance(ticker, str):
            if as_of is not None or request_id is not None:
                raise InvalidRequest("as_of and request_id are for one ticker alone")
            ranges = [
                self._connection.range(each, period, start=start, end=end, limit=limit, refresh=refresh)
                for each in ticker
            ]
            return self._histories(Several(ranges, errors, progress), timeout)
        wanted = self._connection.range(ticker, period, start=start, end=end, limit=limit, refresh=refresh)
        if as_of is not None:
            return self._read_stored(wanted, as_of)
        identity = request_id or self._connection.new_request_id()
        final = self.run(lambda ask: ask.history(wanted, identity, progress, timeout_seconds=timeout))
        return self._read_history(wanted, final)

    def _histories(self, several: Several, timeout: float | None) -> Histories:
        several.ended(self._run_all(several.requests(self._connection.new_request_id, timeout)))
        near = self._connection.near
        return several.gathered(several.near_rows(near) if near is not None else self._run_all(several.row_queries()))

    def load(self, ticker: str, period: str | int, start: Time, end: Time, *, limit: int | None = None) -> Stored:
        """Read stored candles without a request: the exchange is not contacted, and the platform only if the tables
        cannot be reached from here.

        `unknown` of the result lists the ranges where nothing is stored. Raises RowsUnavailable if the tables cannot be
        reached.
        """
        wanted = self._connection.range(ticker, period, start=start, end=end, limit=limit)
        return self._read_stored(wanted, None)

    def submit(
        self,
        ticker: str,
        period: str | int = "1m",
        *,
        start: Time,
        end: Time,
        limit: int | None = None,
        refresh: bool = False,
        request_id: str | None = None,
    ) -> Submission:
        """Submit a historical request and return once it is durable; see `wait` and `state`."""
        wanted = self._connection.range(ticker, period, start=start, end=end, limit=limit, refresh=refresh)
        identity = request_id or self._connection.new_request_id()
        return self.run(lambda ask: ask.submit(wanted, identity))

    def wait(self, request_id: str, *, progress: Progress | None = None, timeout: float | None = None) -> Notification:
        """The final notification of any request, whatever its status; raises RequestTimedOut after `timeout`
        seconds."""
        return self.run(lambda ask: ask.wait(request_id, progress, timeout))

    def read(self, notification: Notification, *, limit: int | None = None) -> History:
        """The rows of a request that ended OK."""
        return self._read_history(range_of(notification, limit), notification)

    def _read_history(self, wanted: Range, final: Notification) -> History:
        near = self._connection.near
        return near.history(wanted, final) if near is not None else self.run(lambda ask: ask.rows.of(wanted, final))

    def _read_stored(self, wanted: Range, as_of: Time | None) -> Stored:
        moment = self._connection.stored(wanted, as_of)
        near = self._connection.near
        return (
            near.stored(wanted, moment) if near is not None else self.run(lambda ask: ask.rows.stored(wanted, moment))
        )

    def state(self, request_id: str) -> RequestState:
        """The state and progress of any request; `unknown` for an id that the platform does not know or has
        forgotten."""
        return self.run(lambda ask: ask.state(request_id))

    def cancel(self, request_id: str) -> RequestState:
        """Cancel a request; its final is ERROR "cancelled" unless it has already ended.

        Returns the state that the request was in; raises RequestNotFound for an unknown id.
        """
        return self.run(lambda ask: ask.cancel(request_id))

    def ticks(
        self,
        ticker: str,
        *,
        timeout: float | None = None,
        from_sequence: int | None = None,
        buffer: int = BUFFER_NUMBERS,
    ) -> Stream[Tick]:
        """Trades of a ticker as they happen, each once and in the order of the topic `TICKS:{ticker}`.

        The subscription makes the platform fetch the ticker while it has subscribers. `timeout`, `buffer`,
        `from_sequence` and gaps: as for `bars`.
        """
        return self.stream(self._connection.ticks(ticker, from_sequence, buffer), timeout)

    def bars(
        self,
        ticker: str,
        period: str | int = "1m",
        *,
        revisions: bool = True,
        timeout: float | None = None,
        from_sequence: int | None = None,
        buffer: int = BUFFER_NUMBERS,
    ) -> Stream[Bar]:
        """Bars of a ticker as they close, in the order of the topic `OHLC:{ticker}:{seconds}`.

        A late trade corrects its bar: the bar is delivered again with a higher `revision`, unless `revisions` is
        False. Iteration ends after `timeout` seconds without a bar (default: never). It begins with the first bar that
        arrives, or with number `from_sequence`, if that is still kept. Missed bars (slow reader, restart of the
        platform) are requested and delivered in order; those no longer available raise GapError once, and the next step
        continues after it. At most about twice `buffer` numbers are held; the rest waits on the platform.
        """
        return self.stream(
            self._connection.bars(ticker, period, revisions=revisions, first=from_sequence, buffer=buffer), timeout
        )

    def realtime(
        self,
        ticker: str,
        *,
        ticks: bool = True,
        ohlc_periods: Sequence[str | int] = (60,),
        request_id: str | None = None,
    ) -> Realtime:
        """Fetch a ticker until the request is cancelled, even without listeners.

        Trades go into `lake.market.ticks` (`ticks`), bars of `ohlc_periods` into `lake.market.ohlc`, and both are
        published on their topics. Returns once the request is durable.
        """
        periods = self._connection.periods(ohlc_periods)
        identity = request_id or self._connection.new_request_id()
        submission = self.run(lambda ask: ask.realtime(ticker, ticks=ticks, ohlc_periods=periods, request_id=identity))
        return Realtime(submission.request_id, ticker, lambda: self.cancel(submission.request_id))

    @property
    def triggers(self) -> Triggers:
        """Register, list and remove triggers, and read their events."""
        return Triggers(self, self._connection)

    @property
    def views(self) -> Views:
        """Register, list and remove views, which triggers read by name."""
        return Views(self)

    def venues(self) -> list[Venue]:
        """The venues that ingestors have announced."""
        return self.run(lambda ask: ask.venue_list())

    def markets(self, venue: str) -> list[Market]:
        """All markets of one venue; raises InvalidRequest for one that no ingestor has announced."""
        return self.run(lambda ask: ask.markets(venue.upper()))

    def snapshot(self, ticker: str) -> Snapshot:
        """The newest prices, requested from the venue now; raises RequestTimedOut if they do not arrive in time."""
        return self.run(lambda ask: ask.snapshot(ticker))

    def sql(self, sql: str, *, limit: int | None = None) -> "pa.Table":
        """A query over the stored tables (`ohlc`, `ticks`, `trigger_events`, …) in DuckDB's dialect; a text that DuckDB
        refuses, with words of the trigger language, is in that language. It runs on the platform, over its HTTP API.

        `limit`: the first N rows; without it, a result that is too long for one answer is an error and never truncated.
        Raises InvalidTrigger with the place of a mistake, InvalidRequest, and PlatformUnreachable.
        """
        return self._connection.sql(sql, limit)

    def chart(self, ticker: str, period: str | int = "1m", *, height: int = 360) -> "Chart":
        """A live chart for a notebook: stored bars, older ones as you scroll back, and new ones as trades arrive. While
        it is shown, the platform fetches the ticker as for `bars`; `close()` ends that.

        It reads over the platform's HTTP API. Needs the extra `notebook`.
        """
        name, [period_seconds] = str(Ticker.parse(ticker)), self._connection.periods([period])
        try:
            from candlewright.client.live.chart import Chart
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"a chart needs {error.name}: install candlewright[notebook]") from error
        return Chart(
            name,
            period_seconds,
            height=height,
            read=self._connection.read,
            follow=lambda: (self.bars(name, period), self.ticks(name)),
        )

    def ohlc(
        self, ticker: str, period: str | int = "1m", *, start: Time, end: Time, limit: int | None = None
    ) -> Candles:
        """Stored candles through the legacy request, in pages over the socket; needs no access to the tables."""
        wanted = self._connection.range(ticker, period, start=start, end=end, limit=limit)
        return Candles(legacy_table(self.run(lambda ask: ask.legacy.ohlc(wanted))))

    def replay(self, topic: str, from_sequence: int = 1, to_sequence: int = 0) -> list[tuple[int, Message]]:
        """The messages of a stream topic, as (sequence, message), both ends included; `to_sequence` 0 is the newest."""
        return self.run(lambda ask: ask.replay(topic, from_sequence, to_sequence))

    def stream(self, feed: Feed[T], timeout: float | None) -> Stream[T]:
        return Stream(self, feed, timeout)

    # ---- for streams and triggers
    @property
    def is_closed(self) -> bool:
        return self._context.closed

    def begin_stream(self, feed: Feed[Any], when_done: Callable[[], None] | None) -> Ticket[None]:
        session = self._connection.session
        with self._lock:
            self._check_open()
            ticket = session.begin(feed.run(session), time.monotonic(), when_done=when_done, takes_nameless=False)
            self._carry_out()
        return ticket

    def end_stream(self, ticket: Ticket[None]) -> None:
        with self._lock:
            self._connection.session.abandon(ticket)
            self._carry_out()

    def forget_stream(self, ticket: Ticket[None]) -> None:
        self._forgotten.append(ticket)

    def take(self, feed: Feed[T], ticket: Ticket[None]) -> T | Interruption | None:
        with self._lock:
            if ticket.is_done:
                ticket.result()
            item = feed.take()
            if feed.has_work:
                self._connection.session.wake(ticket, time.monotonic())
                self._carry_out()
            return item

    def pump_until(self, until: float) -> None:
        """Check the sockets once, waiting until then at most."""
        with self._lock:
            if not self.is_closed:
                self._pump(until)

    def run(self, start: Callable[[Operations], Operation[T]]) -> T:
        session = self._connection.session
        with self._lock:
            self._check_open()
            ticket = session.begin(start(self._connection.operations), time.monotonic())
            self._carry_out()
        try:
            while not ticket.is_done:
                with self._lock:
                    if not ticket.is_done:
                        self._check_open()
                        self._pump()
            return ticket.result()
        finally:
            with self._lock:
                session.abandon(ticket)
                self._carry_out()

    def _run_all(self, starts: Sequence[Start[T]]) -> list[T | CandlewrightError]:
        """Results or exceptions, in order; AT_ONCE of them run at a time."""
        session = self._connection.session
        waiting = deque(enumerate(starts))
        running: dict[int, Ticket[T]] = {}
        outcomes: dict[int, T | CandlewrightError] = {}
        try:
            while waiting or running:
                with self._lock:
                    self._check_open()
                    while waiting and len(running) < AT_ONCE:
                        number, start = waiting.popleft()
                        running[number] = session.begin(start(self._connection.operations), time.monotonic())
                    self._carry_out()
                    self._pump()
                for number in [number for number, ticket in running.items() if ticket.is_done]:
                    try:
                        outcomes[number] = running.pop(number).result()
                    except CandlewrightError as error:
                        outcomes[number] = error
        finally:
            with self._lock:
                for ticket in running.values():
                    session.abandon(ticket)
                self._carry_out()
        return [outcomes[number] for number in range(len(starts))]

    # ---- the sockets
    def _check_open(self) -> None:
        if self.is_closed:
            raise ValueError(CLOSED)

    def _pump(self, until: float = math.inf) -> None:
        session = self._connection.session
        deadline = session.next_deadline()
        until = until if deadline is None else min(until, deadline)
        wait = min(SLICE_SECONDS, max(0.0, until - time.monotonic()))
        self._poller.poll(int(wait * 1_000) + 1)
        for parts in sockets.drain(self._requests):
            session.receive_reply(parts, time.monotonic())
        for parts in sockets.drain(self._notifications):
            session.receive_publication(parts, time.monotonic())
        if self._relays.follow(session, time.monotonic()):
            session.moved(time.monotonic())
        session.advance(time.monotonic())
        self._carry_out()

    def _carry_out(self) -> None:
        while self._forgotten:
            self._connection.session.abandon(self._forgotten.popleft())
        if not self._context.closed:
            sockets.carry_out(self._connection.session.take_commands(), self._requests, self._notifications)
