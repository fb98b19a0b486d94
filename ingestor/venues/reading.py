"""Each venue's raw trades, of its websocket and of REST, as `Trade` tuples. Raise KeyError, ValueError or TypeError for
rows that are no trades.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from ingestor.trade import BUY, SELL, UNKNOWN, Trade, order_of

Row = Any
Parse = Callable[[Row, int], Trade]

_SIDES = {"buy": BUY, "b": BUY, "sell": SELL, "s": SELL}
_OPPOSITE = {BUY: SELL, SELL: BUY, UNKNOWN: UNKNOWN}
_MILLISECOND = 1_000_000


def binance_stream(row: Mapping[str, Any], received_at: int) -> Trade:
    number = row["t"]
    # m: the buyer was the maker, so that the taker sold.
    return (
        number,
        row["T"] * _MILLISECOND,
        float(row["p"]),
        float(row["q"]),
        SELL if row["m"] else BUY,
        str(number),
        received_at,
    )


def binance_rest(row: Mapping[str, Any], received_at: int) -> Trade:
    number = int(row["id"])
    side = SELL if row["isBuyerMaker"] else BUY
    time = int(row["time"]) * _MILLISECOND
    return (number, time, float(row["price"]), float(row["qty"]), side, str(number), received_at)


def kraken_stream(row: Mapping[str, Any], received_at: int) -> Trade:
    number = int(row["trade_id"])
    side = _SIDES.get(row["side"], UNKNOWN)
    return (number, iso_ns(row["timestamp"]), float(row["price"]), float(row["qty"]), side, str(number), received_at)


def kraken_rest(row: Any, received_at: int) -> Trade:
    number = int(row[6])
    time = int(Decimal(str(row[2])).scaleb(9))
    return (number, time, float(row[0]), float(row[1]), _SIDES.get(row[3], UNKNOWN), str(number), received_at)


def okx(row: Mapping[str, Any], received_at: int) -> Trade:
    return _plain(row["tradeId"], int(row["ts"]) * _MILLISECOND, row["px"], row["sz"], row["side"], received_at)


def bybit_stream(row: Mapping[str, Any], received_at: int) -> Trade:
    return _plain(row["i"], int(row["T"]) * _MILLISECOND, row["p"], row["v"], row["S"], received_at)


def bybit_rest(row: Mapping[str, Any], received_at: int) -> Trade:
    time = int(row["time"]) * _MILLISECOND
    return _plain(row["execId"], time, row["price"], row["size"], row["side"], received_at)


def coinbase(row: Mapping[str, Any], received_at: int) -> Trade:
    return _plain(row["trade_id"], iso_ns(row["time"]), row["price"], row["size"], row["side"], received_at)


def coinbaseexchange(row: Mapping[str, Any], received_at: int) -> Trade:
    """This exchange names the maker's side."""
    order, time, price, size, side, trade_id, received = coinbase(row, received_at)
    return (order, time, price, size, _OPPOSITE[side], trade_id, received)


def _plain(trade_id: Any, time: int, price: Any, size: Any, side: str, received_at: int) -> Trade:
    text = str(trade_id)
    return (order_of(text), time, float(price), float(size), _SIDES.get(side.lower(), UNKNOWN), text, received_at)


def iso_ns(text: str) -> int:
    """Nanoseconds of ISO text in UTC with any number of decimals, such as 2023-02-09T20:19:35.39625135Z."""
    whole, _, fraction = text.removesuffix("Z").removesuffix("+00:00").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return seconds * 1_000_000_000 + int((fraction + "000000000")[:9])
