"""Recorded exchange frames: replayed at full speed to the bus, and through the hooks of venues without a sandbox."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from bars import Bars, exact, from_trades
from ingestor.trade import ORDER, PRICE, SIZE, TIME, Trade
from ingestor.venues.binance import streamed_trade
from sandbox.behaviour.faults import Fault
from sandbox.serving.server import Sandbox
from tests.fresh_bus import FreshBus
from tests.ingestor.realtime.stage import ids, ingestor, marks, stopped, ticks, until

TICKER = "BTC/USDT.BINANCE"
FIRST, LAST = 3_735_683_259, 3_735_703_162


def minute_bars(trades: list[Trade]) -> Bars:
    return from_trades(
        np.zeros(len(trades), np.int64),
        np.array([trade[TIME] for trade in trades], np.int64),
        np.array([trade[ORDER] for trade in trades], np.int64),
        price=np.array([trade[PRICE] for trade in trades], np.float64),
        size=np.array([trade[SIZE] for trade in trades], np.float64),
        period_seconds=60,
    )


def as_rows(bars: Bars) -> list[tuple[Any, ...]]:
    columns = (bars.open_time, bars.open, bars.high, bars.low, bars.close, bars.trade_count)
    sums = (exact.to_doubles(bars.volume), exact.to_doubles(bars.quote_volume))
    return list(zip(*(column.tolist() for column in (*columns, *sums)), strict=True))


@pytest.fixture(scope="module")
def files(shared_data: Path) -> list[Path]:
    return [shared_data / "binance" / f"btcusdt_spot_ws_202408{day}.gz" for day in ("08", "09")]


@pytest.fixture(scope="module")
def recorded(files: list[Path]) -> list[Trade]:
    found = []
    for path in files:
        with gzip.open(path) as lines:
            for line in lines:
                if b"@trade" in line:
                    found.append(streamed_trade(orjson.loads(line.partition(b" ")[2])["data"], 0))
    return found


EVERYTHING = (
    Fault(kind="close", code=1000, after=500, count=2, probability=0.001),
    Fault(kind="close", code=1001, after=4_000, count=2, probability=0.001),
    Fault(kind="close", code=1006, after=8_000, count=2, probability=0.001),
    Fault(kind="abort", after=12_000, count=2, probability=0.001),
    Fault(kind="swap", count=2_000, probability=0.2),
    Fault(kind="duplicate"),
)


@pytest.mark.parametrize("faults", [(), EVERYTHING], ids=["plain", "faults"])
async def test_the_recorded_frames_give_all_ids_once_and_the_bars_of_the_file(
    files: list[Path], recorded: list[Trade], faults: tuple[Fault, ...]
) -> None:
    bus = FreshBus()
    async with Sandbox(trades=[str(path) for path in files], rate_limit=False) as exchange:
        for fault in faults:
            exchange.add_fault(fault)
        async with ingestor(bus, exchange.url) as own:
            task = own.start(TICKER, "j1")
            await until(lambda: bus.last_sequence(f"TICKS:{TICKER}") >= len(recorded), 60)
            await stopped(task)
    assert ids(bus, TICKER) == list(range(FIRST, LAST + 1))
    assert not marks(bus, TICKER, "gap")
    assert as_rows(minute_bars(ticks(bus, TICKER))) == as_rows(minute_bars(recorded))


class Heard:
    """A sink that keeps what the hooks give it."""

    def __init__(self) -> None:
        self.trades: list[tuple[str, Trade]] = []

    def trade_came(self, key: str, row: Any, parse: Any) -> None:
        self.trades.append((key, parse(row, 7)))

    def trades_came(self, key: str, rows: list[Any], parse: Any) -> None:
        for row in rows:
            self.trade_came(key, row, parse)


def hooked(ccxt_id: str) -> tuple[Any, Heard]:
    from ingestor.exchange import stock as exchange
    from ingestor.venues import venue_of

    made = exchange.build(venue_of(ccxt_id.upper()), url="http://127.0.0.1:1", timeout_seconds=1, streaming=True)
    made.sink = heard = Heard()
    return made, heard


class Client:
    url = "ws://127.0.0.1:1/v5/public/spot"
    subscriptions: dict[str, Any] = {}  # noqa: RUF012


async def test_okx_frames_reach_the_hook(shared_data: Path) -> None:
    made, heard = hooked("okx")
    expected = 0
    for line in (shared_data / "okx/ws_v5_public_capture_2022.txt").read_text().splitlines():
        _, _, text = line.partition(": ")
        frame = json.loads(text) if text.startswith("{") else {}
        if frame.get("arg", {}).get("channel") == "trades" and "data" in frame:
            expected += len(frame["data"])
            made.handle_message(Client(), frame)
    await made.close()
    assert len(heard.trades) == expected > 10
    key, trade = heard.trades[0]
    assert (key, trade) == ("BTC-USD-220527", (7849, 1652459199958 * 10**6, 30218.8, 1.0, 1, "7849", 7))


async def test_coinbase_exchange_frames_reach_the_hook(shared_data: Path) -> None:
    made, heard = hooked("coinbaseexchange")
    for line in (shared_data / "coinbase/ws_exchange_capture_2021.txt").read_text().splitlines():
        _, _, text = line.partition(": ")
        if '"type":"match"' in text:
            made.handle_message(Client(), json.loads(text))
    await made.close()
    key, trade = heard.trades[0]
    # The wire names the maker's side, who sold.
    assert key == "SKL-BTC" and trade == (280232, 1618677817089723000, 0.00001305, 985.0, 1, "280232", 7)


KRAKEN = {
    "channel": "trade",
    "type": "update",
    "data": [
        {
            "symbol": "MATIC/USD",
            "side": side,
            "price": 0.5117,
            "qty": 40.0,
            "ord_type": "market",
            "trade_id": trade_id,
            "timestamp": "2023-09-25T07:49:37.708706Z",
        }
        for side, trade_id in (("sell", 4665906), ("buy", 4665907))
    ],
}
BYBIT = {
    "topic": "publicTrade.BTCUSDT",
    "type": "snapshot",
    "ts": 1672304486868,
    "data": [{"T": 1672304486865, "s": "BTCUSDT", "S": "Buy", "v": "0.001", "p": "16578.50", "i": "20f43950-d8dd"}],
}
COINBASE = {
    "channel": "market_trades",
    "events": [
        {
            "type": "update",
            "trades": [
                {"trade_id": "12", "product_id": "ETH-USD", "price": "1260.02", "size": "0.1", "side": "SELL",
                 "time": "2023-02-09T20:19:35.39625135Z"},
                {"trade_id": "11", "product_id": "ETH-USD", "price": "1260.01", "size": "0.3", "side": "BUY",
                 "time": "2023-02-09T20:19:35.3Z"},
            ],
        }
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("ccxt_id", "frame", "expected"),
    [
        (
            "kraken",
            KRAKEN,
            [
                ("MATIC/USD", (4665906, 1695628177708706000, 0.5117, 40.0, 2, "4665906", 7)),
                ("MATIC/USD", (4665907, 1695628177708706000, 0.5117, 40.0, 1, "4665907", 7)),
            ],
        ),
        ("bybit", BYBIT, [("BTCUSDT", (0, 1672304486865 * 10**6, 16578.5, 0.001, 1, "20f43950-d8dd", 7))]),
        (
            "coinbase",
            COINBASE,
            [
                ("ETH-USD", (11, 1675973975300000000, 1260.01, 0.3, 1, "11", 7)),
                ("ETH-USD", (12, 1675973975396251350, 1260.02, 0.1, 2, "12", 7)),
            ],
        ),
    ],
)
async def test_frames_in_the_venue_s_form_reach_the_hook(ccxt_id: str, frame: Any, expected: Any) -> None:
    made, heard = hooked(ccxt_id)
    made.handle_message(Client(), frame)
    await made.close()
    assert heard.trades == expected
