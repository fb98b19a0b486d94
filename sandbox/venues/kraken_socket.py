"""The trade channel of Kraken's websocket v2, fed with recorded trades."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
from aiohttp import WSMsgType, web

from core.background import start_task
from sandbox.behaviour.clock import ExchangeClock
from sandbox.behaviour.faults import FaultRules
from sandbox.behaviour.misbehaviour import cut

_SNAPSHOT = 50
_HEARTBEAT_SECONDS = 1.0
_NANOSECOND = 1_000_000_000
Row = Sequence[Any]


def is_visible(row: Row, now_ms: int) -> bool:
    """Whether a recorded trade (price, size, seconds, side, type, misc, id) has happened."""
    return bool(row[2] * 1000 <= now_ms)


class KrakenSocket:
    """One client's websocket: on subscribe the newest 50 trades, then each as the clock reaches it.

    `trades`: rows of the REST reply, ascending. Faults `close`, `abort`, `duplicate` and `drop` apply.
    """

    def __init__(self, symbol: str, trades: Sequence[Row], clock: ExchangeClock, *, faults: FaultRules) -> None:
        self._symbol = symbol
        self._trades = trades
        self._clock = clock
        self._faults = faults
        self._next: int | None = None
        self._wake = asyncio.Event()
        self._socket = web.WebSocketResponse(compress=False, max_msg_size=1 << 16)
        self._request: web.BaseRequest | None = None

    @property
    def is_subscribed(self) -> bool:
        return self._next is not None

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """Handle the connection until it ends."""
        await self._socket.prepare(request)
        self._request = request
        off = self._clock.on_change(self._wake.set)
        tasks = [start_task(work, "sandbox socket") for work in (self._pump, self._beat)]
        try:
            await self._send({"channel": "status", "type": "update", "data": [{"system": "online"}]})
            async for message in self._socket:
                if message.type == WSMsgType.TEXT:
                    await self._obey(orjson.loads(message.data))
        except ConnectionError:
            # The client left before it was answered.
            return self._socket
        finally:
            off()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._socket

    async def close(self) -> None:
        """End the connection as a server that shuts down does."""
        with suppress(ConnectionError, TimeoutError):
            await asyncio.wait_for(self._socket.close(code=1001), 1)

    async def _obey(self, order: dict[str, Any]) -> None:
        method, number = order.get("method"), order.get("req_id")
        answer = {"method": "pong" if method == "ping" else method, "req_id": number}
        parameters = order.get("params", {})
        if method == "ping":
            await self._send(answer)
        elif method in ("subscribe", "unsubscribe") and parameters.get("symbol") == [self._symbol]:
            told = {"channel": "trade", "symbol": self._symbol}
            await self._send({**answer, "result": told, "success": True})
            self._next = None
            if method == "subscribe":
                seen = sum(is_visible(row, self._clock.now()) for row in self._trades)
                await self._send_trades(self._trades[max(0, seen - _SNAPSHOT) : seen], "snapshot")
                self._next = seen
                self._wake.set()
        else:
            await self._send({**answer, "error": "Currency pair not supported", "success": False})

    async def _pump(self) -> None:
        with suppress(ConnectionError):
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._next is not None and self._next < len(self._trades):
                    row = self._trades[self._next]
                    if not is_visible(row, self._clock.now()):
                        break
                    self._next += 1
                    await self._deliver(row)

    async def _deliver(self, row: Row) -> None:
        fault = self._faults.for_trade("/v2", self._symbol.replace("/", ""))
        if fault is not None and fault.kind in ("close", "abort"):
            await cut(self._socket, self._request, fault)
        if fault is not None and fault.kind == "drop":
            return
        for _ in range(2 if fault is not None and fault.kind == "duplicate" else 1):
            await self._send_trades([row], "update")

    async def _beat(self) -> None:
        with suppress(ConnectionError):
            while True:
                await asyncio.sleep(_HEARTBEAT_SECONDS)
                await self._send({"channel": "heartbeat"})

    async def _send_trades(self, rows: Sequence[Row], kind: str) -> None:
        if rows:
            await self._send({"channel": "trade", "type": kind, "data": [self._wire(row) for row in rows]})

    def _wire(self, row: Row) -> dict[str, Any]:
        return {
            "symbol": self._symbol,
            "side": "buy" if row[3] == "b" else "sell",
            "price": float(row[0]),
            "qty": float(row[1]),
            "ord_type": "market" if row[4] == "m" else "limit",
            "trade_id": row[6],
            "timestamp": _iso(int(Decimal(str(row[2])).scaleb(9))),
        }

    async def _send(self, message: dict[str, Any]) -> None:
        await self._socket.send_str(orjson.dumps(message).decode())


def _iso(time_ns: int) -> str:
    seconds, nanoseconds = divmod(time_ns, _NANOSECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"
