"""Which tickers are live, and how many trades and bars of each the bus has numbered."""

from collections.abc import Mapping
from typing import NamedTuple

from bus import Bus
from bus import topics as bus_topics
from flink_replacement_spark.live.partition import ALWAYS

__all__ = ["Numbers", "live_numbers"]

#: One look asks for so many tickers; of more, the next look asks for the next ones.
MAX_ASKED = 5_000


class Numbers(NamedTuple):
    """The newest number of a ticker's trades, and of its one-minute bars."""

    trades: int
    bars: int


def live_numbers(bus: Bus, look: int) -> tuple[frozenset[str], Mapping[str, Numbers]]:
    """All tickers that the broker has a live job for, and the numbers of those that this look asks for."""
    tickers = sorted(bus.items(bus_topics.TABLE_WANTED))
    turns = -(-len(tickers) // MAX_ASKED)
    asked = tickers[look % turns :: turns] if turns else []
    names = [f"TICKS:{ticker}" for ticker in asked] + [f"OHLC:{ticker}:{ALWAYS}" for ticker in asked]
    last = bus.last_sequences(names)
    return frozenset(tickers), dict(zip(asked, map(Numbers, last, last[len(asked) :]), strict=True))
