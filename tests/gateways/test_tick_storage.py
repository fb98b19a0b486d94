"""Ticks that are published through a gateway are stored."""

from bus import topics
from gateways.tick_storage import TickStorage
from protobuf import records_pb2 as records
from tests.fresh_bus import FreshBus

_TICKER = "GATE/USDT.NOWHERE"


def marks(bus: FreshBus) -> list[records.TickMark]:
    return [records.TickMark.FromString(record.value) for record in bus.read(topics.TICK_MARKS, 0, 0)]


def test_the_pipeline_is_notified_once_and_again_after_a_while() -> None:
    bus, now = FreshBus(partitions=1), [0.0]
    storage = TickStorage(bus, lambda: now[0])
    for seconds in (0.0, 1.0, 59.0):
        now[0] = seconds
        storage.want([_TICKER, _TICKER])
    assert [(mark.ticker, mark.wanted.ticks, mark.after_sequence) for mark in marks(bus)] == [(_TICKER, True, 0)]
    now[0] = 60.0
    storage.want([_TICKER])
    assert len(marks(bus)) == 2


def test_the_needs_of_requests_for_a_ticker_are_kept() -> None:
    bus = FreshBus(partitions=1)
    bus.put(topics.TABLE_WANTED, {_TICKER: records.Wanted(period_seconds=[300]).SerializeToString()})
    TickStorage(bus).want([_TICKER])
    assert marks(bus)[0].wanted == records.Wanted(ticks=True, period_seconds=[300])


def test_a_declaration_of_the_broker_in_between_does_not_end_storage() -> None:
    bus, now = FreshBus(partitions=1), [0.0]
    storage = TickStorage(bus, lambda: now[0])
    storage.want([_TICKER])
    bus.put(topics.TABLE_WANTED, {_TICKER: records.Wanted(period_seconds=[300]).SerializeToString()})
    for seconds in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 61.0):
        now[0] = seconds
        storage.want([_TICKER])
    # Twice: the first declaration may have been published before the broker's own.
    both = records.Wanted(ticks=True, period_seconds=[300])
    assert [mark.wanted for mark in marks(bus)] == [records.Wanted(ticks=True), both, both]
