"""Stored data and venues: candles, trades, coverage, gaps, venues, markets."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import orjson
import pyarrow as pa
from pydantic import Field
from starlette.responses import Response

from candlewright.client.history.stored import Stored
from candlewright.client.records import Market, Range, Venue
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.periods import parse_period
from candlewright.wire.ticker import Ticker
from console.operation import Answer, Call, Operation, Query
from console.routes.shapes import BarRow, OfTicker, PeriodText, Shape, Span, TickerText
from console.rows import CHUNKED, Form, plain
from console.stored import Tables, row_answer
from console.times import Instant, Moment, iso

__all__ = ["OPERATIONS"]

_FAR_NS = (1 << 63) - 1
_SECOND = 1_000_000_000
#: Markets change a few times a day, and listing those of every venue costs one call per venue.
_MARKETS_SECONDS = 60.0
_MAX_REVISED = 5_000


# ---- candles
class BarsQuery(Query):
    """Without `start`: the newest `limit` candles before `end`."""

    ticker: TickerText
    period: PeriodText = "1m"
    start: Moment | None = None
    end: Moment | None = None
    limit: int = Field(1_000, ge=1, le=10_000_000)
    order: Literal["first", "last"] | None = Field(
        None, description="Which `limit` candles of the range to return; always in time order."
    )
    as_of: Moment | None = Field(None, description="The candles as they were known at this time.")
    format: Form = Form.json


class Bars(Shape):
    """Candles, and what is missing in the range."""

    rows: list[BarRow]
    holes: list[Span] = Field(description="Ranges for which the venue has no candles.")
    unknown: list[Span] = Field(description="Ranges for which nothing is stored.")


async def list_bars(call: Call) -> Response:
    query: BarsQuery = call.query
    ticker, period = _ticker(query.ticker), parse_period(query.period)
    end = _FAR_NS if query.end is None else int(query.end)
    start = 0 if query.start is None else int(query.start)
    if start >= end:
        raise InvalidRequest("the start of the range must be before its end")
    if query.as_of is not None:
        client = await call.services.client()
        if query.start is None or query.end is None:
            raise InvalidRequest("as_of needs start and end")
        known = await client.history(ticker, period, start=start, end=end, limit=query.limit, as_of=int(query.as_of))
        return await row_answer(
            call.request,
            iter([known.to_arrow()]),
            query.format,
            version=f"{time.time_ns()}",
            more=lambda: _missing(known),
        )
    is_last = query.order == "last" or (query.order is None and query.start is None)

    def read(tables: Tables) -> tuple[str, Iterator[pa.Table], "_Seen"]:
        from iceberg.coverage import read_holes
        from iceberg.views import bars_in_parts, newest_bars, version_of

        table = tables.open("ohlc")
        wanted = Range(ticker, period, start, end, query.limit)
        if table is None:
            empty = tables.definition("ohlc").arrow_schema.empty_table()
            return "", iter([empty]), _Seen(wanted, [], has_end=query.end is not None and query.start is not None)
        holes = read_holes(call.services.settings, ticker, period, catalog=tables.catalog)
        seen = _Seen(wanted, holes, has_end=query.end is not None)
        if is_last:
            parts: Iterator[pa.Table] = iter(
                [newest_bars(table, ticker, period, start_ns=start, end_ns=end, limit=query.limit)]
            )
        else:
            until = min(end, _last_end(table, end))
            parts = _first(bars_in_parts(table, ticker, period, start_ns=start, end_ns=until), query.limit)
        return f"{version_of(table)} {len(holes)}", seen.of(parts), seen

    version, parts, seen = await call.services.tables.read(read)
    return await row_answer(call.request, parts, query.format, version=version, more=seen.missing)


class _Seen:
    """Records the open times that pass through, to find what is missing between them."""

    def __init__(self, wanted: Range, holes: list[tuple[int, int]], *, has_end: bool) -> None:
        self._wanted = wanted
        self._holes = holes
        self._has_end = has_end
        self._opens: list[pa.ChunkedArray] = []

    def of(self, parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for part in parts:
            self._opens.append(part["open_time"])
            yield part

    def missing(self) -> Mapping[str, Any]:
        """The missing parts of the range, which begins with the first row if it has no start, and ends with the last
        row if it has no end.
        """
        opens = pa.chunked_array([chunk for each in self._opens for chunk in each.chunks], pa.timestamp("us", "UTC"))
        wanted = self._wanted
        if not len(opens) and (not wanted.start or not self._has_end):
            return {"holes": [], "unknown": []}
        start, end = wanted.start, wanted.end
        times = opens.cast(pa.int64())
        if len(opens):
            step = wanted.period_seconds * _SECOND
            start = start or times[0].as_py() * 1_000
            end = end if self._has_end else times[-1].as_py() * 1_000 + step
        rows = pa.table({"open_time": opens})
        return _missing(
            Stored.of(rows, Range(wanted.ticker, wanted.period_seconds, start, end, wanted.limit), self._holes)
        )


def _missing(stored: Any) -> Mapping[str, Any]:
    spans = {"holes": stored.holes, "unknown": stored.unknown}
    return {name: [{"start": iso(first), "end": iso(last)} for first, last in each] for name, each in spans.items()}


def _last_end(table: Any, end: int) -> int:
    """No candle opens later than a day from now, so this limits a range without an end."""
    return min(end, time.time_ns() + 86_400 * _SECOND)


def _first(parts: Iterator[pa.Table], limit: int) -> Iterator[pa.Table]:
    for part in parts:
        yield part.slice(0, limit)
        limit -= part.num_rows
        if limit <= 0:
            return


# ---- trades
class TicksQuery(Query):
    """Without `start`: the last day before `end`."""

    ticker: TickerText
    start: Moment | None = None
    end: Moment | None = None
    limit: int = Field(1_000, ge=1, le=1_000_000)
    format: Form = Form.json


class TickRow(Shape):
    """A stored trade, as a row of `lake.market.ticks`."""

    ticker: str
    trade_id: str
    ts: Instant
    ts_ns: int
    price: float | None
    size: float | None
    side: str | None
    received_at: Instant | None


class Ticks(Shape):
    """The first `limit` trades of the range."""

    rows: list[TickRow]


async def list_ticks(call: Call) -> Response:
    query: TicksQuery = call.query
    ticker = _ticker(query.ticker)
    end = time.time_ns() + _SECOND if query.end is None else int(query.end)
    start = end - 86_400 * _SECOND if query.start is None else int(query.start)

    def read(tables: Tables) -> tuple[str, pa.Table]:
        from iceberg.read import read_ticks
        from iceberg.views import version_of

        table = tables.open("ticks")
        if table is None:
            return "", tables.definition("ticks").arrow_schema.empty_table()
        return f"{version_of(table)} {start}", read_ticks(
            call.services.settings, ticker, start_ns=start, end_ns=end, limit=query.limit
        )

    version, rows = await call.services.tables.read(read)
    return await row_answer(call.request, iter([rows]), query.format, version=version)


# ---- coverage, gaps, what is stored
class CoverageRow(Shape):
    """A finished request, as a row of `lake.market.coverage`."""

    request_id: str
    ticker: str
    period_seconds: int
    start: Instant
    end: Instant
    expected: int | None
    got: int | None
    holes: list[Span] | None
    status: str | None
    closed_until: Instant | None


class Coverage(Shape):
    rows: list[CoverageRow]


class GapRow(Shape):
    """Trades that a stream missed, as a row of `lake.market.gaps`."""

    ticker: str
    from_trade_id: str | None
    to_trade_id: str | None
    from_ts: Instant | None
    to_ts: Instant | None
    missing: int | None
    repaired: bool | None
    reason: str | None
    detected_at: Instant | None


class Gaps(Shape):
    rows: list[GapRow]


class RevisedQuery(Query):
    ticker: TickerText
    period: PeriodText = "1m"


class RevisedRow(Shape):
    open_time: Instant
    revision: int


class Revised(Shape):
    """Corrected candles with their newest revision, in time order; at most the newest 5,000."""

    rows: list[RevisedRow]


class Series(Shape):
    """The stored candles of a ticker and period."""

    ticker: str
    period_seconds: int
    first: Instant
    last: Instant
    rows: int


class StoredBars(Shape):
    series: list[Series]


async def list_coverage(call: Call) -> Response:
    return await _of_ticker(call, "coverage")


async def list_gaps(call: Call) -> Response:
    return await _of_ticker(call, "gaps")


async def list_revised(call: Call) -> Response:
    query: RevisedQuery = call.query
    ticker, period = _ticker(query.ticker), parse_period(query.period)

    def read(tables: Tables) -> list[dict[str, Any]]:
        from iceberg.revisions import read_corrected

        table = tables.open("ohlc_revisions")
        return [] if table is None else plain(read_corrected(table, ticker, period, limit=_MAX_REVISED))

    return _json({"rows": await call.services.tables.read(read)})


async def _of_ticker(call: Call, name: str) -> Response:
    ticker = _ticker(call.query.ticker)

    def read(tables: Tables) -> list[dict[str, Any]]:
        from iceberg.views import rows_of

        table = tables.open(name)
        found = [] if table is None else plain(rows_of(table, tables.definition(name), ticker))
        return [{key: _deep(value) for key, value in row.items()} for row in found]

    return _json({"rows": await call.services.tables.read(read)})


def _deep(value: Any) -> Any:
    """Converts times inside lists, too."""
    if isinstance(value, list):
        return [{key: _iso_of(each) for key, each in item.items()} for item in value]
    return value


def _iso_of(value: Any) -> str:
    from console.times import iso_of

    return iso_of(value)


async def list_stored(call: Call) -> Response:
    def read(_: Tables) -> Sequence[Any]:
        from datasets.stored import stored_series

        return stored_series(call.services.settings)

    found = await call.services.tables.read(read)
    return _json({"series": [{**each._asdict(), "first": iso(each.first), "last": iso(each.last)} for each in found]})


# ---- venues and markets
class VenueRow(Shape):
    venue: str
    period_seconds: list[int]
    markets: int
    depth_candles: int = Field(description="How many candles back its history reaches; 0 = to the listing.")
    is_live: bool = Field(description="Whether an ingestor serves it now.")
    updated_at: Instant | None


class Venues(Shape):
    venues: list[VenueRow]


class MarketsQuery(Query):
    venue: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        None, description="Only markets of this venue."
    )
    search: Annotated[str, Field(max_length=100)] = Field("", description="Part of the ticker, in any case.")
    limit: int = Field(1_000, ge=1, le=100_000)


class MarketRow(Shape):
    ticker: str
    venue: str
    symbol: str
    market_id: str
    is_active: bool


class Markets(Shape):
    """`total`: how many match; the first `limit` of them are here."""

    markets: list[MarketRow]
    total: int


async def list_venues(call: Call) -> Response:
    client = await call.services.client()
    return _json({"venues": [_venue(each) for each in await client.venues()]})


async def list_markets(call: Call) -> Response:
    query: MarketsQuery = call.query
    client = await call.services.client()
    if query.venue is not None:
        venues = [query.venue.upper()]
    else:
        venues = [each.name for each in await client.venues() if each.market_count]
    words = query.search.upper().split()
    found: list[tuple[str, Market]] = []
    for venue in venues:
        markets = await call.services.markets(venue, _MARKETS_SECONDS)
        found += [(venue, each) for each in markets if all(word in each.ticker.upper() for word in words)]
    found.sort(key=lambda each: (not each[1].is_active, len(each[1].ticker), each[1].ticker))
    rows = [
        {
            "ticker": market.ticker,
            "venue": venue,
            "symbol": market.symbol,
            "market_id": market.market_id,
            "is_active": market.is_active,
        }
        for venue, market in found[: query.limit]
    ]
    return _json({"markets": rows, "total": len(found)})


def _venue(venue: Venue) -> dict[str, Any]:
    return {
        "venue": venue.name,
        "period_seconds": list(venue.period_seconds),
        "markets": venue.market_count,
        "depth_candles": venue.depth_candles,
        "is_live": venue.is_live,
        "updated_at": iso(venue.updated_at) if venue.updated_at else None,
    }


def _ticker(text: str) -> str:
    """Raises InvalidRequest."""
    return str(Ticker.parse(text))


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")


_UNCHANGED = Answer("Unchanged since the given ETag (`If-None-Match`).")
OPERATIONS = (
    Operation(
        method="GET",
        path="/bars",
        handler=list_bars,
        summary="Stored candles",
        answers={200: Answer("The candles.", Bars, CHUNKED), 304: _UNCHANGED},
        query=BarsQuery,
        problems=(409, 503),
        tag="market",
    ),
    Operation(
        method="GET",
        path="/ticks",
        handler=list_ticks,
        summary="Stored trades",
        answers={200: Answer("The trades.", Ticks, CHUNKED), 304: _UNCHANGED},
        query=TicksQuery,
        problems=(503,),
        tag="market",
    ),
    Operation(
        method="GET",
        path="/stored",
        handler=list_stored,
        summary="Which candles are stored",
        answers={200: Answer("By ticker and period.", StoredBars)},
        problems=(503,),
        tag="market",
    ),
    Operation(
        method="GET",
        path="/coverage",
        handler=list_coverage,
        summary="Finished requests of a ticker, and the holes that they found",
        answers={200: Answer("The requests.", Coverage)},
        query=OfTicker,
        problems=(503,),
        tag="market",
    ),
    Operation(
        method="GET",
        path="/gaps",
        handler=list_gaps,
        summary="Trades of a ticker that its stream missed",
        answers={200: Answer("The gaps.", Gaps)},
        query=OfTicker,
        problems=(503,),
        tag="market",
    ),
    Operation(
        method="GET",
        path="/revisions",
        handler=list_revised,
        summary="Candles of a ticker and period that were corrected",
        answers={200: Answer("The corrected candles.", Revised)},
        query=RevisedQuery,
        problems=(503,),
        tag="market",
    ),
    Operation(
        method="GET",
        path="/venues",
        handler=list_venues,
        summary="The venues that can be requested",
        answers={200: Answer("The venues.", Venues)},
        problems=(409, 503),
        tag="market",
    ),
    Operation(
        method="GET",
        path="/markets",
        handler=list_markets,
        summary="Markets of one or all venues, by part of their ticker",
        answers={200: Answer("The markets.", Markets)},
        query=MarketsQuery,
        problems=(404, 409, 503),
        tag="market",
    ),
)
