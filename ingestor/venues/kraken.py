"""Kraken, spot. Only the newest 720 candles of each period are kept, but all trades, by a cursor in nanoseconds."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from candlewright.wire.errors import BadReply
from candlewright.wire.grid import SECOND
from ingestor.candles import RowLayout
from ingestor.trade import UNKNOWN, Trade
from ingestor.venues.description import (
    CandleSource,
    Closing,
    Fill,
    Lie,
    Market,
    Page,
    Proof,
    Query,
    Request,
    Stream,
    TradeCursor,
    VenueDescription,
)
from ingestor.venues.hooks import Hooks
from ingestor.venues.limits import Allowance, Call, Limits
from ingestor.venues.reading import SIDES, Row, iso_ns, rows_of

_TRADES = 1_000
_LAYOUT = RowLayout(time=0, open=1, high=2, low=3, close=4, volume=6, trade_count=7, time_unit_ns=SECOND)


def _candles(query: Query, interval: str) -> Request:
    parameters = {
        "pair": query.market.market_id,
        "interval": interval,
        # Exclusive; there is no end.
        "since": str((query.start - query.period) // SECOND),
    }
    return Request(Call.CANDLES, "publicGetOHLC", parameters)


def _page(reply: Any, query: Query) -> Page:
    """A reply has at most the newest candles, whatever was requested; its last row is the unfinished one."""
    result = _result(reply)
    candles = _LAYOUT.read(rows_of(result, _pair_in(result, query.market)))
    last = result.get("last")
    if not str(last).isdigit():
        return Page(candles)
    last_finished = int(str(last)) * SECOND
    later = candles.between(last_finished + 1, 1 << 62)
    return Page(candles.between(0, last_finished + 1), later.first_open if len(later) else None)


def _trades(market: Market, since: int | None) -> Request:
    parameters = {"pair": market.market_id, "count": str(_TRADES)}
    if since is not None:
        # In nanoseconds, because ccxt's own `since` is truncated to seconds.
        parameters["since"] = str(max(since, 0))
    return Request(Call.TRADES, "publicGetTrades", parameters)


def _trade_rows(reply: Any, market: Market) -> tuple[Sequence[Row], int]:
    result = _result(reply)
    last = str(result.get("last", ""))
    if not last.isdigit():
        raise BadReply(f"trades without a cursor: {str(reply)[:120]!r}")
    return rows_of(result, _pair_in(result, market)), int(last)


def _result(reply: Any) -> dict[str, Any]:
    result = reply.get("result") if isinstance(reply, dict) else None
    if not isinstance(result, dict):
        raise BadReply(f"a reply without 'result': {str(reply)[:120]!r}")
    return result


def _pair_in(result: Mapping[str, Any], market: Market) -> str:
    """The key of the rows in the reply: the pair's id, or another of its names."""
    if market.market_id in result:
        return market.market_id
    others = [key for key in result if key != "last"]
    if len(others) != 1:
        raise BadReply(f"a reply without rows of {market.market_id}")
    return others[0]


def streamed_trade(row: Mapping[str, Any], received_at: int) -> Trade:
    number = int(row["trade_id"])
    side = SIDES.get(row["side"], UNKNOWN)
    return (number, iso_ns(row["timestamp"]), float(row["price"]), float(row["qty"]), side, str(number), received_at)


def rest_trade(row: Row, received_at: int) -> Trade:
    number = int(row[6])
    time = int(Decimal(str(row[2])).scaleb(9))
    return (number, time, float(row[0]), float(row[1]), SIDES.get(row[3], UNKNOWN), str(number), received_at)


class KrakenHooks(Hooks):
    def handle_trades(self, client: Any, message: Any) -> None:
        rows = message.get("data") or []
        if rows:
            self.sink.trades_came(rows[0]["symbol"], rows, streamed_trade)


_CURSOR = TradeCursor(ask=_trades, read=_trade_rows, parse=rest_trade, page_size=_TRADES)

VENUE = VenueDescription(
    name="KRAKEN",
    ccxt_id="kraken",
    candles=CandleSource(
        max_candles=720,
        fill=Fill.OLDEST_FIRST,
        closing=Closing.LAST,
        is_wide=True,
        depth=720,
        ask=_candles,
        read=_page,
        older=_CURSOR,
    ),
    limits=Limits(allowance=Allowance("calls", 60, 60)),
    stream=Stream(hooks=KrakenHooks, is_dense=True, repair=_CURSOR, by_symbol=True),
    needs_currencies=False,
    needs_raw_markets=False,
    lies=(
        Lie(
            "A request for old candles returns the newest 720, months later than requested, without an error.",
            "https://github.com/ccxt/ccxt/issues/5614",
        ),
        Lie(
            "ccxt's period `2w` is 15 days, so it is not offered.",
            "https://github.com/knowm/XChange/issues/1834",
        ),
        Lie(
            "The socket sends up to 50 trades again on each subscription.",
            "https://docs.kraken.com/exchange/api-reference/spot-websocket-v2/trade",
        ),
    ),
    verified=(
        Proof("a reply of 720 candles with the unfinished one", "tests/ingestor/venues/test_recorded.py"),
        Proof("that candles built from 1,000 trades equal its own", "tests/ingestor/venues/test_recorded.py"),
        Proof("trades by cursor, starting after any trade", "tests/ingestor/realtime/test_rest_trades.py"),
        Proof("the list of its pairs", "tests/ingestor/venues/test_recorded.py"),
    ),
    unverified=("the frames of websocket v2 (documentation, and recorded trades in that form)",),
)
