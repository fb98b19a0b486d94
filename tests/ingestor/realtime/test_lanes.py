"""Trades on their way to the bus: order, back-pressure, fences."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import redis

from bus import Position, Record
from bus.topics import TICK_MARKS
from candlewright.wire.errors import BusFull, BusUnavailable, CandlewrightError, LeaseLost
from ingestor.realtime.lanes import MAX_UNPUBLISHED, Lane, LanePublisher
from ingestor.trade import Trade
from protobuf import records_pb2 as records
from tests.fresh_bus import FreshBus
from tests.ingestor.realtime.stage import batches, ids, marks, until

TICKER = "BTC/USDT.BINANCE"


def trades(first: int, count: int) -> list[Trade]:
    return [(i, i * 1_000, 1.0, 1.0, 1, str(i), 0) for i in range(first, first + count)]


class StubbornBus(FreshBus):
    """Refuses `refusals` publishes; `is_deceitful`: carries them out, but reports a lost answer."""

    refusals = 0
    is_deceitful = False

    def begin_publish_as(self, *arguments: Any, **options: Any) -> None:
        """Leaves each publish to the call that waits."""

    def publish_as(self, topic: str, records: Sequence[Record], **options: Any) -> list[Position]:
        if self.refusals:
            self.refusals -= 1
            if not self.is_deceitful:
                raise BusFull(topic, 10, 10)
            super().publish_as(topic, records, **options)
            raise BusUnavailable("no answer")
        return super().publish_as(topic, records, **options)


async def lane_on(bus: FreshBus) -> tuple[LanePublisher, Lane, list[CandlewrightError]]:
    broken: list[CandlewrightError] = []
    bus.grant({"j1": b""})
    return LanePublisher(bus), Lane(ticker=TICKER, job_id="j1", venue="BINANCE", on_broken=broken.append), broken


async def test_trades_and_marks_leave_in_order() -> None:
    bus = FreshBus()
    publisher, lane, broken = await lane_on(bus)
    for start in range(1, 10_001, 100):
        publisher.publish(lane, trades(start, 100))
    publisher.mark(lane, records.TickMark(ticker=TICKER, clock=records.Clock(exchange_time=5)))
    publisher.publish(lane, trades(10_001, 1))
    await publisher.drained(lane)
    publisher.close()
    assert ids(bus, TICKER) == list(range(1, 10_002))
    assert [clock.sequence for clock in marks(bus, TICKER, "clock")] == [10_000]
    assert not broken and lane.unpublished == 0


async def test_trades_that_were_requested_leave_apart_from_those_that_came() -> None:
    bus = FreshBus()
    publisher, lane, _ = await lane_on(bus)
    publisher.publish(lane, trades(1, 5), -3)
    publisher.publish(lane, trades(6, 5), -3)
    publisher.publish(lane, trades(11, 5))
    await publisher.drained(lane)
    publisher.close()
    marked = {i.decode(): batch.clock_ahead for batch in batches(bus, TICKER) for i in batch.trade_id.tolist()}
    assert marked == {str(i): -3 if i <= 10 else None for i in range(1, 16)}


async def test_marks_say_after_which_trade_they_hold_those_of_an_earlier_run_included() -> None:
    bus = FreshBus()
    publisher, lane, _ = await lane_on(bus)
    lane.sequence = 40
    publisher.mark(lane, records.TickMark(ticker=TICKER, covered=records.Covered(job_id="j1")))
    publisher.publish(lane, trades(1, 10))
    publisher.mark(lane, records.TickMark(ticker=TICKER, gap=records.Gap(gap_id="g")))
    publisher.mark(lane, records.TickMark(ticker=TICKER, seed=records.Seed()))
    await publisher.drained(lane)
    publisher.close()
    rows = [row for partition in range(bus.partitions(TICK_MARKS)) for row in bus.read(TICK_MARKS, partition, 0)]
    found = [records.TickMark.FromString(row.value) for row in rows]
    assert [(mark.WhichOneof("body"), mark.after_sequence) for mark in found] == [
        ("covered", 40), ("gap", 50), ("seed", 50),
    ]  # fmt: skip


async def test_behind_a_slow_bus_trades_gather_around_the_newest_clock() -> None:
    bus = StubbornBus()
    publisher, lane, _ = await lane_on(bus)
    bus.refusals = 3
    publisher.publish(lane, trades(1, 1))
    for number in range(1, 6):
        publisher.mark(lane, records.TickMark(ticker=TICKER, clock=records.Clock(exchange_time=number)))
        publisher.publish(lane, trades(number + 1, 1))
    publisher.mark(lane, records.TickMark(ticker=TICKER, gap=records.Gap(gap_id="g")))
    publisher.mark(lane, records.TickMark(ticker=TICKER, clock=records.Clock(exchange_time=9)))
    await publisher.drained(lane)
    publisher.close()
    assert ids(bus, TICKER) == list(range(1, 7))
    clocks = marks(bus, TICKER, "clock")
    assert len(clocks) < 4 and (clocks[-1].exchange_time, clocks[-1].sequence) == (9, 6)
    assert [gap.gap_id for gap in marks(bus, TICKER, "gap")] == ["g"]


async def test_a_full_bus_is_waited_for_and_nothing_is_lost() -> None:
    bus = StubbornBus()
    publisher, lane, _ = await lane_on(bus)
    bus.refusals = 4
    publisher.publish(lane, trades(1, MAX_UNPUBLISHED + 1))
    assert lane.is_full
    await publisher.drained(lane)
    publisher.close()
    assert ids(bus, TICKER) == list(range(1, MAX_UNPUBLISHED + 2))
    assert not lane.is_full


async def test_a_publish_whose_answer_was_lost_is_not_done_twice() -> None:
    bus = StubbornBus()
    publisher, lane, _ = await lane_on(bus)
    bus.refusals, bus.is_deceitful = 4, True
    publisher.mark(lane, records.TickMark(ticker=TICKER, seed=records.Seed(period_seconds=60)))
    await publisher.drained(lane)
    publisher.publish(lane, trades(1, 10))
    await publisher.drained(lane)
    publisher.publish(lane, trades(11, 10))
    await publisher.drained(lane)
    publisher.close()
    assert bus.refusals == 0
    assert ids(bus, TICKER) == list(range(1, 21))
    # Candles that were seeded twice would count twice.
    assert len(marks(bus, TICKER, "seed")) == 1


async def test_a_revoked_lease_breaks_the_lane_and_no_other() -> None:
    bus = FreshBus()
    publisher, lane, broken = await lane_on(bus)
    bus.grant({"j2": b""})
    other = Lane(ticker="ETH/USDT.BINANCE", job_id="j2", venue="BINANCE", on_broken=broken.append)
    bus.revoke(["j1"])
    publisher.publish(lane, trades(1, 10))
    publisher.publish(other, trades(1, 10))
    await publisher.drained(other)
    await until(lambda: broken)
    publisher.publish(lane, trades(11, 10))
    await asyncio.sleep(0)
    publisher.close()
    assert isinstance(broken[0], LeaseLost) and len(broken) == 1
    assert ids(bus, TICKER) == [] and ids(bus, "ETH/USDT.BINANCE") == list(range(1, 11))


async def test_a_job_ends_if_the_bus_has_lost_its_last_publish() -> None:
    """The next job starts from the records on the bus, and requests the missing trades."""
    bus = FreshBus()
    publisher, lane, broken = await lane_on(bus)
    publisher.publish(lane, trades(1, 10))
    await publisher.drained(lane)
    copy = {key: bus._store.call("DUMP", key) for key in bus._store.call("KEYS", "*")}
    publisher.publish(lane, trades(11, 10))
    await publisher.drained(lane)
    bus._store.call("FLUSHDB")
    for key, content in copy.items():
        bus._store.call("RESTORE", key, 0, content)
    publisher.publish(lane, trades(21, 10))
    await publisher.drained(lane)
    await asyncio.sleep(0)
    publisher.close()
    assert ids(bus, TICKER) == list(range(1, 11))
    assert [str(error) for error in broken] == [
        "the bus has lost records: the last call of j1 that it holds is 1, and this is 3"
    ]


class WatchedBus(FreshBus):
    """Notes the threads that wait for a publish. `may_begin`: if false, no publish begins without waiting."""

    may_begin = True

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[str] = []

    def begin_publish_as(self, topic: str, records: Sequence[Record], **options: Any) -> Any:
        return super().begin_publish_as(topic, records, **options) if self.may_begin else None

    def publish_as(self, topic: str, records: Sequence[Record], **options: Any) -> list[Position]:
        self.waiting.append(threading.current_thread().name)
        return super().publish_as(topic, records, **options)


async def opened_lane(bus: WatchedBus) -> tuple[LanePublisher, Lane, list[CandlewrightError]]:
    """A lane after its first publishes, since when the topics and the script are known and a connection is free."""
    publisher, lane, broken = await lane_on(bus)
    publisher.mark(lane, records.TickMark(ticker=TICKER, covered=records.Covered(job_id="j1")))
    publisher.publish(lane, trades(1, 1))
    await publisher.drained(lane)
    bus.waiting.clear()
    return publisher, lane, broken


async def test_no_thread_takes_part_in_the_publish_of_a_few_trades() -> None:
    bus = WatchedBus()
    publisher, lane, broken = await opened_lane(bus)
    for number in range(2, 200):
        publisher.publish(lane, trades(number, 1))
        publisher.mark(lane, records.TickMark(ticker=TICKER, gap=records.Gap(gap_id=str(number))))
        if number % 3:
            await asyncio.sleep(0.0005)
    await publisher.drained(lane)
    publisher.close()
    assert bus.waiting == [] and not broken
    assert ids(bus, TICKER) == list(range(1, 200))
    assert [gap.gap_id for gap in marks(bus, TICKER, "gap")] == [str(number) for number in range(2, 200)]
    assert lane.sequence == 199 and lane.unpublished == 0


async def test_many_trades_are_left_to_a_thread_and_keep_their_order() -> None:
    bus = WatchedBus()
    publisher, lane, _ = await opened_lane(bus)
    publisher.publish(lane, trades(2, 5_000))
    publisher.publish(lane, trades(5_002, 1))
    await publisher.drained(lane)
    assert set(bus.waiting) == {"ticks"}
    bus.waiting.clear()
    publisher.publish(lane, trades(5_003, 1))
    await publisher.drained(lane)
    publisher.close()
    assert bus.waiting == []
    assert ids(bus, TICKER) == list(range(1, 5_004))


async def test_a_publish_whose_connection_broke_is_repeated_once_by_a_thread() -> None:
    bus = WatchedBus()
    publisher, lane, broken = await opened_lane(bus)
    with redis.Redis.from_url(bus.url) as server:
        server.client_pause(60_000, all=False)
        publisher.publish(lane, trades(2, 1))
        publisher.publish(lane, trades(3, 1))
        server.client_kill_filter(_type="normal", skipme=True)
        await until(lambda: bus.waiting)
        server.client_unpause()
    await publisher.drained(lane)
    publisher.close()
    assert ids(bus, TICKER) == [1, 2, 3] and not broken


async def test_a_lease_revoked_before_a_publish_that_does_not_wait_breaks_the_lane() -> None:
    bus = WatchedBus()
    publisher, lane, broken = await opened_lane(bus)
    bus.revoke(["j1"])
    publisher.publish(lane, trades(2, 1))
    await until(lambda: broken)
    publisher.close()
    assert isinstance(broken[0], LeaseLost) and ids(bus, TICKER) == [1]


async def test_a_closed_lane_publishes_nothing_more() -> None:
    bus = WatchedBus()
    publisher, lane, broken = await opened_lane(bus)
    publisher.publish(lane, trades(2, 1))
    publisher.publish(lane, trades(3, 1))
    publisher.close_lane(lane)
    other = Lane(ticker=TICKER, job_id="j1", venue="BINANCE", on_broken=broken.append, calls=3, sequence=2)
    await until(lambda: not lane.is_queued)
    publisher.publish(other, trades(4, 1))
    await publisher.drained(other)
    publisher.close()
    assert ids(bus, TICKER) == [1, 2, 4] and not broken
