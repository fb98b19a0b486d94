"""How much each exchange allows, and what a call costs. Figures are those of the exchanges' documentation."""

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Call(Enum):
    CANDLES = "candles"
    HISTORY_CANDLES = "history_candles"
    TRADES = "trades"
    RAW_TRADES = "raw_trades"
    TICKER = "ticker"
    MARKETS = "markets"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Allowance:
    """Calls of one bucket may spend `limit` units in any `window_seconds`."""

    bucket: str
    limit: float
    window_seconds: float

    def shared(self, share: float, cost: float) -> tuple[float, float]:
        """Capacity and refill per second of a token bucket that never spends over `share` of the limit in a window."""
        allowed = self.limit * share
        capacity = max(allowed / 10, cost)
        return capacity, max(allowed - capacity, allowed / 2) / self.window_seconds


#: Units a call; a call that is not named costs 1.
_COSTS: dict[str, dict[Call, float]] = {
    "binance": {Call.CANDLES: 2, Call.TRADES: 4, Call.RAW_TRADES: 25, Call.TICKER: 2, Call.MARKETS: 20, Call.TIME: 1},
}

_ALLOWANCES: dict[str, Allowance] = {
    "binance": Allowance("weight", 6_000, 60),
    "kraken": Allowance("calls", 60, 60),
    "okx": Allowance("calls", 20, 2),
    "bybit": Allowance("calls", 600, 5),
    "coinbase": Allowance("calls", 10, 1),
    "coinbaseexchange": Allowance("calls", 10, 1),
}

#: okx counts each endpoint for itself.
_OKX_CANDLES = Allowance("candles", 40, 2)
_OKX_HISTORY = Allowance("history", 20, 2)


def allowance_of(ccxt_id: str, call: Call, exchange: Any) -> Allowance:
    """The bucket of `call`; for exchanges that are not listed, what ccxt's own limiter would allow."""
    if ccxt_id == "okx" and call is Call.CANDLES:
        return _OKX_CANDLES
    if ccxt_id == "okx" and call is Call.HISTORY_CANDLES:
        return _OKX_HISTORY
    known = _ALLOWANCES.get(ccxt_id)
    if known is not None:
        return known
    milliseconds_a_call = max(float(exchange.rateLimit or 1_000), 1.0)
    return Allowance("calls", max(10_000 / milliseconds_a_call, 1.0), 10)


def cost_of(ccxt_id: str, call: Call) -> float:
    return _COSTS.get(ccxt_id, {}).get(call, 1.0)
