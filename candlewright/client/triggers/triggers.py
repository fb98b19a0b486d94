"""`client.triggers`: register triggers, list and remove them, read their events; one class for each client.

The events of a trigger are subscribed before its registration is sent, and numbered, so none is missed or duplicated.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from candlewright.client.connection import Connection
from candlewright.client.live.feed import Feed
from candlewright.client.live.streams import AsyncStream, Stream
from candlewright.client.notebook.cards import card
from candlewright.client.operations import Newest, Operations
from candlewright.client.records import Registration, TriggerInfo
from candlewright.client.session.closing import AsyncClosing, Closing
from candlewright.client.session.session import Operation
from candlewright.client.triggers.hops import Hops, hops_of
from candlewright.client.triggers.parameters import Parameter
from candlewright.client.triggers.trigger_events import Events, TriggerEvent
from candlewright.wire import streams
from candlewright.wire.errors import CandlewrightError

T = TypeVar("T")
S = TypeVar("S", Stream[TriggerEvent], AsyncStream[TriggerEvent])

log = logging.getLogger("candlewright")

#: How long to wait for a registration: the pipeline may be restarting.
ADD_SECONDS = 60.0
#: Events that wait for their reader; the rest waits on the platform.
BUFFER_EVENTS = 1_000


class Runner(Protocol):
    """The part of `Client` that is needed here."""

    def run(self, start: Callable[[Operations], Operation[T]]) -> T: ...

    def stream(self, feed: Feed[T], timeout: float | None) -> Stream[T]: ...


class AsyncRunner(Protocol):
    """The part of `AsyncClient` that is needed here."""

    async def run(self, start: Callable[[Operations], Operation[T]]) -> T: ...

    def stream(
        self, feed: Feed[T], timeout: float | None, opening: Callable[[], Awaitable[Any]] | None = None
    ) -> AsyncStream[T]: ...


class _Registered(Generic[S]):
    """A trigger of either client: its registration, and the stream of its events.

    `reopen` makes a new stream, from a number on.
    """

    def __init__(self, registration: Registration, stream: S, reopen: Callable[[int | None], S]) -> None:
        self.id = registration.trigger_id
        self.is_new = registration.is_new
        self.warnings = registration.warnings
        for warning in self.warnings:
            log.warning("trigger %s: %s", self.id, warning)
        self._stream: S = stream
        self._reopen: Callable[[int | None], S] = reopen

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def events(self, timeout: float | None = None) -> S:
        """Events since the registration, each once. Iteration ends after `timeout` seconds without one (default:
        never); another `for` continues after it. Gaps: as for `Client.bars`. Raises TriggerSuspended, once, after its
        last event, if the platform has stopped the trigger.
        """
        if self._stream.is_closed:
            self._stream = self._reopen(self._stream.next_sequence)
        self._stream.timeout = timeout
        return self._stream


class Trigger(_Registered[Stream[TriggerEvent]], Closing):
    """A registered trigger, made by `triggers.add`. It stays registered when the client ends; `remove` ends it.

    `id`: its name on the platform. `is_new`: False if exactly this trigger was already registered under this id.
    `warnings`: sentences of the platform, which are also logged by the logger `candlewright`. The events stay
    subscribed while this object (or the stream of `events`) is referenced and not closed; a `with` statement closes it.
    """

    def __init__(self, triggers: "Triggers", registration: Registration, stream: Stream[TriggerEvent]) -> None:
        super().__init__(registration, stream, lambda first: triggers.events(self.id, from_sequence=first))
        self._triggers = triggers

    def collect(self, count: int, *, timeout: float | None = None) -> Events:
        """The next `count` events; fewer if none comes for `timeout` seconds."""
        return Events(islice(self.events(timeout), count))

    def _repr_html_(self) -> str:
        try:
            return self.info()._repr_html_()
        except (CandlewrightError, ValueError) as error:
            # A notebook shows what is available, even after the platform or the client has ended.
            return card(self.id, [str(error)])

    def info(self) -> TriggerInfo:
        """The platform's current information; raises TriggerNotFound."""
        return self._triggers.get(self.id)

    def remove(self) -> None:
        """Raises TriggerNotFound if it was already removed."""
        self._triggers.remove(self.id)

    def close(self) -> None:
        """Unsubscribe; the trigger stays registered."""
        self._stream.close()


class Triggers:
    """See `Client.triggers`."""

    def __init__(self, client: Runner, connection: Connection) -> None:
        self._client = client
        self._connection = connection

    def add(
        self,
        sql: str,
        *,
        tickers: Sequence[str] = (),
        parameters: Mapping[str, Parameter] | None = None,
        trigger_id: str | None = None,
        callback_id: str | None = None,
        timeout: float = ADD_SECONDS,
    ) -> Trigger:
        """Register a trigger and return once it is durable and active.

        `tickers`: its tickers, which are then fetched live; none = every active one. `parameters`: values for `:name`
        in the text, and the parameters with a special meaning (`period_seconds`, `revisions`, `cooldown_seconds`,
        `deadman_seconds`). `trigger_id`: by default derived from the trigger itself, so that a script that runs again
        registers nothing new; a known id with another text, other tickers or parameters replaces that trigger.
        `callback_id`: events go to the topic `RESPONSE:{callback_id}` as well. `timeout`: seconds, during which the
        request is resent under the same id if an answer is lost.

        Raises InvalidTrigger with line, column and hint, and PlatformRefused if the platform could not register it.
        """
        request = self._connection.trigger(trigger_id, sql, tickers, parameters=parameters, callback_id=callback_id)
        stream = self.events(request.trigger_id)
        try:
            registration = self._client.run(lambda ask: ask.triggers.add(request, timeout))
        except BaseException:
            stream.close()
            raise
        stream.registered(is_new=registration.is_new)
        return Trigger(self, registration, stream)

    def list(self) -> "list[TriggerInfo]":
        """All registered triggers, by id."""
        return self._client.run(lambda ask: ask.triggers.all())

    def get(self, trigger_id: str) -> TriggerInfo:
        """Raises TriggerNotFound."""
        return self._client.run(lambda ask: ask.triggers.get(trigger_id))

    def remove(self, trigger_id: str, *, timeout: float = ADD_SECONDS) -> None:
        """Raises TriggerNotFound."""
        self._client.run(lambda ask: ask.triggers.remove(trigger_id, timeout))

    def events(
        self,
        trigger_id: str,
        *,
        timeout: float | None = None,
        from_sequence: int | None = None,
        buffer: int = BUFFER_EVENTS,
    ) -> Stream[TriggerEvent]:
        """Events of any registered trigger: new ones, or from number `from_sequence` on if they are still kept (1 =
        all). `timeout`, `buffer` and gaps: as for `Client.bars`; TriggerSuspended: as for `Trigger.events`, immediately
        if the trigger is already suspended.
        """
        feed = self._connection.trigger_events(trigger_id, from_sequence, buffer)
        if from_sequence is None:
            newest = self._newest(trigger_id)
            feed.begin_at(newest.number + 1, newest.at)
        return self._client.stream(feed, timeout)

    def hops(self, event: TriggerEvent) -> Hops:
        """When the data of an event passed each hop: looked up afterwards, so that events cost nothing extra."""
        return self._client.run(lambda ask: hops_of(ask, event))

    def newest_number(self, trigger_id: str) -> int:
        """The `sequence` of the newest event; 0 = none yet."""
        return self._newest(trigger_id).number

    def _newest(self, trigger_id: str) -> Newest:
        return self._client.run(lambda ask: ask.newest(streams.trigger(trigger_id)))


class AsyncTrigger(_Registered[AsyncStream[TriggerEvent]], AsyncClosing):
    """The asyncio twin of `Trigger`: `async with`, `async for` over `events()`, `await trigger.remove()`."""

    def __init__(
        self, triggers: "AsyncTriggers", registration: Registration, stream: AsyncStream[TriggerEvent]
    ) -> None:
        super().__init__(registration, stream, lambda first: triggers.events(self.id, from_sequence=first))
        self._triggers = triggers

    async def collect(self, count: int, *, timeout: float | None = None) -> Events:
        """See `Trigger.collect`."""
        found: list[TriggerEvent] = []
        events = self.events(timeout)
        while len(found) < count and (event := await anext(events, None)) is not None:
            found.append(event)
        return Events(found)

    async def info(self) -> TriggerInfo:
        """The platform's current information; raises TriggerNotFound."""
        return await self._triggers.get(self.id)

    async def remove(self) -> None:
        """Raises TriggerNotFound if it was already removed."""
        await self._triggers.remove(self.id)

    async def close(self) -> None:
        """Unsubscribe; the trigger stays registered."""
        await self._stream.close()


class AsyncTriggers:
    """The same calls as `Triggers`, as coroutines; `events` is subscribed from the first step on."""

    def __init__(self, client: AsyncRunner, connection: Connection) -> None:
        self._client = client
        self._connection = connection

    async def add(
        self,
        sql: str,
        *,
        tickers: Sequence[str] = (),
        parameters: Mapping[str, Parameter] | None = None,
        trigger_id: str | None = None,
        callback_id: str | None = None,
        timeout: float = ADD_SECONDS,
    ) -> AsyncTrigger:
        """See `Triggers.add`."""
        request = self._connection.trigger(trigger_id, sql, tickers, parameters=parameters, callback_id=callback_id)
        stream = self.events(request.trigger_id)
        await stream.begin()
        try:
            registration = await self._client.run(lambda ask: ask.triggers.add(request, timeout))
        except BaseException:
            await stream.close()
            raise
        stream.registered(is_new=registration.is_new)
        return AsyncTrigger(self, registration, stream)

    async def list(self) -> "list[TriggerInfo]":
        """All registered triggers, by id."""
        return await self._client.run(lambda ask: ask.triggers.all())

    async def get(self, trigger_id: str) -> TriggerInfo:
        """Raises TriggerNotFound."""
        return await self._client.run(lambda ask: ask.triggers.get(trigger_id))

    async def remove(self, trigger_id: str, *, timeout: float = ADD_SECONDS) -> None:
        """Raises TriggerNotFound."""
        await self._client.run(lambda ask: ask.triggers.remove(trigger_id, timeout))

    def events(
        self,
        trigger_id: str,
        *,
        timeout: float | None = None,
        from_sequence: int | None = None,
        buffer: int = BUFFER_EVENTS,
    ) -> AsyncStream[TriggerEvent]:
        """See `Triggers.events`."""
        feed = self._connection.trigger_events(trigger_id, from_sequence, buffer)

        async def find_begin() -> None:
            newest = await self._newest(trigger_id)
            feed.begin_at(newest.number + 1, newest.at)

        return self._client.stream(feed, timeout, find_begin if from_sequence is None else None)

    async def hops(self, event: TriggerEvent) -> Hops:
        """See `Triggers.hops`."""
        return await self._client.run(lambda ask: hops_of(ask, event))

    async def newest_number(self, trigger_id: str) -> int:
        """The `sequence` of the newest event; 0 = none yet."""
        return (await self._newest(trigger_id)).number

    async def _newest(self, trigger_id: str) -> Newest:
        return await self._client.run(lambda ask: ask.newest(streams.trigger(trigger_id)))
