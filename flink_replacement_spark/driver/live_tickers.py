"""The live tickers, and the newest numbers of their trades and bars on the bus."""

from collections.abc import Mapping
from typing import NamedTuple

from bus import Bus
from bus import topics as bus_topics
from candlewright.wire import streams
from flink_replacement_spark.live.partition import ALWAYS

__all__ = ["Numbers", "live_numbers"]

#: Tickers queried at a time; further ones are queried next time.
MAX_ASKED = 5_000


class Numbers(NamedTuple):
    """The newest number of a ticker's trades, and of its one-minute bars."""

    trades: int
    bars: int


def live_numbers(bus: Bus, look: int) -> tuple[frozenset[str], Mapping[str, Numbers]]:
    """All tickers with a live job, and the numbers of those queried this time."""
    tickers = sorted(bus.items(bus_topics.TABLE_WANTED))
    turns = -(-len(tickers) // MAX_ASKED)
    asked = tickers[look % turns :: turns] if turns else []
    names = [streams.ticks(ticker) for ticker in asked] + [streams.bars(ticker, ALWAYS) for ticker in asked]
    last = bus.last_sequences(names)
    return frozenset(tickers), dict(zip(asked, map(Numbers, last, last[len(asked) :]), strict=True))
