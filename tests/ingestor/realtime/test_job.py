"""Generated live trades of the sandbox through stock ccxt.pro to the bus, with every fault of sockets."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from bus import Position, Record
from bus.redis.pending import PendingAppend
from bus.topics import TICKS
from candlewright.wire.errors import BusFull, LeaseLost, Unavailable
from ingestor.realtime.job import TickJob
from ingestor.realtime.stream import UNUSUAL
from ingestor.trade import ORDER, RECEIVED_AT, SIZE, TIME
from sandbox.behaviour.faults import Fault
from sandbox.serving.server import Sandbox
from tests.fresh_bus import FreshBus
from tests.ingestor.realtime.stage import (
    CONFIG,
    Ingestor,
    batches,
    counted,
    ids,
    ingestor,
    marks,
    stopped,
    ticks,
    until,
)
from tests.rounds import rounds

TICKER = "BTC/USDT.BINANCE"
CLOCK = "2024-03-05T12:34:20"


def sandbox(speed: float = 30.0) -> Sandbox:
    return Sandbox(seed=3, clock=CLOCK, speed=speed, rate_limit=False)


def assert_each_once(bus: FreshBus) -> None:
    found = ids(bus, TICKER)
    assert found == list(range(found[0], found[0] + len(found)))


async def until_unusually_silent(bus: FreshBus, own: Ingestor) -> None:
    """Wait until the silence is unusual; the usual pause depends on how fast this machine delivers trades."""
    received = sorted(trade[RECEIVED_AT] / 1e9 for trade in ticks(bus, TICKER))
    usual = max(later - earlier for earlier, later in pairwise(received))
    await until(lambda: own.service.ages()[TICKER] > max(CONFIG.silence_floor, UNUSUAL * usual) + 0.1, 120)


async def test_a_job_starts_with_the_minute_and_seeds_the_longer_bars() -> None:
    bus = FreshBus()
    async with sandbox(1.0) as exchange, ingestor(bus, exchange.url) as own:
        task = own.start(TICKER, "j1")
        await until(lambda: len(marks(bus, TICKER, "seed")) == 3 and marks(bus, TICKER, "clock"))
        await stopped(task)
        minute = exchange.clock.now() // 60_000 * 60_000
        market = exchange.markets["BTCUSDT"]
        assert [mark.from_time for mark in marks(bus, TICKER, "covered")] == [minute * 1_000_000]
        assert ids(bus, TICKER)[0] == market.fill_at(minute)
    assert_each_once(bus)
    seeds = {seed.period_seconds: seed for seed in marks(bus, TICKER, "seed")}
    hour = minute // 3_600_000 * 3_600_000
    assert [t // 1_000_000 for t in seeds[60].open_time] == list(range(hour, minute, 60_000))
    assert len(seeds[3_600].open_time) == 12
    assert len(seeds[86_400].open_time) == 1
    clock = marks(bus, TICKER, "clock")[-1]
    assert clock.exchange_time > minute * 1_000_000 and clock.sequence <= len(ids(bus, TICKER))


async def test_a_job_that_begins_with_a_minute_has_the_minute_before_in_which_it_was_requested() -> None:
    bus = FreshBus()
    async with Sandbox(seed=3, clock="2024-03-05T12:34:03", speed=0.01, rate_limit=False) as exchange:
        minute = exchange.clock.now() // 60_000 * 60_000
        async with ingestor(bus, exchange.url) as own:
            task = own.start(TICKER, "j1")
            await until(lambda: ids(bus, TICKER))
            await stopped(task)
        (covered,) = marks(bus, TICKER, "covered")
        assert covered.from_time == (minute - 60_000) * 1_000_000
        assert ids(bus, TICKER)[0] == exchange.markets["BTCUSDT"].fill_at(minute - 60_000)


async def test_trades_that_were_requested_say_how_far_the_exchanges_clock_is_ahead_and_live_ones_do_not() -> None:
    bus = FreshBus()
    async with sandbox(1.0) as exchange:
        ahead = exchange.clock.now() * 1_000_000 - time.time_ns()
        async with ingestor(bus, exchange.url) as first:
            task = first.start(TICKER, "j1")
            await until(lambda: batches(bus, TICKER) and batches(bus, TICKER)[-1].clock_ahead is None)
            await stopped(task)
        count = len(batches(bus, TICKER))
        async with ingestor(bus, exchange.url) as second:
            task = second.start(TICKER, "j2")
            await until(lambda: len(batches(bus, TICKER)) > count and batches(bus, TICKER)[-1].clock_ahead is None)
            await stopped(task)
    found = batches(bus, TICKER)
    for start in (found[0], found[count]):
        assert start.clock_ahead is not None and abs(start.clock_ahead - ahead) < 1_000_000_000
    assert_each_once(bus)


FAULTS = {
    "closes": [
        Fault(kind="close", code=1000, after=20, count=2, probability=0.05),
        Fault(kind="close", code=1001, after=60, count=2, probability=0.05),
        Fault(kind="close", code=1006, after=100, count=2, probability=0.05),
        Fault(kind="abort", after=140, count=2, probability=0.05),
    ],
    "disorder": [
        Fault(kind="drop", after=20, probability=0.03),
        Fault(kind="swap", probability=0.2),
        Fault(kind="duplicate", probability=0.5),
    ],
}


@pytest.mark.parametrize("kind", FAULTS)
async def test_every_trade_is_on_the_bus_once_despite_the_socket(kind: str) -> None:
    bus = FreshBus()
    async with sandbox(60) as exchange, ingestor(bus, exchange.url) as own:
        for fault in FAULTS[kind]:
            exchange.add_fault(fault)
        task = own.start(TICKER, "j1")
        await until(lambda: bus.last_sequence(f"TICKS:{TICKER}") > 300)
        await until(lambda: all(exchange.stream_counters[fault.kind] >= 2 for fault in FAULTS[kind]))
        exchange.clear_faults()
        target = exchange.markets["BTCUSDT"].fill_at(exchange.clock.now())
        await until(lambda: ids(bus, TICKER)[-1] >= target)
        await stopped(task)
    assert_each_once(bus)
    assert not marks(bus, TICKER, "gap")


async def test_a_frozen_socket_is_given_up_and_its_missed_trades_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingestor.realtime.feed.FROZEN_SECONDS", 2.5)
    bus = FreshBus()
    async with sandbox() as exchange, ingestor(bus, exchange.url) as own:
        task = own.start(TICKER, "j1")
        await until(lambda: len(ids(bus, TICKER)) > 50)
        exchange.add_fault(Fault(kind="freeze"))
        await until(lambda: exchange.stream_counters["freeze"])
        frozen_at = len(ids(bus, TICKER))
        await until(lambda: len(ids(bus, TICKER)) > frozen_at + 100)
        await stopped(task)
    assert_each_once(bus)


async def test_a_gap_deeper_than_the_raw_page_gets_aggregates_and_a_row() -> None:
    bus = FreshBus()
    async with sandbox() as exchange, ingestor(bus, exchange.url) as own:
        task = own.start(TICKER, "j1")
        await until(lambda: len(ids(bus, TICKER)) > 50)
        exchange.add_fault(Fault(kind="drop"))
        await until(lambda: exchange.stream_counters["drop"])
        last = ids(bus, TICKER)[-1]
        market = exchange.markets["BTCUSDT"]
        while market.fill_at(exchange.clock.now()) - last < 1_800:
            exchange.clock.advance(60_000)
        await until(lambda: exchange.stream_counters["drop"] > 1_750)
        exchange.clear_faults()
        await until(lambda: ids(bus, TICKER)[-1] > last + 1_800)
        await stopped(task)
        trades = {trade[ORDER]: trade for trade in ticks(bus, TICKER)}
        gaps = marks(bus, TICKER, "gap")
        assert gaps and not any(gap.is_repaired for gap in gaps)
        assert all("bars were repaired" in gap.reason for gap in gaps)
        missing = [i for gap in gaps for i in range(int(gap.from_trade_id), int(gap.to_trade_id) + 1)]
        assert len(missing) > 500 and sorted([*missing, *trades]) == list(range(min(trades), max(trades) + 1))
        assert sum(gap.missing for gap in gaps) == len(missing)
        seeds = [seed for seed in marks(bus, TICKER, "seed") if not seed.period_seconds]
        covered = [
            i
            for seed in seeds
            for low, high in zip(seed.first_trade_id, seed.last_trade_id, strict=True)
            for i in range(low, high + 1)
        ]
        assert covered == missing
        rows = market.fills(missing[0], missing[-1] - missing[0] + 1, exchange.clock.now())
        told = sum(Decimal(repr(size)) for seed in seeds for size in seed.volume)
        known = [i for i in rows.id.tolist() if i in trades]
        assert not known or len(gaps) > 1
        lots = Decimal(int(rows.lots.sum())).scaleb(-market.lot_decimals)
        assert told == lots - sum(Decimal(repr(trades[i][SIZE])) for i in known)


async def test_a_minute_busier_than_a_raw_page_starts_with_aggregates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingestor.venues.binance._MAX_TRADES", 20)
    bus = FreshBus()
    async with sandbox(1.0) as exchange, ingestor(bus, exchange.url) as own:
        task = own.start(TICKER, "j1")
        await until(lambda: len(marks(bus, TICKER, "seed")) == 4 and ids(bus, TICKER))
        await stopped(task)
        minute = exchange.clock.now() // 60_000 * 60_000
        first = exchange.markets["BTCUSDT"].fill_at(minute)
    (covered,) = marks(bus, TICKER, "covered")
    assert covered.from_time == minute * 1_000_000
    seed = marks(bus, TICKER, "seed")[0]
    joined = [
        i for low, high in zip(seed.first_trade_id, seed.last_trade_id, strict=True) for i in range(low, high + 1)
    ]
    found = ids(bus, TICKER)
    assert [*joined, *found] == list(range(first, found[-1] + 1))
    assert not marks(bus, TICKER, "gap")


async def test_a_ticker_is_streamed_without_its_past_where_rest_does_not_help() -> None:
    bus = FreshBus()
    async with sandbox() as exchange, ingestor(bus, exchange.url) as own:
        exchange.add_fault(Fault(kind="status", path="/api/v3/trades", status=404))
        began = exchange.clock.now() * 1_000_000
        task = own.start(TICKER, "j1")
        await until(lambda: len(ids(bus, TICKER)) > 20)
        await stopped(task)
    (covered,) = marks(bus, TICKER, "covered")
    assert covered.from_time >= began
    (gap,) = marks(bus, TICKER, "gap")
    assert gap.from_time <= covered.from_time and gap.to_trade_id == str(ids(bus, TICKER)[0] - 1)
    assert_each_once(bus)


class AbsentBus(FreshBus):
    """A bus that takes no trades while `is_full`."""

    is_full = False

    def publish_as(self, topic: str, records: Sequence[Record], **call: Any) -> list[Position]:
        if self.is_full and topic == TICKS:
            raise BusFull(topic, 10, 10)
        return super().publish_as(topic, records, **call)

    def begin_publish_as(self, topic: str, records: Sequence[Record], **call: Any) -> PendingAppend | None:
        return None if self.is_full else super().begin_publish_as(topic, records, **call)


async def test_while_the_bus_is_full_the_socket_is_not_read_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ingestor.realtime.lanes.MAX_UNPUBLISHED", 10)
    bus = AbsentBus()
    async with sandbox() as exchange, ingestor(bus, exchange.url) as own:
        task = own.start(TICKER, "j1")
        await until(lambda: len(ids(bus, TICKER)) > 50)
        bus.is_full = True
        feed = own.service._feeds["BINANCE"]
        await until(lambda: any(not gate.is_set() for gate in feed._gates.values()))
        beats = len(own.heartbeats)
        await until(lambda: len(own.heartbeats) > beats + 3)
        before = len(ids(bus, TICKER))
        # On a busy machine more than ten may always wait.
        monkeypatch.setattr("ingestor.realtime.lanes.MAX_UNPUBLISHED", 1_000_000)
        bus.is_full = False
        await until(lambda: len(ids(bus, TICKER)) > before + 20)
        await until(lambda: all(gate.is_set() for gate in feed._gates.values()))
        await stopped(task)
    assert_each_once(bus)


async def test_while_the_store_is_at_its_maxmemory_live_trades_wait_and_none_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ingestor.realtime.lanes.MAX_UNPUBLISHED", 10)
    bus = FreshBus()
    async with sandbox() as exchange, ingestor(bus, exchange.url) as own:
        task = own.start(TICKER, "j1")
        await until(lambda: len(ids(bus, TICKER)) > 50)
        bus._store.call("CONFIG", "SET", "maxmemory", 1)
        try:
            feed = own.service._feeds["BINANCE"]
            await until(lambda: any(not gate.is_set() for gate in feed._gates.values()))
            beats = len(own.heartbeats)
            await until(lambda: len(own.heartbeats) > beats + 3)
            before = len(ids(bus, TICKER))
            assert not task.done()
        finally:
            monkeypatch.setattr("ingestor.realtime.lanes.MAX_UNPUBLISHED", 1_000_000)
            bus._store.call("CONFIG", "SET", "maxmemory", 0)
        await until(lambda: len(ids(bus, TICKER)) > before + 20)
        await stopped(task)
    assert_each_once(bus)
    assert not marks(bus, TICKER, "gap")


async def test_another_ingestor_continues_where_the_dead_one_stopped() -> None:
    bus = FreshBus()
    async with sandbox() as exchange:
        async with ingestor(bus, exchange.url) as first:
            task = first.start(TICKER, "j1")
            await until(lambda: len(ids(bus, TICKER)) > 50)
            bus.revoke(["j1"])
            with pytest.raises(LeaseLost):
                await task
        before = len(ids(bus, TICKER))
        async with ingestor(bus, exchange.url) as second:
            task = second.start(TICKER, "j2")
            await until(lambda: len(ids(bus, TICKER)) > before + 50)
            await stopped(task)
    assert_each_once(bus)
    assert len(marks(bus, TICKER, "covered")) == 1
    assert not marks(bus, TICKER, "gap")


async def test_a_stopped_job_unsubscribes_within_a_second_and_leaves_the_others() -> None:
    bus = FreshBus()
    other = "ETH/USDT.BINANCE"
    async with sandbox() as exchange, ingestor(bus, exchange.url) as own:
        task = own.start(TICKER, "j1")
        rest = own.start(other, "j2")
        await until(lambda: ids(bus, TICKER) and ids(bus, other))
        began = time.monotonic()
        await stopped(task)
        assert time.monotonic() - began < 1.0
        await until(lambda: not any("btcusdt@trade" in c.session.names for c in exchange.connections))
        count = len(ids(bus, other))
        await until(lambda: len(ids(bus, other)) > count + 5)
        await stopped(rest)


async def test_heartbeats_stop_with_the_socket() -> None:
    bus = FreshBus()
    async with sandbox() as exchange, ingestor(bus, exchange.url) as own:
        task = own.start(TICKER, "j1")
        await until(lambda: ids(bus, TICKER))
        beats = len(own.heartbeats)
        await until(lambda: len(own.heartbeats) > beats + 2)
        await exchange.stop()
        await until(lambda: own.service._feeds["BINANCE"]._subscriptions["BTCUSDT"].client is None)
        beats = len(own.heartbeats)
        await asyncio.sleep(0.7)
        assert len(own.heartbeats) == beats
        await stopped(task)


async def test_a_subscription_that_the_exchange_forgot_is_seen_and_its_job_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ingestor.realtime.stream.RECHECK_SECONDS", 1.0)
    monkeypatch.setattr("ingestor.realtime.job.DEAF_NS", 10**8)
    bus = FreshBus()
    # The exchange's clock advances only here, so the trades in REST do not grow with the machine's load.
    async with sandbox(0.0) as exchange, ingestor(bus, exchange.url) as own:
        task = own.start(TICKER, "j1")
        await until(lambda: marks(bus, TICKER, "clock"))
        exchange.clock.advance(10_000)
        newest = exchange.markets["BTCUSDT"].fill_at
        await until(lambda: ids(bus, TICKER)[-1:] == [newest(exchange.clock.now() + 1) - 1])
        for connection in exchange.connections:
            connection.session.unsubscribe(connection.session.names)
        # The connection is alive but sends nothing.
        await until(lambda: own.service.ages()[TICKER] > 1.1)
        exchange.clock.advance(60_000)
        await until(task.done)
        assert isinstance(task.exception(), Unavailable)
        again = own.start(TICKER, "j2")
        await until(lambda: any("btcusdt@trade" in c.session.names for c in exchange.connections))
        exchange.clock.advance(10_000)
        await until(lambda: ids(bus, TICKER)[-1] == newest(exchange.clock.now() + 1) - 1)
        await stopped(again)
    assert_each_once(bus)
    assert not marks(bus, TICKER, "gap")


async def test_trades_that_a_stalled_feed_missed_are_published_before_the_minute_ends() -> None:
    """The exchange's clock advances only here, and not before the silence is unusual, however slow the machine is."""
    bus = FreshBus()
    async with Sandbox(seed=3, clock="2024-03-05T12:34:20", speed=0.0, rate_limit=False) as exchange:
        market = exchange.markets["BTCUSDT"]
        minute = exchange.clock.now() // 60_000 * 60_000 + 60_000
        async with ingestor(bus, exchange.url) as own:
            task = own.start(TICKER, "j1")
            await until(lambda: marks(bus, TICKER, "clock"))
            exchange.clock.advance(10_000)
            silent_from = market.fill_at(exchange.clock.now() + 1) - 1
            await until(lambda: ids(bus, TICKER)[-1:] == [silent_from])
            # The connection answers pings but sends no trade.
            exchange.add_fault(Fault(kind="drop"))
            await until_unusually_silent(bus, own)
            assert marks(bus, TICKER, "clock")[-1].exchange_time < minute * 1_000_000
            exchange.clock.advance(31_000)
            # The subscription no longer works, so another one is made.
            await until(task.done)
            assert isinstance(task.exception(), Unavailable)
            assert own.service.ages() == {}
            again = own.start(TICKER, "j2")
            await until(lambda: marks(bus, TICKER, "clock")[-1].exchange_time >= minute * 1_000_000)
            # Once the exchange's clock has passed the minute, all its trades are before that.
            last = market.fill_at(minute) - 1
            assert last > silent_from + 5
            for mark in marks(bus, TICKER, "clock"):
                assert mark.exchange_time < minute * 1_000_000 or mark.sequence >= ids(bus, TICKER).index(last) + 1
            await stopped(again)
    assert_each_once(bus)
    assert not marks(bus, TICKER, "gap")


async def test_a_silence_about_which_the_exchange_cannot_be_asked_is_a_gap_until_the_next_trade() -> None:
    """The exchange's clock advances almost only here, and not before the silence is unusual."""
    bus = FreshBus()
    config = replace(CONFIG, patience=0.5)
    async with sandbox(0.02) as exchange:
        minute = (exchange.clock.now() // 60_000 * 60_000 + 60_000) * 1_000_000
        async with ingestor(bus, exchange.url, config=config, patience=0.5) as own:
            task = own.start(TICKER, "j1")
            await until(lambda: marks(bus, TICKER, "clock"))
            newest = exchange.markets["BTCUSDT"].fill_at
            exchange.clock.advance(10_000)
            await until(lambda: ids(bus, TICKER)[-1:] == [newest(exchange.clock.now() + 1) - 1])
            exchange.add_fault(Fault(kind="drop"))
            exchange.add_fault(Fault(kind="status", path="*rades*", status=500))
            await until_unusually_silent(bus, own)
            exchange.clock.advance(31_000)
            (gap,) = await until(lambda: marks(bus, TICKER, "gap"))
            assert gap.from_time < minute <= gap.to_time and not gap.is_repaired
            assert "silent" in gap.reason
            await until(lambda: marks(bus, TICKER, "clock")[-1].exchange_time >= minute)
            exchange.clear_faults()
            exchange.clock.advance(5_000)
            found = await until(lambda: [gap for gap in marks(bus, TICKER, "gap") if gap.is_repaired])
            assert found[0].gap_id == gap.gap_id
            await stopped(task)
    assert_each_once(bus)


async def test_a_gap_about_which_the_exchange_did_not_answer_is_requested_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ingestor.realtime.owed.AGAIN_SECONDS", 0.2)
    bus = FreshBus()
    config = replace(CONFIG, patience=0.3)
    async with sandbox(20.0) as exchange, ingestor(bus, exchange.url, config=config, patience=0.3) as own:
        task = own.start(TICKER, "j1")
        await until(lambda: len(ids(bus, TICKER)) > 20 and marks(bus, TICKER, "clock"))
        exchange.add_fault(Fault(kind="status", path="*rades*", status=500))
        exchange.add_fault(Fault(kind="drop", count=5))
        (gap,) = await until(lambda: marks(bus, TICKER, "gap"))
        assert not gap.is_repaired and "did not answer" in gap.reason
        gone_on_at = ids(bus, TICKER)[-1]
        await until(lambda: ids(bus, TICKER)[-1] > gone_on_at)
        exchange.clear_faults()
        (found,) = await until(lambda: [gap for gap in marks(bus, TICKER, "gap") if gap.is_repaired])
        assert found.gap_id == gap.gap_id
        await stopped(task)
    published = ids(bus, TICKER)
    assert sorted(published) == list(range(published[0], max(published) + 1))
    assert set(range(int(gap.from_trade_id), int(gap.to_trade_id) + 1)) <= set(published)


async def test_many_tickers_share_one_ingestor() -> None:
    bus = FreshBus()
    pairs = [f"T{number}/USDT" for number in range(rounds(100))]
    async with (
        # Generating the past of a hundred markets takes the sandbox half a minute on a busy machine.
        Sandbox(seed=3, clock=CLOCK, speed=5, rate_limit=False, symbols=pairs) as exchange,
        ingestor(bus, exchange.url) as own,
    ):
        tasks = [own.start(f"{pair}.BINANCE", f"j{pair}") for pair in pairs]
        await until(lambda: all(bus.last_sequence(f"TICKS:{pair}.BINANCE") for pair in pairs), 100)
        await asyncio.gather(*(stopped(task) for task in tasks))
    for pair in pairs:
        found = ids(bus, f"{pair}.BINANCE")
        assert found == list(range(found[0], found[0] + len(found)))


async def test_no_clock_passes_trades_that_are_not_read_while_the_bus_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = FreshBus()
    async with sandbox(1.0) as exchange, ingestor(bus, exchange.url) as own:
        task = own.start(TICKER, "j1")
        await until(lambda: marks(bus, TICKER, "clock"))
        paused = counted("pauses")
        with monkeypatch.context() as slow:
            slow.setattr(TickJob, "is_full", True)
            await until(lambda: counted("pauses") > paused)
            # The connection still delivers the message that it is waiting for.
            read = len(ids(bus, TICKER)) + 1
            await asyncio.sleep(1.5)
            assert len(ids(bus, TICKER)) <= read
        await until(lambda: len(ids(bus, TICKER)) > read)
        await until(lambda: marks(bus, TICKER, "clock")[-1].sequence > read)
        await stopped(task)
    assert_clocks_are_true(bus)


async def test_the_published_clock_is_behind_by_the_time_that_trades_may_take() -> None:
    bus = FreshBus()
    async with sandbox(1.0) as exchange, ingestor(bus, exchange.url) as own:
        task = own.start(TICKER, "j1")
        await until(lambda: len(marks(bus, TICKER, "clock")) > 5)
        newest = marks(bus, TICKER, "clock")[-1].exchange_time // 1_000_000
        assert exchange.clock.now() - newest >= 250
        await stopped(task)
    assert_clocks_are_true(bus)


def assert_clocks_are_true(bus: FreshBus) -> None:
    times = [trade[TIME] for trade in ticks(bus, TICKER)]
    for clock in marks(bus, TICKER, "clock"):
        assert min(times[clock.sequence :], default=clock.exchange_time) >= clock.exchange_time
