"""Trades dated far ahead of their exchange's clock are set aside, and nothing else changes."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bus import Record, SequenceStamp
from bus.dead_letters import kept
from bus.topics import TICKS
from ingestor.realtime.handover import Tails
from ingestor.trade import ORDER, TIME, Trade, tick_batch, trades_of
from ingestor.venues import binance
from sandbox.behaviour.faults import Fault
from sandbox.serving.server import Sandbox
from tests.fresh_bus import FreshBus
from tests.ingestor.realtime.stage import CONFIG, counted, ids, ingestor, marks, stopped, ticks, until

TICKER = "BTC/USDT.BINANCE"
AHEAD_NS = 3_500 * 10**9


class Wild:
    """Every `nth` streamed trade is dated far ahead; `seen` are those."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
        self.seen: list[Trade] = []
        self._left = self._nth = nth
        self._parse = binance.streamed_trade
        monkeypatch.setattr(binance, "streamed_trade", self)

    def __call__(self, row: Mapping[str, Any], received_at: int) -> Trade:
        trade = self._parse(row, received_at)
        self._left -= 1
        if self._left:
            return trade
        self._left = self._nth
        self.seen.append((trade[ORDER], trade[TIME] + AHEAD_NS, *trade[2:]))
        return self.seen[-1]


def put_aside(bus: FreshBus) -> list[Trade]:
    return [trade for _, letter in kept(bus) for trade in trades_of(letter.record)]


@pytest.mark.parametrize(("speed", "nth"), [(1.0, 8), (20.0, 40)])
async def test_trades_far_ahead_are_put_aside_and_their_ids_are_not_a_gap(
    speed: float, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, wild = FreshBus(), Wild(monkeypatch, nth)
    async with Sandbox(seed=3, clock="2024-03-05T12:34:20", speed=speed, rate_limit=False) as exchange:
        # Silences cause no requests here: any request means that a set-aside trade was missed.
        async with ingestor(bus, exchange.url, config=replace(CONFIG, silence_floor=3_600.0)) as own:
            task = own.start(TICKER, "j1")
            # Trades from before the subscription are requested, and so are those of a connection whose first trade is
            # late.
            await until(lambda: put_aside(bus), 100)
            # Repairs are counted with each clock.
            clocks = len(marks(bus, TICKER, "clock"))
            await until(lambda: len(marks(bus, TICKER, "clock")) > clocks + 1, 100)
            before, connections = counted("repairs"), counted("disconnects")
            await until(lambda: len(put_aside(bus)) >= 3 and ids(bus, TICKER)[-1] > put_aside(bus)[-1][ORDER] + 5, 100)
            await stopped(task)
        newest_ns = exchange.clock.now() * 1_000_000
    aside = put_aside(bus)
    found = ticks(bus, TICKER)
    assert [trade[:2] for trade in aside] == [trade[:2] for trade in wild.seen[: len(aside)]]
    numbers = sorted(trade[ORDER] for trade in (*found, *aside))
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert max(trade[TIME] for trade in found) <= newest_ns
    assert not marks(bus, TICKER, "gap")
    # Trades lost with a connection are requested; a machine that stalls for seconds may lose a connection.
    assert counted("repairs") == before or counted("disconnects") > connections
    assert all(clock.exchange_time <= newest_ns for clock in marks(bus, TICKER, "clock"))


async def test_a_reconnection_after_a_trade_far_ahead_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bus, wild = FreshBus(), Wild(monkeypatch, 30)
    async with Sandbox(seed=3, clock="2024-03-05T12:34:20", speed=20.0, rate_limit=False) as exchange:
        exchange.add_fault(Fault(kind="close", code=1006, after=45, count=2))
        async with ingestor(bus, exchange.url) as own:
            task = own.start(TICKER, "j1")
            await until(lambda: len(put_aside(bus)) >= 3)
            await stopped(task)
    numbers = sorted({trade[ORDER] for trade in (*ticks(bus, TICKER), *put_aside(bus))})
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert wild.seen and not marks(bus, TICKER, "gap")


async def test_a_single_wrong_time_of_the_exchange_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = FreshBus()
    async with Sandbox(seed=3, clock="2024-03-05T12:34:20", speed=1.0, rate_limit=False) as exchange:
        async with ingestor(bus, exchange.url) as own:
            task = own.start(TICKER, "j1")
            await until(lambda: marks(bus, TICKER, "clock"))
            stock, answers = own.client.exchange.fetch_time, []

            async def fetch_time() -> int:
                answers.append(await stock())
                return int(answers[-1]) + (3_600_000 if len(answers) == 1 else 0)

            monkeypatch.setattr(own.client.exchange, "fetch_time", fetch_time)
            known = own.client.clock_ahead
            await until(lambda: len(answers) >= 2)
            await until(lambda: own.client.clock_ahead != known)
            await stopped(task)
        newest_ns = exchange.clock.now() * 1_000_000
    assert max(clock.exchange_time for clock in marks(bus, TICKER, "clock")) <= newest_ns


def test_a_successor_continues_after_a_wild_trade_on_the_bus_without_its_time() -> None:
    bus = FreshBus()
    now = time.time_ns()
    trades = [(n, now + (AHEAD_NS if n == 3 else 0), 1.0, 1.0, 1, str(n), now) for n in (1, 2, 3)]
    stamp = SequenceStamp(f"TICKS:{TICKER}", 3, tag=b"\x10")
    bus.publish(TICKS, [Record(tick_batch(TICKER, trades), TICKER.encode(), {}, TICKER.encode(), None, stamp)])
    tail = Tails(bus, 5 * 10**9).read(TICKER)
    assert tail.last[ORDER] == 3 and tail.last[TIME] <= time.time_ns()
