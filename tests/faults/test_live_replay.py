"""Recorded trades through every process, with the faults of real connections and with killed parts: bars equal those of
the file, and each trade is once on the bus and once in the table.

`KILL_ROUNDS` and `KILL_SEED` in the environment make longer or repeated runs.
"""
# ruff: noqa: T201

import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from bus import Bus
from sandbox.behaviour.faults import Fault
from sandbox.recorded.files import Trade
from tests.faults.harness import MINUTE_MS, Platform, until, victims_of
from tests.faults.replay import PERIODS, check, gaining_a_digit, moved, recorded_trades, replay, streamed

DAY_MS = 86_400_000
#: Ten thousand trades, with the fullest millisecond and midnight.
KILLED = slice(6_000, 16_000)


@pytest.fixture(scope="module")
def recorded(shared_data: Path) -> list[Trade]:
    return recorded_trades(shared_data)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("past")
def test_disturbed_streams_give_the_bars_of_the_file(platform: Platform, bus: Bus, recorded: list[Trade]) -> None:
    """Each market has a separate fault; closed and frozen connections affect all of them."""
    markets = {"LATE/USDT": gaining_a_digit(recorded), "TWICE/USDT": recorded, "SWAP/USDT": moved(recorded, ids=7)}
    # Of several faults for one trade, the first applies: those that end a connection come before those that disturb
    # order.
    closes = [
        Fault(kind="close", code=code, symbol="LATEUSDT", after=3_000 * place + 2_000)
        for place, code in enumerate((1000, 1001, 1006))
    ]
    faults = [
        *closes,
        Fault(kind="abort", symbol="SWAPUSDT", after=12_000),
        Fault(kind="freeze", symbol="TWICEUSDT", after=14_000),
        *(Fault(kind="late", symbol="LATEUSDT", seconds=0.8, after=after, count=30) for after in (500, 5_000, 15_000)),
        Fault(kind="duplicate", symbol="TWICEUSDT"),
        Fault(kind="swap", symbol="SWAPUSDT", count=4_000, probability=0.4),
    ]
    platform.wait_until_well()
    struck_before = platform.exchange.call(lambda sandbox: Counter(sandbox.stream_counters))
    with ExitStack() as stack:
        playing = replay(platform, bus, markets, stack=stack, periods=PERIODS)
        for fault in faults:
            platform.exchange.add_fault(fault)
        until(lambda: {pair.replace("/", "") for pair in markets} <= streamed(platform), 60, "all are streamed")
        playing.play(len(recorded))
        playing.finish()
        playing.pass_time(6 * MINUTE_MS)
        struck = platform.exchange.call(lambda sandbox: Counter(sandbox.stream_counters)) - struck_before
        for pair, trades in markets.items():
            check(platform, bus, pair, trades=trades)
    assert struck["late"] == 90 and struck["duplicate"] > 19_000 and struck["swap"] > 1_000
    assert (struck["close"], struck["abort"], struck["freeze"]) == (3, 1, 1)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.usefixtures("past")
def test_killed_parts_cost_no_trade_and_no_bar(
    platform: Platform, bus: Bus, recorded: list[Trade], choice: random.Random, rounds: int
) -> None:
    victims = victims_of(choice, rounds)
    recorded = recorded[KILLED]
    # A day later than what was played before, because the clock only advances.
    markets = {f"KILL{number}/USDT": moved(recorded, ids=number, milliseconds=DAY_MS) for number in range(3)}
    platform.wait_until_well()
    with ExitStack() as stack:
        playing = replay(platform, bus, markets, stack=stack, periods=PERIODS)
        until(lambda: {pair.replace("/", "") for pair in markets} <= streamed(platform), 60, "all are streamed")
        problems: list[BaseException] = []

        def play(count: int) -> None:
            try:
                playing.play(count)
            except BaseException as error:
                problems.append(error)

        for number, victim in enumerate(victims, 1):
            thread = threading.Thread(target=play, args=(len(recorded) * number // len(victims),))
            thread.start()
            try:
                pause = choice.uniform(0.0, 1.0)
                print(
                    f"{time.strftime('%H:%M:%S')} after {pause:.2f} s: kill -9 {victim}; {playing.tapes[0].shown} shown"
                )
                time.sleep(pause)
                platform.kill(victim)
                if choice.random() < 0.7:
                    # Otherwise the next part dies while this one is still restarting.
                    platform.wait_until_well()
            finally:
                thread.join()
            assert not problems, problems
        playing.finish()
        playing.pass_time(6 * MINUTE_MS)
        platform.wait_until_well(240)
        for pair, trades in markets.items():
            check(platform, bus, pair, trades=trades)
