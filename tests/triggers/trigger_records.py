"""Records for triggers, and the contents of their events."""

from typing import Any

from candlewright.wire.candlewright_pb2 import BUY, OHLCV, TickBatch, TriggerRemove
from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent, FieldValue
from protobuf import records_pb2 as records

T0 = 1_700_000_100 * SECOND
TICKER = "BTC/USDT.BINANCE"
OTHER = "ETH/USDT.BINANCE"

#: Every trade, once it is due in event time.
IN_ORDER = "SELECT price, LAG(price) OVER (PARTITION BY ticker ORDER BY ts) AS before FROM ticks"
V_SHAPE = """
SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY ts
  MEASURES FIRST(price) AS top, LAST(D.price) AS bottom, LAST(U.price) AS back
  PATTERN (S D+ U+)
  DEFINE D AS price < PREV(price), U AS price > PREV(price)
) AS v"""


def batch(first: int, *trades: tuple[float, str, float], ticker: str = TICKER) -> bytes:
    """(seconds from T0, id, price); `first`: the number of the first one in its topic."""
    found = TickBatch(ticker=ticker, first_sequence=first)
    for second, trade_id, price in trades:
        found.timestamp.append(T0 + round(second * SECOND))
        found.trade_id.append(trade_id)
        found.price.append(price)
        found.size.append(0.5)
        found.side.append(BUY)
        found.received_at.append(1)
    return found.SerializeToString()


def prices(first: int, *values: float, ticker: str = TICKER) -> bytes:
    """One trade a second; second and id are the number in the topic."""
    return batch(first, *((first + i, str(first + i), value) for i, value in enumerate(values)), ticker=ticker)


def bar(minute: int, close: float, period: int = 60, *, revision: int = 0, ticker: str = TICKER) -> bytes:
    """A bar that opens at 1.0, `minute` minutes after T0."""
    low, high = min(1.0, close), max(1.0, close)
    return candle(minute, 1.0, high, low=low, close=close, period=period, revision=revision, ticker=ticker)


def candle(
    minute: int,
    opened: float,
    high: float,
    *,
    low: float,
    close: float,
    period: int = 60,
    revision: int = 0,
    ticker: str = TICKER,
) -> bytes:
    return OHLCV(
        open_time=T0 + minute * 60 * SECOND, open=opened, high=high, low=low, close=close,
        volume=1.0, period_seconds=period, ticker=ticker, complete=True, revision=revision, source="ticks",
    ).SerializeToString()  # fmt: skip


def clock(second: float, sequence: int, ticker: str = TICKER) -> bytes:
    body = records.Clock(exchange_time=T0 + round(second * SECOND), sequence=sequence)
    return records.TickMark(ticker=ticker, clock=body).SerializeToString()


def jump(ticker: str, second: float, trigger_id: str = "jump", *, event_id: str = "", **context: str) -> bytes:
    """An event as the platform publishes it."""
    return CEPTriggerEvent(
        trigger_id=trigger_id,
        timestamp=T0 + round(second * SECOND),
        context={"event_id": event_id or f"{ticker}{second}", "ticker": ticker, **context},
    ).SerializeToString()


def register(trigger_id: str, sql: str, *tickers: str, version: int = 1, **parameters: str) -> bytes:
    registration = records.TriggerRegistration(
        trigger_id=trigger_id, sql=sql, tickers=tickers, parameters=parameters, version=version
    )
    return records.TriggerControl(register=registration).SerializeToString()


def remove(trigger_id: str) -> bytes:
    return records.TriggerControl(remove=TriggerRemove(trigger_id=trigger_id)).SerializeToString()


def rows(event: CEPTriggerEvent) -> list[dict[str, Any]]:
    """The rows, with times as ns since the epoch."""
    names = event.schema.column_names
    return [dict(zip(names, map(_value, row.values), strict=True)) for row in event.rows]


def _value(data: bytes) -> Any:
    value = FieldValue.FromString(data)
    member = value.WhichOneof("value")
    return None if member is None else getattr(value, member)
