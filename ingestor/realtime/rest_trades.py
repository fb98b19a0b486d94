"""Trades by REST: those that a socket missed, and those before it. Each venue returns what it offers without a key.

A reply that is not a well-formed page raises BadReply; all calls go through the shared rate budget.
"""

import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from candlewright.wire.errors import BadReply
from ingestor.exchange.client import VenueClient
from ingestor.progress import Progress
from ingestor.realtime.aggregates import cut
from ingestor.trade import ORDER, TIME, Aggregate, Trade
from ingestor.venues.description import AggregateTrades, Market, NewestTrades, Request, Stream, TradeCursor
from ingestor.venues.reading import Parse, rows_of

#: Pages that one repair may read.
MAX_PAGES = 60
#: A page may be older than what the socket just sent, so it is requested again after these pauses (s).
LAG_PAUSES = (0.3, 0.7, 1.5)


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where to begin: after this trade, or, if `order` is None, at this time (ns). Aggregates are needed only up to id
    `until`, since later trades are known; `known` holds known trades by id. `has_trade`: a trade happened at this time,
    so the exchange must show at least that one.
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
    """`trades`: ascending, up to the newest. `aggregates` represent earlier trades. `proven`: `trades` alone are
    complete after the anchor; otherwise `reason` says why not. `previous`: the newest trade before the anchor, if seen.
    """

    trades: Sequence[Trade]
    aggregates: Sequence[Aggregate] = ()
    proven: bool = True
    reason: str = ""
    is_covered: bool = True
    previous: Trade | None = None

    @property
    def is_whole(self) -> bool:
        """Whether trades and aggregates together are complete."""
        return self.proven or (bool(self.aggregates) and self.is_covered)


class RestTrades(Protocol):
    async def after(self, anchor: Anchor, progress: Progress) -> Found:
        """The exchange's trades after `anchor`, up to its newest; raises ExchangeError, BusError."""
        ...


class NewestPage:
    """For venues that return only their newest trades: a page that reaches back to the anchor proves that nothing is
    missing.
    """

    def __init__(self, client: VenueClient, market: Market, source: NewestTrades, *, is_dense: bool) -> None:
        self._client = client
        self._market = market
        self._source = source
        self._is_dense = is_dense

    async def after(self, anchor: Anchor, progress: Progress) -> Found:
        return self._judge(await self.newest(progress), anchor)

    async def newest(self, progress: Progress) -> list[Trade]:
        """The newest page, ascending."""

        async def ask() -> list[Trade]:
            reply = await self._client.ask(self._source.ask(self._market), progress)
            # If ids are not numbers, only the page shows the order within a millisecond.
            return parsed(rows_of(reply, *self._source.path)[::-1], self._source.parse)

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
        """Whether a trade may follow the anchor. Trades at the anchor's own time are recognised by their ids, except
        fills that were joined with it.
        """
        if self._source.joins_fills and anchor.order is not None and trade[TIME] == anchor.time:
            return trade[ORDER] > anchor.order
        return trade[TIME] >= anchor.time


class PageAndAggregates(NewestPage):
    """The newest page of raw trades, and before it aggregates, which name the raw ids that they join."""

    def __init__(
        self, client: VenueClient, market: Market, source: NewestTrades, *, aggregates: AggregateTrades
    ) -> None:
        super().__init__(client, market, source, is_dense=True)
        self._aggregated = aggregates

    async def after(self, anchor: Anchor, progress: Progress) -> Found:
        page = await self.newest(progress)
        found = self._judge(page, anchor)
        if found.proven or not page:
            return found
        # A page that is not full may still not be the market's whole history, since exchanges shorten pages.
        before = page[0][ORDER]
        aggregates = await self._aggregates(anchor, before, progress)
        if anchor.order is None and aggregates and aggregates[0].first >= before:
            return Found(found.trades)
        known = {**anchor.known, **{trade[ORDER]: trade for trade in page}}
        last = before - 1 if anchor.until is None else min(before - 1, anchor.until)
        first = anchor.order + 1 if anchor.order is not None else (aggregates[0].first if aggregates else before)
        pieces = [piece for aggregate in aggregates if (piece := cut(aggregate, first, last, known=known)) is not None]
        covered = _covers(pieces, first, last)
        told = "its bars were repaired from aggregates" if covered else "aggregates cover it in part"
        return Found(found.trades, pieces, False, f"{found.reason}; {told}", covered)

    async def _aggregates(self, anchor: Anchor, before: int, progress: Progress) -> list[Aggregate]:
        """The aggregates from the anchor on, up to raw id `before`."""
        source = self._aggregated
        rows: list[Aggregate] = []
        start, now = anchor.time, clock.time_ns() + source.window_ns
        request = source.since(self._market, start)
        is_by_time = True
        for _ in range(MAX_PAGES):
            number, page = await self._aggregate_page(request, progress)
            rows += [row for row in page if anchor.order is not None or row.time >= anchor.time]
            if page and page[-1].last >= before - 1:
                break
            if page:
                request, is_by_time = source.after(self._market, number), False
            elif is_by_time and start < now:
                # This window is empty; try the next one.
                start += source.window_ns
                request = source.since(self._market, start)
            else:
                break
        return rows

    async def _aggregate_page(self, request: Request, progress: Progress) -> tuple[int, list[Aggregate]]:
        """A page, and the exchange's id of its last aggregate."""

        async def ask() -> tuple[int, list[Aggregate]]:
            rows = rows_of(await self._client.ask(request, progress))
            try:
                page = [self._aggregated.parse(row) for row in rows]
            except (KeyError, ValueError, TypeError) as error:
                raise BadReply(f"rows that are not aggregates: {error}") from error
            return (page[-1][0] if page else 0), [aggregate for _, aggregate in page]

        return await self._client.call(ask, progress)


class CursorTrades:
    """For venues that return all trades by a nanosecond cursor."""

    def __init__(self, client: VenueClient, market: Market, source: TradeCursor) -> None:
        self._client = client
        self._market = market
        self._source = source

    async def after(self, anchor: Anchor, progress: Progress) -> Found:
        # The cursor is exclusive, and timestamps of socket and REST differ in their digits.
        cursor = anchor.time - 1_000
        trades: dict[int, Trade] = {}
        for _ in range(MAX_PAGES):
            page, last = await self._page(cursor, progress)
            trades.update((trade[ORDER], trade) for trade in page if anchor.is_after(trade))
            if len(page) < self._source.page_size or last <= cursor:
                return Found([trades[order] for order in sorted(trades)])
            cursor = last - 1
        newest, _ = await self._page(None, progress)
        trades.update((trade[ORDER], trade) for trade in newest if anchor.is_after(trade))
        reason = f"{self._client.venue} needs over {MAX_PAGES} calls for this gap"
        return Found([trades[order] for order in sorted(trades)], proven=False, reason=reason)

    async def _page(self, since_ns: int | None, progress: Progress) -> tuple[list[Trade], int]:
        async def ask() -> tuple[list[Trade], int]:
            reply = await self._client.ask(self._source.ask(self._market, since_ns), progress)
            rows, cursor = self._source.read(reply, self._market)
            return parsed(rows, self._source.parse), cursor

        return await self._client.call(ask, progress)


def parsed(rows: Sequence[Any], parse: Parse) -> list[Trade]:
    """Rows of a page as trades, ascending; raises BadReply."""
    received_at = clock.time_ns()
    try:
        return sorted((parse(row, received_at) for row in rows), key=lambda trade: (trade[ORDER], trade[TIME]))
    except (KeyError, ValueError, TypeError, IndexError, ArithmeticError) as error:
        raise BadReply(f"rows that are not trades: {error}") from error


def _covers(pieces: Sequence[Aggregate], first: int, last: int) -> bool:
    for piece in pieces:
        if piece.first != first:
            return False
        first = piece.last + 1
    return first == last + 1


def rest_trades_of(client: VenueClient, market: Market, stream: Stream) -> RestTrades:
    repair = stream.repair
    if isinstance(repair, TradeCursor):
        return CursorTrades(client, market, repair)
    if repair.aggregates is not None:
        return PageAndAggregates(client, market, repair, aggregates=repair.aggregates)
    return NewestPage(client, market, repair, is_dense=stream.is_dense)
