"""For each recipe of the cookbook a market in which its pattern occurs, and one like it in which it does not.

A market is made by a function of the recipe's name. `occurs` says whether what makes the pattern is there; the rest of
the market, and its noise, are the same.
"""

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from candlewright.wire.grid import SECOND

Row = dict[str, Any]
Market = Callable[[random.Random, bool], list[Row]]
TICKER = "BTC/USDT.BINANCE"
#: A Tuesday; New York opens at 14:30.
MIDNIGHT = datetime(2024, 1, 16, tzinfo=UTC)
_MINUTE = 60
MARKETS: dict[str, Market] = {}


def market(make: Market) -> Market:
    MARKETS[make.__name__.replace("_", "-")] = make
    return make


def legs(*parts: tuple[int, float], start: float = 100.0) -> list[float]:
    """Closes on straight lines: (bars, price at their end) each."""
    found = [start]
    for count, end in parts:
        first = found[-1]
        found += [first + (end - first) * step / count for step in range(1, count + 1)]
    return found[1:]


def flat(chance: random.Random, count: int, price: float = 100.0, width: float = 0.2) -> list[float]:
    return [price + chance.uniform(-width, width) for _ in range(count)]


def bars(
    chance: random.Random,
    closes: Sequence[float],
    changed: dict[int, Row] | None = None,
    *,
    hour: float = 0.0,
    period: int = _MINUTE,
    ticker: str = TICKER,
) -> list[Row]:
    """A bar opens at the close before it; wicks and volumes are noise. `changed`: values by number, -1 the last."""
    found: list[Row] = []
    start = round((MIDNIGHT.timestamp() + hour * 3600) * SECOND)
    for number, close in enumerate(closes):
        opened = closes[number - 1] if number else close
        row: Row = {"ticker": ticker, "time": start + number * period * SECOND, "period_seconds": period}
        row |= {"open": opened, "close": close, "volume": chance.uniform(0.9, 1.1)}
        wick = abs(close) * 0.0005
        row["high"] = max(opened, close) + chance.uniform(0, wick)
        row["low"] = min(opened, close) - chance.uniform(0, wick)
        found.append(row)
    for number, values in (changed or {}).items():
        found[number] |= values
        found[number]["high"] = max(found[number][name] for name in ("open", "high", "close"))
        found[number]["low"] = min(found[number][name] for name in ("open", "low", "close"))
    return found


@market
def breakout_with_volume(chance: random.Random, occurs: bool) -> list[Row]:
    return bars(chance, [*flat(chance, 40), 101.0], {-1: {"volume": 4.0 if occurs else 1.0}})


@market
def failed_breakout(chance: random.Random, occurs: bool) -> list[Row]:
    return bars(chance, [*flat(chance, 80), 101.0, 101.3, 100.0 if occurs else 101.1, *legs((10, 103), start=101.4)])


@market
def double_bottom(chance: random.Random, occurs: bool) -> list[Row]:
    second = 98.02 if occurs else 97.0
    return bars(chance, legs((4, 100.5), (5, 98), (4, 99), (4, second), (5, 99.6), (3, 99)))


@market
def three_drives(chance: random.Random, occurs: bool) -> list[Row]:
    third = 106.0 if occurs else 103.5
    closes = legs((3, 99), (4, 102), (2, 101), (4, 104), (2, 103), (4, third), (3, 101))
    return bars(chance, closes, {6: {"volume": 3.0}})


@market
def mean_reversion(chance: random.Random, occurs: bool) -> list[Row]:
    return bars(chance, [*flat(chance, 40), 97.0 if occurs else 99.9, *flat(chance, 10, 99.9, 0.1)])


@market
def opening_range(chance: random.Random, occurs: bool) -> list[Row]:
    """From 14:00 to 16:40; half an hour after the opening the price leaves the range of 99 to 101, or stays in it."""
    opening = [100 + (1 if minute % 2 else -1) for minute in range(30)]
    later = 102.0 if occurs else 100.5
    return bars(chance, [*flat(chance, 30), *opening, *flat(chance, 20), *legs((20, later), (60, 100))], hour=14)


@market
def vwap_reclaim(chance: random.Random, occurs: bool) -> list[Row]:
    return bars(chance, [*flat(chance, 30), *legs((5, 98), (50, 98.5), (5, 101 if occurs else 98.8), (5, 98))])


@market
def liquidity_sweep(chance: random.Random, occurs: bool) -> list[Row]:
    closes = [*flat(chance, 130), 100.0, *flat(chance, 5)]
    return bars(chance, closes, {130: {"low": 98.0, "volume": 5.0, "close": 100.0 if occurs else 98.5}})


@market
def keltner_break(chance: random.Random, occurs: bool) -> list[Row]:
    return bars(chance, [*flat(chance, 60), 102.0 if occurs else 100.1, *flat(chance, 3)])
