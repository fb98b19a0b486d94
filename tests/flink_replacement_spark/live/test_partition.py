import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bars import exact
from bars.maker import BarMaker
from candlewright.wire.candlewright_pb2 import Tick, TickBatch
from candlewright.wire.grid import SECOND
from flink_replacement_spark.live.partition import PERIODS, LiveOutput, LivePartition, _Demand
from protobuf import records_pb2 as records

T0 = 1_700_000_100 * SECOND
TICKER = "BTC/USDT.BINANCE"


def _batch(first_sequence: int, *trades: tuple[float, str, float], ticker: str = TICKER) -> bytes:
    """(seconds from T0, id, price), size 0.1 each."""
    batch = TickBatch(ticker=ticker, first_sequence=first_sequence)
    for second, trade_id, price in trades:
        batch.timestamp.append(T0 + round(second * SECOND))
        batch.trade_id.append(trade_id)
        batch.price.append(price)
        batch.size.append(0.1)
        batch.side.append(1)
        batch.received_at.append(1)
    return batch.SerializeToString()


def _mark(**body: object) -> bytes:
    return records.TickMark(ticker=TICKER, **body).SerializeToString()  # type: ignore[arg-type]


def _covered(second: float = 0) -> bytes:
    return _mark(covered=records.Covered(job_id="j", from_time=T0 + round(second * SECOND)))


def _clock(second: float, sequence: int) -> bytes:
    return _mark(clock=records.Clock(exchange_time=T0 + round(second * SECOND), sequence=sequence))


def _bars(output: LiveOutput) -> list[tuple[object, ...]]:
    return [
        (tickers[b.group[i]], b.period_seconds, int(b.open_time[i] - T0) // SECOND, float(b.open[i]), float(b.close[i]),
         float(exact.to_doubles(b.volume)[i]), int(b.trade_count[i]), int(made.revision[i]), bool(made.complete[i]))
        for tickers, made in output.bars for b in [made.bars] for i in range(len(b))
    ]  # fmt: skip


@pytest.fixture
def partition() -> LivePartition:
    return LivePartition(0, 3_600 * SECOND)


def test_an_unrequested_ticker_gets_one_minute_bars(partition: LivePartition) -> None:
    output = partition.process([_batch(1, (1, "9", 2.0), (2, "10", 3.0)), _batch(3, (61, "11", 4.0))], [_covered()])
    assert _bars(output) == [(TICKER, 60, 0, 2.0, 3.0, 0.2, 2, 0, True)]
    assert output.ticks == []


def test_wanted_periods_and_ticks_come_too(partition: LivePartition) -> None:
    wanted = _mark(wanted=records.Wanted(ticks=True, period_seconds=[5, 300]))
    output = partition.process([_batch(1, (1, "9", 2.0), (301, "10", 3.0))], [_covered(), wanted])
    assert [(row[1], row[2]) for row in _bars(output)] == [(60, 0), (300, 0), (5, 0)]
    assert [len(ticks) for ticks in output.ticks] == [2]


@pytest.mark.parametrize("periods", [[], [5]], ids=["minutes", "seconds"])
def test_trades_that_close_none_bring_no_bar(partition: LivePartition, periods: list[int]) -> None:
    partition.process([], [_covered(), _mark(wanted=records.Wanted(period_seconds=periods))])
    chance, second, quiet, loud = random.Random(1), 0.0, 0, 0
    for number in range(1, 300):
        second += chance.choice((0.0, 0.1, 0.4, 9.0))
        at = max(0.0, second - chance.choice((0, 0, 0, 0, 70)))
        closes_none = partition.closes_none(TICKER, T0 + round(at * SECOND), T0 + round(at * SECOND))
        if chance.random() < 0.2:
            found = _bars(partition.process([], [_clock(at, 0)]))
        else:
            found = _bars(partition.process([_batch(number, (at, str(number), 1.0))], []))
        assert not (closes_none and found)
        quiet, loud = quiet + closes_none, loud + bool(found)
    assert quiet > 20 and loud > 20


def test_a_clock_waits_for_the_trades_that_were_published_before_it(partition: LivePartition) -> None:
    assert _bars(partition.process([_batch(1, (1, "9", 2.0))], [_covered(), _clock(60, 3)])) == []
    output = partition.process([_batch(2, (2, "10", 3.0), (3, "11", 4.0))], [])
    assert [row[6] for row in _bars(output)] == [3]


def test_a_restart_between_any_batches_changes_nothing(partition: LivePartition) -> None:
    steps = [
        ([_batch(1, (1, "9", 2.0))], [_covered(), _mark(wanted=records.Wanted(period_seconds=[1]))]),
        ([_batch(2, (2, "x-1", 3.0), (2, "x-1", 3.0))], []),
        ([_batch(4, (2, "x-1", 3.0), (65, "x-2", 5.0))], [_clock(70, 5)]),
        ([_batch(6, (30, "x-3", 8.0))], []),
    ]
    restarted = LivePartition(0, 3_600 * SECOND)
    for ticks, marks in steps:
        restarted = LivePartition.load(restarted.save())
        assert _bars(restarted.process(ticks, marks)) == _bars(partition.process(ticks, marks))
    assert restarted.duplicates == partition.duplicates == 2


@given(
    seconds=st.lists(st.integers(0, 400), min_size=1, max_size=12),
    cuts=st.sets(st.integers(1, 11)),
    clock=st.tuples(st.integers(0, 500), st.integers(0, 14)),
)
def test_records_taken_in_part_by_part_make_the_bars_that_they_make_at_once(
    seconds: list[int], cuts: set[int], clock: tuple[int, int]
) -> None:
    batches = [_batch(n, (second, str(n // 2), float(n))) for n, second in enumerate(seconds, start=1)]
    marks = [_covered(), _mark(wanted=records.Wanted(ticks=True, period_seconds=[5, 300])), _clock(*clock)]
    at_once, in_parts = LivePartition(0, 60 * SECOND), LivePartition(0, 60 * SECOND)
    ends = [*sorted(cuts), 12]
    for first, end in zip([0, *ends], ends, strict=False):
        in_parts.add(batches[first:end], marks if first == 0 else [])
    whole, made = at_once.process(batches, marks), in_parts.finish()
    assert _bars(made) == _bars(whole)
    assert sum(map(len, made.ticks)) == sum(map(len, whole.ticks))
    assert in_parts.duplicates == at_once.duplicates


def test_ids_that_grow_past_the_largest_number_count_once_each(partition: LivePartition) -> None:
    partition.process([], [_covered()])
    for first in range((1 << 62) - 2, (1 << 62) + 4, 2):
        ids = [str(first), str(first + 1), str(first)]
        partition.process([_batch(0, *((1, trade_id, 1.0) for trade_id in ids))], [])
    (bar,) = _bars(partition.process([_batch(0, (60, "1", 1.0))], []))
    assert (bar[6], partition.duplicates) == (6, 3)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_ids_of_which_some_are_numbers_count_once_each(is_restarted: bool) -> None:
    """Hexadecimal ids, for example: `9` is a number and `a` is not, so the two cannot be confused."""
    partition = LivePartition(0, 3_600 * SECOND)
    partition.process([], [_covered(), _mark(wanted=records.Wanted(ticks=True))])
    stored: list[bytes] = []
    ids = [["1", "2", "9"], ["a", "b", "9"], ["c", "10", "3", "2"], ["10", "11"], ["11", "a", "4"]]
    for number, batch in enumerate(ids):
        if is_restarted:
            partition = LivePartition.load(partition.save())
        output = partition.process([_batch(0, *((number, trade_id, 1.0) for trade_id in batch))], [])
        stored += [trade_id for ticks in output.ticks for trade_id in ticks.trade_id.tolist()]
    assert stored == [b"1", b"2", b"9", b"a", b"b", b"c", b"10", b"3", b"11", b"4"]
    assert partition.duplicates == 5
    (bar,) = _bars(partition.process([_batch(0, (60, "x", 1.0))], []))
    assert bar[6] == 10


def test_a_gap_marks_its_bars_and_its_repair_publishes_them_again(partition: LivePartition) -> None:
    gap = records.Gap(gap_id="g", from_time=T0 + 2 * SECOND, to_time=T0 + 4 * SECOND, from_trade_id="10")
    output = partition.process([_batch(1, (1, "9", 2.0), (61, "12", 1.0))], [_covered(), _mark(gap=gap)])
    assert [row[-2:] for row in _bars(output)] == [(0, False)]
    assert [mark.gap.gap_id for mark in output.gaps] == ["g"]
    gap.is_repaired = True
    output = partition.process([_batch(3, (3, "10", 7.0))], [_mark(gap=gap)])
    assert [row[-3:] for row in _bars(output)] == [(2, 1, True)]


def test_aggregates_replace_missing_trades(partition: LivePartition) -> None:
    seed = records.Seed(open_time=[T0 + 2 * SECOND], volume=[0.5], first_trade_id=[10], last_trade_id=[12])
    for column in (seed.open, seed.high, seed.low, seed.close):
        column.append(6.0)
    output = partition.process([_batch(1, (1, "9", 2.0), (61, "13", 1.0))], [_covered(), _mark(seed=seed)])
    assert _bars(output) == [(TICKER, 60, 0, 2.0, 6.0, 0.6, 4, 0, True)]


def test_a_gap_whose_trades_were_counted_as_aggregates_leaves_bars_complete(partition: LivePartition) -> None:
    gap = records.Gap(gap_id="g", from_time=T0 + SECOND, to_time=T0 + 3 * SECOND, from_trade_id="10", to_trade_id="12")
    seed = records.Seed(open_time=[T0 + 2 * SECOND], volume=[0.5], first_trade_id=[10], last_trade_id=[11])
    for column in (seed.open, seed.high, seed.low, seed.close):
        column.append(6.0)
    trades = [_batch(1, (1, "9", 2.0), (61, "13", 1.0))]
    output = partition.process(trades, [_covered(), _mark(seed=seed), _mark(gap=gap)])
    assert [row[-2:] for row in _bars(output)] == [(0, False)]
    # The ticks stay missing, because the gap is reported as it is.
    assert [mark.gap.is_repaired for mark in output.gaps] == [False]
    partition = LivePartition.load(partition.save())
    seed.ClearField("last_trade_id")
    seed.first_trade_id[:] = [12]
    seed.last_trade_id.append(12)
    assert [row[-3:] for row in _bars(partition.process([], [_mark(seed=seed)]))] == [(4, 1, True)]


def test_text_ids_that_were_forgotten_are_not_counted_again() -> None:
    partition = LivePartition(0, 864_000 * SECOND)
    old = _batch(1, *((number * 0.01, f"x-{number}", 1.0) for number in range(25_000)))
    partition.process([old], [_covered()])
    partition = LivePartition.load(partition.save())
    output = partition.process([old, _batch(50_001, (400, "new", 1.0))], [])
    assert partition.duplicates + partition.too_late == 25_000
    counts = {row[2]: row[6] for row in _bars(output) if row[1] == 60}
    assert counts.get(240, 1_000) == 1_000


def test_candles_before_the_start_complete_longer_bars(partition: LivePartition) -> None:
    seed = records.Seed(period_seconds=60, open_time=[T0, T0 + 60 * SECOND], volume=[1.0, 2.0], trade_count=[3, 4])
    for column in (seed.open, seed.high, seed.low, seed.close):
        column.extend([7.0, 8.0])
    wanted = _mark(wanted=records.Wanted(period_seconds=[300]))
    output = partition.process(
        [_batch(1, (130, "9", 2.0), (301, "10", 1.0))], [_covered(120), wanted, _mark(seed=seed)]
    )
    assert (TICKER, 300, 0, 7.0, 2.0, 3.1, 8, 0, True) in _bars(output)


def test_a_tick_of_a_gateway_counts_like_a_batch(partition: LivePartition) -> None:
    ticks = [
        Tick(ticker=TICKER, trade_id=str(number), timestamp=T0 + number * 30 * SECOND, price=1.0, size=0.1)
        for number in range(1, 4)
    ]
    output = partition.process([tick.SerializeToString() for tick in ticks], [_covered()])
    assert [row[6] for row in _bars(output)] == [1]


@pytest.mark.parametrize("price", [float("nan"), float("inf")])
def test_bad_records_are_counted_and_harm_nothing(partition: LivePartition, price: float) -> None:
    bad = [b"\xff\xff", b"", _batch(1, (1, "9", price), (2, "10", 3.0)), _batch(3, (3, "9" * 301, 3.0))]
    output = partition.process([*bad, _batch(4, (61, "11", 4.0))], [_covered(), b"\xff", b""])
    assert output.bad_records >= 5
    assert [row[6] for row in _bars(output)] == [1]


def test_ids_of_growing_length_keep_their_numeric_order(partition: LivePartition) -> None:
    output = partition.process(
        [_batch(1, *((1, str(n), float(n)) for n in (1000, 998, 1001, 999)))], [_covered(), _clock(60, 4)]
    )
    assert _bars(output) == [(TICKER, 60, 0, 998.0, 1001.0, 0.4, 4, 0, True)]
    assert np.isclose(_bars(output)[0][5], 0.4)


def test_ids_of_nineteen_digits_are_numbers_up_to_the_largest(partition: LivePartition) -> None:
    """Bybit's spot trades have such ids; a trade published late keeps its position within its millisecond."""
    first = 2290000000000000000
    output = partition.process(
        [_batch(1, *((1, str(first + n), float(n)) for n in (2, 4))), _batch(3, (1, str(first + 1), 1.0))],
        [_covered(), _clock(60, 3)],
    )
    assert _bars(output) == [(TICKER, 60, 0, 1.0, 4.0, pytest.approx(0.3), 3, 0, True)]


def test_numbers_that_do_not_fit_64_bits_are_texts(partition: LivePartition) -> None:
    output = partition.process(
        [_batch(1, (1, "9223372036854775808", 2.0), (1, "9223372036854775807", 3.0))], [_covered(), _clock(60, 2)]
    )
    assert _bars(output) == [(TICKER, 60, 0, 2.0, 3.0, 0.2, 2, 0, True)]


def test_the_error_of_a_state_of_another_version_names_the_remedy(partition: LivePartition) -> None:
    state = partition.save()
    with pytest.raises(
        ValueError, match=r"^this state has version 9, .* file `forget` into the folder `live` of its checkpoints"
    ):
        LivePartition.load(b"\x09" + state[1:])


def test_a_client_that_leaves_takes_its_periods_with_it(partition: LivePartition) -> None:
    def wanted(*periods: int) -> bytes:
        return _mark(wanted=records.Wanted(period_seconds=periods))

    partition.process([_batch(1, *((i, str(i), 1.0) for i in range(1, 130)))], [_covered(), wanted(5, 120)])
    before = len(partition.save())
    partition.process([_batch(130, (130, "130", 1.0))], [wanted(5, 120, *range(2, 1_502))])
    assert len(partition.save()) > 20 * before
    partition.process(
        [_batch(131, (131, "131", 1.0))], [_mark(after_sequence=130, wanted=records.Wanted(period_seconds=[5, 120]))]
    )
    assert [sorted(set(maker.levels) - {1, *PERIODS}) for maker in partition.makers] == [[120], [5]]
    # Published bars can be revised for an hour.
    partition.process([_batch(132, (5_000, "132", 1.0))], [])
    assert not any(maker.left for maker in partition.makers)
    assert len(partition.save()) < 2 * before
    output = partition.process([_batch(133, (5_010, "133", 1.0), (5_241, "134", 1.0))], [])
    assert {row[1] for row in _bars(output)} == {5, 60, 120}


def test_periods_of_a_state_that_made_them_of_all_tickers_are_made_where_they_are_wanted() -> None:
    old = LivePartition(0, 3_600 * SECOND)
    old.makers = [
        BarMaker(periods=[*PERIODS, 120, 240], lateness_ns=0, horizon_ns=3_600 * SECOND),
        BarMaker(periods=[1, 5], lateness_ns=0, horizon_ns=3_600 * SECOND),
    ]
    old.process([_batch(1, (1, "1", 2.0), (61, "2", 3.0))], [_covered()])
    old._demands[TICKER] = _Demand(False, frozenset({120, 5}))
    partition = LivePartition.load(old.save())
    assert [sorted(set(maker.levels) - {1, *PERIODS}) for maker in partition.makers] == [[120], [5]]
    output = partition.process([_batch(3, (121, "3", 4.0), (181, "4", 5.0))], [])
    assert (TICKER, 120, 60, 3.0, 4.0, 0.2, 2, 0, True) in _bars(output)
