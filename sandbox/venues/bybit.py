"""Bybit: instruments (in the form of its documentation) and candles of generated markets."""

from __future__ import annotations

from typing import Any

from sandbox.markets.intervals import INTERVALS
from sandbox.markets.market import Market
from sandbox.markets.wire import amount
from sandbox.venues.shape import Parameters, Reply, Scene, VenueShape, limit_of, newest, rows_of, whole

_INTERVALS = {
    **{str(n): f"{n}m" for n in (1, 3, 5, 15, 30)},
    **{str(60 * n): f"{n}h" for n in (1, 2, 4, 6, 12)},
    "D": "1d",
    "W": "1w",
    "M": "1M",
}


def _envelope(now: int, result: dict[str, Any] | None, code: int = 0, message: str = "OK") -> Reply:
    return {"retCode": code, "retMsg": message, "result": result or {}, "retExtInfo": {}, "time": now}


def _time(scene: Scene, parameters: Parameters) -> Reply:
    now = scene.now
    return _envelope(now, {"timeSecond": str(now // 1000), "timeNano": str(now * 1_000_000)})


def _instruments(scene: Scene, parameters: Parameters) -> Reply:
    category = parameters.get("category", "")
    listed = [_instrument(market) for market in scene.markets.values()] if category == "spot" else []
    return _envelope(scene.now, {"category": category, "list": listed, "nextPageCursor": ""})


def _instrument(market: Market) -> dict[str, Any]:
    step = amount(1, market.lot_decimals)
    return {
        "symbol": market.symbol,
        "baseCoin": market.base,
        "quoteCoin": market.quote,
        "innovation": "0",
        "status": "Trading" if market.status == "TRADING" else "Closed",
        "marginTrading": "none",
        "lotSizeFilter": {
            "basePrecision": step,
            "quotePrecision": "0.00000001",
            "minOrderQty": step,
            "maxOrderQty": "100000000",
            "minOrderAmt": "1",
            "maxOrderAmt": "1000000",
        },
        "priceFilter": {"tickSize": amount(1, market.price_decimals)},
    }


def _candles(scene: Scene, parameters: Parameters) -> Reply:
    """Start and end are inclusive; without an end the page begins at the start."""
    now = scene.now
    market = {each.symbol: each for each in scene.markets.values()}.get(parameters.get("symbol", ""))
    interval = INTERVALS.get(_INTERVALS.get(parameters.get("interval", ""), ""))
    if market is None or interval is None:
        return _envelope(now, None, 10001, "Not supported symbols" if market is None else "Invalid period!")
    limit, start, end = limit_of(parameters, 200, 1000), whole(parameters, "start"), whole(parameters, "end")
    if start is not None and end is None:
        rows = rows_of(market.kline_page(interval, start, None, limit=limit, now=now))
    else:
        rows = newest(market, interval, start or 0, last=end, limit=limit, now=now)
    listed = [[str(row[0]), *row[1:6], row[7]] for row in reversed(rows)]
    return _envelope(now, {"category": "spot", "symbol": market.symbol, "list": listed})


VENUE = VenueShape(
    name="BYBIT",
    routes={
        "/v5/market/time": _time,
        "/v5/market/instruments-info": _instruments,
        "/v5/market/kline": _candles,
    },
)
