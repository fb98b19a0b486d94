"""Bars in progress when a ticker starts: exchange, ingestor and the pipeline's arithmetic, in one process."""

import asyncio
import time

import numpy as np

from bars import exact
from bus.topics import TICK_MARKS, TICKS
from candlewright.wire.grid import SECOND
from flink_replacement_spark.live.partition import LivePartition
from protobuf import records_pb2 as records
from sandbox.markets.intervals import INTERVALS
from sandbox.serving.server import Sandbox
from tests.fresh_bus import FreshBus
from tests.ingestor.realtime.stage import ingestor, stopped, until

TICKER, SYMBOL = "BTC/USDT.BINANCE", "BTCUSDT"
PERIODS = {60: "1m", 300: "5m", 3_600: "1h", 14_400: "4h", 86_400: "1d", 604_800: "1w"}
MILLISECOND = 1_000_000
#: A Sunday, two minutes before every period from a minute to a week ends.
START = "2024-03-03T23:57:50"
MONDAY_MS = 1_709_510_400_000


def values(bus: FreshBus, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for partition in range(bus.partitions(topic)):
        found += [record.value for record in bus.read(topic, partition, 0, max_records=100_000)]
    return found


def newest_clock(bus: FreshBus) -> int:
    marks = [records.TickMark.FromString(value) for value in values(bus, TICK_MARKS)]
    return max((mark.clock.exchange_time for mark in marks if mark.HasField("clock")), default=0)


async def test_bars_of_every_length_that_a_ticker_started_within_equal_the_exchanges_own() -> None:
    bus = FreshBus()
    async with Sandbox(seed=3, clock=START, speed=0, rate_limit=False) as exchange, ingestor(bus, exchange.url) as own:
        task = own.start(TICKER, "j1")
        # Candles of the hour, of the day and of the week so far.
        await until(
            lambda: (
                [records.TickMark.FromString(v).WhichOneof("body") for v in values(bus, TICK_MARKS)].count("seed") == 3
            )
        )
        while exchange.clock.now() < MONDAY_MS + 20_000:
            exchange.clock.advance(5_000)
            await asyncio.sleep(0.02)
        await until(lambda: newest_clock(bus) >= (MONDAY_MS + 15_000) * MILLISECOND, 30)
        await stopped(task)
        wanted = records.TickMark(ticker=TICKER, wanted=records.Wanted(period_seconds=list(PERIODS)))
        partition = LivePartition(0, 3_600 * SECOND)
        output = partition.process(
            values(bus, TICKS), [wanted.SerializeToString(), *values(bus, TICK_MARKS)], time.time_ns()
        )
        closed = {}
        for _, made in output.bars:
            for row in np.flatnonzero(
                made.bars.open_time + made.bars.period_seconds * SECOND == MONDAY_MS * MILLISECOND
            ):
                closed[made.bars.period_seconds] = (made, int(row))
        assert closed.keys() == PERIODS.keys()
        market = exchange.markets[SYMBOL]
        for period, (made, row) in closed.items():
            opened = int(made.bars.open_time[row]) // MILLISECOND
            candles = market.candles(INTERVALS[PERIODS[period]], opened, opened, now=exchange.clock.now())
            scale = 10.0**-market.price_decimals
            ours = [float(getattr(made.bars, name)[row]) for name in ("open", "high", "low", "close")]
            theirs = [round(int(getattr(candles, name)[0]) * scale, 8) for name in ("open", "high", "low", "close")]
            assert ours == theirs, PERIODS[period]
            assert int(made.bars.trade_count[row]) == int(candles.count[0])
            assert float(exact.to_doubles(made.bars.volume)[row]) == int(candles.volume[0]) / 10**market.lot_decimals
            assert bool(made.complete[row]) and int(made.revision[row]) == 0
