"""Shapes that several calls share."""

from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from console.operation import Query
from console.times import Instant

TickerText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="As `BASE/QUOTE.VENUE`.",
        examples=["BTC/USDT.BINANCE"],
    ),
]
PeriodText = Annotated[str, Field(max_length=20, description="As `1m`, `1h`, `1d`, or seconds.", examples=["1m"])]


class Shape(BaseModel):
    """The base of answers."""

    model_config = ConfigDict(extra="forbid")


class Span(Shape):
    """Half-open: `end` is excluded."""

    start: Instant
    end: Instant


class BarRow(Shape):
    """A stored candle, as a row of `lake.market.ohlc`."""

    ticker: str
    period_seconds: int
    open_time: Instant
    open: float | None
    high: float | None
    low: float | None
    close: float | None
    volume: float | None
    quote_volume: float | None
    trade_count: int | None
    source: str | None
    complete: bool | None
    updated_at: Instant | None = None
    revision: int | None = None
    known_at: Instant | None = None


class OfTicker(Query):
    ticker: TickerText


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body), status, headers, "application/json")
