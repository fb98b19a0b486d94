"""One trade as a plain tuple, since hundreds of thousands a second pass through here.

(order, time, price, size, side, trade id, received at): `order` is the id as a number (0 for non-numeric ids),
times are ns since the epoch, `side` is 0 unknown, 1 buy, 2 sell.

A trade whose time is too far ahead of the exchange's clock is not published. A stand-in takes its place in the stream,
so that its id counts as seen; it has a plausible time, and the original time, negated, as `received at`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from candlewright.wire import tick_columns
from candlewright.wire.tick_columns import TickColumns

Trade = tuple[int, int, float, float, int, str, int]
ORDER: Final = 0
TIME: Final = 1
PRICE: Final = 2
SIZE: Final = 3
SIDE: Final = 4
TRADE_ID: Final = 5
RECEIVED_AT: Final = 6

UNKNOWN, BUY, SELL = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Raw trades `first` to `last`, all at `price`, of `size` together; `time` in ns."""

    first: int
    last: int
    time: int
    price: float
    size: float


def order_of(trade_id: str) -> int:
    """The id as a number; 0 if it is not a 64-bit integer. The longest ids in use have 19 digits, and fit."""
    if not trade_id.isascii() or not trade_id.isdecimal() or len(trade_id) > 19:
        return 0
    order = int(trade_id)
    return order if order < 1 << 63 else 0


def stand_in(trade: Trade, time_ns: int) -> Trade:
    """The stand-in for a trade that is put aside, with another time."""
    order, wild, price, size, side, trade_id, _ = trade
    return (order, time_ns, price, size, side, trade_id, -wild)


def is_stand_in(trade: Trade) -> bool:
    return trade[RECEIVED_AT] < 0


def put_aside(stand_ins: Sequence[Trade]) -> list[Trade]:
    """The original trades of these stand-ins, without the time at which they were received."""
    return [(*trade[:TIME], -trade[RECEIVED_AT], *trade[PRICE:RECEIVED_AT], 0) for trade in stand_ins]


def tick_batch(
    ticker: str, trades: Sequence[Trade], clock_ahead: int | None = None, *, exchange_ahead: int | None = None
) -> bytes:
    """A serialised TickBatch, to which the bus appends first_sequence. `clock_ahead` and `exchange_ahead` (ns) as in
    `LanePublisher.publish`.
    """
    columns: list[Any] = list(zip(*trades, strict=True))
    batch = TickColumns(
        ticker=ticker,
        first_sequence=0,
        timestamp=np.array(columns[TIME], np.int64),
        price=np.array(columns[PRICE], np.float64),
        size=np.array(columns[SIZE], np.float64),
        side=np.array(columns[SIDE], np.uint8),
        trade_id=np.array([text.encode() for text in columns[TRADE_ID]], np.bytes_),
        received_at=np.array(columns[RECEIVED_AT], np.int64),
        clock_ahead=clock_ahead,
        exchange_ahead=exchange_ahead,
    )
    return tick_columns.encode(batch)


def trades_of(value: bytes) -> list[Trade]:
    """The trades of a serialised TickBatch; raises BadFrame."""
    batch = tick_columns.decode(value)
    return [
        (order_of(text), time, price, size, side, text, received_at)
        for time, price, size, side, text, received_at in zip(
            batch.timestamp.tolist(),
            batch.price.tolist(),
            batch.size.tolist(),
            batch.side.tolist(),
            [text.decode() for text in batch.trade_id.tolist()],
            batch.received_at.tolist(),
            strict=True,
        )
    ]
