"""The asyncio twin of the client."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

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
from candlewright.client.live.realtime import AsyncRealtime
from candlewright.client.live.streams import AsyncStream
from candlewright.client.operations import Operations
from candlewright.client.records import Market, Notification, Range, RequestState, Snapshot, Submission, Venue
from candlewright.client.session import sockets
from candlewright.client.session.closing import CLOSED, AsyncClosing
from candlewright.client.session.relays import Relays
from candlewright.client.session.session import Operation, Ticket
from candlewright.client.sync import Client
from candlewright.client.triggers.triggers import AsyncTriggers
from candlewright.client.triggers.views import AsyncViews
from candlewright.wire.errors import CandlewrightError, InvalidRequest
from candlewright.wire.times import Time

if TYPE_CHECKING:
    import pyarrow as pa

    from candlewright.client.live.chart import Chart

T = TypeVar("T")


class AsyncClient(AsyncClosing):
    """The same calls as `Client`, as coroutines; many may run at once. Made by `aconnect()`.

    Use `async with cw.aconnect() as c`, or `c = await cw.aconnect()` and `await c.close()`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._forgotten: deque[Ticket[None]] = deque()
        #: Open streams, and how to wake their readers.
        self._streams: dict[Ticket[None], Callable[[], None] | None] = {}
        #: Running calls wait for these.
        self._calls: set[asyncio.Event] = set()
        #: Feeds charts, whose threads outlive a notebook cell.
        self._twin: Client | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.client_id} of {self._connection.requests}>"

    @property
    def client_id(self) -> str:
        """Finals of this client's requests go to the topic `RESPONSE:{client_id}`."""
        return self._connection.client_id

    def new_request_id(self) -> str:
        """A new id for `history(request_id=…)`, with which a running request can be inspected and cancelled."""
        return self._connection.new_request_id()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        self._check_open()
        if self._context is None:
            self._context = zmq.Context()
            self._relays = Relays(self._context, self._connection.relays, self._connection.key)
            self._requests, self._notifications = self._relays.sockets
            for socket in self._relays.descriptors:
                asyncio.get_running_loop().add_reader(socket.fileno(), self._turn)
            self._turn()
        return self

    async def close(self) -> None:
        """Accepted requests continue without this client."""
        if self._twin is not None:
            self._twin.close()
        if self._context is not None and not self._context.closed:
            for socket in self._relays.descriptors:
                asyncio.get_running_loop().remove_reader(socket.fileno())
            self._context.destroy(linger=0)
            self._turn()
            for wake in self._streams.values():
                if wake is not None:
                    wake()
            for done in self._calls:
                done.set()

    @overload
    async def history(
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
    async def history(
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
    async def history(
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

    async def history(
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
        """See `Client.history`; `progress` is a plain function called in the event loop."""
        end = end_of(end, as_of, request_id)
        if not isinstance(ticker, str):
            if as_of is not None or request_id is not None:
                raise InvalidRequest("as_of and request_id are for one ticker alone")
            ranges = [
                self._connection.range(each, period, start=start, end=end, limit=limit, refresh=refresh)
                for each in ticker
            ]
            return await self._histories(Several(ranges, errors, progress), timeout)
        wanted = self._connection.range(ticker, period, start=start, end=end, limit=limit, refresh=refresh)
        if as_of is not None:
            return await self._read_stored(wanted, as_of)
        identity = request_id or self._connection.new_request_id()
        final = await self.run(lambda ask: ask.history(wanted, identity, progress, timeout_seconds=timeout))
        return await self._read_history(wanted, final)

    async def _histories(self, several: Several, timeout: float | None) -> Histories:
        several.ended(await self._run_all(several.requests(self._connection.new_request_id, timeout)))
        near = await asyncio.to_thread(lambda: self._connection.near)
        if near is not None:
            return several.gathered(await asyncio.to_thread(several.near_rows, near))
        return several.gathered(await self._run_all(several.row_queries()))

    async def load(self, ticker: str, period: str | int, start: Time, end: Time, *, limit: int | None = None) -> Stored:
        """See `Client.load`."""
        wanted = self._connection.range(ticker, period, start=start, end=end, limit=limit)
        return await self._read_stored(wanted, None)

    async def submit(
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
        return await self.run(lambda ask: ask.submit(wanted, identity))

    async def wait(
        self, request_id: str, *, progress: Progress | None = None, timeout: float | None = None
    ) -> Notification:
        """The final notification of any request, whatever its status; raises RequestTimedOut after `timeout`
        seconds."""
        return await self.run(lambda ask: ask.wait(request_id, progress, timeout))

    async def read(self, notification: Notification, *, limit: int | None = None) -> History:
        """The rows of a request that ended OK."""
        return await self._read_history(range_of(notification, limit), notification)

    async def _read_history(self, wanted: Range, final: Notification) -> History:
        near = await asyncio.to_thread(lambda: self._connection.near)
        if near is not None:
            return await asyncio.to_thread(near.history, wanted, final)
        return await self.run(lambda ask: ask.rows.of(wanted, final))

    async def _read_stored(self, wanted: Range, as_of: Time | None) -> Stored:
        moment = self._connection.stored(wanted, as_of)
        near = await asyncio.to_thread(lambda: self._connection.near)
        if near is not None:
            return await asyncio.to_thread(near.stored, wanted, moment)
        return await self.run(lambda ask: ask.rows.stored(wanted, moment))

    async def state(self, request_id: str) -> RequestState:
        """The state and progress of any request; `unknown` for an id that the platform does not know or has
        forgotten."""
        return await self.run(lambda ask: ask.state(request_id))

    async def cancel(self, request_id: str) -> RequestState:
        """Cancel a request; its final is ERROR "cancelled" unless it has already ended.

        Returns the state that the request was in; raises RequestNotFound for an unknown id.
        """
        return await self.run(lambda ask: ask.cancel(request_id))

    def ticks(
        self,
        ticker: str,
        *,
        timeout: float | None = None,
        from_sequence: int | None = None,
        buffer: int = BUFFER_NUMBERS,
    ) -> AsyncStream[Tick]:
        """See `Client.ticks`; subscribed from the first step on, or from `async with`."""
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
    ) -> AsyncStream[Bar]:
        """See `Client.bars`; subscribed from the first step on, or from `async with`."""
        return self.stream(
            self._connection.bars(ticker, period, revisions=revisions, first=from_sequence, buffer=buffer), timeout
        )

    async def realtime(
        self,
        ticker: str,
        *,
        ticks: bool = True,
        ohlc_periods: Sequence[str | int] = (60,),
        request_id: str | None = None,
    ) -> AsyncRealtime:
        """See `Client.realtime`."""
        periods = self._connection.periods(ohlc_periods)
        identity = request_id or self._connection.new_request_id()
        submission = await self.run(
            lambda ask: ask.realtime(ticker, ticks=ticks, ohlc_periods=periods, request_id=identity)
        )
        return AsyncRealtime(submission.request_id, ticker, lambda: self.cancel(submission.request_id))

    @property
    def triggers(self) -> AsyncTriggers:
        """Register, list and remove triggers, and read their events."""
        return AsyncTriggers(self, self._connection)

    @property
    def views(self) -> AsyncViews:
        """Register, list and remove views, which triggers read by name."""
        return AsyncViews(self)

    async def venues(self) -> list[Venue]:
        """The venues that ingestors have announced."""
        return await self.run(lambda ask: ask.venue_list())

    async def markets(self, venue: str) -> list[Market]:
        """All markets of one venue; raises InvalidRequest for one that no ingestor has announced."""
        return await self.run(lambda ask: ask.markets(venue.upper()))

    async def snapshot(self, ticker: str) -> Snapshot:
        """The newest prices, requested from the venue now; raises RequestTimedOut if they do not arrive in time."""
        return await self.run(lambda ask: ask.snapshot(ticker))

    async def sql(self, sql: str, *, limit: int | None = None) -> "pa.Table":
        """See `Client.sql`."""
        return await asyncio.to_thread(self._connection.sql, sql, limit)

    def chart(self, ticker: str, period: str | int = "1m", *, height: int = 360) -> "Chart":
        """See `Client.chart`. Its charts have their own sockets, which `close()` closes too."""
        self._check_open()
        if self._twin is None or self._twin.is_closed:
            self._twin = Client(self._connection.another())
        return self._twin.chart(ticker, period, height=height)

    async def ohlc(
        self, ticker: str, period: str | int = "1m", *, start: Time, end: Time, limit: int | None = None
    ) -> Candles:
        """Stored candles through the legacy request, in pages over the socket; needs no access to the tables."""
        wanted = self._connection.range(ticker, period, start=start, end=end, limit=limit)
        return Candles(legacy_table(await self.run(lambda ask: ask.legacy.ohlc(wanted))))

    async def replay(self, topic: str, from_sequence: int = 1, to_sequence: int = 0) -> list[tuple[int, Message]]:
        """The messages of a stream topic, as (sequence, message), both ends included; `to_sequence` 0 is the newest."""
        return await self.run(lambda ask: ask.replay(topic, from_sequence, to_sequence))

    def stream(
        self, feed: Feed[T], timeout: float | None, opening: Callable[[], Awaitable[Any]] | None = None
    ) -> AsyncStream[T]:
        return AsyncStream(self, feed, timeout, opening=opening or self.__aenter__)

    # ---- for streams and triggers
    @property
    def is_closed(self) -> bool:
        return self._context is not None and self._context.closed

    def begin_stream(self, feed: Feed[Any], when_done: Callable[[], None] | None) -> Ticket[None]:
        self._check_open()
        session = self._connection.session
        ticket = session.begin(feed.run(session), time.monotonic(), when_done=when_done, takes_nameless=False)
        self._streams[ticket] = when_done
        self._turn()
        return ticket

    def end_stream(self, ticket: Ticket[None]) -> None:
        self._streams.pop(ticket, None)
        self._connection.session.abandon(ticket)
        self._turn()

    def forget_stream(self, ticket: Ticket[None]) -> None:
        self._forgotten.append(ticket)

    def take(self, feed: Feed[T], ticket: Ticket[None]) -> T | Interruption | None:
        if ticket.is_done:
            ticket.result()
        item = feed.take()
        if feed.has_work:
            self._connection.session.wake(ticket, time.monotonic())
            self._turn()
        return item

    async def run(self, start: Callable[[Operations], Operation[T]]) -> T:
        await self.__aenter__()
        session = self._connection.session
        done = asyncio.Event()
        self._calls.add(done)
        ticket = session.begin(start(self._connection.operations), time.monotonic(), when_done=done.set)
        self._turn()
        try:
            await done.wait()
            if not ticket.is_done:
                raise ValueError(CLOSED)
            return ticket.result()
        finally:
            self._calls.discard(done)
            session.abandon(ticket)
            self._turn()

    async def _run_all(self, starts: Sequence[Start[T]]) -> list[T | CandlewrightError]:
        """Results or exceptions, in order; AT_ONCE of them run at a time."""
        room = asyncio.Semaphore(AT_ONCE)

        async def outcome(start: Start[T]) -> T | CandlewrightError:
            async with room:
                try:
                    return await self.run(start)
                except CandlewrightError as error:
                    return error

        return await asyncio.gather(*map(outcome, starts))

    # ---- the sockets
    def _check_open(self) -> None:
        if self.is_closed:
            raise ValueError(CLOSED)

    def _turn(self) -> None:
        """Process everything that has arrived, and carry out the resulting commands.

        A ZeroMQ descriptor becomes readable once per change, not while there is something to read, and sending may
        consume that notification. Everything is therefore drained, and checked again after the last command.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._forgotten:
            ticket = self._forgotten.popleft()
            self._streams.pop(ticket, None)
            self._connection.session.abandon(ticket)
        if self._context is None or self._context.closed:
            return
        session = self._connection.session
        for parts in sockets.drain(self._requests):
            session.receive_reply(parts, time.monotonic())
        for parts in sockets.drain(self._notifications):
            session.receive_publication(parts, time.monotonic())
        if self._relays.follow(session, time.monotonic()):
            session.moved(time.monotonic())
        session.advance(time.monotonic())
        sockets.carry_out(session.take_commands(), self._requests, self._notifications)
        loop = asyncio.get_running_loop()
        if any(sockets.is_readable(socket) for socket in (self._requests, self._notifications)):
            self._timer = loop.call_later(0, self._turn)
            return
        deadlines = [each for each in (session.next_deadline(), self._relays.deadline) if each is not None]
        if (deadline := min(deadlines, default=math.inf)) < math.inf:
            self._timer = loop.call_later(max(0.0, deadline - time.monotonic()), self._turn)
