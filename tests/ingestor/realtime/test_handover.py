"""Where an ingestor that takes over tickers continues."""

import time
from typing import Any

from bus import Record, SequenceStamp, StoredRecord
from bus.topics import TICKS
from ingestor.realtime.handover import Tails
from ingestor.trade import ORDER, Trade, tick_batch
from tests.fresh_bus import FreshBus


class CountingBus(FreshBus):
    read_records = 0
    #: Records of this key look as if they were published long ago.
    old: bytes | None = None

    def read(self, *arguments: Any, **named: Any) -> list[StoredRecord]:
        found = super().read(*arguments, **named)
        self.read_records += len(found)
        return [record._replace(timestamp_ms=0) if record.key == self.old else record for record in found]


def publish(bus: FreshBus, ticker: str, *orders: int) -> None:
    bus.publish(TICKS, [record(ticker, *orders)])


def record(ticker: str, *orders: int) -> Record:
    now = time.time_ns()
    trades: list[Trade] = [(order, now, 1.0, 1.0, 1, str(order), now) for order in orders]
    key = ticker.encode()
    stamp = SequenceStamp(f"TICKS:{ticker}", len(trades), tag=b"\x10")
    return Record(tick_batch(ticker, trades), key=key, partition_key=key, sequence=stamp)


def test_a_tail_has_the_newest_trades_by_id_and_the_last_number() -> None:
    bus = FreshBus()
    assert Tails(bus, 5 * 10**9).read("A/B.C").sequence == 0
    publish(bus, "A/B.C", 7, 9)
    publish(bus, "X/Y.C", 1)
    # Trades that were given up and published late.
    publish(bus, "A/B.C", 8)
    tails = Tails(bus, 5 * 10**9)
    with tails.reading():
        tail = tails.read("A/B.C")
        assert [trade[ORDER] for trade in tail.trades] == [7, 8, 9]
        assert (tail.sequence, tail.last[ORDER]) == (3, 9)
        # Records that arrive between two reads belong to the second.
        publish(bus, "A/B.C", 10)
        assert tails.read("A/B.C").last[ORDER] == 10
        assert tails.read("X/Y.C").last[ORDER] == 1


def test_hundreds_of_tickers_are_taken_over_in_one_pass() -> None:
    bus = CountingBus()
    tickers = [f"T{number}/USDT.C" for number in range(200)]
    for order in range(1, 31):
        bus.publish(TICKS, [record(ticker, order) for ticker in tickers])
    tails = Tails(bus, 5 * 10**9)
    with tails.reading():
        for ticker in tickers:
            tail = tails.read(ticker)
            assert [trade[ORDER] for trade in tail.trades] == list(range(1, 31))
    # Once each, except in the search for the first record that is not too old.
    assert bus.read_records < len(tickers) * 30 * 1.1
    assert not tails._windows


def test_trades_that_are_old_on_the_bus_are_not_read() -> None:
    bus = CountingBus(partitions=1)
    bus.old = b"OLD/USDT.C"
    bus.publish(TICKS, [record("OLD/USDT.C", order) for order in range(1, 2_000)])
    publish(bus, "NEW/USDT.C", 5)
    tails = Tails(bus, 5 * 10**9)
    bus.read_records = 0
    with tails.reading():
        assert [trade[ORDER] for trade in tails.read("NEW/USDT.C").trades] == [5]
        assert tails.read("OLD/USDT.C").sequence == 1_999
    assert bus.read_records < 600
