"""Functions that the venues' files share for reading replies and frames: rows at a path, candles by layout, trades as
tuples.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from candlewright.wire.errors import BadReply
from ingestor.trade import BUY, SELL, UNKNOWN, Trade, order_of

Row = Any
#: Converts a row, with its time of receipt (ns), to a trade; raises KeyError, ValueError or TypeError if it is not one.
Parse = Callable[[Row, int], Trade]

SIDES = {"buy": BUY, "b": BUY, "sell": SELL, "s": SELL}
OPPOSITE = {BUY: SELL, SELL: BUY, UNKNOWN: UNKNOWN}


def rows_of(reply: Any, *path: str) -> Sequence[Row]:
    """The list at `path` of a decoded reply; raises BadReply if it is missing."""
    for key in path:
        if not isinstance(reply, dict) or key not in reply:
            raise BadReply(f"a reply without {key!r}: {str(reply)[:120]!r}")
        reply = reply[key]
    if not isinstance(reply, list):
        raise BadReply(f"a reply that is not a list of rows: {str(reply)[:120]!r}")
    return reply


def plain_trade(trade_id: Any, time: int, price: Any, *, size: Any, side: str, received_at: int) -> Trade:
    """A trade from JSON values; ids may be numbers or any text."""
    text = str(trade_id)
    return (order_of(text), time, float(price), float(size), SIDES.get(side.lower(), UNKNOWN), text, received_at)


def iso_ns(text: str) -> int:
    """ISO text in UTC with any number of decimals, such as 2023-02-09T20:19:35.39625135Z, as nanoseconds."""
    whole, _, fraction = text.removesuffix("Z").removesuffix("+00:00").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return seconds * 1_000_000_000 + int((fraction + "000000000")[:9])
