"""How good the stored candles of a series are; what `candlewright quality` prints."""

import asyncio
from dataclasses import asdict
from typing import Any

import numpy as np
from pydantic import Field
from starlette.responses import Response

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.grid import SECOND, count_opens
from candlewright.wire.periods import parse_period
from candlewright.wire.ticker import Ticker
from console.operation import Answer, Call, Operation, Query
from console.routes.shapes import PeriodText, Shape, Span, TickerText, json_response
from console.times import Instant, Moment, iso
from core.settings import Settings

__all__ = ["OPERATIONS"]

#: An examination keeps its candles in memory, about 100 bytes each, and reads the trades of one day after another.
_MAX_CANDLES = 1_000_000
_MAX_DAYS_OF_TRADES = 31
_SHOWN_RANGES = 1_000
_EXAMINATIONS = asyncio.Semaphore(1)


class QualityQuery(Query):
    """Without `start`: the newest million candles before `end`."""

    ticker: TickerText
    period: PeriodText = "1m"
    start: Moment | None = None
    end: Moment | None = None
    trades: bool = Field(
        False,
        description=f"Also compare with the stored trades; the range then has at most {_MAX_DAYS_OF_TRADES} days.",
    )


class PriceJump(Shape):
    """A candle whose close moved unusually far."""

    time: Instant
    move: float | None = Field(description="Relative change of the close since the candle before.")


class TradesCompared(Shape):
    """The candles of the exchange, compared with bars made from the stored trades."""

    compared: int
    equal: int
    price_differs: int
    volume_differs: int
    volume_off: float | None = Field(description="The largest difference, relative to the candle's volume.")


class TradeDelay(Shape):
    """From a trade to its receipt, in milliseconds."""

    median: float
    p99: float


class QualityDay(Shape):
    """A UTC day: stored candles, candles that the venue does not have, and candles of a complete day."""

    day: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    got: int
    holes: int
    expected: int


class QualityBody(Shape):
    """Counts are of candles. `problems` has a sentence for each kind of problem found."""

    ticker: str
    period_seconds: int
    rows: int
    first: Instant | None
    last: Instant | None
    problems: list[str]
    holes: int = Field(description="A finished request found that the venue has none.")
    unknown: int = Field(description="Missing between the first and the last, for an unknown reason.")
    incomplete: int = Field(description="Known to lack trades.")
    duplicates: int
    malformed: int = Field(description="With impossible values.")
    without_trades: int
    longest_without_trades: int
    revised: int = Field(description="Corrected after their first publication.")
    sources: dict[str, int]
    outliers: list[PriceJump] = Field(description="The ten largest.")
    outlier_count: int
    gaps_open: int = Field(description="Gaps in live trades that are not repaired.")
    gaps_repaired: int
    trades: TradesCompared | None = Field(description="Null unless asked for.")
    delay_ms: TradeDelay | None
    unknown_ranges: list[Span] = Field(description=f"The first {_SHOWN_RANGES:,}.")
    days: list[QualityDay]


async def get_quality(call: Call) -> Response:
    query: QualityQuery = call.query
    ticker, period = str(Ticker.parse(query.ticker)), parse_period(query.period)
    start, end = (None if each is None else int(each) for each in (query.start, query.end))
    if start is not None and end is not None and start >= end:
        raise InvalidRequest("the start of the range is not before its end")
    async with _EXAMINATIONS:
        body = await call.services.tables.read(
            lambda _: _examined(call.services.settings, ticker, period, start=start, end=end, with_trades=query.trades)
        )
    return json_response(body)


def _examined(
    settings: Settings, ticker: str, period: int, *, start: int | None, end: int | None, with_trades: bool
) -> dict[str, Any]:
    from datasets.quality import Quality, examine
    from datasets.stored import stored_series

    series = next((each for each in stored_series(settings, periods=[period]) if each.ticker == ticker), None)
    if series is None:
        return _body(Quality(ticker=ticker, period_seconds=period, rows=0), with_trades=with_trades)
    until = series.last + 1 if end is None else min(end, series.last + 1)
    newest = until - _MAX_CANDLES * period * SECOND
    since = max(series.first, newest if start is None else start)
    candles = count_opens(since, until, period)
    if candles > _MAX_CANDLES:
        raise InvalidRequest(f"the range has {candles:,} candles; at most {_MAX_CANDLES:,} are examined at once")
    if with_trades and until - since > _MAX_DAYS_OF_TRADES * 86_400 * SECOND:
        raise InvalidRequest(f"a comparison with trades takes a range of at most {_MAX_DAYS_OF_TRADES} days")
    return _body(
        examine(settings, ticker, period, start=since, end=until, with_trades=with_trades), with_trades=with_trades
    )


def _body(found: Any, *, with_trades: bool) -> dict[str, Any]:
    """`found`: a `datasets.quality.Quality`."""
    body: dict[str, Any] = asdict(found)
    for name in ("first", "last"):
        body[name] = None if body[name] is None else iso(body[name])
    body["problems"] = found.problems
    body["outliers"] = [{"time": iso(each.time), "move": each.move} for each in found.outliers]
    body["trades"] = body["trades"] if with_trades else None
    body["delay_ms"] = found.delay_ms and dict(zip(("median", "p99"), found.delay_ms, strict=True))
    ranges = found.unknown_ranges[:_SHOWN_RANGES]
    body["unknown_ranges"] = [{"start": iso(first), "end": iso(last)} for first, last in ranges]
    body["days"] = [{**each._asdict(), "day": str(np.datetime64(each.day, "D"))} for each in found.days]
    return body


OPERATIONS = (
    Operation(
        method="GET",
        path="/quality",
        handler=get_quality,
        summary="How good stored candles are",
        answers={200: Answer("Its quality.", QualityBody)},
        query=QualityQuery,
        problems=(503,),
        tag="market",
    ),
)
