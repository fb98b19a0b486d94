"""A minute of a ticker that fell silent ends."""

from bus import topics
from bus.memory_bus import MemoryBus
from gateways.records import record_of
from gateways.tick_clocks import TickClocks
from protobuf import candlewright_pb2 as cw
from protobuf import records_pb2 as records

_SECOND = 1_000_000_000
_MINUTE = 60 * _SECOND
_START = 28_333_334 * _MINUTE
_TICKER = "GATE/USDT.NOWHERE"


class Stage:
    def __init__(self) -> None:
        self.bus = MemoryBus(partitions=1)
        self.now = _START
        self.clocks = TickClocks(self.bus, lambda: self.now)

    def publish(self, time: int) -> None:
        tick = cw.Tick(ticker=_TICKER, trade_id=str(time), timestamp=time, price=1.0, size=1.0)
        record = record_of("ticks", tick.SerializeToString(), now_ns=self.now)
        self.bus.publish("ticks", [record])
        self.clocks.published([record])

    def told(self) -> list[tuple[int, int]]:
        found = [records.TickMark.FromString(record.value) for record in self.bus.read(topics.TICK_MARKS, 0, 0)]
        assert all(mark.ticker == _TICKER for mark in found)
        return [(mark.clock.exchange_time, mark.clock.sequence) for mark in found]


def test_a_minute_ends_once_after_its_last_tick() -> None:
    stage = Stage()
    stage.publish(_START + 5 * _SECOND)
    stage.publish(_START + 6 * _SECOND)
    stage.now = _START + 61 * _SECOND
    assert stage.clocks.tell() == 0
    stage.now = _START + 63 * _SECOND
    assert [stage.clocks.tell() for _ in range(2)] == [1, 0]
    assert stage.told() == [(_START + _MINUTE, 2)]


def test_a_further_tick_ends_the_minute_itself() -> None:
    stage = Stage()
    stage.publish(_START + 5 * _SECOND)
    stage.now = _START + 61 * _SECOND
    stage.publish(stage.now)
    stage.now = _START + 100 * _SECOND
    assert stage.clocks.tell() == 0
    stage.now = _START + 123 * _SECOND
    assert stage.clocks.tell() == 1
    assert stage.told() == [(_START + 2 * _MINUTE, 2)]


def test_ticks_of_the_past_tell_no_time() -> None:
    stage = Stage()
    stage.publish(_START - 3_600 * _SECOND)
    stage.now = _START + 600 * _SECOND
    assert stage.clocks.tell() == 0
