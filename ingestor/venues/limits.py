"""An exchange's rate limits, and the cost of each call. The figures are from the exchanges' documentation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        """The capacity and refill per second of a token bucket that never spends more than `share` of the limit in any
        window.
        """
        allowed = self.limit * share
        capacity = max(allowed / 10, cost)
        return capacity, max(allowed - capacity, allowed / 2) / self.window_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`allowance`: the limit for all calls except those in `apart`, which have their own; None uses the limit of ccxt's
    own limiter. `costs`: units per call, 1 by default. `used_header`: the header in which a reply states how many units
    of `allowance` are spent. `pauses`: HTTP statuses besides 418 and 429 that mean "stop", with the seconds to wait.
    """

    allowance: Allowance | None = None
    apart: Mapping[Call, Allowance] = field(default_factory=dict)
    costs: Mapping[Call, float] = field(default_factory=dict)
    used_header: str = ""
    pauses: Mapping[int, float] = field(default_factory=dict)

    def allowance_of(self, call: Call, exchange: Any) -> Allowance:
        """The limit that applies to `call`; `exchange` is the ccxt instance whose own limit is the fallback."""
        found = self.apart.get(call, self.allowance)
        if found is not None:
            return found
        milliseconds_a_call = max(float(exchange.rateLimit or 1_000), 1.0)
        return Allowance("calls", max(10_000 / milliseconds_a_call, 1.0), 10)

    def cost_of(self, call: Call) -> float:
        return self.costs.get(call, 1.0)
