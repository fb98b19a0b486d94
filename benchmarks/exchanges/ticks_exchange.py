"""A loopback exchange for `benchmarks.exchanges.ticks` that only sends trades, each stamped with its send time.

The stamp (ns since the epoch) is in the size, as decimal text that a double holds to some hundred nanoseconds.
"""

import argparse
import asyncio
import json
import time
from typing import Any

from aiohttp import WSMsgType, web

FIRST_ID = 1_000
_SYMBOL = {
    "symbol": "BTCUSDT",
    "status": "TRADING",
    "baseAsset": "BTC",
    "quoteAsset": "USDT",
    "baseAssetPrecision": 8,
    "quotePrecision": 8,
    "quoteAssetPrecision": 8,
    "orderTypes": ["LIMIT"],
    "isSpotTradingAllowed": True,
    "isMarginTradingAllowed": False,
    "permissions": ["SPOT"],
    "permissionSets": [["SPOT"]],
    "filters": [
        {"filterType": "PRICE_FILTER", "minPrice": "0.01", "maxPrice": "1000000", "tickSize": "0.01"},
        {"filterType": "LOT_SIZE", "minQty": "0.00001", "maxQty": "9000", "stepSize": "0.00001"},
    ],
}


class Exchange:
    """Sends `rows` trades to its only subscriber, `pace` per second, or without a pause if 0. `settle_seconds`: from
    the subscription to the first trade. Both sides read history first; everything after that is the same for both.
    """

    def __init__(self, rows: int, pace: float, settle_seconds: float) -> None:
        self._rows = rows
        self._pace = pace
        self._settle_seconds = settle_seconds

    async def rest(self, request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        answers: dict[str, Any] = {
            "exchangeInfo": {"timezone": "UTC", "serverTime": _now(), "rateLimits": [], "symbols": [_SYMBOL]},
            "time": {"serverTime": _now()},
            # One earlier trade, so that the sides need not query how the market began.
            "trades": [
                {"id": FIRST_ID - 1, "price": "61837.63", "qty": "1", "time": _now() - 600_000, "isBuyerMaker": True}
            ],
        }
        return web.json_response(answers.get(name, []))

    async def stream(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        sending: asyncio.Task[None] | None = None
        async for message in socket:
            order = json.loads(message.data) if message.type == WSMsgType.TEXT else {}
            if order.get("method"):
                await socket.send_str(json.dumps({"result": None, "id": order["id"]}))
            if order.get("method") == "SUBSCRIBE" and sending is None:
                sending = asyncio.create_task(self._send(socket))
        if sending is not None:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return socket

    async def _send(self, socket: web.WebSocketResponse) -> None:
        await asyncio.sleep(self._settle_seconds)
        started = time.perf_counter()
        for number in range(self._rows):
            if self._pace:
                await asyncio.sleep(max(0.0, started + number / self._pace - time.perf_counter()))
            at = _now()
            await socket.send_str(
                f'{{"e":"trade","E":{at},"s":"BTCUSDT","t":{FIRST_ID + number},"p":"61837.63000000",'
                f'"q":"{time.time_ns()}","T":{at},"m":true,"M":true}}'
            )
            if number % 64 == 0:
                await asyncio.sleep(0)


def _now() -> int:
    return time.time_ns() // 1_000_000


async def serve(rows: int, pace: float, settle_seconds: float) -> None:
    exchange = Exchange(rows, pace, settle_seconds)
    app = web.Application()
    app.router.add_get("/ws/{stream}", exchange.stream)
    app.router.add_get("/{path:.*}", exchange.rest)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--pace", type=float, required=True)
    parser.add_argument("--settle", type=float, required=True)
    asked = parser.parse_args()
    asyncio.run(serve(asked.rows, asked.pace, asked.settle))


if __name__ == "__main__":
    main()
