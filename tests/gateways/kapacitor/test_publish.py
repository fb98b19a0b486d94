"""Points onto the bus."""

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from bus.api import Record
from candlewright.wire.candlewright_pb2 import OHLCV, Side, Tick
from candlewright.wire.errors import BusFull
from gateways.kapacitor import publish
from gateways.kapacitor.function import Batch, Options, OptionsRefused
from gateways.kapacitor.functions import function_named
from protobuf.records_pb2 import TickMark
from protobuf.udf_superset_pb2 import BeginBatch, EndBatch, Option, Point
from tests.fresh_bus import FreshBus
from tests.gateways.kapacitor.daemon import SECOND, Value, option, point, seconds

T0 = 1_700_000_040 * SECOND
TICKER = "BTC/USDT.BINANCE"


def _publisher(bus: FreshBus, *options: Option) -> publish.Publisher:
    offered = function_named("publish", lambda: bus).options
    return publish.make(lambda: bus, Options.of(options, offered), is_batch=False)


def _values(bus: FreshBus, topic: str) -> list[bytes]:
    return [
        record.value
        for partition in range(bus.partitions(topic))
        for record in bus.read(topic, partition, 0, max_records=9_999)
    ]


def _trade(second: int, **fields: Value) -> Point:
    return point(T0 + second * SECOND, {"price": 1.5, "volume": 2, **fields}, ticker=TICKER)


def test_trades_become_ticks_and_continue_to_the_next_node() -> None:
    bus = FreshBus()
    points = [_trade(0, trade_id="7", side="sell")]
    responses = _publisher(bus).take(points)
    assert [response.point for response in responses] == points
    (value,) = _values(bus, "ticks")
    tick = Tick.FromString(value)
    assert (tick.ticker, tick.trade_id, tick.timestamp) == (TICKER, "7", T0)
    assert (tick.price, tick.size, tick.side) == (1.5, 2.0, Side.SELL)


def test_ticks_are_stored_in_their_table() -> None:
    bus = FreshBus()
    publisher = _publisher(bus)
    for second in range(3):
        publisher.take([_trade(second)])
    (mark,) = map(TickMark.FromString, _values(bus, "tick_marks"))
    assert (mark.ticker, mark.wanted.ticks) == (TICKER, True)


def test_trade_that_is_sent_again_is_published_once() -> None:
    bus = FreshBus()
    first, second = _publisher(bus), _publisher(bus)
    first.take([_trade(0, trade_id="7"), _trade(0, trade_id="8"), _trade(1)])
    second.take([_trade(0, trade_id="7"), _trade(1), _trade(2)])
    assert len(_values(bus, "ticks")) == 4
    assert second.counts == {"points": 3, "published": 1, "repeated": 2, "refused": 0, "partial": 0, "waits": 0}


def test_points_that_are_not_a_trade_are_counted_as_refused() -> None:
    bus = FreshBus()
    function = _publisher(bus)
    nameless = point(T0, {"price": 1.0, "volume": 1.0}, ticker="nonsense")
    function.take([point(T0, {"volume": 1.0}, ticker=TICKER), nameless, point(5, {"price": 1.0}, ticker=TICKER)])
    assert function.counts["refused"] == 3
    assert "ticks" not in bus.topics() or not _values(bus, "ticks")


def test_bars_of_the_function_ohlc_become_bars_of_the_platform() -> None:
    bus = FreshBus()
    bar: dict[str, Value] = {
        "open": 1.0, "high": 3.0, "low": 1.0, "close": 2.0, "volume": 4.0, "quote_volume": 8.0,
        "trade_count": 5, "partial": 0,
    }  # fmt: skip
    made = point(T0 - T0 % (60 * SECOND), bar, ticker=TICKER)
    function = _publisher(bus, option("topic", "ohlc"), option("period", seconds(60)))
    function.take([made, made])
    (value,) = _values(bus, "ohlc")
    found = OHLCV.FromString(value)
    assert (found.ticker, found.period_seconds, found.open_time) == (TICKER, 60, made.time)
    assert (found.high, found.volume, found.quote_volume, found.trade_count) == (3.0, 4.0, 8.0, 5)
    assert found.complete
    assert found.sequence == 1
    assert function.counts["repeated"] == 1


def _bar(said: Value | None, **tags: str) -> Point:
    fields: dict[str, Value] = {"open": 1.0, "high": 3.0, "low": 1.0, "close": 2.0, "volume": 4.0}
    if said is not None:
        fields["partial"] = said
    return point(T0 - T0 % (60 * SECOND), fields, ticker=TICKER, **tags)


@pytest.mark.parametrize("partial", [1, 1.0, True, "1", "true", "T"])
def test_an_incomplete_bar_is_passed_on_unpublished_and_does_not_block_the_complete_one(partial: Value) -> None:
    bus = FreshBus()
    bus.create_topic("ohlc")
    function = _publisher(bus, option("topic", "ohlc"), option("period", seconds(60)))
    for cut in (_bar(partial), _bar(None, partial="1")):
        (response,) = function.take([cut])
        assert response.point == cut
    assert _values(bus, "ohlc") == []
    assert function.counts["partial"] == 2
    function.take([_bar(None)])
    (value,) = _values(bus, "ohlc")
    assert OHLCV.FromString(value).complete


@pytest.mark.parametrize("partial", [0, 0.0, False, "0", "false", "F", ""])
def test_a_bar_marked_as_not_partial_is_complete(partial: Value) -> None:
    bus = FreshBus()
    function = _publisher(bus, option("topic", "ohlc"), option("period", seconds(60)))
    function.take([_bar(partial)])
    (value,) = _values(bus, "ohlc")
    assert OHLCV.FromString(value).complete


def test_a_bar_with_an_unknown_value_of_partial_is_refused() -> None:
    bus = FreshBus()
    bus.create_topic("ohlc")
    function = _publisher(bus, option("topic", "ohlc"), option("period", seconds(60)))
    function.take([_bar("perhaps")])
    assert _values(bus, "ohlc") == [] and function.counts["refused"] == 1


def test_a_topic_that_the_task_names_gets_points_as_json_under_the_given_key() -> None:
    bus = FreshBus()
    function = _publisher(bus, option("topic", "alerts"), option("key", "level"), option("key", "time"))
    function.take([point(T0, {"level": "high", "n": i, "ok": True}, host="a") for i in range(2)])
    (value,) = _values(bus, "alerts")
    assert json.loads(value) == {
        "time": T0,
        "name": "trades",
        "tags": {"host": "a"},
        "fields": {"level": "high", "n": 0, "ok": True},
    }


class _Counted(FreshBus):
    """Reports `full` times that it is full; `calls`: the sizes of the other calls."""

    def __init__(self, full: int = 0) -> None:
        super().__init__()
        self.full = full
        self.calls: list[int] = []

    def publish_new(self, topic: str, records: Sequence[Record], **more: Any) -> list[bool]:
        if self.full:
            self.full -= 1
            raise BusFull(topic, 2, 1)
        self.calls.append(len(records))
        return super().publish_new(topic, records, **more)


def test_full_bus_is_waited_for() -> None:
    bus = _Counted(full=3)
    function = _publisher(bus)
    pauses: list[float] = []
    function.pause = pauses.append
    function.take([_trade(0), _trade(1)])
    assert len(_values(bus, "ticks")) == 2
    assert function.counts["waits"] == len(pauses) == 3


def test_points_that_came_together_share_calls_of_a_bounded_size_in_their_order() -> None:
    bus = _Counted()
    function = _publisher(bus)
    function.take([_trade(second, trade_id=second) for second in range(2_500)])
    assert bus.calls == [1_000, 1_000, 500]
    assert [Tick.FromString(value).trade_id for value in _values(bus, "ticks")] == [str(n) for n in range(2_500)]
    wide = _publisher(bus, option("topic", "notes"))
    wide.take([_trade(second, text="x" * (3 << 20)) for second in range(3)])
    assert bus.calls[3:] == [1, 1, 1]


def test_repetition_within_one_call_is_published_once() -> None:
    bus = _Counted()
    function = _publisher(bus)
    function.take([_trade(0, trade_id="7"), _trade(1, trade_id="8"), _trade(0, trade_id="7")])
    assert len(_values(bus, "ticks")) == 2
    assert (function.counts["published"], function.counts["repeated"], bus.calls) == (2, 1, [3])


def test_points_of_a_batch_have_the_tags_of_its_group() -> None:
    bus = FreshBus()
    tags = {"ticker": TICKER}
    inner = Point(time=T0, fieldsDouble={"price": 1.0, "volume": 1.0})
    begin, end = BeginBatch(name="trades", tags=tags), EndBatch(name="trades", tags=tags)
    responses = _publisher(bus).take_batch(Batch(begin, [inner], end))
    assert [response.WhichOneof("message") for response in responses] == ["begin", "point", "end"]
    assert Tick.FromString(_values(bus, "ticks")[0]).ticker == TICKER


@pytest.mark.parametrize("topic", ["requests", "tick_marks", "trigger_controls", "notifications", "trigger_events", ""])
def test_the_platforms_own_topics_are_refused(topic: str) -> None:
    with pytest.raises(OptionsRefused, match="no topic"):
        _publisher(FreshBus(), option("topic", topic))


def test_bars_without_a_period_are_refused() -> None:
    with pytest.raises(OptionsRefused, match="period"):
        _publisher(FreshBus(), option("topic", "ohlc"))


def test_points_dated_ahead_are_counted_as_refused() -> None:
    bus = FreshBus()
    publisher = _publisher(bus)
    publisher.take([_trade(0), point(time.time_ns() + 60 * SECOND, {"price": 1.5, "volume": 2}, ticker=TICKER)])
    assert (publisher.counts["published"], publisher.counts["refused"]) == (1, 1)
