"""OKX, spot. The newest 1,440 bars of a period have a separate endpoint; the socket merges fills of one order."""

from collections.abc import Mapping
from typing import Any

from ingestor.candles import EMPTY, RowLayout
from ingestor.trade import Trade
from ingestor.venues.description import (
    MILLISECOND,
    CandleSource,
    Closing,
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
from ingestor.venues.reading import plain_trade, rows_of

_PAGE = 300
#: `candles` holds the newest 1440 bars, `history-candles` the older ones; stay clear of the border.
_RECENT_BARS = 1_400
#: From this period on, bars without a `utc` suffix open at midnight in Hong Kong.
_UTC_FROM_SECONDS = 21_600
_LAYOUT = RowLayout(time=0, open=1, high=2, low=3, close=4, volume=5, quote_volume=7)
_SHORT_LAYOUT = RowLayout(time=0, open=1, high=2, low=3, close=4, volume=5)


def _candles(query: Query, interval: str) -> Request:
    parameters = {
        "instId": query.market.market_id,
        "bar": f"{interval}utc" if query.period_seconds >= _UTC_FROM_SECONDS else interval,
        # Both bounds are exclusive.
        "before": str(query.start // MILLISECOND - 1),
        "after": str(query.end // MILLISECOND),
        "limit": str(_PAGE),
    }
    if query.start >= query.newest(_RECENT_BARS):
        return Request(Call.CANDLES, "publicGetMarketCandles", parameters)
    return Request(Call.HISTORY_CANDLES, "publicGetMarketHistoryCandles", parameters)


def _page(reply: Any, query: Query) -> Page:
    """Field 8 says whether a candle has closed; short rows have no quote volume."""
    rows = rows_of(reply, "data")
    open_ones = [row for row in rows if isinstance(row, list) and len(row) > 8 and str(row[8]) == "0"]
    closed = [row for row in rows if row not in open_ones] if open_ones else rows
    has_quote = all(isinstance(row, list) and len(row) > 7 for row in closed)
    candles = (_LAYOUT if has_quote else _SHORT_LAYOUT).read(closed)
    unfinished = _SHORT_LAYOUT.read(open_ones) if open_ones else EMPTY
    return Page(candles, unfinished.first_open if len(unfinished) else None)


def _newest_trades(market: Market) -> Request:
    return Request(Call.RAW_TRADES, "publicGetMarketTrades", {"instId": market.market_id, "limit": "500"})


def trade(row: Mapping[str, Any], received_at: int) -> Trade:
    time = int(row["ts"]) * MILLISECOND
    return plain_trade(row["tradeId"], time, row["px"], size=row["sz"], side=row["side"], received_at=received_at)


class OkxHooks(Hooks):
    def handle_trades(self, client: Any, message: Any) -> None:
        self.sink.trades_came(message["arg"]["instId"], message.get("data") or [], trade)


VENUE = VenueDescription(
    name="OKX",
    ccxt_id="okx",
    candles=CandleSource(
        max_candles=_PAGE,
        fill=Fill.NEWEST_FIRST,
        closing=Closing.FLAG,
        recent_bars=_RECENT_BARS,
        ask=_candles,
        read=_page,
    ),
    limits=Limits(
        allowance=Allowance("calls", 20, 2),
        # Each endpoint has its own limit.
        apart={Call.CANDLES: Allowance("candles", 40, 2), Call.HISTORY_CANDLES: Allowance("history", 20, 2)},
    ),
    stream=Stream(
        hooks=OkxHooks,
        is_dense=False,
        repair=NewestTrades(ask=_newest_trades, parse=trade, path=("data",), joins_fills=True),
    ),
    has_spot_switch=True,
    needs_currencies=False,
    needs_raw_markets=False,
    lies=(
        Lie(
            "The public trade channel merges fills of one order under the last id, so ids and counts differ.",
            "https://www.okx.com/docs-v5/en/#order-book-trading-market-data-ws-trades-channel",
        ),
        Lie(
            "A page may hold fewer candles than exist.",
            "https://github.com/nautechsystems/nautilus_trader/issues/3145",
        ),
    ),
    verified=(
        Proof("the list of its instruments", "tests/ingestor/venues/test_recorded.py"),
        Proof("frames of its public trade channel", "tests/ingestor/venues/test_recorded_frames.py"),
    ),
    unverified=("candles of both endpoints (documentation)", "the page of newest trades (documentation)"),
)
