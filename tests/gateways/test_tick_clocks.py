"""The minute of a ticker that falls silent ends."""

from collections.abc import Mapping

from bus import topics
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import BusUnavailable
from gateways.records import record_of
from gateways.tick_clocks import TABLE, TickClocks
from protobuf import records_pb2 as records
from tests.fresh_bus import FreshBus

_SECOND = 1_000_000_000
_MINUTE = 60 * _SECOND
_START = 28_333_334 * _MINUTE
_TICKER = "GATE/USDT.NOWHERE"


class Bus(FreshBus):
    """A bus whose tables cannot be reached while `is_away`."""

    is_away = False

    def put(self, table: str, values: Mapping[str, bytes], *, keep_seconds: float | None = None) -> None:
        if self.is_away:
            raise BusUnavailable("the bus does not answer")
        super().put(table, values, keep_seconds=keep_seconds)


class Stage:
    def __init__(self) -> None:
        self.bus = Bus(partitions=1)
        self.now = _START
        self.clocks = TickClocks(self.bus, lambda: self.now)

    def publish(self, time: int) -> None:
        self.now = max(self.now, time)
        tick = cw.Tick(ticker=_TICKER, trade_id=str(time), timestamp=time, price=1.0, size=1.0)
        record = record_of("ticks", tick.SerializeToString(), now_ns=self.now)
        self.bus.publish("ticks", [record])
        self.clocks.published(topics.TICKS, [record])

    def restart(self) -> None:
        self.clocks = TickClocks(self.bus, lambda: self.now)

    def told(self) -> list[tuple[int, int]]:
        found = [records.TickMark.FromString(record.value) for record in self.bus.read(topics.TICK_MARKS, 0, 0)]
        assert all(mark.ticker == _TICKER for mark in found)
        return [(mark.clock.exchange_time, mark.clock.sequence) for mark in found]


def test_a_minute_ends_once_after_its_last_tick() -> None:
    stage = Stage()
    stage.publish(_START + 5 * _SECOND)
    stage.publish(_START + 6 * _SECOND)
    stage.now = _START + 61 * _SECOND
    assert stage.clocks.publish_due() == 0
    stage.now = _START + 63 * _SECOND
    assert [stage.clocks.publish_due() for _ in range(2)] == [1, 0]
    assert stage.told() == [(_START + _MINUTE, 2)]


def test_a_further_tick_ends_the_minute_itself() -> None:
    stage = Stage()
    stage.publish(_START + 5 * _SECOND)
    stage.now = _START + 61 * _SECOND
    stage.publish(stage.now)
    stage.now = _START + 100 * _SECOND
    assert stage.clocks.publish_due() == 0
    stage.now = _START + 123 * _SECOND
    assert stage.clocks.publish_due() == 1
    assert stage.told() == [(_START + 2 * _MINUTE, 2)]


def test_ticks_of_the_past_do_not_advance_the_clock() -> None:
    stage = Stage()
    stage.publish(_START - 3_600 * _SECOND)
    stage.now = _START + 600 * _SECOND
    assert stage.clocks.publish_due() == 0


def test_the_minute_of_a_killed_gateway_is_ended_by_the_next_one_when_clients_had_time_to_come_back() -> None:
    stage = Stage()
    stage.publish(_START + 5 * _SECOND)
    stage.now = _START + 70 * _SECOND
    stage.restart()
    assert stage.clocks.publish_due() == 0
    stage.now += 30 * _SECOND
    assert [stage.clocks.publish_due() for _ in range(2)] == [1, 0]
    assert stage.told() == [(_START + _MINUTE, 1)]
    stage.restart()
    assert stage.clocks.publish_due() == 0
    stage.now += 30 * _SECOND
    assert stage.clocks.publish_due() == 0


def test_ticks_after_a_restart_take_precedence_over_the_known_time() -> None:
    stage = Stage()
    stage.publish(_START + 5 * _SECOND)
    stage.now = _START + 70 * _SECOND
    stage.restart()
    assert stage.clocks.publish_due() == 0
    stage.publish(stage.now)
    stage.now = _START + 110 * _SECOND
    assert stage.clocks.publish_due() == 0
    stage.now = _START + 123 * _SECOND
    assert stage.clocks.publish_due() == 1
    assert stage.told() == [(_START + 2 * _MINUTE, 2)]
    assert stage.bus.items(TABLE) == {}


def test_ticks_are_published_though_their_minute_cannot_be_noted_and_it_is_noted_later() -> None:
    stage = Stage()
    stage.bus.is_away = True
    stage.publish(_START + 5 * _SECOND)
    assert stage.bus.items(TABLE) == {}
    stage.bus.is_away = False
    assert stage.clocks.publish_due() == 0
    assert stage.bus.items(TABLE) == {_TICKER: b"%d" % (_START + _MINUTE)}
