"""Binance, spot. Candles and trades go back to the listing, raw trade ids have no holes, and limits are by weight."""

from collections.abc import Mapping
from typing import Any

from ingestor.candles import RowLayout
from ingestor.trade import BUY, SELL, Aggregate, Trade
from ingestor.venues.description import (
    MILLISECOND,
    AggregateTrades,
    CandleSource,
    Fill,
    Lie,
    Market,
    NewestTrades,
    Page,
    Proof,
    Query,
    Request,
    Stream,
    VenueDescription,
)
from ingestor.venues.hooks import Hooks
from ingestor.venues.limits import Allowance, Call, Limits
from ingestor.venues.reading import rows_of

_MAX_CANDLES = _MAX_TRADES = 1_000
_HOUR_MS = 3_600_000
_LAYOUT = RowLayout(time=0, open=1, high=2, low=3, close=4, volume=5, quote_volume=7, trade_count=8)


def _candles(query: Query, interval: str) -> Request:
    parameters = {
        "symbol": query.market.market_id,
        "interval": interval,
        # Both bounds are inclusive.
        "startTime": query.start // MILLISECOND,
        "endTime": query.end // MILLISECOND - 1,
        "limit": _MAX_CANDLES,
    }
    return Request(Call.CANDLES, "publicGetKlines", parameters)


def _page(reply: Any, query: Query) -> Page:
    return Page(_LAYOUT.read(rows_of(reply)))


def _newest_trades(market: Market) -> Request:
    return Request(Call.RAW_TRADES, "publicGetTrades", {"symbol": market.market_id, "limit": _MAX_TRADES})


def _aggregates_since(market: Market, start: int) -> Request:
    first = start // MILLISECOND
    return _aggregates(market, {"startTime": first, "endTime": first + _HOUR_MS - 1})


def _aggregates_after(market: Market, number: int) -> Request:
    # The API refuses times together with an id.
    return _aggregates(market, {"fromId": number + 1})


def _aggregates(market: Market, place: Mapping[str, int]) -> Request:
    parameters = {"symbol": market.market_id, "limit": _MAX_TRADES, **place}
    return Request(Call.TRADES, "publicGetAggTrades", parameters)


def _aggregate(row: Mapping[str, Any]) -> tuple[int, Aggregate]:
    time = int(row["T"]) * MILLISECOND
    return int(row["a"]), Aggregate(int(row["f"]), int(row["l"]), time, float(row["p"]), float(row["q"]))


def streamed_trade(row: Mapping[str, Any], received_at: int) -> Trade:
    number = row["t"]
    # m: the buyer was the maker, so the taker sold.
    return (
        number,
        row["T"] * MILLISECOND,
        float(row["p"]),
        float(row["q"]),
        SELL if row["m"] else BUY,
        str(number),
        received_at,
    )


def rest_trade(row: Mapping[str, Any], received_at: int) -> Trade:
    number = int(row["id"])
    side = SELL if row["isBuyerMaker"] else BUY
    time = int(row["time"]) * MILLISECOND
    return (number, time, float(row["price"]), float(row["qty"]), side, str(number), received_at)


class BinanceHooks(Hooks):
    def handle_message(self, client: Any, message: Any) -> None:
        # ccxt builds a table of forty handlers for each message, which trades do not need.
        if type(message) is dict and message.get("e") == "trade":
            self.sink.trade_came(message["s"], message, streamed_trade)
        else:
            super().handle_message(client, message)  # type: ignore[misc]

    def handle_trade(self, client: Any, message: Any) -> None:
        self.sink.trade_came(message["s"], message, streamed_trade)


VENUE = VenueDescription(
    name="BINANCE",
    ccxt_id="binance",
    candles=CandleSource(max_candles=_MAX_CANDLES, fill=Fill.OLDEST_FIRST, is_wide=True, ask=_candles, read=_page),
    limits=Limits(
        allowance=Allowance("weight", 6_000, 60),
        costs={Call.CANDLES: 2, Call.TRADES: 4, Call.RAW_TRADES: 25, Call.TICKER: 2, Call.MARKETS: 20, Call.TIME: 1},
        used_header="x-mbx-used-weight-1m",
    ),
    stream=Stream(
        hooks=BinanceHooks,
        is_dense=True,
        repair=NewestTrades(
            ask=_newest_trades,
            parse=rest_trade,
            aggregates=AggregateTrades(
                since=_aggregates_since,
                after=_aggregates_after,
                parse=_aggregate,
                window_ns=_HOUR_MS * MILLISECOND,
            ),
        ),
        # The exchange closes a connection that sends more than five messages a second.
        subscribe_pause=0.25,
    ),
    has_spot_switch=True,
    needs_currencies=False,
    needs_raw_markets=False,
    lies=(
        Lie(
            "Minutes of maintenance are absent, as if there had been no trades.",
            "https://github.com/ccxt/ccxt/issues/8068",
        ),
        Lie(
            "`aggTrades` by time covers one hour: if that hour was quiet, it is empty although later trades exist.",
            "https://developers.binance.com/docs/binance-spot-api-docs/rest-api/market-data-endpoints",
        ),
        Lie(
            "Aggregates and raw trades have separate id sequences: ccxt streams one and fetches the other.",
            "https://github.com/ccxt/ccxt/issues/4618",
        ),
    ),
    verified=(
        Proof("two pages of hourly candles with a three-hour hole", "tests/ingestor/venues/test_recorded.py"),
        Proof("the list of 1,695 markets", "tests/ingestor/venues/test_recorded.py"),
        Proof("19,904 streamed trades across midnight", "tests/ingestor/venues/test_recorded_frames.py"),
        Proof("trades that were sent up to 214 ms after their time", "tests/ingestor/realtime/test_lag.py"),
    ),
    unverified=(
        "the weights of calls (documentation)",
        "that quiet minutes are filled with flat candles",
        "the aggregates of a repair (documentation, and the sandbox)",
    ),
)
