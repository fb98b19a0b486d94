"""Bybit, spot. Candles go back to the listing, newest first; REST returns only the newest 60 trades."""

from collections.abc import Mapping
from typing import Any

from ingestor.candles import RowLayout
from ingestor.trade import Trade
from ingestor.venues.description import (
    MILLISECOND,
    CandleSource,
    Fill,
    Lie,
    Market,
    NewestTrades,
    Page,
    Query,
    Request,
    Stream,
    VenueDescription,
)
from ingestor.venues.hooks import Hooks
from ingestor.venues.limits import Allowance, Call, Limits
from ingestor.venues.reading import plain_trade, rows_of

_PAGE = 1_000
_LAYOUT = RowLayout(time=0, open=1, high=2, low=3, close=4, volume=5, quote_volume=6)


def _candles(query: Query, interval: str) -> Request:
    parameters = {
        "category": "spot",
        "symbol": query.market.market_id,
        "interval": interval,
        # Both bounds are inclusive.
        "start": query.start // MILLISECOND,
        "end": query.end // MILLISECOND - 1,
        "limit": _PAGE,
    }
    return Request(Call.CANDLES, "publicGetV5MarketKline", parameters)


def _page(reply: Any, query: Query) -> Page:
    return Page(_LAYOUT.read(rows_of(reply, "result", "list")))


def _newest_trades(market: Market) -> Request:
    parameters = {"category": "spot", "symbol": market.market_id, "limit": 60}
    return Request(Call.RAW_TRADES, "publicGetV5MarketRecentTrade", parameters)


def streamed_trade(row: Mapping[str, Any], received_at: int) -> Trade:
    return plain_trade(
        row["i"], int(row["T"]) * MILLISECOND, row["p"], size=row["v"], side=row["S"], received_at=received_at
    )


def rest_trade(row: Mapping[str, Any], received_at: int) -> Trade:
    time = int(row["time"]) * MILLISECOND
    return plain_trade(row["execId"], time, row["price"], size=row["size"], side=row["side"], received_at=received_at)


class BybitHooks(Hooks):
    def handle_trades(self, client: Any, message: Any) -> None:
        self.sink.trades_came(message["topic"].partition(".")[2], message.get("data") or [], streamed_trade)


VENUE = VenueDescription(
    name="BYBIT",
    ccxt_id="bybit",
    candles=CandleSource(max_candles=_PAGE, fill=Fill.NEWEST_FIRST, ask=_candles, read=_page),
    limits=Limits(
        allowance=Allowance("calls", 600, 5),
        # An IP address that exceeded the limit is refused for at least ten minutes.
        pauses={403: 600.0},
    ),
    stream=Stream(
        hooks=BybitHooks,
        is_dense=False,
        repair=NewestTrades(ask=_newest_trades, parse=rest_trade, path=("result", "list")),
    ),
    has_spot_switch=True,
    needs_currencies=False,
    needs_raw_markets=False,
    lies=(
        Lie(
            "Trade ids may count up across all symbols, so a jump of ids does not show a loss.",
            "https://bybit-exchange.github.io/docs/v5/websocket/public/trade",
        ),
        Lie(
            "Above its limit it answers 403 for ten minutes, which looks like a block by country.",
            "https://bybit-exchange.github.io/docs/v5/rate-limit",
        ),
    ),
    unverified=("everything: no recorded data of this venue was available; the formats follow its documentation",),
)
