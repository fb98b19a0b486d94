"""A trigger's text over points."""

import pytest

from bus.redis.redis_bus import RedisBus
from bus.topics import TABLE_TRIGGERS
from gateways.kapacitor import match
from gateways.kapacitor.function import Batch, Options, OptionsRefused
from gateways.kapacitor.functions import function_named
from protobuf.records_pb2 import TriggerEntry
from protobuf.udf_superset_pb2 import BeginBatch, EndBatch, Option, Point, Response
from tests.fresh_bus import FreshBus
from tests.gateways.kapacitor.daemon import SECOND, Value, option, point, seconds

VALLEY = """SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts
  MEASURES FIRST(price) AS top, LAST(D.price) AS bottom, LAST(U.ts) AS up_at
  PATTERN (S D+ U) DEFINE D AS price < PREV(price), U AS price > PREV(price))"""


def _no_bus() -> object:
    raise AssertionError("matching needs no bus")


def _matcher(sql: str, *more: Option, is_batch: bool = False) -> match.Matcher:
    offered = function_named("match", _no_bus).options  # type: ignore[arg-type]
    return match.make(_no_bus, Options.of([option("sql", sql), *more], offered), is_batch=is_batch)  # type: ignore[arg-type]


def _tick(time: float, price: float, symbol: str = "BTC", **fields: Value) -> Point:
    return point(round(time * SECOND), {"price": price, **fields}, symbol=symbol)


def _events(responses: list[Response]) -> list[Point]:
    return [response.point for response in responses]


def test_condition_decides_at_once_for_each_point() -> None:
    function = _matcher("price > :limit AND size >= 2", option("parameter", "limit", "10"))
    (event,) = _events(function.take([_tick(1, 11.0, size=2), _tick(2, 9.0, size=2), _tick(3, 12.0, size=1)]))
    assert event.time == SECOND
    assert (event.group, dict(event.tags), list(event.dimensions)) == ("symbol=BTC", {"symbol": "BTC"}, ["symbol"])
    assert (event.fieldsDouble["price"], event.fieldsDouble["size"]) == (11.0, 2.0)
    assert event.fieldsString["ticker"] == "BTC"


def test_without_partition_by_each_group_is_searched_separately() -> None:
    function = _matcher(VALLEY)
    prices = {"BTC": [5.0, 3.0, 4.0], "ETH": [1.0, 2.0, 3.0]}
    points = [_tick(i, prices[symbol][i], symbol) for i in range(3) for symbol in prices]
    (event,) = _events(function.take(points))
    assert event.tags["symbol"] == "BTC"
    assert event.time == 2 * SECOND
    assert dict(event.fieldsDouble) == {"top": 5.0, "bottom": 3.0}
    assert dict(event.fieldsInt) == {"up_at": 2 * SECOND, "match_number": 1}


def test_points_of_one_time_are_taken_in_the_order_in_which_they_came() -> None:
    function = _matcher(VALLEY)
    assert len(function.take([_tick(1, 5.0), _tick(1, 3.0)]) + function.take([_tick(1, 4.0)])) == 1


def test_declared_columns_read_fields_of_their_type_and_tags() -> None:
    function = _matcher(
        "ok AND level > 3 AND host = 'a'",
        option("bool", "ok"), option("int", "level"), option("string", "host"), option("column", "level", "n"),
    )  # fmt: skip
    made = point(0, {"ok": True, "n": 4}, host="a", symbol="BTC")
    wrong = point(1, {"ok": True, "n": 4.5}, host="a", symbol="BTC")
    (event,) = _events(function.take([made, wrong]))
    assert event.fieldsBool["ok"] is True
    assert event.fieldsInt["level"] == 4
    assert "host" not in event.fieldsString
    assert event.tags["host"] == "a"


def test_late_points_are_counted_and_not_seen() -> None:
    function = _matcher("price > 1")
    assert len(function.take([_tick(5, 2.0), _tick(4, 2.0)])) == 1
    assert function.counts["late"] == 1


def test_lateness_orders_points_before_they_are_examined() -> None:
    function = _matcher(VALLEY, option("lateness", seconds(10)))
    assert function.take([_tick(1, 5.0), _tick(3, 4.0), _tick(2, 3.0)]) == []
    (event,) = _events(function.take([_tick(60, 9.0)]) + function.finish())
    assert event.fieldsDouble["bottom"] == 3.0


def test_windows_close_by_the_time_of_later_points_and_at_the_end() -> None:
    sql = """SELECT ticker, TUMBLE_END(ts, INTERVAL '1' MINUTE) AS until, SUM(size) AS volume FROM ticks
      GROUP BY ticker, TUMBLE(ts, INTERVAL '1' MINUTE)"""
    function = _matcher(sql)
    assert function.take([_tick(1, 1.0, size=2.0), _tick(2, 1.0, size=3.0)]) == []
    events = _events(function.take([_tick(61, 1.0, size=4.0), _tick(62, 1.0, size=4.0)]) + function.finish())
    assert [event.fieldsDouble["volume"] for event in events] == [5.0, 8.0]


def test_snapshot_continues_in_the_middle_of_a_pattern() -> None:
    before = _matcher(VALLEY)
    before.take([_tick(1, 5.0), _tick(2, 3.0), _tick(1, 9.0, "ETH")])
    after = _matcher(VALLEY)
    after.restore(before.snapshot())
    (event,) = _events(after.take([_tick(3, 4.0)]))
    assert (event.fieldsDouble["top"], event.tags["symbol"]) == (5.0, "BTC")


def _partial(responses: list[Response]) -> list[int | None]:
    return [event.fieldsInt.get("partial") for event in _events(responses)]


def test_match_over_the_hole_after_a_snapshot_is_marked_and_the_next_is_not() -> None:
    before = _matcher(VALLEY)
    before.take([_tick(1, 5.0), _tick(2, 3.0)])
    after = _matcher(VALLEY)
    after.restore(before.snapshot())
    own = [_tick(8, 4.0), _tick(9, 6.0), _tick(10, 5.0), _tick(11, 7.0)]
    new = [_tick(12, 9.0, "NEW"), _tick(13, 8.0, "NEW"), _tick(14, 9.0, "NEW")]
    assert _partial(after.take(own)) == [1, None]
    # Whether the new group had points in the hole is unknown.
    assert _partial(after.take(new)) == [1]


def test_first_window_after_a_hole_is_marked_and_a_single_row_never() -> None:
    windows = "SELECT ticker, COUNT(*) AS n FROM ticks GROUP BY ticker, TUMBLE(ts, INTERVAL '1' MINUTE)"
    for sql, expected in ((windows, [1, None, None]), ("price > 1", [None, None, None])):
        before = _matcher(sql)
        before.take([_tick(1, 2.0)])
        after = _matcher(sql)
        after.restore(before.snapshot())
        assert _partial(after.take([_tick(2, 2.0), _tick(61, 2.0), _tick(121, 2.0)]) + after.finish()) == expected


def test_snapshot_keeps_points_that_wait_for_their_turn() -> None:
    late = option("lateness", seconds(10))
    before = _matcher("price > 1", late)
    assert before.take([_tick(5, 2.0), _tick(4, 3.0)]) == []
    after = _matcher("price > 1", late)
    after.restore(before.snapshot())
    assert [event.fieldsDouble["price"] for event in _events(after.take([_tick(60, 1.0)]))] == [3.0, 2.0]


def test_state_of_another_text_is_not_taken() -> None:
    before = _matcher("price > 1")
    before.take([_tick(1, 2.0)])
    with pytest.raises(ValueError, match="another text"):
        _matcher("price > 2").restore(before.snapshot())


def test_batch_is_a_table_that_has_ended() -> None:
    function = _matcher("SELECT AVG(price) AS mean FROM ticks GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)", is_batch=True)
    tags = {"symbol": "BTC"}
    batch = Batch.of(
        BeginBatch(name="trades", group="symbol=BTC", tags=tags),
        [_tick(2, 3.0), _tick(1, 1.0)],
        EndBatch(name="trades", group="symbol=BTC", tags=tags, tmax=60 * SECOND),
    )
    for _ in range(2):
        responses = function.take_batch(batch)
        assert [response.WhichOneof("message") for response in responses] == ["begin", "point", "end"]
        assert responses[0].begin.size == 1
        assert responses[1].point.fieldsDouble["mean"] == 2.0
        assert (responses[2].end.tmax, dict(responses[2].end.tags)) == (60 * SECOND, tags)


def test_values_that_no_field_can_hold_are_left_out_and_counted() -> None:
    function = _matcher("SELECT price, 1e308 * price * 10 AS huge FROM ticks WHERE price > 1")
    (event,) = _events(function.take([_tick(1, 2.0)]))
    assert dict(event.fieldsDouble) == {"price": 2.0}
    assert function.counts["not_sent"] == 1


@pytest.mark.parametrize(
    "options",
    [
        [option("sql", "price >")],
        [option("sql", "no_such_column > 1")],
        [option("sql", "")],
        [option("sql", "price > 1"), option("rule", "breakout")],
        [option("sql", "price > 1"), option("table", "trades")],
        [option("sql", "price > 1"), option("double", "price")],
        [option("sql", "price > 1"), option("column", "nope", "field")],
        [option("sql", "price > 1"), option("lateness", seconds(-1))],
        [],
    ],
)
def test_texts_and_options_that_cannot_run_are_refused(options: list[Option]) -> None:
    offered = function_named("match", _no_bus).options  # type: ignore[arg-type]
    with pytest.raises(OptionsRefused):
        match.make(_no_bus, Options.of(options, offered), is_batch=False)  # type: ignore[arg-type]


def test_rule_is_a_registered_trigger_with_its_parameters() -> None:
    bus = FreshBus()
    entry = TriggerEntry()
    entry.registration.sql = "close > :limit"
    entry.registration.parameters.update(limit="10", period_seconds="60")
    bus.put(TABLE_TRIGGERS, {"breakout": entry.SerializeToString()})
    offered = function_named("match", lambda: bus).options

    def named(name: str, *more: Option) -> match.Matcher:
        return match.make(lambda: RedisBus(bus.url), Options.of([option("rule", name), *more], offered), is_batch=False)

    bars = [point(i * 60 * SECOND, {"close": float(close)}, symbol="BTC") for i, close in enumerate((9, 11, 21))]
    assert len(named("breakout").take(bars)) == 2
    assert len(named("breakout", option("parameter", "limit", "20")).take(bars)) == 1
    with pytest.raises(OptionsRefused, match="no trigger 'gone'"):
        named("gone")
    entry.registration.parameters["udf"] = "spikes"
    bus.put(TABLE_TRIGGERS, {"through": entry.SerializeToString()})
    with pytest.raises(OptionsRefused, match="through a function"):
        named("through")


def test_refused_text_is_reported_with_line_and_column() -> None:
    with pytest.raises(OptionsRefused, match=r"INVALID_SQL 1:8"):
        _matcher("price >")
