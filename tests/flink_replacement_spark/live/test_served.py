"""Serving tasks make the correct bars, however trades arrive and whichever process dies."""

import random
import time
from collections import defaultdict

import pytest

from bus import Record, SequenceStamp
from bus import topics as bus_topics
from candlewright.wire.candlewright_pb2 import OHLCV, Side, TickBatch
from candlewright.wire.grid import SECOND
from flink_replacement_spark.engine.serving import Steps
from flink_replacement_spark.live import journal as live_journal
from flink_replacement_spark.live import rows as live_rows
from flink_replacement_spark.live import served as live_served
from flink_replacement_spark.live.partition import LivePartition
from flink_replacement_spark.live.served import LiveOwner, LiveTimes
from protobuf import records_pb2 as records
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.serving import Deaths, OwnCache, pause, served
from tests.fresh_bus import FreshBus

pytestmark = pytest.mark.timeout(60)

TICKER, T0, HOUR = "A/B.C", 1_700_000_100 * SECOND, 3_600 * SECOND
TIMES = LiveTimes(0, HOUR, 10**9 * SECOND, 20_000)


def trade(second: int, number: int) -> bytes:
    batch = TickBatch(
        ticker=TICKER, first_sequence=number, timestamp=[T0 + second * SECOND], price=[100.0 + number % 7], size=[0.5],
        received_at=[1],
    )  # fmt: skip
    batch.side.append(Side.BUY)
    batch.trade_id.append(str(number))
    return batch.SerializeToString()


def mark(**body: object) -> bytes:
    return records.TickMark(ticker=TICKER, **body).SerializeToString()  # type: ignore[arg-type]


def published(bus: FreshBus) -> list[OHLCV]:
    if not bus.partitions(bus_topics.OHLC):
        return []
    return [OHLCV.FromString(record.value) for record in bus.read(bus_topics.OHLC, 0, 0, max_records=100_000)]


def values(bar: OHLCV) -> tuple[object, ...]:
    return bar.open, bar.high, bar.low, bar.close, bar.volume, bar.trade_count


def test_bars_are_those_of_all_trades_and_their_numbers_have_no_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = FreshBus(1)
    for topic in (bus_topics.TICKS, bus_topics.TICK_MARKS, bus_topics.OHLC, bus_topics.TICK_ROWS):
        bus.create_topic(topic, 1)
    cache, deaths, chance = OwnCache(), Deaths(often=4), random.Random(2)
    monkeypatch.setattr(live_rows, "_CACHE", cache)
    monkeypatch.setattr(live_served, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(live_journal, "MAX_NOTES", 5)
    monkeypatch.setattr(live_rows, "_publish_chunk", deaths.around(live_rows._publish_chunk))
    monkeypatch.setattr(live_journal.Journal, "keep", deaths.around(live_journal.Journal.keep))
    wanted = mark(wanted=records.Wanted(ticks=True, period_seconds=[5]))
    trades: list[bytes] = []
    with served(bus, "q", cache, owners=[lambda: LiveOwner(bus.url, "q", 0, TIMES)]):
        bus.publish(bus_topics.TICK_MARKS, [Record(wanted, TICKER.encode())])
        wait_for(lambda: Steps(bus, "q").newest("0").number >= 0 or None)
        second = 0
        for number in range(1, 400):
            second += chance.randint(0, 6)
            # Occasionally a trade arrives after those of the next bar.
            trades.append(trade(second - 10 * (number % 50 == 0), number))
            stamp = SequenceStamp(f"TICKS:{TICKER}")
            bus.publish(bus_topics.TICKS, [Record(trades[-1], TICKER.encode(), sequence=stamp)])
            pause(chance)
            bus.trim(bus_topics.TICKS, keep_seconds=0)
        clock = records.Clock(exchange_time=T0 + (second + 1_000) * SECOND, sequence=399)
        bus.publish(bus_topics.TICK_MARKS, [Record(mark(clock=clock), TICKER.encode())])
        whole = LivePartition(0, HOUR)
        whole.process([], [wanted])
        made = [*whole.process(trades, []).bars, *whole.process([], [mark(clock=clock)]).bars]
        expected = {}
        for tickers, each in made:
            for record in live_rows._bar_records(tickers, each):
                bar = OHLCV.FromString(record.value)
                expected[bar.period_seconds, bar.open_time] = values(bar)

        def newest() -> dict[tuple[int, int], tuple[object, ...]] | None:
            found = {(bar.period_seconds, bar.open_time): values(bar) for bar in published(bus)}
            return found if found == expected else None

        wait_for(newest)
    assert deaths.count > 10 and len(expected) > 100
    numbers, revisions = defaultdict(list), defaultdict(list)
    for bar in published(bus):
        numbers[bar.period_seconds].append(bar.sequence)
        revisions[bar.period_seconds, bar.open_time].append(bar.revision)
    assert all(own == list(range(1, len(own) + 1)) for own in numbers.values())
    assert all(own == list(range(len(own))) for own in revisions.values())


def test_the_exchanges_clock_alone_ends_a_bar_within_a_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = FreshBus(1)
    for topic in (bus_topics.TICKS, bus_topics.TICK_MARKS, bus_topics.OHLC, bus_topics.TICK_ROWS):
        bus.create_topic(topic, 1)
    cache = OwnCache()
    monkeypatch.setattr(live_rows, "_CACHE", cache)
    took = []
    with served(bus, "q", cache, owners=[lambda: LiveOwner(bus.url, "q", 0, TIMES)]):
        for number in range(1, 11):
            stamp = SequenceStamp(f"TICKS:{TICKER}")
            second = 60 * number
            bus.publish(bus_topics.TICKS, [Record(trade(second, number), TICKER.encode(), sequence=stamp)])
            clock = records.Clock(exchange_time=T0 + (second + 60) * SECOND, sequence=number)
            bus.publish(bus_topics.TICK_MARKS, [Record(mark(clock=clock), TICKER.encode())])
            published_at = time.monotonic()
            assert bus.wait({(bus_topics.OHLC, 0): number - 1}, 20)
            took.append(time.monotonic() - published_at)
    assert len(published(bus)) == len(took)
    # The machine may be busy, but no pause is part of the way.
    assert min(took) < 0.1
