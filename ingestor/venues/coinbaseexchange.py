"""Coinbase Exchange, formerly GDAX and Coinbase Pro. Candles are JSON numbers; trades name the maker's side."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from candlewright.wire.grid import SECOND
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
    Proof,
    Query,
    Request,
    Stream,
    VenueDescription,
)
from ingestor.venues.hooks import Hooks
from ingestor.venues.limits import Allowance, Call, Limits
from ingestor.venues.reading import OPPOSITE, iso_ns, plain_trade, rows_of

_LAYOUT = RowLayout(time=0, open=3, high=2, low=1, close=4, volume=5, time_unit_ns=SECOND)


def _candles(query: Query, interval: str) -> Request:
    parameters = {
        "id": query.market.market_id,
        "granularity": interval,
        # Both bounds are inclusive, and a window of over 300 candles is refused.
        "start": _iso(query.start),
        "end": _iso(query.end - query.period),
    }
    return Request(Call.CANDLES, "publicGetProductsIdCandles", parameters)


def _iso(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // MILLISECOND:03d}Z"


def _page(reply: Any, query: Query) -> Page:
    return Page(_LAYOUT.read(rows_of(reply)))


def _newest_trades(market: Market) -> Request:
    return Request(Call.RAW_TRADES, "publicGetProductsIdTrades", {"id": market.market_id, "limit": 1_000})


def trade(row: Mapping[str, Any], received_at: int) -> Trade:
    order, time, price, size, side, trade_id, received = plain_trade(
        row["trade_id"], iso_ns(row["time"]), row["price"], size=row["size"], side=row["side"], received_at=received_at
    )
    return (order, time, price, size, OPPOSITE[side], trade_id, received)


class CoinbaseExchangeHooks(Hooks):
    def handle_trade(self, client: Any, message: Any) -> None:
        if message.get("product_id"):
            self.sink.trade_came(message["product_id"], message, trade)


VENUE = VenueDescription(
    name="COINBASEEXCHANGE",
    ccxt_id="coinbaseexchange",
    candles=CandleSource(max_candles=300, fill=Fill.NEWEST_FIRST, ask=_candles, read=_page),
    limits=Limits(allowance=Allowance("calls", 10, 1)),
    stream=Stream(
        hooks=CoinbaseExchangeHooks,
        is_dense=True,
        repair=NewestTrades(ask=_newest_trades, parse=trade),
    ),
    needs_currencies=False,
    needs_raw_markets=False,
    lies=(
        Lie(
            "A trade names the maker's side; the taker's is the opposite.",
            "https://docs.cdp.coinbase.com/exchange/reference/exchangerestapi_getproducttrades",
        ),
        Lie(
            "Minutes without a trade are omitted, so a hole may be a quiet minute.",
            "https://docs.cdp.coinbase.com/exchange/reference/exchangerestapi_getproductcandles",
        ),
    ),
    verified=(
        Proof("the list of its products", "tests/ingestor/venues/test_recorded.py"),
        Proof("frames of its `matches` channel", "tests/ingestor/venues/test_recorded_frames.py"),
    ),
    unverified=("candles (documentation)", "the page of newest trades (documentation)"),
)
