"""The websocket side: reads a client's requests, sends the events that are due, and misbehaves if a fault says so."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

import orjson
from aiohttp import ClientConnectionResetError, WSMsgType, web

from core.background import start_task
from sandbox.behaviour.clock import ExchangeClock
from sandbox.behaviour.faults import Fault, FaultRules
from sandbox.behaviour.misbehaviour import cut
from sandbox.markets.market import Market
from sandbox.serving.streams import Outgoing, StreamSession

_PING_SECONDS = 20.0
_PONG_SECONDS = 60.0
_LIFETIME_SECONDS = 24 * 3600.0
_SHORTEST_WAIT = 0.002
_LONGEST_WAIT = 5.0
#: asyncio's timers fire up to a millisecond late.
_TIMER_SECONDS = 0.001
_MAX_STREAMS = 1024


class StreamConnection:
    """One client's websocket. `combined` wraps each event with its stream's name."""

    def __init__(
        self,
        markets: Mapping[str, Market],
        clock: ExchangeClock,
        faults: FaultRules,
        *,
        counters: Counter[str],
        combined: bool,
    ) -> None:
        self.session = StreamSession(markets)
        self._markets = markets
        self._clock = clock
        self._faults = faults
        self._counters = counters
        self._combined = combined
        self._wake = asyncio.Event()
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._held: dict[str, Outgoing] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._socket = web.WebSocketResponse(autoping=False, compress=False, max_msg_size=1 << 16)
        self._request: web.BaseRequest | None = None
        self._last_pong = time.monotonic()

    async def serve(self, request: web.Request, streams: list[str]) -> web.WebSocketResponse:
        """Handle the connection until it ends."""
        await self._socket.prepare(request)
        self._request = request
        self.session.subscribe(streams, self._clock.now())
        off = self._clock.on_change(self._wake.set)
        tasks = [start_task(work, "sandbox socket") for work in (self._pump, self._ping, self._expire)]
        try:
            await self._read()
        finally:
            off()
            tasks += self._late
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._socket

    async def close(self) -> None:
        """End the connection as a server that shuts down does."""
        self._thawed.set()
        with suppress(ConnectionError):
            await asyncio.wait_for(self._socket.close(code=1001), 1)

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            await self._thawed.wait()
            if message.type == WSMsgType.PING:
                await self._socket.pong(message.data)
            elif message.type == WSMsgType.PONG:
                self._last_pong = time.monotonic()
            elif message.type == WSMsgType.TEXT:
                with suppress(ClientConnectionResetError):
                    await self._obey(message.data)
            else:
                return

    async def _obey(self, text: str) -> None:
        """Carry out one request; its answer precedes the first event of a new stream."""
        try:
            order = orjson.loads(text)
            number, method, names = order.get("id"), order["method"], order.get("params", [])
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
            await self._answer({"error": {"code": 3, "msg": "Invalid JSON: a request has a method, params and an id"}})
            return
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            await self._answer({"error": {"code": 2, "msg": "Invalid request: params are names of streams"}}, number)
        elif method == "SUBSCRIBE":
            if len(self.session.names) + len(names) > _MAX_STREAMS:
                await self._answer({"error": {"code": 2, "msg": "Invalid request: too many streams"}}, number)
                return
            await self._answer({"result": None}, number)
            self.session.subscribe(names, self._clock.now())
            self._wake.set()
        elif method == "UNSUBSCRIBE":
            self.session.unsubscribe(names)
            await self._answer({"result": None}, number)
        elif method == "LIST_SUBSCRIPTIONS":
            await self._answer({"result": self.session.names}, number)
        else:
            await self._answer({"error": {"code": 2, "msg": "Invalid request: unknown method"}}, number)

    async def _answer(self, answer: dict[str, object], number: object = None) -> None:
        await self._socket.send_str(orjson.dumps(answer | {"id": number}).decode())

    async def _pump(self) -> None:
        jumps = self._clock.jumps
        with suppress(ConnectionError):
            while not self._socket.closed:
                self._wake.clear()
                now = self._clock.now()
                if self._clock.jumps != jumps:
                    jumps = self._clock.jumps
                    self.session.restart(now)
                events = self.session.due(now)
                for event in events:
                    await self._deliver(event)
                if events or self._drive(now):
                    await asyncio.sleep(0)
                    continue
                await self._sleep(now)

    def _drive(self, now: int) -> bool:
        """Advance a driven clock to the next trades; after the recording it runs in real time."""
        if not self._clock.driven:
            return False
        target = self.session.drive_to(now)
        if target is not None:
            self._clock.advance(max(0, target - now))
        elif all(market.drive_to(now) is None for market in self._markets.values()):
            self._clock.driven = False
            self._clock.set(speed=1.0)
        return target is not None

    async def _sleep(self, now: int) -> None:
        """Until the next event is due, to a fraction of a millisecond."""
        due = self.session.next_due(now)
        wait = _LONGEST_WAIT
        if due is not None and self._clock.speed:
            wait = min(_LONGEST_WAIT, max(_SHORTEST_WAIT, self._clock.seconds_until(due) - _TIMER_SECONDS))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), wait)
            return
        if due is not None and self._clock.speed:
            rest = self._clock.seconds_until(due)
            if 0 < rest <= _TIMER_SECONDS:
                time.sleep(rest)

    async def _deliver(self, event: Outgoing) -> None:
        fault = None
        if event.is_trade and self._request is not None and self._faults.any_for_streams():
            fault = self._faults.for_trade(self._request.path, event.symbol)
        if fault is not None:
            self._counters[fault.kind] += 1
            if fault.kind in ("close", "abort"):
                await cut(self._socket, self._request, fault)
            if fault.kind == "freeze":
                await self._freeze(fault)
            elif fault.kind == "drop":
                return
            elif fault.kind == "duplicate":
                await self._send(event)
            elif fault.kind == "late":
                task = start_task(lambda: self._send_later(event, fault.seconds), "late event")
                self._late.add(task)
                task.add_done_callback(self._late.discard)
                return
            elif fault.kind == "swap" and event.stream not in self._held:
                self._held[event.stream] = event
                return
        await self._send(event)
        held = self._held.pop(event.stream, None)
        if held is not None:
            await self._send(held)

    async def _send(self, event: Outgoing) -> None:
        self._counters["sent"] += 1
        text = f'{{"stream":"{event.stream}","data":{event.text}}}' if self._combined else event.text
        await self._socket.send_str(text)

    async def _send_later(self, event: Outgoing, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with suppress(ConnectionError):
            await self._send(event)

    async def _freeze(self, fault: Fault) -> None:
        """Neither send, read nor answer pings, but keep the connection open."""
        self._thawed.clear()
        if fault.seconds:
            await asyncio.sleep(fault.seconds)
            self._thawed.set()
        await self._thawed.wait()

    async def _ping(self) -> None:
        with suppress(ConnectionError):
            while True:
                await asyncio.sleep(_PING_SECONDS)
                await self._thawed.wait()
                if time.monotonic() - self._last_pong > _PONG_SECONDS:
                    await self._socket.close(code=1008, message=b"Pong timeout")
                    return
                await self._socket.ping(str(self._clock.now()).encode())

    async def _expire(self) -> None:
        await asyncio.sleep(_LIFETIME_SECONDS)
        await self._socket.close(code=1001)
