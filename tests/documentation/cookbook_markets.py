"""For each recipe of the cookbook, a market in which its pattern occurs, and a similar one in which it does not.

A market is made by a function with the recipe's name. `occurs` says whether it contains the pattern; the rest of the
market, and its noise, are the same.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from candlewright.wire.grid import SECOND

Row = dict[str, Any]


class Market(Protocol):
    __name__: str

    def __call__(self, chance: random.Random, *, occurs: bool) -> list[Row]: ...


TICKER = "BTC/USDT.BINANCE"
OTHER = "ETH/USDT.BINANCE"
#: A Tuesday; New York opens at 14:30.
MIDNIGHT = datetime(2024, 1, 16, tzinfo=UTC)
_MINUTE = 60
MARKETS: dict[str, Market] = {}


def market(make: Market) -> Market:
    MARKETS[make.__name__.replace("_", "-")] = make
    return make


def legs(*parts: tuple[int, float], start: float = 100.0) -> list[float]:
    """Closes on straight lines, each given as (bars, price at their end)."""
    found = [start]
    for count, end in parts:
        first = found[-1]
        found += [first + (end - first) * step / count for step in range(1, count + 1)]
    return found[1:]


def flat(chance: random.Random, count: int, price: float = 100.0, *, width: float = 0.2) -> list[float]:
    return [price + chance.uniform(-width, width) for _ in range(count)]


def swinging(count: int, price: float = 100.0, width: float = 0.05) -> list[float]:
    return [price + (width if number % 2 else -width) for number in range(count)]


def bars(
    chance: random.Random,
    closes: Sequence[float],
    changed: dict[int, Row] | None = None,
    *,
    hour: float = 0.0,
    period: int = _MINUTE,
    ticker: str = TICKER,
) -> list[Row]:
    """Each bar opens at the previous close; wicks and volumes are noise. `changed`: values by index, -1 for the
    last.
    """
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
def breakout_with_volume(chance: random.Random, *, occurs: bool) -> list[Row]:
    return bars(chance, [*flat(chance, 40), 101.0], {-1: {"volume": 4.0 if occurs else 1.0}})


@market
def failed_breakout(chance: random.Random, *, occurs: bool) -> list[Row]:
    return bars(chance, [*flat(chance, 80), 101.0, 101.3, 100.0 if occurs else 101.1, *legs((10, 103), start=101.4)])


@market
def double_bottom(chance: random.Random, *, occurs: bool) -> list[Row]:
    second = 98.02 if occurs else 97.0
    return bars(chance, legs((4, 100.5), (5, 98), (4, 99), (4, second), (5, 99.6), (3, 99)))


@market
def three_drives(chance: random.Random, *, occurs: bool) -> list[Row]:
    third = 106.0 if occurs else 103.5
    closes = legs((3, 99), (4, 102), (2, 101), (4, 104), (2, 103), (4, third), (3, 101))
    return bars(chance, closes, {6: {"volume": 3.0}})


@market
def mean_reversion(chance: random.Random, *, occurs: bool) -> list[Row]:
    return bars(chance, [*flat(chance, 40), 97.0 if occurs else 99.9, *flat(chance, 10, 99.9, width=0.1)])


@market
def opening_range(chance: random.Random, *, occurs: bool) -> list[Row]:
    """From 14:00 to 16:40; half an hour after the opening the price leaves the range of 99 to 101, or stays in it."""
    opening = [100 + (1 if minute % 2 else -1) for minute in range(30)]
    later = 102.0 if occurs else 100.5
    return bars(chance, [*flat(chance, 30), *opening, *flat(chance, 20), *legs((20, later), (60, 100))], hour=14)


@market
def vwap_reclaim(chance: random.Random, *, occurs: bool) -> list[Row]:
    return bars(chance, [*flat(chance, 30), *legs((5, 98), (50, 98.5), (5, 101 if occurs else 98.8), (5, 98))])


@market
def liquidity_sweep(chance: random.Random, *, occurs: bool) -> list[Row]:
    closes = [*flat(chance, 130), 100.0, *flat(chance, 5)]
    return bars(chance, closes, {130: {"low": 98.0, "volume": 5.0, "close": 100.0 if occurs else 98.5}})


@market
def keltner_break(chance: random.Random, *, occurs: bool) -> list[Row]:
    return bars(chance, [*flat(chance, 60), 102.0 if occurs else 100.1, *flat(chance, 3)])


@market
def pump_detection(chance: random.Random, *, occurs: bool) -> list[Row]:
    busy = {number: {"volume": 20.0 if occurs else 1.0} for number in range(80, 85)}
    return bars(chance, [*flat(chance, 80), *legs((5, 103)), *flat(chance, 10, 103)], busy)


@market
def rsi_divergence(chance: random.Random, *, occurs: bool) -> list[Row]:
    second = 94.6 if occurs else 95.6
    return bars(chance, [*flat(chance, 20), *legs((10, 95), (4, 97.5), (3, 96.5), (3, 97), (4, second), (4, 97))])


@market
def golden_cross_confirmed(chance: random.Random, *, occurs: bool) -> list[Row]:
    return bars(chance, legs((210, 90), (60, 105 if occurs else 84), start=110.0), period=3600)


@market
def volatility_squeeze(chance: random.Random, *, occurs: bool) -> list[Row]:
    """Closes that hardly differ within wide bars, followed by a close far outside."""
    wide = {number: {"high": 101.0, "low": 99.0} for number in range(60)}
    return bars(chance, [*swinging(60), 103.0 if occurs else 100.0, *swinging(5)], wide)


@market
def session_high_taken(chance: random.Random, *, occurs: bool) -> list[Row]:
    return bars(chance, [*flat(chance, 60), *flat(chance, 30, 99), *flat(chance, 5, 101 if occurs else 99)], hour=7)


@market
def inside_bar_break(chance: random.Random, *, occurs: bool) -> list[Row]:
    closes = [*swinging(30, width=0.2), 100.5, 100.4, 100.6, 103.0 if occurs else 97.0, 97.0]
    return bars(chance, closes, {30: {"high": 102.0, "low": 98.0}})


@market
def gap_fill(chance: random.Random, *, occurs: bool) -> list[Row]:
    """The last minutes in New York, some of the night, and the first of the next session."""
    closing = bars(chance, flat(chance, 6), hour=20.9)
    night = bars(chance, legs((6, 102)), hour=30)
    opening = bars(chance, legs((10, 103), (10, 99.5 if occurs else 101.5), (5, 102), start=102), hour=38.5)
    return [*closing, *night, *opening]


@market
def volume_climax(chance: random.Random, *, occurs: bool) -> list[Row]:
    closes = [*flat(chance, 70), 97.0, 99.5 if occurs else 96.0, *flat(chance, 5, 96)]
    return bars(chance, closes, {70: {"volume": 9.0}})


@market
def three_white_soldiers(chance: random.Random, *, occurs: bool) -> list[Row]:
    return bars(chance, legs((5, 98), (2, 100), (1, 101 if occurs else 99), (3, 98)))


@market
def ma_ribbon(chance: random.Random, *, occurs: bool) -> list[Row]:
    return bars(chance, legs((80, 95), (30, 103 if occurs else 92)))


@market
def donchian_break(chance: random.Random, *, occurs: bool) -> list[Row]:
    return bars(chance, [*flat(chance, 80), 102.0 if occurs else 99.9, *flat(chance, 5)], period=3600)


@market
def macd_trend_filter(chance: random.Random, *, occurs: bool) -> list[Row]:
    """A long rise and a pullback that turns; or one that falls through the mean."""
    return bars(chance, legs((260, 140), (12, 136), (15, 141)) if occurs else legs((260, 140), (40, 100), (15, 104)))


@market
def atr_trailing_stop(chance: random.Random, *, occurs: bool) -> list[Row]:
    end = legs((12, 104), (8, 100)) if occurs else legs((20, 104))
    return bars(chance, [*flat(chance, 70), 101.0, *(price + 1 for price in end)])


@market
def round_number_touch(chance: random.Random, *, occurs: bool) -> list[Row]:
    end = 42_050.0 if occurs else 41_900.0
    return bars(chance, [*flat(chance, 125, 41_500, width=20), *legs((10, end), (5, 41_800), start=41_500)])


@market
def hammer_at_support(chance: random.Random, *, occurs: bool) -> list[Row]:
    closes = [*flat(chance, 65), *legs((6, 97)), 97.05, 97.6 if occurs else 96.0, 97.0]
    return bars(chance, closes, {71: {"open": 97.0, "low": 95.5}})


@market
def lead_lag(chance: random.Random, *, occurs: bool) -> list[Row]:
    leader = bars(chance, [*flat(chance, 5, 100, width=0.05), 101.0, *flat(chance, 5, 101, width=0.05)])
    follower = [*flat(chance, 5, 100, width=0.02), 100.0 if occurs else 101.0, *flat(chance, 5, 101, width=0.02)]
    return by_time([*leader, *bars(chance, follower, ticker=OTHER)])


def trades(
    chance: random.Random, seconds: Sequence[float], prices: Sequence[float], *, ticker: str = TICKER
) -> list[Row]:
    start = MIDNIGHT.timestamp()
    found: list[Row] = []
    for second, price in zip(seconds, prices, strict=True):
        row: Row = {"ticker": ticker, "time": round((start + second) * SECOND), "price": price}
        found.append(row | {"size": chance.uniform(0.9, 1.1), "side": chance.choice(("buy", "sell"))})
    return found


def by_time(found: list[Row]) -> list[Row]:
    return sorted(found, key=lambda row: int(row["time"]))


@market
def stale_feed(chance: random.Random, *, occurs: bool) -> list[Row]:
    times = [*range(0, 600, 10), *range(1000 if occurs else 700, 1600, 10)]
    return trades(chance, times, flat(chance, len(times)))


@market
def spread_widening(chance: random.Random, *, occurs: bool) -> list[Row]:
    one = trades(
        chance,
        range(0, 120, 2),
        [*flat(chance, 30, 100, width=0.01), *flat(chance, 30, 100.5 if occurs else 100, width=0.01)],
    )
    return by_time(
        [*one, *trades(chance, range(1, 120, 3), flat(chance, 40, 100, width=0.01), ticker="BTC/USDT.KRAKEN")]
    )


@market
def top_movers(chance: random.Random, *, occurs: bool) -> list[Row]:
    found = []
    for place, rise in enumerate((4, 3, 2, 1) if occurs else (-1, -2, -3, -4)):
        prices = [100 + rise * step / 20 for step in range(20)]
        found += trades(
            chance, [second * 3 + place / 10 for second in range(20)], prices, ticker=f"C{place}/USDT.BINANCE"
        )
        found += trades(chance, [70 + place / 10], [prices[-1]], ticker=f"C{place}/USDT.BINANCE")
    return by_time(found)


@market
def dollar_bar_imbalance(chance: random.Random, *, occurs: bool) -> list[Row]:
    """Bars of about 25 trades of 40,000: rising throughout, or up and down within each."""
    prices = [40_000 + (number if occurs else 50 * (number % 12)) for number in range(120)]
    return trades(chance, range(120), prices)


@market
def staircase(chance: random.Random, *, occurs: bool) -> list[Row]:
    """Four rising lows, the third one of which may come after a pause."""
    pause = 3 if occurs else 12
    return bars(chance, legs((4, 99), (3, 100.2), (3, 99.4), (pause, 100.6), (3, 99.8), (3, 101), (3, 100.2), (4, 102)))


@market
def quiet_then_burst(chance: random.Random, *, occurs: bool) -> list[Row]:
    quiet = [second + part / 4 for second in range(10) for part in range(3)]
    times = [*quiet, *(10 + part / 60 for part in range(50 if occurs else 6)), 11, 12]
    return trades(chance, times, flat(chance, len(times)))


@market
def order_flow_imbalance(chance: random.Random, *, occurs: bool) -> list[Row]:
    found = trades(chance, range(40), flat(chance, 40))
    return [
        row | ({"side": "buy" if occurs else "sell"} if 20 <= number < 30 else {}) for number, row in enumerate(found)
    ]


@market
def alert_of_alerts(chance: random.Random, *, occurs: bool) -> list[Row]:
    """Events of three triggers within minutes, of only two of them, and of three an hour apart."""
    start = round(MIDNIGHT.timestamp() * SECOND)
    names = ("mean-reversion", "volume-climax", "liquidity-sweep" if occurs else "volume-climax")
    fired = [(minute * 3 + chance.random(), name) for minute, name in enumerate(names)]
    fired += [(500 + 60 * hour, name) for hour, name in enumerate(names)]
    return [
        {"ticker": TICKER, "time": start + round(minute * 60 * SECOND), "trigger_id": name} for minute, name in fired
    ]
