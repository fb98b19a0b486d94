import random
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bars import Bars, exact, from_trades, saved
from bars.maker import BarMaker, MadeBars, Trades
from candlewright.wire.grid import SECOND
from tests.rounds import rounds, seeds

T0 = 1_700_000_100 * SECOND  # a multiple of 300 s
Row = tuple[int, int, float, float]  # time (ns), id, price, size


def _trades(ticker: str, rows: list[Row]) -> Trades:
    time, order, price, size = zip(*rows, strict=True) if rows else ([], [], [], [])
    return Trades(
        ticker, np.array(time, np.int64), np.array(order, np.int64), np.array(price, float), np.array(size, float)
    )


def _rows(maker: BarMaker, made: list[MadeBars]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for part in made:
        b = part.bars
        volumes = exact.to_doubles(b.volume)
        for i in range(len(b)):
            rows.append(
                (maker.tickers[b.group[i]], b.period_seconds, int(b.open_time[i]) - T0, float(b.open[i]),
                 float(b.high[i]), float(b.low[i]), float(b.close[i]), float(volumes[i]), int(b.trade_count[i]),
                 int(part.revision[i]), bool(part.complete[i]))
            )  # fmt: skip
    return rows


def _at(second: float, number: int, price: float = 1.0) -> Row:
    return T0 + int(second * SECOND), number, price, 0.1


def test_a_bar_is_published_once_when_a_later_trade_closes_it() -> None:
    maker = BarMaker(periods=[60])
    maker.start("A/B.C", T0)
    maker.add([_trades("A/B.C", [_at(0, 1), _at(59, 2, 3.0)])])
    assert maker.take() == []
    maker.add([_trades("A/B.C", [_at(60, 3)])])
    assert _rows(maker, maker.take()) == [("A/B.C", 60, 0, 1.0, 3.0, 1.0, 3.0, 0.2, 2, 0, True)]
    assert maker.take() == []


def test_the_exchanges_clock_closes_an_idle_bar_after_the_lateness() -> None:
    maker = BarMaker(periods=[60], lateness_ns=2 * SECOND)
    maker.start("A/B.C", T0)
    maker.add([_trades("A/B.C", [_at(5, 1)])])
    maker.advance({"A/B.C": T0 + 61 * SECOND})
    assert maker.take() == []
    maker.advance({"A/B.C": T0 + 62 * SECOND})
    assert len(_rows(maker, maker.take())) == 1


def test_a_fast_ticker_closes_no_bar_of_a_slow_one() -> None:
    maker = BarMaker(periods=[60])
    maker.add([_trades("A/B.FAST", [_at(0, 1), _at(600, 2)]), _trades("A/B.SLOW", [_at(0, 1)])])
    assert {row[0] for row in _rows(maker, maker.take())} == {"A/B.FAST"}


def test_a_late_trade_revises_the_bar_and_a_doubled_one_does_not() -> None:
    maker = BarMaker(periods=[60, 300])
    maker.start("A/B.C", T0)
    maker.add([_trades("A/B.C", [_at(0, 1), _at(70, 3)])])
    maker.take()
    maker.add([_trades("A/B.C", [_at(30, 2, 9.0), _at(70, 3)])])
    assert _rows(maker, maker.take()) == [("A/B.C", 60, 0, 1.0, 9.0, 1.0, 9.0, 0.2, 2, 1, True)]
    assert maker.duplicates == 1


def test_a_trade_beyond_the_horizon_is_counted_and_changes_nothing() -> None:
    maker = BarMaker(periods=[60], horizon_ns=300 * SECOND)
    maker.add([_trades("A/B.C", [_at(0, 1), _at(1_000, 3)])])
    maker.take()
    maker.add([_trades("A/B.C", [_at(30, 2)])])
    assert maker.take() == []
    assert maker.too_late == 1


def test_a_bar_over_a_gap_is_not_complete_until_the_gap_is_closed() -> None:
    maker = BarMaker(periods=[60])
    maker.start("A/B.C", T0)
    maker.add([_trades("A/B.C", [_at(0, 1), _at(50, 5)])])
    maker.mark_gap("A/B.C", T0 + 10 * SECOND, T0 + 40 * SECOND)
    maker.advance({"A/B.C": T0 + 60 * SECOND})
    assert [row[-2:] for row in _rows(maker, maker.take())] == [(0, False)]
    maker.clear_gap("A/B.C", T0 + 10 * SECOND, T0 + 40 * SECOND)
    assert [row[-2:] for row in _rows(maker, maker.take())] == [(1, True)]


def test_a_bar_that_began_before_the_first_trade_is_complete_only_with_a_seed() -> None:
    maker = BarMaker(periods=[60])
    maker.start("A/B.C", T0 + 30 * SECOND)
    maker.add([_trades("A/B.C", [_at(40, 5), _at(60, 6)])])
    assert [row[-1] for row in _rows(maker, maker.take())] == [False]


def _candles(rows: list[tuple[int, float]], period_seconds: int) -> Bars:
    trades = [(0, T0 + second * SECOND, -1, price, 0.1) for second, price in rows]
    group, time, order, price, size = (np.array(column) for column in zip(*trades, strict=True))
    return from_trades(group, time, order, price=price, size=size, period_seconds=period_seconds)


def test_longer_bars_in_progress_are_right_with_the_exchanges_candles_before_the_start() -> None:
    maker = BarMaker(periods=[60, 300])
    maker.start("A/B.C", T0 + 120 * SECOND)
    maker.seed("A/B.C", _candles([(-60, 99.0), (0, 7.0), (61, 5.0)], 60))
    maker.add([_trades("A/B.C", [_at(130, 5, 6.0), _at(299, 6, 6.5)])])
    maker.advance({"A/B.C": T0 + 300 * SECOND})
    assert _rows(maker, maker.take()) == [
        ("A/B.C", 60, 120 * SECOND, 6.0, 6.0, 6.0, 6.0, 0.1, 1, 0, True),
        ("A/B.C", 60, 240 * SECOND, 6.5, 6.5, 6.5, 6.5, 0.1, 1, 0, True),
        ("A/B.C", 300, 0, 7.0, 7.0, 5.0, 6.5, 0.4, 4, 0, True),
    ]


def test_a_ticker_that_starts_again_counts_nothing_twice() -> None:
    maker = BarMaker(periods=[60, 3_600])
    hour = T0 - T0 % (3_600 * SECOND)
    offset = (T0 - hour) // SECOND
    maker.start("A/B.C", T0)
    maker.add([_trades("A/B.C", [_at(0, 1), _at(61, 2)])])
    maker.take()
    again = T0 + 1_200 * SECOND
    maker.start("A/B.C", again)
    opens = [(second, 5.0) for second in range(-offset, 1_200, 60)]
    maker.seed("A/B.C", _candles(opens, 60))
    maker.add([_trades("A/B.C", [_at(1_210, 99, 6.0)])])
    maker.advance({"A/B.C": hour + 3_600 * SECOND})
    rows = _rows(maker, maker.take())
    (long,) = [row for row in rows if row[1] == 3_600]
    assert long[3:9] == (5.0, 6.0, 5.0, 6.0, round(0.1 * (len(opens) + 1), 1), len(opens) + 1)
    assert long[-1] is True
    assert [(row[2], row[-1]) for row in rows if row[1] == 60] == [(60 * SECOND, False), (1_200 * SECOND, True)]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_restarted_bar_continues_the_revisions_of_the_published_one(is_restarted: bool) -> None:
    """The clock of one ingestor had passed the bar's end, and the next one, whose clock is behind, starts within it."""
    maker = BarMaker(periods=[60, 300])
    maker.start("A/B.C", T0)
    maker.add([_trades("A/B.C", [_at(5, 1), _at(70, 2, 3.0)])])
    maker.advance({"A/B.C": T0 + 301 * SECOND})
    assert [row[1:3] + row[8:] for row in _rows(maker, maker.take())][-1] == (300, 0, 2, 0, True)
    maker.start("A/B.C", T0 + 240 * SECOND)
    if is_restarted:
        maker = saved.load(saved.save(maker))
    maker.seed("A/B.C", _candles([(0, 1.0), (60, 3.0)], 60))
    maker.add([_trades("A/B.C", [_at(250, 3, 2.0)])])
    assert [row[1:3] + row[8:] for row in _rows(maker, maker.take())] == [
        (60, 240 * SECOND, 1, 0, True),
        (300, 0, 3, 1, True),
    ]
    maker.add([_trades("A/B.C", [_at(251, 4, 2.0)])])
    assert [row[9] for row in _rows(maker, maker.take())] == [1, 2]
    assert not any(level.anew for level in maker.levels.values())


def test_an_aggregate_counts_as_its_trades_and_not_twice() -> None:
    maker = BarMaker(periods=[60])
    maker.start("A/B.C", T0)
    maker.add([_trades("A/B.C", [_at(0, 1), _at(30, 9)])])
    aggregates = Trades(
        "A/B.C", np.full(2, T0 + 5 * SECOND), np.array([2, 5]), np.array([2.0, 3.0]), np.array([0.5, 0.25]),
        np.array([4, 8]),
    )  # fmt: skip
    maker.add([aggregates])
    maker.add([aggregates, _trades("A/B.C", [_at(5, 3, 2.0)])])
    maker.advance({"A/B.C": T0 + 60 * SECOND})
    assert _rows(maker, maker.take()) == [("A/B.C", 60, 0, 1.0, 3.0, 1.0, 1.0, 0.95, 9, 0, True)]
    assert maker.duplicates == 3


def test_a_period_added_later_starts_from_the_bars_of_shorter_ones() -> None:
    maker = BarMaker(periods=[60])
    maker.start("A/B.C", T0)
    maker.add([_trades("A/B.C", [_at(0, 1, 4.0), _at(70, 2)])])
    maker.take()
    maker.want("A/B.C", [300])
    maker.add([_trades("A/B.C", [_at(301, 3)])])
    assert [row for row in _rows(maker, maker.take()) if row[1] == 300] == [
        ("A/B.C", 300, 0, 4.0, 4.0, 1.0, 1.0, 0.2, 2, 0, True)
    ]
    with pytest.raises(ValueError, match="90 s"):
        maker.want("A/B.C", [90])


def test_an_unwanted_period_is_dropped() -> None:
    maker = BarMaker(periods=[1])
    maker.start("A/B.C", T0)
    maker.add([_trades("A/B.C", [_at(second, second) for second in range(60)])])
    maker.take()
    before = len(saved.save(maker))
    maker.want("A/B.C", range(2, 502))
    maker.add([_trades("A/B.C", [_at(60, 60)])])
    maker.take()
    assert len(saved.save(maker)) > 20 * before
    maker.want("A/B.C", [])
    assert list(maker.levels) == [1]
    maker.advance({"A/B.C": T0 + 4_200 * SECOND})
    maker.take()
    assert not maker.left
    assert len(saved.save(maker)) < 2 * before


def test_a_period_is_made_only_of_the_tickers_of_which_it_is_wanted() -> None:
    maker = BarMaker(periods=[60])
    maker.want("A/B.C", [120])
    for ticker in ("A/B.C", "D/E.F"):
        maker.start(ticker, T0)
        maker.add([_trades(ticker, [_at(0, 1), _at(130, 2)])])
    assert {row[0] for row in _rows(maker, maker.take()) if row[1] == 120} == {"A/B.C"}


_VISITS = st.lists(
    st.tuples(st.integers(-150, 60), st.booleans(), st.booleans(), st.sampled_from(["", "save", "gap", "start"])),
    min_size=3,
    max_size=60,
)


@settings(max_examples=rounds(150), deadline=None)
@given(_VISITS)
def test_a_period_that_comes_back_continues_exactly(visits: list[tuple[int, bool, bool, str]]) -> None:
    """Compared with a maker that never forgets it."""
    period, ticker = 120, "A/B.C"
    maker, always = BarMaker(periods=[60], horizon_ns=240 * SECOND), BarMaker(periods=[60], horizon_ns=240 * SECOND)
    published: dict[int, tuple[object, ...]] = {}
    truth: dict[int, tuple[object, ...]] = {}
    always.want(ticker, [period])
    for own in (maker, always):
        own.start(ticker, T0 - 20 * SECOND)
    second, was_wanted = 0, False
    for number, (ahead, has_trade, is_wanted, event) in enumerate(visits):
        at = max(0, second + ahead)
        second = max(second, at)
        if was_wanted and not is_wanted:
            _publish(maker, published, period)
        for own in (maker, always):
            if has_trade:
                own.add([_trades(ticker, [_at(at, number, number + 1.0)])])
            own.advance({ticker: T0 + second * SECOND})
            if event == "gap":
                own.mark_gap(ticker, T0 + at * SECOND, T0 + at * SECOND + 1)
            elif event == "start":
                own.start(ticker, T0 + second * SECOND)
        if was_wanted:
            _publish(maker, published, period)
        maker.want(ticker, [period] if is_wanted else [])
        was_wanted = is_wanted
        if event == "save":
            maker = saved.load(saved.save(maker))
        fresh = _publish(maker, published, period)
        _publish(always, truth, period)
        for opened in fresh:
            # Content and completeness, whatever the revision.
            assert not published[opened][-1] or published[opened][:-2] == truth[opened][:-2]
            assert not published[opened][-1] or truth[opened][-1]


def _publish(maker: BarMaker, known: dict[int, tuple[object, ...]], period: int) -> list[int]:
    """The open times of what is published, each of which must be new: a first revision, or one with different
    content.
    """
    fresh = []
    for row in _rows(maker, maker.take()):
        if row[1] != period:
            continue
        opened, before = row[2], known.get(row[2])
        assert isinstance(opened, int)
        assert row[-2] == (0 if before is None else before[-2] + 1)  # type: ignore[operator]
        known[opened] = row
        fresh.append(opened)
    return fresh


def test_periods_that_do_not_nest_are_refused() -> None:
    with pytest.raises(ValueError, match="90 s"):
        BarMaker(periods=[60, 90])


_STREAM = st.lists(
    st.tuples(
        st.sampled_from(["A/B.X", "A/B.Y", "C/D.X"]),
        st.integers(0, 900),
        st.decimals(1, 9, places=2).map(float),
        st.decimals(0, 1, places=6).map(float),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=rounds(60))
@given(_STREAM, st.integers(1, 7), st.integers(0, 2**32), st.integers(0, 3))
def test_batches_disorder_and_repeats_do_not_change_the_last_revision(
    stream: list[tuple[str, int, float, float]], batch: int, seed: int, repeats: int
) -> None:
    rows = [(ticker, (T0 + s * SECOND, i, p, v)) for i, (ticker, s, p, v) in enumerate(stream)]
    plain = BarMaker(periods=[1, 60, 300])
    by_ticker: dict[str, list[Row]] = defaultdict(list)
    for ticker, row in rows:
        by_ticker[ticker].append(row)
    for ticker, own in by_ticker.items():
        plain.start(ticker, T0)
        plain.add([_trades(ticker, own)])
    end = dict.fromkeys(by_ticker, T0 + 2000 * SECOND)
    plain.advance(end)
    expected = {row[:3]: row[3:9] for row in _rows(plain, plain.take())}

    maker = BarMaker(periods=[1, 60, 300])
    for ticker in by_ticker:
        maker.start(ticker, T0)
    shuffled = rows + random.Random(seed).sample(rows, min(repeats, len(rows)))
    random.Random(seed).shuffle(shuffled)
    last: dict[tuple[object, ...], tuple[object, ...]] = {}
    revisions: dict[tuple[object, ...], int] = {}
    made: list[MadeBars] = []
    for start in range(0, len(shuffled), batch):
        maker.add([_trades(ticker, [row]) for ticker, row in shuffled[start : start + batch]])
        made += maker.take()
    maker.advance(end)
    made += maker.take()
    for row in _rows(maker, made):
        assert row[9] == revisions.get(row[:3], -1) + 1
        revisions[row[:3]] = int(str(row[9]))
        last[row[:3]] = row[3:9]
    assert last == expected
    assert maker.duplicates == min(repeats, len(rows))
    assert maker.too_late == 0


def _retired(maker: BarMaker, *tickers: str) -> list[tuple[object, ...]]:
    maker.retire(tickers)
    rows = _rows(maker, maker.take())
    maker.forget(tickers)
    return rows


def test_bars_in_progress_of_a_retired_ticker_are_final_but_not_complete() -> None:
    maker = BarMaker(periods=[60, 300], lateness_ns=2 * SECOND)
    for ticker in ("A/B.C", "D/E.F"):
        maker.start(ticker, T0)
        maker.add([_trades(ticker, [_at(0, 1), _at(61, 2)])])
    maker.advance({"A/B.C": T0 + 70 * SECOND})
    first = [row[:3] + row[-2:] for row in _rows(maker, maker.take())]
    assert first == [("A/B.C", 60, 0, 0, True)]
    rows = [row[:3] + row[-2:] for row in _retired(maker, "A/B.C")]
    assert rows == [("A/B.C", 60, 60 * SECOND, 0, False), ("A/B.C", 300, 0, 0, False)]
    assert maker.tickers == ["D/E.F"]


def test_forgotten_tickers_take_a_bounded_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway's client may publish under ever new names."""
    monkeypatch.setattr("bars.maker._MAX_RETIRED", 2)
    maker = BarMaker(periods=[60])
    for number in range(5):
        maker.add([_trades(f"{number}/B.C", [_at(0, 1)])])
        _retired(maker, f"{number}/B.C")
    assert list(maker.retired) == ["3/B.C", "4/B.C"]


def test_gaps_take_a_bounded_place_and_no_bar_over_one_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """A week's bar keeps the gaps of a week, which are tens of thousands for a feed that reconnects all the time."""
    monkeypatch.setattr("bars.maker._MAX_GAPS", 3)
    maker = BarMaker(periods=[60, 604_800])
    maker.start("A/B.C", T0)
    maker.add([_trades("A/B.C", [_at(60 * number, 1 + number) for number in range(12)])])
    for minute in (1, 3, 5, 7, 9):
        maker.mark_gap("A/B.C", T0 + minute * 60 * SECOND, T0 + minute * 60 * SECOND + 1)
    assert len(maker.states[0].gaps) == 3
    maker.advance({"A/B.C": T0 + 720 * SECOND})
    complete = [bool(own) for made in maker.take() if made.bars.period_seconds == 60 for own in made.complete]
    assert not any(complete[minute] for minute in (1, 3, 5, 7, 9))
    assert [complete[minute] for minute in (0, 6, 8, 10, 11)] == [True] * 5


def test_a_trade_of_a_dropped_time_is_too_late_and_a_later_one_counts() -> None:
    maker = BarMaker(periods=[60, 300])
    maker.add([_trades("A/B.C", [_at(0, 1), _at(61, 2)])])
    _retired(maker, "A/B.C")
    maker.add([_trades("A/B.C", [_at(0, 1), _at(200, 3), _at(299, 4), _at(300, 5), _at(601, 6)])])
    assert maker.too_late == 3
    assert [row[1:3] for row in _rows(maker, maker.take())] == [(60, 300 * SECOND), (300, 300 * SECOND)]


@settings(max_examples=rounds(25), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 900), st.booleans()), min_size=1, max_size=15))
def test_a_ticker_that_comes_and_goes_does_not_affect_others(stream: list[tuple[int, int, bool]]) -> None:
    """Ticker 0 is retired at arbitrary points; the bars of the other tickers are those of a maker that never met it."""
    with_it, without = BarMaker(periods=[60, 300]), BarMaker(periods=[60, 300])
    got, expected = [], []
    for number, (ticker, second, is_retired) in enumerate(stream):
        trades = [_trades(f"{ticker}/B.C", [_at(second, number)])]
        with_it.add(trades)
        if ticker:
            without.add(trades)
        got += [row for row in _rows(with_it, with_it.take()) if row[0] != "0/B.C"]
        expected += _rows(without, without.take())
        if is_retired:
            assert {row[0] for row in _retired(with_it, "0/B.C")} <= {"0/B.C"}
            assert "0/B.C" not in with_it.tickers
    assert sorted(map(repr, got)) == sorted(map(repr, expected))


def test_dropped_state_stays_dropped_after_a_restart() -> None:
    maker = BarMaker(periods=[60])
    maker.add([_trades("A/B.C", [_at(0, 1)])])
    _retired(maker, "A/B.C")
    maker = saved.load(saved.save(maker))
    maker.add([_trades("A/B.C", [_at(30, 2)])])
    assert maker.too_late == 1


def test_memory_stays_flat_while_tickers_come_and_go() -> None:
    maker = BarMaker(periods=[60, 300])
    sizes = []
    for number in range(40):
        ticker = f"{number}/B.C"
        maker.add([_trades(ticker, [_at(second, second) for second in range(0, 600, 7)])])
        maker.take()
        _retired(maker, ticker)
        sizes.append(len(saved.save(maker)) - sum(len(name) + 40 for name in maker.retired))
    assert maker.tickers == [] and all(len(level.bars or ()) == 0 for level in maker.levels.values())
    assert max(sizes[20:]) <= max(sizes[:20])


def test_a_closing_minute_leaves_longer_bars_alone_until_one_of_them_is_due() -> None:
    maker = BarMaker(periods=[60, 300, 3_600])
    maker.add([_trades("A/B.C", [_at(0, 1)])])
    maker.take()
    maker.add([_trades("A/B.C", [_at(61, 2)])])
    assert [made.bars.period_seconds for made in maker.take()] == [60]
    assert [len(maker.levels[period].bars or ()) for period in (300, 3_600)] == [1, 1]
    maker.add([_trades("A/B.C", [_at(121, 3)])])
    maker.take()
    counts = [maker.levels[period].bars.trade_count.tolist() for period in (60, 300)]  # type: ignore[union-attr]
    assert counts == [[1, 1, 1], [1]], "the trades of two minutes wait until the five are over"
    maker.add([_trades("A/B.C", [_at(301, 4)])])
    assert [made.bars.trade_count.tolist() for made in maker.take()] == [[1], [3]]


def test_trades_that_wait_for_longer_bars_are_in_few_pieces() -> None:
    maker = BarMaker(periods=[60, 180, 300])
    pieces = 0
    for number in range(500):
        maker.add([_trades(f"{number % 5}/B.C", [_at(number / 10, number)])])
        maker.take()
        pieces = max([pieces, *map(len, maker._waiting.values())])
    assert 1 < pieces < 100
    maker.pass_on()
    bars = maker.levels[300].bars
    assert bars is not None and bars.trade_count.tolist() == [100] * 5


_TICKER = st.sampled_from(["A/B.C", "D/E.F"])
_SECONDS = st.integers(0, 1_500)
_OPERATIONS = st.one_of(
    st.tuples(st.just("trade"), _TICKER, _SECONDS),
    st.tuples(st.just("clock"), _TICKER, _SECONDS),
    st.tuples(st.just("gap"), _TICKER, _SECONDS),
    st.tuples(st.just("clear"), _TICKER, _SECONDS),
    st.tuples(st.just("want"), _TICKER, st.integers(0, 1)),
    st.tuples(st.just("forget"), _TICKER, st.just(0)),
)


@given(
    st.lists(_OPERATIONS, max_size=25), st.sampled_from([0, 5, 65]), st.sampled_from([130, 600, 3_600]), st.booleans()
)
@settings(deadline=None, max_examples=rounds(60))
def test_longer_bars_are_published_as_if_each_trade_had_updated_them(
    operations: list[tuple[str, str, int]], lateness: int, horizon: int, restarts: bool
) -> None:
    lazy, eager = (
        BarMaker(periods=(60, 180, 3_600), lateness_ns=lateness * SECOND, horizon_ns=horizon * SECOND) for _ in range(2)
    )
    for number, (what, ticker, value) in enumerate(operations):
        for maker in (lazy, eager):
            if what == "trade":
                maker.add([_trades(ticker, [_at(value, number, float(number + 1))])])
            elif what == "clock":
                maker.advance({ticker: T0 + value * SECOND})
            elif what == "gap":
                maker.mark_gap(ticker, T0 + value // 300 * 300 * SECOND, T0 + (value // 300 * 300 + 100) * SECOND)
            elif what == "clear":
                maker.clear_gap(ticker, T0 + value // 300 * 300 * SECOND, T0 + (value // 300 * 300 + 100) * SECOND)
            elif what == "want":
                maker.want(ticker, (300,) if value else ())
            else:
                maker.retire([ticker])
        eager.pass_on()
        assert _rows(lazy, lazy.take()) == _rows(eager, eager.take())
        if what == "forget":
            lazy.forget([ticker])
            eager.forget([ticker])
        if restarts:
            lazy = saved.load(saved.save(lazy))


@pytest.mark.parametrize("seed", seeds(60))
def test_trades_that_close_none_end_no_bar_and_belong_to_none_that_has_ended(seed: int) -> None:
    """The clock included; whatever they change is published with a later trade."""
    chance = random.Random(seed)
    periods = chance.choice([[1], [1, 5], [60], [60, 300]])
    lateness = chance.choice([0, 0, 2, 90]) * SECOND
    maker, base, at = BarMaker(periods=periods, lateness_ns=lateness), periods[0] * SECOND, T0
    maker.start("A/B.C", T0)
    assert not maker.closes_none("A/B.C", at, at), "nothing is known of its bars"
    maker.add([_trades("A/B.C", [(at, 0, 1.0, 0.1)])])
    quiet = loud = 0
    for number in range(1, 120):
        at += chance.choice((0, 0, 1, base // 7, base // 3, base))
        late = chance.choice((0, 0, 0, 0, 1, base // 5, 2 * base, lateness, lateness + base))
        times = [at - late, *(at for _ in range(chance.randrange(3)))]
        clock = maker.clock("A/B.C")
        ended = (clock - lateness) // base
        changes = (max(clock, *times) - lateness) // base > ended or any(time // base < ended for time in times)
        assert maker.closes_none("A/B.C", min(times), max(times)) == (not changes)
        if chance.random() < 0.2:
            maker.advance({"A/B.C": max(times)})
        else:
            maker.add([_trades("A/B.C", [(time, 10 * number + i, 1.0, 0.1) for i, time in enumerate(times)])])
        made = _rows(maker, maker.take())
        assert changes or not made
        quiet, loud = quiet + (not changes), loud + bool(made)
    assert quiet > 8 and loud > 8
