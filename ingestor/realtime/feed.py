"""The websockets of one venue: one ccxt.pro exchange for all its tickers, and one task per subscription."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from aiohttp import WSMsgType

from candlewright.wire.errors import CandlewrightError, ExchangeError, NotOffered, Unavailable, UnknownTicker
from core.background import awaited_task, only_noted, start_task
from core.log import get_logger
from ingestor.exchange import stock as exchange
from ingestor.exchange.ccxt_classes import errors as ccxt
from ingestor.exchange.client import VenueClient
from ingestor.exchange.errors import translate
from ingestor.progress import Progress
from ingestor.realtime import metrics
from ingestor.trade import Trade
from ingestor.venues.description import Stream
from ingestor.venues.hooks import SUBSCRIBING
from ingestor.venues.reading import Parse

log = get_logger()

TICK_SECONDS = 0.1
#: A connection that was silent this long gets a ping. Exchanges limit what a connection may send, some to five messages
#: a second.
PING_SECONDS = 0.5
#: A connection that stays silent is given up. Exchanges with their own ping message may not answer the protocol's.
FROZEN_SECONDS = 10.0
FROZEN_OWN_PING_SECONDS = 40.0
CLOCK_SECONDS = 5.0
UNWATCH_SECONDS = 5.0
#: The most clock marks per second of one connection; while its tickers are few, each gets ten per second.
_MARKS_PER_SECOND = 200
#: The part of the event loop that reads, decodes and hands on what the sockets received.
_READING_ROUNDS = 4
_MARK_SECONDS = 0.1, 1.0
_MEASURE_SECONDS = 0.25
_RESTART_SECONDS = 1.0
_CONTENT = (WSMsgType.TEXT, WSMsgType.BINARY)


class Listener(Protocol):
    """Receives the events of one ticker; all calls come from the event loop."""

    @property
    def is_full(self) -> bool:
        """True while it cannot take more trades; its socket is not read meanwhile."""
        ...

    @property
    def waiting(self) -> int:
        """Trades that wait for a repair."""
        ...

    @property
    def unpublished(self) -> int:
        """Trades that wait for the bus."""
        ...

    def connected(self, at: float) -> None: ...

    def closed(self, at: float) -> None: ...

    def trades_came(self, trades: Sequence[Trade], at: float) -> None: ...

    def ticked(self, at: float) -> None: ...

    def failed(self, error: Exception) -> None: ...


class Subscription:
    """`client`: the current ccxt connection, if any; `heard_at`: when the last trades arrived."""

    def __init__(self, symbol: str, key: str, listener: Listener) -> None:
        self.symbol = symbol
        self.key = key
        self.listener = listener
        self.url = ""
        self.client: Any = None
        self.batch: list[Trade] = []
        self.failing_since: float | None = None
        self.heard_at = time.monotonic()
        self.task: asyncio.Task[None] | None = None


class Feed:
    """Created by the first job of a venue, closed with the ingestor."""

    def __init__(
        self, client: VenueClient, stream: Stream, *, url: str, request_timeout: float, patience: float
    ) -> None:
        self.client = client
        self.stream = stream
        self._patience = patience
        self._pro = exchange.build(client.description, url=url, timeout_seconds=request_timeout, streaming=True)
        self._pro.sink = self
        # Without compression: it costs more processor time than it saves, and exchanges send these small frames
        # uncompressed.
        self._pro.options["ws"] = {**(self._pro.options.get("ws") or {}), "compress": 0}
        self._pro.set_markets(list(client.exchange.markets.values()), client.exchange.currencies)
        self._subscriptions: dict[str, Subscription] = {}
        self._dirty: list[Subscription] = []
        self._gates: dict[str, asyncio.Event] = {}
        self._resumed_at: dict[str, float] = {}
        self._pinged_at: dict[str, float] = {}
        self._next_subscribe: dict[str, float] = {}
        self._newest_ns = 0
        self._read_ns = time.time_ns()
        self._loop = asyncio.get_running_loop()
        self._farewells: dict[str, asyncio.Task[None]] = {}
        self._tasks = [
            start_task(partial(self._serving_all, work), f"{name} of {client.venue}", restarts_after=_RESTART_SECONDS)
            for name, work in (("feed", self._watch_over), ("clock", self._follow_clock))
        ]
        name = client.venue
        self._unwanted = metrics.UNWANTED.labels(name)
        self._bad_rows = metrics.BAD_ROWS.labels(name)

    # ---- subscriptions

    def hold(self, symbol: str, market_id: str, listener: Listener) -> Subscription:
        """Subscribe and stay subscribed until `drop`."""
        key = symbol if self.stream.by_symbol else market_id
        if symbol not in self._pro.markets:
            self._pro.set_markets(list(self.client.exchange.markets.values()), self.client.exchange.currencies)
        subscription = Subscription(symbol, key, listener)
        self._subscriptions[key] = subscription
        subscription.task = awaited_task(self._hold(subscription))
        subscription.task.add_done_callback(lambda task: _tell_end(task, subscription))
        metrics.JOBS.labels(self.client.venue).set(len(self._subscriptions))
        return subscription

    def drop(self, subscription: Subscription) -> None:
        """Unsubscribe; the listener is not called after this."""
        if self._subscriptions.get(subscription.key) is subscription:
            del self._subscriptions[subscription.key]
            with contextlib.suppress(KeyError):
                metrics.LAST_FRAME.remove(self.client.venue, self._ticker(subscription))
        if subscription.task is not None:
            subscription.task.cancel()
        self._open_gate_where_possible(subscription.url)
        if subscription.client is not None and subscription.key not in self._subscriptions:
            farewell = start_task(lambda: self._unwatch(subscription), "unsubscribe", on_failure=only_noted)
            self._farewells[subscription.key] = farewell
            farewell.add_done_callback(lambda task: self._parted(subscription.key, task))
        metrics.JOBS.labels(self.client.venue).set(len(self._subscriptions))

    def _parted(self, key: str, task: "asyncio.Task[None]") -> None:
        if self._farewells.get(key) is task:
            del self._farewells[key]

    async def _serving_all(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run work that serves all tickers. If it fails, their jobs go to other ingestors, and it restarts for later
        jobs.
        """
        try:
            await work()
        except Exception as error:
            for subscription in list(self._subscriptions.values()):
                subscription.listener.failed(Unavailable(f"the feed of {self.client.venue} broke: {error!r}"))
            raise

    async def close(self) -> None:
        tasks = [*self._tasks, *self._farewells.values()]
        tasks += [subscription.task for subscription in self._subscriptions.values() if subscription.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self._pro.close()

    async def _hold(self, subscription: Subscription) -> None:
        SUBSCRIBING.set(subscription.key)
        farewell = self._farewells.get(subscription.key)
        if farewell is not None:
            await asyncio.wait([farewell])
        while True:
            await self._pace(subscription)
            try:
                await self._pro.watch_trades(subscription.symbol, None, None, {})
            except asyncio.CancelledError:
                # ccxt's futures are shared, so the end of another holder may cancel ours.
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
            except (ccxt.BaseError, OSError, ExchangeError) as error:
                self._failed(subscription, error)
            # ccxt itself backs off before it reconnects to an address that refuses.
            await asyncio.sleep(random.uniform(0.02, 0.2))

    def _failed(self, subscription: Subscription, error: Exception) -> None:
        now = time.monotonic()
        if subscription.failing_since is None:
            subscription.failing_since = now
        translated = translate(error, self.client.description.limits, None)
        is_final = isinstance(translated, (UnknownTicker, NotOffered))
        is_enough = now - subscription.failing_since > self._patience
        log.info("subscription_ended", venue=self.client.venue, symbol=subscription.symbol, error=str(translated))
        if is_final or is_enough:
            subscription.listener.failed(translated)

    async def _pace(self, subscription: Subscription) -> None:
        """Space out subscriptions, because exchanges cut connections that send many at once."""
        now = time.monotonic()
        due = max(now, self._next_subscribe.get(subscription.url, 0.0))
        pause = self.stream.subscribe_pause if subscription.url else 0.02
        self._next_subscribe[subscription.url] = due + pause
        if due > now:
            await asyncio.sleep(due - now)

    async def _unwatch(self, subscription: Subscription) -> None:
        others = any(other.url == subscription.url for other in self._subscriptions.values())
        try:
            async with asyncio.timeout(UNWATCH_SECONDS):
                if self._pro.has.get("unWatchTrades") and others:
                    await self._pro.un_watch_trades(subscription.symbol)
                elif not others:
                    self._pro.clients.pop(subscription.url, None)
                    await subscription.client.close(1000)
        except (ccxt.BaseError, OSError, TimeoutError) as error:
            # Its trades are counted and dropped until the connection ends, at the latest with its last ticker.
            log.info("unsubscribe_failed", venue=self.client.venue, symbol=subscription.symbol, error=str(error))

    def ages(self) -> dict[str, float]:
        """By ticker, the seconds since its last trades arrived, or since it was subscribed to."""
        now = time.monotonic()
        return {self._ticker(own): now - own.heard_at for own in list(self._subscriptions.values())}

    def _ticker(self, subscription: Subscription) -> str:
        return f"{subscription.symbol}.{self.client.venue}"

    # ---- calls from the hooks

    def subscribed(self, key: str, url: str) -> None:
        subscription = self._subscriptions.get(key)
        if subscription is None:
            return
        subscription.url = url
        client = self._pro.clients.get(url)
        if client is not None and client.connectionEstablished and client.error is None:
            self._attach(subscription, client)

    def connection_opened(self, client: Any) -> None:
        url = client.url
        gate = self._gates.setdefault(url, asyncio.Event())
        gate.set()

        client.receive = partial(received, client, gate)
        for subscription in self._on(url):
            self._attach(subscription, client)

    def _attach(self, subscription: Subscription, client: Any) -> None:
        subscription.failing_since = None
        if subscription.client is not client:
            subscription.client = client
            subscription.listener.connected(time.monotonic())

    def connection_ended(self, client: Any, reason: str) -> None:
        attached = [other for other in self._subscriptions.values() if other.client is client]
        if attached:
            metrics.RECONNECTS.labels(self.client.venue).inc()
            log.info("stream_connection_ended", venue=self.client.venue, tickers=len(attached), reason=reason)
        self._flush()
        for subscription in attached:
            subscription.client = None
            subscription.listener.closed(time.monotonic())

    def trade_came(self, key: str, row: Any, parse: Parse) -> None:
        subscription = self._subscriptions.get(key)
        if subscription is None:
            self._unwanted.inc()
            return
        try:
            trade = parse(row, time.time_ns())
        except (KeyError, ValueError, TypeError, ArithmeticError):
            self._bad_rows.inc()
            return
        batch = subscription.batch
        if not batch:
            if not self._dirty:
                self._loop.call_soon(self._flush)
            self._dirty.append(subscription)
        batch.append(trade)

    def trades_came(self, key: str, rows: list[Any], parse: Parse) -> None:
        for row in rows:
            self.trade_came(key, row, parse)

    def _flush(self) -> None:
        """Hand on everything that the sockets received, once per round of the event loop."""
        dirty, self._dirty = self._dirty, []
        now = time.monotonic()
        for subscription in dirty:
            batch, subscription.batch = subscription.batch, []
            if not batch or self._subscriptions.get(subscription.key) is not subscription:
                continue
            subscription.heard_at = now
            self._newest_ns = max(self._newest_ns, batch[-1][1])
            subscription.listener.trades_came(batch, now)
            if subscription.listener.is_full:
                self._close_gate(subscription.url)

    # ---- back-pressure

    def _close_gate(self, url: str) -> None:
        gate = self._gates.get(url)
        if gate is not None and gate.is_set():
            gate.clear()
            metrics.PAUSES.labels(self.client.venue).inc()

    def _open_gate_where_possible(self, url: str) -> None:
        gate = self._gates.get(url)
        if gate is not None and not gate.is_set() and not any(sub.listener.is_full for sub in self._on(url)):
            self._resumed_at[url] = time.monotonic()
            gate.set()

    def _on(self, url: str) -> list[Subscription]:
        return [subscription for subscription in self._subscriptions.values() if subscription.url == url]

    # ---- time

    def silence(self, subscription: Subscription) -> float | None:
        """Seconds since the connection last showed that it is alive; None without a connection. A connection that is
        deliberately not read counts as alive.
        """
        client = subscription.client
        if client is None:
            return None
        gate = self._gates.get(subscription.url)
        if gate is not None and not gate.is_set():
            return 0.0
        heard = client.last_message_at or client.connectionEstablished or 0
        since_resumed = time.monotonic() - self._resumed_at.get(subscription.url, float("-inf"))
        return min(max(time.time() - heard / 1_000, 0.0), since_resumed)

    @property
    def frozen_seconds(self) -> float:
        return FROZEN_OWN_PING_SECONDS if getattr(self._pro, "ping", None) else FROZEN_SECONDS

    def exchange_time(self, subscription: Subscription) -> int | None:
        """A time (ns) up to which everything that the exchange sent on this connection has been read; None if unknown.

        While the connection is not being read, this is the time of its last message. It is never later than the last
        read of the sockets, since on a busy machine messages wait in them.
        """
        client, ahead_ns = subscription.client, self.client.clock_ahead
        if client is None or ahead_ns is None:
            return None
        heard = client.last_message_at or client.connectionEstablished or 0
        return min(int(heard * 1_000_000), self._read_ns) + ahead_ns

    def mark_seconds(self, subscription: Subscription) -> float:
        """The interval (s) at which to publish the exchange's clock for this ticker."""
        shortest, longest = _MARK_SECONDS
        return min(longest, max(shortest, len(self._on(subscription.url)) / _MARKS_PER_SECOND))

    async def _follow_clock(self) -> None:
        progress = Progress()
        while True:
            try:
                await self.client.clock(progress, newer_than=0.0)
            except CandlewrightError as error:
                log.info("exchange_clock_unknown", venue=self.client.venue, error=str(error))
            if self._newest_ns:
                metrics.SKEW.labels(self.client.venue).set((time.time_ns() - self._newest_ns) / 1e9)
            await asyncio.sleep(CLOCK_SECONDS)

    async def _watch_over(self) -> None:
        measured_at = 0.0
        while True:
            read_ns = time.time_ns()
            for _ in range(_READING_ROUNDS):
                await asyncio.sleep(0)
            self._read_ns = read_ns
            now = time.monotonic()
            for url, client in list(self._pro.clients.items()):
                self._look_after(url, client, now)
            for subscription in list(self._subscriptions.values()):
                subscription.listener.ticked(now)
            for url in list(self._gates):
                self._open_gate_where_possible(url)
            if now - measured_at >= _MEASURE_SECONDS:
                measured_at = now
                self._measure()
            await asyncio.sleep(TICK_SECONDS)

    def _measure(self) -> None:
        listeners = [subscription.listener for subscription in self._subscriptions.values()]
        metrics.WAITING.labels(self.client.venue).set(sum(listener.waiting for listener in listeners))
        metrics.UNPUBLISHED.labels(self.client.venue).set(sum(listener.unpublished for listener in listeners))
        for ticker, age in self.ages().items():
            metrics.LAST_FRAME.labels(self.client.venue, ticker).set(age)

    def _look_after(self, url: str, client: Any, now: float) -> None:
        if client.connection is None or client.closed() or not client.connectionEstablished:
            return
        on_it = self._on(url)
        silence = self.silence(on_it[0]) if on_it else None
        if silence is None or silence < PING_SECONDS:
            return
        if silence > self.frozen_seconds:
            metrics.FROZEN.labels(self.client.venue).inc()
            log.warning("stream_frozen", venue=self.client.venue, seconds=round(silence, 1))
            client.on_error(ccxt.RequestTimeout(f"silent for {silence:.0f} s"))
        elif now - self._pinged_at.get(url, 0.0) >= PING_SECONDS:
            self._pinged_at[url] = now
            ping = awaited_task(client.connection.ping())
            ping.add_done_callback(lambda done: done.cancelled() or done.exception())


async def received(client: Any, gate: asyncio.Event) -> Any:
    """The next message that is not content. Content is handled at once: ccxt itself would handle the first of several
    messages alone, after two more rounds of the event loop, and its trades would be published before the others.
    """
    while True:
        await gate.wait()
        message = await client.connection.receive()
        if message.type not in _CONTENT:
            return message
        client.handle_message(message)


def _tell_end(task: "asyncio.Task[None]", subscription: Subscription) -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, Exception):
        subscription.listener.failed(error)
