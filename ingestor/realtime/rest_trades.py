"""Trades by REST: what a socket missed, and what came before it. Each venue gives as much as it keeps for everybody.

A page that is no well-formed page raises BadReply; all calls go through the shared rate budget.
"""

import time as clock
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from candlewright.wire.errors import BadReply
from ingestor.exchange.client import Market, VenueClient
from ingestor.exchange.pages import rows_of
from ingestor.progress import Progress
from ingestor.realtime.aggregates import Aggregate, cut
from ingestor.trade import ORDER, TIME, Trade
from ingestor.venues import reading
from ingestor.venues.limits import Call

MILLISECOND = 1_000_000
HOUR_MS = 3_600_000
PAGE = 1_000
#: Pages that one repair may cost.
MAX_PAGES = 60
#: A page may be older than what the socket just said: it is asked for again, at these pauses (seconds).
LAG_PAUSES = (0.3, 0.7, 1.5)


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where to begin: after this trade, or, with `order` None, at this time (ns). Aggregates are wanted up to id
    `until` only, since trades behind that are here; `known` holds sizes of trades that are. `has_trade`: there was a
    trade at this time, so that the exchange has at least that one to show.
    """

    time: int
    order: int | None = None
    until: int | None = None
    known: Mapping[int, Trade] = field(default_factory=dict)
    has_trade: bool = False

    def is_after(self, trade: Trade) -> bool:
        return trade[TIME] >= self.time if self.order is None else trade[ORDER] > self.order


@dataclass(frozen=True, slots=True)
class Found:
    """`trades`: ascending, up to the newest. `aggregates` stand for trades before those. `proven`: `trades` alone are
    all there is after the anchor; else `reason` says why not. `previous`: the newest trade before the anchor, if seen.
    """

    trades: Sequence[Trade]
    aggregates: Sequence[Aggregate] = ()
    proven: bool = True
    reason: str = ""
    is_covered: bool = True
    previous: Trade | None = None

    @property
    def is_whole(self) -> bool:
        """Trades and aggregates together are all there is."""
        return self.proven or (bool(self.aggregates) and self.is_covered)


class RestTrades(Protocol):
    async def after(self, anchor: Anchor, progress: Progress) -> Found:
        """What the exchange has after `anchor`, up to its newest trade; raises ExchangeError, BusError."""
        ...


class NewestPage:
    """Only the newest trades are to be had: a page that reaches back to the anchor proves that nothing is missing.

    `joins_fills`: the socket joins the fills of an order under the id of the last of them, which REST shows one by one.
    """

    def __init__(
        self,
        client: VenueClient,
        market: Market,
        ask: Callable[[Any, Market], Awaitable[Any]],
        path: Sequence[str],
        parse: reading.Parse,
        is_dense: bool,
        joins_fills: bool = False,
    ) -> None:
        self._client = client
        self._market = market
        self._ask = ask
        self._path = path
        self._parse = parse
        self._is_dense = is_dense
        self._joins_fills = joins_fills

    async def after(self, anchor: Anchor, progress: Progress) -> Found:
        return self._judge(await self.newest(progress), anchor)

    async def newest(self, progress: Progress) -> list[Trade]:
        """The newest page, ascending."""

        async def ask() -> list[Trade]:
            reply = await self._client.attempt(
                Call.RAW_TRADES, lambda: self._ask(self._client.exchange, self._market), progress
            )
            # Newest first on most venues; where ids are no numbers their order is all that orders a millisecond.
            return parsed(rows_of(reply, *self._path)[::-1], self._parse)

        return await self._client.call(ask, progress)

    def _judge(self, page: list[Trade], anchor: Anchor) -> Found:
        trades = [trade for trade in page if anchor.is_after(trade)]
        if anchor.order is not None and self._is_dense:
            reaches = bool(page) and page[0][ORDER] <= anchor.order + 1
        else:
            reaches = bool(page) and min(trade[TIME] for trade in page) < anchor.time
            trades = [trade for trade in page if self._may_follow(trade, anchor)]
        if reaches or (not page and not anchor.has_trade):
            older = len(page) - len(trades)
            return Found(trades, previous=page[older - 1] if older else None)
        reason = f"{self._client.venue} shows its newest {len(page)} trades only"
        return Found(trades, proven=False, reason=reason)

    def _may_follow(self, trade: Trade, anchor: Anchor) -> bool:
        """Those of the anchor's own time are known again by their ids, but for fills that were joined with it."""
        if self._joins_fills and anchor.order is not None and trade[TIME] == anchor.time:
            return trade[ORDER] > anchor.order
        return trade[TIME] >= anchor.time


class BinanceTrades(NewestPage):
    """The newest page of raw trades; before that aggregates, which name the raw ids that they join."""

    def __init__(self, client: VenueClient, market: Market) -> None:
        super().__init__(client, market, _binance_page, (), reading.binance_rest, is_dense=True)

    async def after(self, anchor: Anchor, progress: Progress) -> Found:
        page = await self.newest(progress)
        found = self._judge(page, anchor)
        if found.proven or not page:
            return found
        # A page that is not full need not be all that the market ever had: exchanges shorten pages.
        before = page[0][ORDER]
        aggregates = await self._aggregates(anchor, before, progress)
        if anchor.order is None and aggregates and aggregates[0].first >= before:
            return Found(found.trades)
        known = {**anchor.known, **{trade[ORDER]: trade for trade in page}}
        last = before - 1 if anchor.until is None else min(before - 1, anchor.until)
        first = anchor.order + 1 if anchor.order is not None else (aggregates[0].first if aggregates else before)
        pieces = [piece for aggregate in aggregates if (piece := cut(aggregate, first, last, known)) is not None]
        covered = _covers(pieces, first, last)
        told = "its bars were repaired from aggregates" if covered else "aggregates cover it in part"
        return Found(found.trades, pieces, False, f"{found.reason}; {told}", covered)

    async def _aggregates(self, anchor: Anchor, before: int, progress: Progress) -> list[Aggregate]:
        """Those from the anchor on, until raw id `before` is reached."""
        rows: list[Aggregate] = []
        start = anchor.time // MILLISECOND
        now = clock.time_ns() // MILLISECOND + HOUR_MS
        params: dict[str, Any] = {"startTime": start, "endTime": start + HOUR_MS - 1}
        for _ in range(MAX_PAGES):
            number, page = await self._aggregate_page(params, progress)
            rows += [row for row in page if anchor.order is not None or row.time >= anchor.time]
            if page and page[-1].last >= before - 1:
                break
            if page:
                params = {"fromId": number + 1}
            elif "startTime" in params and start < now:
                # Nothing for an hour: look at the next.
                start += HOUR_MS
                params = {"startTime": start, "endTime": start + HOUR_MS - 1}
            else:
                break
        return rows

    async def _aggregate_page(self, params: dict[str, Any], progress: Progress) -> tuple[int, list[Aggregate]]:
        asked = {"symbol": self._market.market_id, "limit": PAGE, **params}

        async def ask() -> tuple[int, list[Aggregate]]:
            reply = await self._client.attempt(
                Call.TRADES, lambda: self._client.exchange.publicGetAggTrades(asked), progress
            )
            rows = rows_of(reply)
            try:
                page = [
                    Aggregate(
                        int(row["f"]), int(row["l"]), int(row["T"]) * MILLISECOND, float(row["p"]), float(row["q"])
                    )
                    for row in rows
                ]
                return (int(rows[-1]["a"]) if rows else 0), page
            except (KeyError, ValueError, TypeError) as error:
                raise BadReply(f"rows that are no aggregates: {error}") from error

        return await self._client.call(ask, progress)


class KrakenTrades:
    """All trades, by a cursor of nanoseconds."""

    def __init__(self, client: VenueClient, market: Market) -> None:
        self._client = client
        self._market = market

    async def after(self, anchor: Anchor, progress: Progress) -> Found:
        # The cursor is exclusive, and stamps differ in their digits between socket and REST.
        cursor = anchor.time - 1_000
        trades: dict[int, Trade] = {}
        for _ in range(MAX_PAGES):
            page, last = await self._page(cursor, progress)
            trades.update((trade[ORDER], trade) for trade in page if anchor.is_after(trade))
            if len(page) < PAGE or last <= cursor:
                return Found([trades[order] for order in sorted(trades)])
            cursor = last - 1
        newest, _ = await self._page(None, progress)
        trades.update((trade[ORDER], trade) for trade in newest if anchor.is_after(trade))
        reason = f"{self._client.venue} needs over {MAX_PAGES} calls for this gap"
        return Found([trades[order] for order in sorted(trades)], proven=False, reason=reason)

    async def _page(self, since_ns: int | None, progress: Progress) -> tuple[list[Trade], int]:
        params = {"pair": self._market.market_id, "count": str(PAGE)}
        if since_ns is not None:
            params["since"] = str(max(since_ns, 0))

        async def ask() -> tuple[list[Trade], int]:
            reply = await self._client.attempt(
                Call.TRADES, lambda: self._client.exchange.publicGetTrades(params), progress
            )
            result = reply.get("result") if isinstance(reply, dict) else None
            if not isinstance(result, dict) or not str(result.get("last", "")).isdigit():
                raise BadReply(f"a reply without trades: {str(reply)[:120]!r}")
            key = next((name for name in result if name != "last"), "")
            return parsed(rows_of(result, key), reading.kraken_rest), int(result["last"])

        return await self._client.call(ask, progress)


def parsed(rows: Sequence[Any], parse: reading.Parse) -> list[Trade]:
    """Rows of a page as trades, ascending; raises BadReply."""
    received_at = clock.time_ns()
    try:
        return sorted((parse(row, received_at) for row in rows), key=lambda trade: (trade[ORDER], trade[TIME]))
    except (KeyError, ValueError, TypeError, IndexError, ArithmeticError) as error:
        raise BadReply(f"rows that are no trades: {error}") from error


def _covers(pieces: Sequence[Aggregate], first: int, last: int) -> bool:
    for piece in pieces:
        if piece.first != first:
            return False
        first = piece.last + 1
    return first == last + 1


def _binance_page(exchange: Any, market: Market) -> Any:
    return exchange.publicGetTrades({"symbol": market.market_id, "limit": PAGE})


def _okx_page(exchange: Any, market: Market) -> Any:
    return exchange.publicGetMarketTrades({"instId": market.market_id, "limit": "500"})


def _bybit_page(exchange: Any, market: Market) -> Any:
    return exchange.publicGetV5MarketRecentTrade({"category": "spot", "symbol": market.market_id, "limit": 60})


def _coinbase_page(exchange: Any, market: Market) -> Any:
    return exchange.v3PublicGetBrokerageMarketProductsProductIdTicker({"product_id": market.market_id, "limit": PAGE})


def _coinbaseexchange_page(exchange: Any, market: Market) -> Any:
    return exchange.publicGetProductsIdTrades({"id": market.market_id, "limit": PAGE})


def rest_trades_of(client: VenueClient, market: Market) -> RestTrades:
    """For a venue of `venue.STREAM_VENUES`."""
    match client.ccxt_id:
        case "binance":
            return BinanceTrades(client, market)
        case "kraken":
            return KrakenTrades(client, market)
        case "okx":
            return NewestPage(client, market, _okx_page, ("data",), reading.okx, is_dense=False, joins_fills=True)
        case "bybit":
            return NewestPage(client, market, _bybit_page, ("result", "list"), reading.bybit_rest, is_dense=False)
        case "coinbase":
            return NewestPage(client, market, _coinbase_page, ("trades",), reading.coinbase, is_dense=True)
    return NewestPage(client, market, _coinbaseexchange_page, (), reading.coinbaseexchange, is_dense=True)
