import time

import pytest

from candlewright.wire.errors import RateLimited
from ingestor.exchange import stock as exchange
from ingestor.exchange.budget import Budget
from ingestor.exchange.errors import Reply
from ingestor.progress import Progress
from ingestor.threads import BusThreads
from ingestor.venues import venue_of
from ingestor.venues.limits import Call
from tests.fresh_bus import FreshBus
from tests.ingestor.venues_on_loopback import HastyProgress


class CountingBus(FreshBus):
    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[str, float]] = []
        self.answers: list[float] = []
        self.corrections: list[float] = []

    def take(self, budget: str, cost: float, *, capacity: float, per_second: float) -> float:
        self.taken.append((budget, cost))
        return self.answers.pop(0) if self.answers else 0.0

    def correct_budget(self, budget: str, used: float, *, capacity: float) -> None:
        self.corrections.append(capacity - used)


def budget_on(bus: FreshBus, blocked: list[float]) -> Budget:
    stock = exchange.build(venue_of("BINANCE"), url="http://127.0.0.1:9", timeout_seconds=1)
    return Budget(
        bus,
        BusThreads(1),
        venue="BINANCE",
        limits=venue_of("BINANCE").limits,
        exchange=stock,
        egress="home",
        share=0.7,
        background_share=0.5,
        is_limited=True,
        patience=60,
        on_blocked=blocked.append,
    )


async def test_a_call_pays_its_cost_from_the_bucket_of_its_venue_and_address() -> None:
    bus = CountingBus()
    budget = budget_on(bus, [])
    await budget.take(Call.CANDLES, HastyProgress())
    await budget.take(Call.MARKETS, HastyProgress())
    assert bus.taken == [("BINANCE:weight@home", 2.0), ("BINANCE:weight@home", 20.0)]


async def test_a_short_wait_is_waited_and_a_long_one_blocks_the_venue() -> None:
    bus, blocked, progress = CountingBus(), list[float](), HastyProgress()
    budget = budget_on(bus, blocked)
    bus.answers = [0.5]
    await budget.take(Call.CANDLES, progress)
    assert progress.slept == [0.5] and blocked == []
    bus.answers = [30.0]
    await budget.take(Call.CANDLES, progress)
    assert len(blocked) == 1
    bus.answers = [3_600.0]
    with pytest.raises(RateLimited, match="no calls until"):
        await budget.take(Call.CANDLES, progress)


async def test_a_background_call_waits_for_its_share_first_and_blocks_no_other() -> None:
    bus, blocked, progress = CountingBus(), list[float](), HastyProgress(is_background=True)
    bus.answers = [30.0]
    await budget_on(bus, blocked).take(Call.CANDLES, progress)
    own = ("BINANCE:weight@home:background", 2.0)
    assert bus.taken == [own, own, ("BINANCE:weight@home", 2.0)]
    assert progress.slept == [1.0] and blocked == []


async def test_background_calls_leave_half_of_the_rate() -> None:
    bus = FreshBus()
    budget = budget_on(bus, [])
    limits, stock = venue_of("BINANCE").limits, exchange.build(venue_of("BINANCE"), url="", timeout_seconds=1)
    allowance, cost = limits.allowance_of(Call.CANDLES, stock), limits.cost_of(Call.CANDLES)
    _, per_second = allowance.shared(0.7, cost)
    started = time.monotonic()
    for _ in range(8):
        await budget.take(Call.CANDLES, Progress(is_background=True))
    assert time.monotonic() - started >= 7 * cost / (per_second / 2) * 0.9


async def test_a_block_ends_on_time_though_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    budget, progress = budget_on(CountingBus(), []), HastyProgress()
    await budget.block(RateLimited("stop", time.time() + 2), progress, has_said_when=True)
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now - 3_600)
    await budget.take(Call.CANDLES, progress)
    assert progress.slept and max(progress.slept) <= 2


async def test_the_exchanges_own_count_lowers_the_remaining_budget() -> None:
    bus = CountingBus()
    budget = budget_on(bus, [])
    await budget.learn(Reply(200, {"x-mbx-used-weight-1m": "100"}), HastyProgress())
    await budget.learn(Reply(200, {"x-mbx-used-weight-1m": "nonsense"}), HastyProgress())
    assert bus.corrections == []
    await budget.learn(Reply(200, {"x-mbx-used-weight-1m": "4100"}), HastyProgress())
    assert bus.corrections == [pytest.approx(100)]
