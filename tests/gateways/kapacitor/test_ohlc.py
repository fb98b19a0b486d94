"""Trades to bars, as a function of a task."""

from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateways.kapacitor import ohlc
from gateways.kapacitor.function import Batch, Options, OptionsRefused
from gateways.kapacitor.functions import function_named
from protobuf.udf_superset_pb2 import BeginBatch, EndBatch, Option, Point, Response
from tests.gateways.kapacitor.daemon import SECOND, option, point, seconds
from tests.rounds import rounds

MINUTE = 60 * SECOND


def _no_bus() -> object:
    raise AssertionError("bars need no bus")


def _made(*options: Option) -> ohlc.Ohlc:
    offered = function_named("ohlc", _no_bus).options  # type: ignore[arg-type]
    return ohlc.make(Options.of(options, offered), is_batch=False)


def _minutes(*more: Option) -> ohlc.Ohlc:
    return _made(option("period", seconds(60)), *more)


def _trade(time: int, price: float, volume: float = 1.0, symbol: str = "BTC") -> Point:
    return point(time, {"price": price, "volume": volume}, symbol=symbol)


def _bars(responses: Sequence[Response]) -> list[Point]:
    return [response.point for response in responses]


def test_bar_goes_out_when_a_later_trade_of_its_group_comes() -> None:
    function = _minutes()
    assert not function.take([_trade(5 * SECOND, 3.0), _trade(20 * SECOND, 5.0), _trade(59 * SECOND, 2.0)])
    assert not function.take([_trade(200 * SECOND, 7.0, symbol="ETH")])
    (bar,) = _bars(function.take([_trade(60 * SECOND, 9.0)]))
    assert bar.time == 0
    assert dict(bar.fieldsDouble) == {
        "open": 3.0, "high": 5.0, "low": 2.0, "close": 2.0, "volume": 3.0, "quote_volume": 10.0,
    }  # fmt: skip
    assert dict(bar.fieldsInt) == {"trade_count": 3, "partial": 0}
    assert (dict(bar.tags), list(bar.dimensions), bar.group) == ({"symbol": "BTC"}, ["symbol"], "symbol=BTC")
    assert (bar.name, bar.database, bar.retentionPolicy) == ("trades", "market", "autogen")


def test_sums_are_those_of_the_decimals_and_not_of_the_doubles() -> None:
    function = _minutes()
    function.take([_trade(i, 0.1, 0.1) for i in range(10)])
    (bar,) = _bars(function.finish())
    assert bar.fieldsDouble["volume"] == 1.0
    assert bar.fieldsDouble["quote_volume"] == 0.1


def test_group_by_name_keeps_its_name_and_as_gives_bars_another() -> None:
    trade = _trade(0, 1.0)
    trade.byName = True
    function = _minutes(option("as", "bars"))
    function.take([trade])
    (bar,) = _bars(function.finish())
    assert bar.byName
    assert bar.name == "bars"


def test_tags_that_all_trades_of_a_bar_share_are_kept() -> None:
    function = _minutes()
    trades = [_trade(i, 1.0) for i in range(2)]
    for trade, side in zip(trades, ("buy", "sell"), strict=True):
        trade.tags.update(exchange="BINANCE", side=side)
    function.take(trades)
    assert dict(_bars(function.finish())[0].tags) == {"symbol": "BTC", "exchange": "BINANCE"}


def test_trade_of_a_bar_that_is_out_is_counted_as_late() -> None:
    function = _minutes()
    function.take([_trade(0, 1.0), _trade(MINUTE, 1.0), _trade(MINUTE - 1, 99.0)])
    assert function.counts["late"] == 1
    assert [bar.fieldsDouble["high"] for bar in _bars(function.finish())] == [1.0]


def test_lateness_keeps_bars_open_for_trades_that_come_out_of_order() -> None:
    function = _minutes(option("lateness", seconds(10)))
    assert not function.take([_trade(30 * SECOND, 1.0), _trade(65 * SECOND, 2.0), _trade(50 * SECOND, 3.0)])
    (bar,) = _bars(function.take([_trade(70 * SECOND, 4.0)]))
    assert (bar.fieldsDouble["open"], bar.fieldsDouble["close"]) == (1.0, 3.0)


def test_points_without_a_usable_price_or_volume_are_skipped() -> None:
    function = _minutes(option("volume", "size"))
    bad: list[dict[str, bool | int | float | str]] = [
        {"size": 1.0}, {"price": 1.0}, {"price": "1", "size": 1.0}, {"price": True, "size": 1.0},
        {"price": float("nan"), "size": 1.0}, {"price": 1.0, "size": -1.0}, {"price": 1.0, "size": float("inf")},
    ]  # fmt: skip
    function.take([point(i, fields, symbol="BTC") for i, fields in enumerate(bad)])
    assert function.counts["skipped"] == len(bad)
    assert function.finish() == []


@pytest.mark.parametrize("time", [-(1 << 63), -(1 << 62), -1, (1 << 63) - 1])
def test_points_of_absurd_times_are_bars_or_skipped_and_no_failure(time: int) -> None:
    function = _minutes()
    bars = _bars(function.take([_trade(time, 1.0), _trade(0, 2.0)]) + function.finish())
    assert len(bars) + function.counts["skipped"] + function.counts["late"] == 2


def test_integers_are_prices_too_and_an_unrequested_volume_may_be_missing() -> None:
    function = _minutes()
    function.take([point(0, {"price": 7}, symbol="BTC")])
    (bar,) = _bars(function.finish())
    assert (bar.fieldsDouble["open"], bar.fieldsDouble["volume"]) == (7.0, 0.0)


def test_flush_gives_bars_that_ended_by_the_wall_clock_and_no_trade_changes_them() -> None:
    function = _minutes(option("flush", seconds(5)))
    function.take([_trade(10 * SECOND, 1.0), _trade(70 * SECOND, 2.0, symbol="ETH")])
    assert function.pass_time(MINUTE + 4 * SECOND) == []
    (bar,) = _bars(function.pass_time(MINUTE + 5 * SECOND))
    assert (bar.time, bar.tags["symbol"], bar.fieldsInt["partial"]) == (0, "BTC", 0)
    assert function.pass_time(MINUTE + 9 * SECOND) == []
    function.take([_trade(59 * SECOND, 9.0), _trade(61 * SECOND, 3.0)])
    assert function.counts["late"] == 1
    assert [bar.fieldsDouble["open"] for bar in _bars(function.pass_time(10 * MINUTE))] == [3.0, 2.0]
    function.take([_trade(2 * MINUTE, 4.0)])
    assert function.counts["late"] == 1
    without = _minutes()
    without.take([_trade(0, 1.0)])
    assert without.pass_time(10 * MINUTE) == []


def test_bar_in_progress_at_the_end_of_the_input_is_marked() -> None:
    function = _minutes()
    function.take([_trade(0, 1.0)])
    assert _bars(function.finish())[0].fieldsInt["partial"] == 1


@pytest.mark.parametrize(
    "options",
    [
        [],
        [option("period", seconds(0))],
        [option("period", seconds(1.5))],
        [option("period", seconds(-60))],
        [option("period", seconds(60)), option("lateness", seconds(-1))],
        [option("period", seconds(60)), option("flush", seconds(-1))],
        [option("period", seconds(60)), option("lateness", seconds(5)), option("flush", seconds(4))],
        [option("period", seconds(60)), option("price", "")],
        [option("period", 60)],
        [option("period", seconds(60), seconds(60))],
        [option("periods", seconds(60))],
    ],
)
def test_options_that_no_bars_can_have_are_refused(options: list[Option]) -> None:
    with pytest.raises(OptionsRefused):
        _made(*options)


def test_restored_bars_continue_and_are_marked_for_their_gap() -> None:
    before = _minutes()
    before.take([_trade(1, 5.0, 0.1), _trade(2, 1.0, 0.2)])
    after = _minutes()
    after.restore(before.snapshot())
    bars = _bars(after.take([_trade(3, 2.0, 0.3), _trade(MINUTE, 2.0), _trade(2 * MINUTE, 2.0)]))
    assert [bar.fieldsInt["partial"] for bar in bars] == [1, 0]
    first = bars[0]
    assert (first.fieldsDouble["open"], first.fieldsDouble["low"], first.fieldsDouble["close"]) == (5.0, 1.0, 2.0)
    assert first.fieldsDouble["volume"] == 0.6
    assert first.fieldsInt["trade_count"] == 3


def test_first_bar_after_a_restore_is_marked_also_where_a_group_or_its_bar_is_new() -> None:
    before = _minutes()
    before.take([_trade(1, 5.0), _trade(MINUTE, 5.0)])
    after = _minutes()
    after.restore(before.snapshot())
    trades = [_trade(i * MINUTE, 1.0, symbol=symbol) for symbol in ("BTC", "NEW") for i in (10, 11, 12)]
    bars = _bars(after.take(trades))
    told = [(bar.tags["symbol"], bar.time // MINUTE, bar.fieldsInt["partial"]) for bar in bars]
    assert told == [("BTC", 1, 1), ("BTC", 10, 1), ("BTC", 11, 0), ("NEW", 10, 1), ("NEW", 11, 0)]


def test_late_trades_are_still_known_after_a_restore() -> None:
    before = _minutes()
    before.take([_trade(1, 5.0), _trade(MINUTE, 5.0)])
    after = _minutes()
    after.restore(before.snapshot())
    after.take([_trade(2, 1.0)])
    assert after.counts["late"] == 1


def test_state_of_other_options_is_not_taken() -> None:
    before = _minutes()
    before.take([_trade(1, 5.0)])
    with pytest.raises(ValueError, match="other options"):
        _made(option("period", seconds(300))).restore(before.snapshot())


def test_batch_gives_the_bars_of_its_points_and_marks_the_one_that_its_end_cuts() -> None:
    function = _minutes()
    begin = BeginBatch(name="trades", group="symbol=BTC", tags={"symbol": "BTC"}, byName=True)
    end = EndBatch(name="trades", group="symbol=BTC", tags={"symbol": "BTC"}, tmax=90 * SECOND)
    points = [_trade(61 * SECOND, 4.0), _trade(3, 1.0), _trade(2, 2.0)]
    responses = function.take_batch(Batch.of(begin, points, end))
    assert [response.WhichOneof("message") for response in responses] == ["begin", "point", "point", "end"]
    assert responses[0].begin.size == 2
    assert responses[0].begin.byName
    assert (responses[-1].end.tmax, dict(responses[-1].end.tags)) == (90 * SECOND, {"symbol": "BTC"})
    bars = _bars(responses[1:-1])
    assert [(bar.time, bar.fieldsDouble["open"], bar.fieldsInt["partial"]) for bar in bars] == [
        (0, 2.0, 1),
        (60 * SECOND, 4.0, 1),
    ]
    assert function.take_batch(Batch.of(begin, [], end)) == []


def test_an_end_without_name_and_tags_takes_those_of_its_begin_and_keeps_its_own() -> None:
    function = _minutes()
    begin = BeginBatch(name="trades", group="trades\nsymbol=BTC", tags={"symbol": "BTC"}, byName=True)
    points = [_trade(61 * SECOND, 4.0)]
    back = function.take_batch(Batch.of(begin, points, EndBatch(tmax=120 * SECOND)))
    first, *_, last = back
    assert (last.end.name, last.end.group, dict(last.end.tags)) == (begin.name, begin.group, {"symbol": "BTC"})
    assert (first.begin.byName, last.end.byName, last.end.tmax) == (True, True, 120 * SECOND)
    other = EndBatch(name="ticks", group="symbol=ETH", tags={"symbol": "ETH"}, tmax=120 * SECOND)
    last = function.take_batch(Batch.of(begin, points, other))[-1]
    assert (last.end.name, last.end.group, dict(last.end.tags)) == ("ticks", "symbol=ETH", {"symbol": "ETH"})


@pytest.mark.parametrize(
    ("window", "first", "partial"),
    [
        (None, 61, [1, 0, 1]),  # The batch may have begun at 61 s, so the bar may lack earlier trades.
        (None, 60, [0, 0, 1]),  # Nothing of the bar can be before its first trade.
        (150, 61, [0, 0, 1]),
        (149, 61, [1, 0, 1]),
        (300, 61, [0, 0, 1]),
    ],
)
def test_the_bar_that_the_start_of_a_batch_cuts_is_marked(window: int | None, first: int, partial: list[int]) -> None:
    function = _made(option("period", seconds(60)), *([option("window", seconds(window))] if window else []))
    begin = BeginBatch(name="trades", group="symbol=BTC", tags={"symbol": "BTC"})
    end = EndBatch(name="trades", group="symbol=BTC", tags={"symbol": "BTC"}, tmax=210 * SECOND)
    points = [_trade(time * SECOND, 4.0) for time in (first, 121, 181)]
    bars = _bars(function.take_batch(Batch.of(begin, points, end))[1:-1])
    assert [(bar.time // SECOND, bar.fieldsInt["partial"]) for bar in bars] == list(
        zip((60, 120, 180), partial, strict=True)
    )


_trades = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.sampled_from([0.1, 0.2, 0.3, 7.77, 1e-8, 12345.6789]),
        st.sampled_from([0.1, 0.7, 3.0, 1e-7]),
        st.sampled_from(["BTC", "ETH"]),
    ),
    max_size=40,
)


@settings(max_examples=rounds(60), deadline=None)
@given(_trades, st.integers(0, 40), st.booleans())
def test_bars_are_exact_however_points_are_cut_and_wherever_a_snapshot_falls(
    trades: list[tuple[int, float, float, str]], cut: int, restores: bool
) -> None:
    points = [_trade(time * SECOND, price, size, symbol) for time, price, size, symbol in trades]
    function = _minutes()
    responses = function.take(points[:cut])
    if restores and (state := function.snapshot()):
        function = _minutes()
        function.restore(state)
    for one in points[cut:]:
        responses += function.take([one])
    responses += function.finish()
    expected: dict[tuple[str, int], list[tuple[int, float, float]]] = {}
    closed: dict[str, int] = {}
    for time, price, size, symbol in trades:
        if time // 60 >= closed.get(symbol, 0):
            closed[symbol] = max(closed.get(symbol, 0), time // 60)
            expected.setdefault((symbol, time // 60), []).append((time, price, size))
    found = {(bar.tags["symbol"], bar.time // MINUTE): bar for bar in _bars(responses)}
    assert found.keys() == expected.keys()
    assert len(found) == len(responses)
    for key, own in expected.items():
        fields = found[key].fieldsDouble
        ordered = sorted(own, key=lambda trade: trade[0])
        assert (fields["open"], fields["close"]) == (ordered[0][1], ordered[-1][1])
        assert (fields["high"], fields["low"]) == (max(p for _, p, _ in own), min(p for _, p, _ in own))
        assert fields["volume"] == float(sum(Decimal(repr(size)) for _, _, size in own))
        assert fields["quote_volume"] == float(sum(Decimal(repr(p)) * Decimal(repr(s)) for _, p, s in own))
        assert found[key].fieldsInt["trade_count"] == len(own)
