"""What the live query forgets: tickers that have fallen silent, and states of lost checkpoints."""

import pytest

from candlewright.wire.grid import SECOND
from flink_replacement_spark.live.partition import LivePartition
from flink_replacement_spark.live.store import StateStore, drop_outdated
from protobuf import records_pb2 as records
from tests.flink_replacement_spark.live.test_partition import TICKER, _bars, _batch, _covered, _mark
from tests.fresh_bus import FreshBus

HOUR = 3_600 * SECOND
WEEK = 168 * HOUR
NOW = 1_800_000_000 * SECOND
OTHER = "ETH/USDT.BINANCE"


@pytest.fixture
def partition() -> LivePartition:
    found = LivePartition(0, HOUR)
    wanted = _mark(wanted=records.Wanted(ticks=True, period_seconds=[300]))
    found.process([_batch(1, (1, "9", 2.0), (61, "10", 3.0))], [wanted, _covered()], NOW)
    found.process([], [_mark(wanted=records.Wanted())], NOW + SECOND)
    return found


def test_a_ticker_that_is_idle_for_a_week_and_the_horizon_ends_with_its_open_minute(partition: LivePartition) -> None:
    almost = partition.process([_batch(1, (1, "1", 2.0), ticker=OTHER)], [], NOW + WEEK + HOUR)
    assert TICKER in partition.makers[0].tickers
    assert _bars(almost) == []
    output = partition.process([], [], NOW + SECOND + WEEK + HOUR)
    assert _bars(output) == [(TICKER, 60, 60, 3.0, 3.0, 0.1, 1, 0, False)]
    assert partition.makers[0].tickers == [OTHER]


def test_repeated_trades_of_a_removed_ticker_are_neither_counted_nor_stored_twice(partition: LivePartition) -> None:
    later = NOW + 2 * WEEK
    partition.process([], [], later)
    partition = LivePartition.load(partition.save())
    wanted = _mark(wanted=records.Wanted(ticks=True))
    output = partition.process([_batch(1, (1, "9", 2.0), (61, "10", 3.0))], [wanted], later)
    assert _bars(output) == []
    assert [len(ticks) for ticks in output.ticks] == [0]
    assert partition.too_late == 2
    new = 4 * 7 * 86_400
    output = partition.process([_batch(3, (new, "11", 4.0), (new + 60, "12", 4.0))], [], later)
    assert [len(ticks) for ticks in output.ticks] == [2]
    assert [bar[5:7] for bar in _bars(output)] == [(0.1, 1)]


def test_the_state_stays_flat_while_tickers_come_and_go() -> None:
    partition = LivePartition(0, HOUR)
    sizes = []
    for number in range(12):
        now = NOW + number * 2 * WEEK
        trades = [(number * 7 * 86_400 + second, str(second), 2.0) for second in range(0, 3_000, 30)]
        partition.process([_batch(1, *trades, ticker=f"{number}/USDT.BINANCE")], [], now)
        sizes.append(len(partition.save()))
        assert len(partition.makers[0].tickers) == 1
    assert max(sizes[6:]) < max(sizes[:6]) + 6 * 120


def test_states_of_lost_checkpoints_are_dropped_and_those_of_other_kinds_stay() -> None:
    bus = FreshBus()
    for query_id in ("lost", "kept"):
        StateStore(bus, query_id).save(0, 1, b"state")
        drop_outdated(bus, query_id)
    StateStore(bus, "lost", "trigger_state").save(0, 1, b"state")
    drop_outdated(bus, "kept")
    assert bus.items("live_state:lost") == {}
    assert StateStore(bus, "kept").load(0, 1) == b"state"
    assert StateStore(bus, "lost", "trigger_state").load(0, 1) == b"state"
    assert bus.items("live_state_queries").keys() == {"kept"}
