"""Coinbase Advanced: recorded products of Coinbase Exchange, converted to its form; candles of generated markets."""

from __future__ import annotations

from typing import Any

from sandbox.markets.intervals import INTERVALS
from sandbox.venues.coinbaseexchange import recorded_products
from sandbox.venues.shape import Parameters, Reply, Scene, VenueShape, newest

_GRANULARITIES = {
    "ONE_MINUTE": "1m",
    "FIVE_MINUTE": "5m",
    "FIFTEEN_MINUTE": "15m",
    "THIRTY_MINUTE": "30m",
    "ONE_HOUR": "1h",
    "TWO_HOUR": "2h",
    "SIX_HOUR": "6h",
    "ONE_DAY": "1d",
}
_PAGE = 350
_ROOT = "/api/v3/brokerage/market/products"


def _time(scene: Scene, parameters: Parameters) -> Reply:
    return {"data": {"epoch": scene.now // 1000}}


def _currencies(scene: Scene, parameters: Parameters) -> Reply:
    return {"data": [{"id": "USD", "name": "US Dollar", "min_size": "0.01"}]}


def _coins(scene: Scene, parameters: Parameters) -> Reply:
    names = sorted({product["base_currency"] for product in recorded_products(scene.recordings)})
    return {"data": [{"asset_id": f"asset-{name}", "code": name, "name": name, "type": "crypto"} for name in names]}


def _rates(scene: Scene, parameters: Parameters) -> Reply:
    return {"data": {"currency": "USD", "rates": {"USD": "1.0"}}}


def _products(scene: Scene, parameters: Parameters) -> Reply:
    if parameters.get("product_type", "SPOT") != "SPOT":
        return {"products": [], "num_products": 0}
    products = [_product(product) for product in recorded_products(scene.recordings)]
    return {"products": products, "num_products": len(products)}


def _product(product: dict[str, Any]) -> dict[str, Any]:
    """A recorded product of the Exchange API, converted to the form of this API."""
    return {
        "product_id": product["id"],
        "price": "",
        "base_increment": product["base_increment"],
        "quote_increment": product["quote_increment"],
        "price_increment": product["quote_increment"],
        "base_min_size": product["base_min_size"],
        "base_max_size": product["base_max_size"],
        "quote_min_size": product["min_market_funds"],
        "quote_max_size": product["max_market_funds"],
        "base_name": product["base_currency"],
        "quote_name": product["quote_currency"],
        "status": product["status"],
        "is_disabled": False,
        "trading_disabled": product["trading_disabled"],
        "product_type": "SPOT",
        "base_currency_id": product["base_currency"],
        "quote_currency_id": product["quote_currency"],
    }


def _candles(scene: Scene, parameters: Parameters) -> Reply | None:
    """Up to 350 candles between inclusive bounds in seconds, without quiet ones; None for bad parameters."""
    market = scene.markets.get(parameters["product"])
    interval = INTERVALS.get(_GRANULARITIES.get(parameters.get("granularity", ""), ""))
    start, end = parameters.get("start", ""), parameters.get("end", "")
    if market is None or interval is None or not start.isdecimal() or not end.isdecimal():
        return None
    if (int(end) - int(start)) * 1000 // interval.step_ms > _PAGE:
        return None
    rows = newest(market, interval, int(start) * 1000, last=int(end) * 1000, limit=_PAGE, now=scene.now)
    names = ("open", "high", "low", "close", "volume")
    candles = [
        {"start": str(row[0] // 1000)} | dict(zip(names, row[1:6], strict=True)) for row in reversed(rows) if row[8]
    ]
    return {"candles": candles}


VENUE = VenueShape(
    name="COINBASE",
    routes={
        "/v2/time": _time,
        "/v2/currencies": _currencies,
        "/v2/currencies/crypto": _coins,
        "/v2/exchange-rates": _rates,
        _ROOT: _products,
        f"{_ROOT}/{{product}}/candles": _candles,
    },
)
