"""Bars from trades, exact to the trade: plain numpy, free of Spark, sockets and Redis."""

from bars.aggregate import Bars, from_trades, merge, roll_up

__all__ = ["Bars", "from_trades", "merge", "roll_up"]
