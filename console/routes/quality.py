"""The quality of a series' stored candles, as `candlewright quality` prints it."""

from pydantic import Field
from starlette.responses import Response

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.periods import parse_period
from candlewright.wire.ticker import Ticker
from console.operation import Answer, Call, Operation, Query
from console.routes.shapes import PeriodText, Shape, Span, TickerText
from console.routes.worked import worked
from console.times import Instant, Moment

__all__ = ["OPERATIONS"]

#: An examination keeps its candles in memory, about 100 bytes each, and reads the trades of one day after another.
_MAX_CANDLES = 1_000_000
_MAX_DAYS_OF_TRADES = 31
_SHOWN_RANGES = 1_000


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
    trades: TradesCompared | None = Field(description="Null unless requested.")
    delay_ms: TradeDelay | None
    unknown_ranges: list[Span] = Field(description=f"The first {_SHOWN_RANGES:,}.")
    days: list[QualityDay]


async def get_quality(call: Call) -> Response:
    query: QualityQuery = call.query
    ticker, period = str(Ticker.parse(query.ticker)), parse_period(query.period)
    start, end = (None if each is None else int(each) for each in (query.start, query.end))
    if start is not None and end is not None and start >= end:
        raise InvalidRequest("the start of the range must be before its end")
    given = {
        "ticker": ticker,
        "period": period,
        "start": start,
        "end": end,
        "with_trades": query.trades,
        "max_candles": _MAX_CANDLES,
        "max_days_of_trades": _MAX_DAYS_OF_TRADES,
        "shown_ranges": _SHOWN_RANGES,
    }
    return await worked(call, "quality", given)


OPERATIONS = (
    Operation(
        method="GET",
        path="/quality",
        handler=get_quality,
        summary="The quality of stored candles",
        answers={200: Answer("Its quality.", QualityBody)},
        query=QualityQuery,
        problems=(503,),
        tag="market",
    ),
)
