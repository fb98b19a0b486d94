"""Candle replies in the forms of OKX, Bybit and the two Coinbase APIs, from any market. Text in, objects out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from sandbox.intervals import INTERVALS, Interval
from sandbox.market import Market

Reply = dict[str, Any] | list[Any]

OKX_BARS = {
    "1s": "1s",
    **{f"{n}m": f"{n}m" for n in (1, 3, 5, 15, 30)},
    **{f"{n}H": f"{n}h" for n in (1, 2, 4)},
    "6Hutc": "6h",
    "12Hutc": "12h",
    "1Dutc": "1d",
    "1Wutc": "1w",
    "1Mutc": "1M",
}
BYBIT_INTERVALS = {
    **{str(n): f"{n}m" for n in (1, 3, 5, 15, 30)},
    **{str(60 * n): f"{n}h" for n in (1, 2, 4, 6, 12)},
    "D": "1d",
    "W": "1w",
    "M": "1M",
}
COINBASE_GRANULARITIES = {
    "ONE_MINUTE": "1m",
    "FIVE_MINUTE": "5m",
    "FIFTEEN_MINUTE": "15m",
    "THIRTY_MINUTE": "30m",
    "ONE_HOUR": "1h",
    "TWO_HOUR": "2h",
    "SIX_HOUR": "6h",
    "ONE_DAY": "1d",
}
COINBASE_EXCHANGE_GRANULARITIES = {"60": "1m", "300": "5m", "900": "15m", "3600": "1h", "21600": "6h", "86400": "1d"}
_OKX_RECENT_BARS = 1440
_FAR = 1 << 53


def okx_candles(market: Market | None, parameters: Mapping[str, str], now: int, *, history: bool) -> Reply:
    """market/candles (the newest 1,440 bars) or market/history-candles; `before` and `after` are exclusive bounds."""
    if market is None:
        return {"code": "51001", "msg": "Instrument ID doesn't exist", "data": []}
    interval = INTERVALS.get(OKX_BARS.get(parameters.get("bar", "1m"), ""))
    if interval is None:
        return {"code": "51000", "msg": "Parameter bar error", "data": []}
    first = int(parameters.get("before", -1)) + 1
    if not history:
        first = max(first, interval.shift(interval.floor(now), 1 - _OKX_RECENT_BARS))
    rows = _newest(market, interval, first, int(parameters.get("after", _FAR)) - 1, _limit(parameters, 100, 300), now)
    return {
        "code": "0",
        "msg": "",
        "data": [[str(row[0]), *row[1:6], row[7], row[7], "1" if row[6] < now else "0"] for row in reversed(rows)],
    }


def bybit_candles(market: Market | None, parameters: Mapping[str, str], now: int) -> Reply:
    """v5/market/kline; start and end are inclusive, and without an end the page begins at the start."""
    interval = INTERVALS.get(BYBIT_INTERVALS.get(parameters.get("interval", ""), ""))
    if market is None or interval is None:
        return bybit(now, None, 10001, "Not supported symbols" if market is None else "Invalid period!")
    limit = _limit(parameters, 200, 1000)
    start = int(parameters["start"]) if "start" in parameters else None
    if start is not None and "end" not in parameters:
        rows = _rows(market.kline_page(interval, start, None, limit, now))
    else:
        rows = _newest(market, interval, start or 0, int(parameters.get("end", _FAR)), limit, now)
    listed = [[str(row[0]), *row[1:6], row[7]] for row in reversed(rows)]
    return bybit(now, {"category": "spot", "symbol": market.symbol, "list": listed})


def bybit(now: int, result: dict[str, Any] | None, code: int = 0, message: str = "OK") -> Reply:
    """The envelope of a v5 reply."""
    return {"retCode": code, "retMsg": message, "result": result or {}, "retExtInfo": {}, "time": now}


def coinbase_candles(market: Market, parameters: Mapping[str, str], now: int) -> Reply | None:
    """Advanced Trade candles: inclusive bounds in seconds, at most 350, quiet ones absent; None for bad parameters."""
    interval = INTERVALS.get(COINBASE_GRANULARITIES.get(parameters.get("granularity", ""), ""))
    start, end = parameters.get("start", ""), parameters.get("end", "")
    if interval is None or not start.isdecimal() or not end.isdecimal():
        return None
    if (int(end) - int(start)) * 1000 // interval.step_ms > 350:
        return None
    rows = _newest(market, interval, int(start) * 1000, int(end) * 1000, 350, now)
    names = ("open", "high", "low", "close", "volume")
    candles = [
        {"start": str(row[0] // 1000)} | dict(zip(names, row[1:6], strict=True)) for row in reversed(rows) if row[8]
    ]
    return {"candles": candles}


def coinbase_exchange_candles(market: Market, parameters: Mapping[str, str], now: int) -> Reply | None:
    """Exchange candles: bare arrays of JSON numbers, at most 300 in the window; None for a window that is wider."""
    interval = INTERVALS.get(COINBASE_EXCHANGE_GRANULARITIES.get(parameters.get("granularity", "60"), ""))
    if interval is None:
        return None
    if "start" in parameters and "end" in parameters:
        start, end = (_iso_ms(parameters[name]) for name in ("start", "end"))
        if (end - start) // interval.step_ms > 300:
            return None
        rows = _newest(market, interval, start, end, 301, now)
    else:
        rows = _newest(market, interval, 0, now, 300, now)
    return [[row[0] // 1000, *(float(row[place]) for place in (3, 2, 1, 4, 5))] for row in reversed(rows) if row[8]]


def _newest(market: Market, interval: Interval, first: int, last: int, limit: int, now: int) -> list[list[Any]]:
    """The newest rows that open in [first, last], ascending."""
    if last < first:
        return []
    return [row for row in _rows(market.kline_page(interval, None, last, limit, now)) if row[0] >= first]


def _rows(page: bytes) -> list[list[Any]]:
    rows: list[list[Any]] = orjson.loads(page)
    return rows


def _limit(parameters: Mapping[str, str], default: int, largest: int) -> int:
    text = parameters.get("limit", "")
    return min(int(text), largest) if text.isdecimal() and int(text) else default


def _iso_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
