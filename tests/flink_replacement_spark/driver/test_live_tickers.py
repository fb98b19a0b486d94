"""Numbers of live tickers, from the bus."""

from bus import Record, SequenceStamp
from bus import topics as bus_topics
from flink_replacement_spark.driver import live_tickers
from protobuf import records_pb2 as records
from tests.fresh_bus import FreshBus


def test_live_tickers_have_the_newest_numbers_of_their_trades_and_minutes() -> None:
    bus = FreshBus()
    assert live_tickers.live_numbers(bus, 7) == (frozenset(), {})
    wanted = records.Wanted(period_seconds=[60]).SerializeToString()
    bus.put(bus_topics.TABLE_WANTED, {"A/X.Y": wanted, "B/X.Y": wanted})
    bus.publish(bus_topics.TICKS, [Record(b"t", key=b"A/X.Y", sequence=SequenceStamp("TICKS:A/X.Y", 5))])
    bus.publish(bus_topics.OHLC, [Record(b"b", key=b"A/X.Y", sequence=SequenceStamp("OHLC:A/X.Y:60"))])
    live, numbers = live_tickers.live_numbers(bus, 0)
    assert (live, numbers) == ({"A/X.Y", "B/X.Y"}, {"A/X.Y": (5, 1), "B/X.Y": (0, 0)})


def test_more_tickers_than_one_look_asks_for_take_turns() -> None:
    bus = FreshBus()
    bus.put(bus_topics.TABLE_WANTED, {f"T{number}/X.Y": b"" for number in range(2 * live_tickers.MAX_ASKED + 1)})
    looks = [live_tickers.live_numbers(bus, look)[1].keys() for look in range(3)]
    assert max(map(len, looks)) <= live_tickers.MAX_ASKED
    assert len(set().union(*looks)) == sum(map(len, looks)) == 2 * live_tickers.MAX_ASKED + 1
