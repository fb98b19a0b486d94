"""Live trades and bars as the user gets them, and their layout in the messages of their topics."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from google.protobuf.message import Message

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import streams

_SIDES = {cw.BUY: "buy", cw.SELL: "sell"}


@dataclass(kw_only=True, frozen=True, slots=True)
class Tick:
    """One trade. `timestamp` is the exchange's, in ns since the epoch; `side` is buy, sell or unknown."""

    ticker: str
    trade_id: str
    timestamp: int
    price: float
    size: float
    side: str
    received_at: int
    sequence: int


@dataclass(kw_only=True, frozen=True, slots=True)
class Bar:
    """A closed bar. `open_time` in ns since the epoch; `revision` counts from 0, and a later one corrects those before;
    not `complete` if trades were missed and could not be fetched.
    """

    ticker: str
    period_seconds: int
    open_time: int
    open: float
    high: float
    low: float
    close: float
    volume: float
    quote_volume: float | None
    trade_count: int | None
    complete: bool
    revision: int
    source: str
    sequence: int

    @classmethod
    def from_message(cls, message: cw.OHLCV) -> "Bar":
        return cls(
            ticker=message.ticker,
            period_seconds=message.period_seconds,
            open_time=message.open_time,
            open=message.open,
            high=message.high,
            low=message.low,
            close=message.close,
            volume=message.volume,
            quote_volume=message.quote_volume if message.HasField("quote_volume") else None,
            trade_count=message.trade_count if message.HasField("trade_count") else None,
            complete=message.complete,
            revision=message.revision,
            source=message.source,
            sequence=message.sequence,
        )


class Bars:
    """The topic `OHLC:{ticker}:{period_seconds}`; first revisions only unless `revisions`."""

    def __init__(self, ticker: str, period_seconds: int, *, revisions: bool) -> None:
        self.topic = streams.bars(ticker, period_seconds)
        self._revisions = revisions

    def span(self, message: Message) -> tuple[int, int] | None:
        return (message.sequence, 1) if isinstance(message, cw.OHLCV) and message.sequence else None

    def items(self, message: Message, skipped: int) -> Iterable[Bar]:
        assert isinstance(message, cw.OHLCV)
        return (Bar.from_message(message),) if self._revisions or message.revision == 0 else ()


class Ticks:
    """The topic `TICKS:{ticker}`; every trade has its own number."""

    def __init__(self, ticker: str) -> None:
        self.topic = streams.ticks(ticker)

    def span(self, message: Message) -> tuple[int, int] | None:
        if not isinstance(message, cw.TickBatch) or not message.first_sequence or not _is_even(message):
            return None
        return message.first_sequence, len(message.timestamp)

    def items(self, message: Message, skipped: int) -> Iterator[Tick]:
        assert isinstance(message, cw.TickBatch)
        for number in range(skipped, len(message.timestamp)):
            yield Tick(
                ticker=message.ticker,
                trade_id=message.trade_id[number],
                timestamp=message.timestamp[number],
                price=message.price[number],
                size=message.size[number],
                side=_SIDES.get(message.side[number], "unknown") if message.side else "unknown",
                received_at=message.received_at[number] if message.received_at else 0,
                sequence=message.first_sequence + number,
            )


def _is_even(batch: cw.TickBatch) -> bool:
    """Columns of one length; those that may be unknown may be left out."""
    count = len(batch.timestamp)
    needed = (batch.price, batch.size, batch.trade_id)
    optional = (batch.side, batch.received_at)
    return all(len(column) == count for column in needed) and all(len(column) in (0, count) for column in optional)
