"""Coinbase Advanced, spot. Candles omit quiet minutes; prices and sizes are text."""

from collections.abc import Mapping
from typing import Any

from candlewright.wire.grid import SECOND
from ingestor.candles import RowLayout
from ingestor.trade import Trade
from ingestor.venues.description import (
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
from ingestor.venues.reading import iso_ns, plain_trade, rows_of

_LAYOUT = RowLayout(
    time="start", open="open", high="high", low="low", close="close", volume="volume", time_unit_ns=SECOND
)


def _candles(query: Query, interval: str) -> Request:
    parameters = {
        "product_id": query.market.market_id,
        "granularity": interval,
        # Both bounds are inclusive.
        "start": str(query.start // SECOND),
        "end": str((query.end - query.period) // SECOND),
    }
    return Request(Call.CANDLES, "v3PublicGetBrokerageMarketProductsProductIdCandles", parameters)


def _page(reply: Any, query: Query) -> Page:
    return Page(_LAYOUT.read(rows_of(reply, "candles")))


def _newest_trades(market: Market) -> Request:
    parameters = {"product_id": market.market_id, "limit": 1_000}
    return Request(Call.RAW_TRADES, "v3PublicGetBrokerageMarketProductsProductIdTicker", parameters)


def trade(row: Mapping[str, Any], received_at: int) -> Trade:
    return plain_trade(
        row["trade_id"], iso_ns(row["time"]), row["price"], size=row["size"], side=row["side"], received_at=received_at
    )


class CoinbaseHooks(Hooks):
    def handle_trade(self, client: Any, message: Any) -> None:
        for event in message.get("events") or []:
            # Newest first.
            for row in reversed(event.get("trades") or []):
                self.sink.trade_came(row["product_id"], row, trade)


VENUE = VenueDescription(
    name="COINBASE",
    ccxt_id="coinbase",
    candles=CandleSource(max_candles=300, fill=Fill.NEWEST_FIRST, ask=_candles, read=_page),
    limits=Limits(allowance=Allowance("calls", 10, 1)),
    stream=Stream(
        hooks=CoinbaseHooks,
        is_dense=True,
        repair=NewestTrades(ask=_newest_trades, parse=trade, path=("trades",)),
    ),
    needs_currencies=False,
    needs_raw_markets=False,
    lies=(
        Lie(
            "Minutes without a trade are omitted, so a hole may be a quiet minute.",
            "https://docs.cdp.coinbase.com/exchange/reference/exchangerestapi_getproductcandles",
        ),
    ),
    verified=(Proof("the list of its products, in the form of this API", "tests/ingestor/venues/test_recorded.py"),),
    unverified=(
        "candles and trades (documentation)",
        "whether a public trade names the taker's side",
        "that trade ids count up by one",
    ),
)
