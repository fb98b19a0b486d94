"""Kraken: recorded asset pairs, candles and trades; the trades also over its websocket."""

from __future__ import annotations

from typing import Any

from sandbox.behaviour.clock import http_date
from sandbox.venues.kraken_socket import is_visible
from sandbox.venues.recordings import Recordings
from sandbox.venues.shape import Parameters, Reply, Scene, VenueShape

_DEPTH = 720
_PAIR = "XBTUSDT"
STREAM_PATH = "/v2"


def recorded_time(recordings: Recordings) -> int:
    """Half a minute (in ms) into the last recorded candle, which is unfinished."""
    rows = recordings.reply("kraken/xbtusdt_ohlc_1m_rest.json")["result"][_PAIR]
    return (int(rows[-1][0]) + 30) * 1000


def recorded_trades(recordings: Recordings) -> list[list[Any]]:
    rows: list[list[Any]] = recordings.reply("kraken/xbtusdt_trades_rest.json")["result"][_PAIR]
    return rows


def _time(scene: Scene, parameters: Parameters) -> Reply:
    return {"error": [], "result": {"unixtime": scene.now // 1000, "rfc1123": http_date(scene.now)}}


def _pairs(scene: Scene, parameters: Parameters) -> Reply:
    reply: Reply = scene.recordings.captured("kraken/assetpairs_capture_2021.txt", "/AssetPairs")
    return reply


def _assets(scene: Scene, parameters: Parameters) -> Reply:
    pairs = scene.recordings.captured("kraken/assetpairs_capture_2021.txt", "/AssetPairs")["result"].values()
    names = {pair["base"] for pair in pairs} | {pair["quote"] for pair in pairs}
    assets = {
        name: {
            "aclass": "currency",
            "altname": name[1:] if len(name) == 4 and name[0] in "XZ" else name,
            "decimals": 10,
            "display_decimals": 5,
            "status": "enabled",
        }
        for name in sorted(names)
    }
    return {"error": [], "result": assets}


def _candles(scene: Scene, parameters: Parameters) -> Reply:
    """As on the venue, at most the newest 720 candles, however old `since` is."""
    if parameters.get("pair") != _PAIR:
        return {"error": ["EQuery:Unknown asset pair"]}
    if parameters.get("interval", "1") != "1":
        return {"error": ["EGeneral:Invalid arguments"]}
    recorded = scene.recordings.reply("kraken/xbtusdt_ohlc_1m_rest.json")["result"]
    since = int(parameters.get("since", 0))
    kept = recorded[_PAIR][-_DEPTH - 1 :]
    rows = [row for row in kept if row[0] > since and row[0] * 1000 <= scene.now]
    return {"error": [], "result": {_PAIR: rows, "last": recorded["last"]}}


def _trades(scene: Scene, parameters: Parameters) -> Reply:
    if parameters.get("pair") != _PAIR:
        return {"error": ["EQuery:Unknown asset pair"]}
    text = parameters.get("since", "0")
    since = int(text) if len(text) > 12 else int(float(text) * 1_000_000_000)
    count = min(int(parameters.get("count", 1000)), 1000)
    now = scene.now
    after = (row for row in recorded_trades(scene.recordings) if round(row[2] * 1_000_000_000) > since)
    rows = [row for row in after if is_visible(row, now)][:count]
    last = round(rows[-1][2] * 1_000_000_000) if rows else since
    return {"error": [], "result": {_PAIR: rows, "last": str(last)}}


VENUE = VenueShape(
    name="KRAKEN",
    routes={
        "/0/public/Time": _time,
        "/0/public/Assets": _assets,
        "/0/public/AssetPairs": _pairs,
        "/0/public/OHLC": _candles,
        "/0/public/Trades": _trades,
    },
)
