"""Recorded market data beside the checkout, as the tables `ohlc` and `ticks`. None of it is in the repository."""

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sandbox.recorded.files import read_candles, read_trades
from triggers.texts.check import INPUTS

_TIME = pa.timestamp("ns", "UTC")
_PRICES = ("open", "high", "low", "close", "volume")


@dataclass(frozen=True, slots=True)
class Recording:
    """`what`: venue and instrument as a reader knows them; `file`: below the data directory."""

    what: str
    file: str
    read: Callable[[Path], pa.Table]
    period_seconds: int = 0

    @property
    def input(self) -> str:
        return "ohlc" if self.period_seconds else "ticks"

    def table(self, directory: Path) -> pa.Table:
        """Its rows in time order, with the columns of the input. Raises OSError where the file is absent."""
        return self.read(directory / self.file)


def _bars(ticker: str, period_seconds: int, columns: dict[str, Any]) -> pa.Table:
    rows = len(columns["open_time"])
    given = columns | {"ticker": [ticker] * rows, "period_seconds": [period_seconds] * rows}
    given |= {"source": ["exchange"] * rows, "complete": [True] * rows}
    return _table("ohlc", given, rows)


def _trades(rows: Iterable[tuple[str, str, int, float, float, str]]) -> pa.Table:
    """(ticker, id, ns, price, size, side), in time order and then of the recording."""
    names = ("ticker", "trade_id", "ts_ns", "price", "size", "side")
    columns: dict[str, Any] = dict(zip(names, zip(*sorted(rows, key=lambda row: row[2]), strict=True), strict=True))
    columns["ts"] = columns["ts_ns"]
    return _table("ticks", columns, len(columns["ts"]))


def _table(name: str, columns: dict[str, Any], rows: int) -> pa.Table:
    """Columns that the recording does not have are NULL."""
    schema = INPUTS[name].schema
    arrays = [pa.array(columns.get(part.name, [None] * rows)).cast(part.type) for part in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _klines(rows: Sequence[Sequence[Any]], ticker: str, period_seconds: int) -> pa.Table:
    """Rows of an exchange's reply: open time in ms, then prices and volume as texts or numbers."""
    columns: dict[str, Any] = {"open_time": pa.array([int(row[0]) * 10**6 for row in rows])}
    columns |= {name: np.array([row[place] for row in rows], float) for place, name in enumerate(_PRICES, 1)}
    return _bars(ticker, period_seconds, columns)


def _ftx(file: Path) -> pa.Table:
    return _klines(read_candles(file), "BTC/USD.FTX", 60)


def _lean(ticker: str, period_seconds: int) -> Callable[[Path], pa.Table]:
    """One day: ms since midnight, prices, volume. The day is in the name of the file."""

    def read(file: Path) -> pa.Table:
        digits = next(part for part in file.stem.split("_") if part.isdigit())
        midnight = datetime.strptime(digits, "%Y%m%d").replace(tzinfo=UTC).timestamp()
        with zipfile.ZipFile(file) as archive, archive.open(archive.namelist()[0]) as body:
            rows = [line.decode().strip().split(",") for line in body]
        return _klines([[int(row[0]) + round(midnight * 1000), *row[1:]] for row in rows], ticker, period_seconds)

    return read


def _kraken_bars(file: Path) -> pa.Table:
    """The last row is the minute that had not closed."""
    (rows,) = (value for name, value in json.loads(file.read_bytes())["result"].items() if name != "last")
    return _klines([[int(row[0]) * 1000, *row[1:5], row[6]] for row in rows[:-1]], "BTC/USDT.KRAKEN", 60)


def _kraken_trades(file: Path) -> pa.Table:
    (rows,) = (value for name, value in json.loads(file.read_bytes())["result"].items() if name != "last")
    sides = {"b": "buy", "s": "sell"}
    return _trades(
        ("BTC/USDT.KRAKEN", str(row[6]), round(row[2] * 10**6) * 1000, float(row[0]), float(row[1]), sides[row[3]])
        for row in rows
    )


def _binance_replies(
    interval: str, symbols: Sequence[str], since: int, period_seconds: int
) -> Callable[[Path], pa.Table]:
    """Candles of several symbols from recorded replies, those from `since` (ms) on; pages overlap nowhere."""

    def read(file: Path) -> pa.Table:
        parts = []
        for symbol in symbols:
            found: dict[int, list[Any]] = {}
            for reply in json.loads(file.read_bytes())["routes"]["/api/v3/klines"]["GET"]:
                asked = reply["queryString"]
                if f"interval={interval}&" in asked and f"symbol={symbol}" in asked:
                    found |= {row[0]: row for row in reply["data"] if since <= row[0] < since + _YEAR}
            ticker = {"BTCUSDT": "BTC/USDT.BINANCE", "ETHBTC": "ETH/BTC.BINANCE"}[symbol]
            parts.append(_klines([found[at] for at in sorted(found)], ticker, period_seconds))
        return pa.concat_tables(parts).sort_by([("open_time", "ascending"), ("ticker", "ascending")])

    return read


def _binance_frames(file: Path) -> pa.Table:
    """Two files of raw websocket frames, the second one named after the day that follows."""
    files = [file, file.with_name(file.name.replace("0808", "0809"))]
    return _trades(
        ("BTC/USDT.BINANCE", str(number), at * 10**6, float(price), float(size), "buy" if is_buy else "sell")
        for number, price, size, at, is_buy in read_trades(files)["BTCUSDT"]
    )


def _binance_parquet(file: Path) -> pa.Table:
    return _trades(
        (
            "BTC/USDT.BINANCE", str(row["trade_id"]), round(row["timestamp"].timestamp() * 1000) * 10**6,
            row["price"], row["quantity"], "sell" if row["buyer_maker"] == "True" else "buy",
        )
        for row in pq.read_table(file).to_pylist()
    )  # fmt: skip


def _captured(file: Path) -> Iterator[dict[str, Any]]:
    """Messages of a capture: lines `time: JSON`, among lines of what was sent."""
    for line in file.read_text().splitlines():
        head, _, body = line.partition(": ")
        if head.replace(".", "").isdigit() and body.startswith("{"):
            yield json.loads(body)


def _okx_trades(file: Path) -> pa.Table:
    return _trades(
        (
            trade["instId"].replace("-", "/", 1) + ".OKX", trade["tradeId"], int(trade["ts"]) * 10**6,
            float(trade["px"]), float(trade["sz"]), trade["side"],
        )
        for message in _captured(file)
        if message.get("arg", {}).get("channel") == "trades"
        for trade in message.get("data", ())
    )  # fmt: skip


def _coinbase_trades(file: Path) -> pa.Table:
    """`side` of a match is the maker's."""
    taker = {"buy": "sell", "sell": "buy"}
    return _trades(
        (
            trade["product_id"].replace("-", "/") + ".COINBASE", str(trade["trade_id"]),
            int(np.datetime64(trade["time"].rstrip("Z"), "ns").astype(int)),
            float(trade["price"]), float(trade["size"]), taker[trade["side"]],
        )
        for trade in _captured(file)
        if trade.get("type") == "match"
    )  # fmt: skip


_YEAR = 366 * 86_400_000
_REPLIES = "binance/http_mock_routes.json"
RECORDINGS = {
    "ftx-1m": Recording("FTX BTC-PERP, one-minute bars", "ftx/btc_perp_1m_20211231_20220201.csv", _ftx, 60),
    "binance-1h": Recording(
        "Binance BTC/USDT, one-hour bars", _REPLIES, _binance_replies("1h", ["BTCUSDT"], 1588280400000, 3600), 3600
    ),
    "binance-1d": Recording(
        "Binance BTC/USDT and ETH/BTC, one-day bars",
        _REPLIES,
        _binance_replies("1d", ["BTCUSDT", "ETHBTC"], 1546300800000, 86400),
        86400,
    ),
    "binance-1m": Recording(
        "Binance BTC/BUSD, one-minute bars",
        "binance/lean_btcbusd_minute_20221213_trade.zip",
        _lean("BTC/BUSD.BINANCE", 60),
        60,
    ),
    "coinbase-1m": Recording(
        "Coinbase BTC/USD, one-minute bars",
        "coinbase/lean_btcusd_minute_20161007_trade.zip",
        _lean("BTC/USD.COINBASE", 60),
        60,
    ),
    "kraken-1m": Recording(
        "Kraken BTC/USDT, one-minute bars", "kraken/xbtusdt_ohlc_1m_rest.json", _kraken_bars, 60
    ),
    "kraken-trades": Recording("Kraken BTC/USDT, trades", "kraken/xbtusdt_trades_rest.json", _kraken_trades),
    "binance-trades": Recording(
        "Binance BTC/USDT, trades", "binance/btcusdt_spot_ws_20240808.gz", _binance_frames
    ),
    "binance-46s": Recording("Binance BTC/USDT, trades", "binance/btcusdt_trades_20210108.parquet", _binance_parquet),
    "okx-trades": Recording(
        "OKX BTC/USDT and the BTC/USD future of May 2022, trades",
        "okx/ws_v5_public_capture_2022.txt",
        _okx_trades,
    ),
    "coinbase-trades": Recording(
        "Coinbase, trades of eight tickers", "coinbase/ws_exchange_capture_2021.txt", _coinbase_trades
    ),
}  # fmt: skip
