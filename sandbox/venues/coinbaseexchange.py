"""Coinbase Exchange: recorded products; candles of generated markets as JSON numbers, without quiet ones."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sandbox.markets.intervals import INTERVALS
from sandbox.venues.recordings import Recordings
from sandbox.venues.shape import Parameters, Reply, Scene, VenueShape, newest

_GRANULARITIES = {"60": "1m", "300": "5m", "900": "15m", "3600": "1h", "21600": "6h", "86400": "1d"}
_PAGE = 300


def recorded_products(recordings: Recordings) -> list[dict[str, Any]]:
    products: list[dict[str, Any]] = recordings.captured("coinbase/products_capture_2021.txt", "/products")
    return products


def _time(scene: Scene, parameters: Parameters) -> Reply:
    return {"epoch": scene.now / 1000}


def _products(scene: Scene, parameters: Parameters) -> Reply:
    return list(recorded_products(scene.recordings))


def _currencies(scene: Scene, parameters: Parameters) -> Reply:
    products = recorded_products(scene.recordings)
    names = {product["base_currency"] for product in products} | {product["quote_currency"] for product in products}
    return [
        {"id": name, "name": name, "min_size": "0.00000001", "status": "online", "max_precision": "0.00000001"}
        for name in sorted(names)
    ]


def _candles(scene: Scene, parameters: Parameters) -> Reply | None:
    """The candles of the window; None if it spans more than 300."""
    market, now = scene.markets.get(parameters["product"]), scene.now
    interval = INTERVALS.get(_GRANULARITIES.get(parameters.get("granularity", "60"), ""))
    if market is None or interval is None:
        return None
    if "start" in parameters and "end" in parameters:
        start, end = (_iso_ms(parameters[name]) for name in ("start", "end"))
        if (end - start) // interval.step_ms > _PAGE:
            return None
        rows = newest(market, interval, start, last=end, limit=_PAGE + 1, now=now)
    else:
        rows = newest(market, interval, 0, last=now, limit=_PAGE, now=now)
    return [[row[0] // 1000, *(float(row[place]) for place in (3, 2, 1, 4, 5))] for row in reversed(rows) if row[8]]


def _iso_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


VENUE = VenueShape(
    name="COINBASEEXCHANGE",
    routes={
        "/time": _time,
        "/products": _products,
        "/currencies": _currencies,
        "/products/{product}/candles": _candles,
    },
)
