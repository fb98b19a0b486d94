"""OKX: recorded instruments; candles of generated markets, from its two endpoints."""

from __future__ import annotations

from sandbox.markets.intervals import INTERVALS
from sandbox.venues.shape import Parameters, Reply, Scene, VenueShape, limit_of, newest, whole

_BARS = {
    "1s": "1s",
    **{f"{n}m": f"{n}m" for n in (1, 3, 5, 15, 30)},
    **{f"{n}H": f"{n}h" for n in (1, 2, 4)},
    "6Hutc": "6h",
    "12Hutc": "12h",
    "1Dutc": "1d",
    "1Wutc": "1w",
    "1Mutc": "1M",
}
_RECENT_BARS = 1440


def _time(scene: Scene, parameters: Parameters) -> Reply:
    return {"code": "0", "msg": "", "data": [{"ts": str(scene.now)}]}


def _instruments(scene: Scene, parameters: Parameters) -> Reply:
    family = f"&uly={parameters['uly']}" if "uly" in parameters else ""
    wanted = f"instType={parameters.get('instType', '')}{family}"
    try:
        reply: Reply = scene.recordings.captured("okx/instruments_capture_2022.txt", wanted)
    except KeyError:
        return {"code": "0", "msg": "", "data": []}
    return reply


def _recent_candles(scene: Scene, parameters: Parameters) -> Reply:
    return _candles(scene, parameters, history=False)


def _history_candles(scene: Scene, parameters: Parameters) -> Reply:
    return _candles(scene, parameters, history=True)


def _candles(scene: Scene, parameters: Parameters, *, history: bool) -> Reply:
    """`before` and `after` are exclusive bounds. Without `history`, only the newest 1,440 bars are available."""
    market, now = scene.markets.get(parameters.get("instId", "")), scene.now
    if market is None:
        return {"code": "51001", "msg": "Instrument ID doesn't exist", "data": []}
    interval = INTERVALS.get(_BARS.get(parameters.get("bar", "1m"), ""))
    if interval is None:
        return {"code": "51000", "msg": "Parameter bar error", "data": []}
    first = int(parameters.get("before", -1)) + 1
    if not history:
        first = max(first, interval.shift(interval.floor(now), 1 - _RECENT_BARS))
    after = whole(parameters, "after")
    rows = newest(
        market,
        interval,
        first,
        last=None if after is None else after - 1,
        limit=limit_of(parameters, 100, 300),
        now=now,
    )
    return {
        "code": "0",
        "msg": "",
        "data": [[str(row[0]), *row[1:6], row[7], row[7], "1" if row[6] < now else "0"] for row in reversed(rows)],
    }


VENUE = VenueShape(
    name="OKX",
    routes={
        "/api/v5/public/time": _time,
        "/api/v5/public/instruments": _instruments,
        "/api/v5/market/candles": _recent_candles,
        "/api/v5/market/history-candles": _history_candles,
    },
)
