import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bars import saved
from bars.maker import BarMaker, Trades
from candlewright.wire.grid import SECOND
from tests.bars.test_maker import T0, _at, _rows, _trades
from tests.rounds import rounds


def test_a_maker_that_never_saw_a_trade_comes_back() -> None:
    maker = saved.load(saved.save(BarMaker(periods=[60, 300], lateness_ns=5, horizon_ns=7)))
    assert (maker.periods, maker.lateness_ns, maker.horizon_ns, maker.tickers) == ([60, 300], 5, 7, [])


@settings(max_examples=rounds(30), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["A/B.X", "C/D.X"]), st.integers(0, 900), st.floats(1e-9, 1e17)),
        min_size=2,
        max_size=40,
    ),
    st.integers(1, 39),
)
def test_a_restart_at_any_point_changes_nothing(stream: list[tuple[str, int, float]], cut: int) -> None:
    whole, restarted = BarMaker(periods=[1, 60, 300]), BarMaker(periods=[1, 60, 300])
    expected, got = [], []
    for number, (ticker, second, size) in enumerate(stream):
        trade = Trades(
            ticker, np.array([T0 + second * SECOND]), np.array([number]), np.array([1.5]), np.array([size], np.float64)
        )
        if number == cut:
            restarted.mark_gap(ticker, T0, T0 + SECOND)
            whole.mark_gap(ticker, T0, T0 + SECOND)
            restarted = saved.load(saved.save(restarted))
        whole.add([trade])
        restarted.add([trade])
        expected += _rows(whole, whole.take())
        got += _rows(restarted, restarted.take())
    assert got == expected
    assert (restarted.duplicates, restarted.too_late) == (whole.duplicates, whole.too_late)


def test_a_state_of_bars_that_knew_nothing_unknown_is_read() -> None:
    maker = BarMaker(periods=[60])
    maker.add([_trades("A/B.C", [_at(0, 1)])])
    meta, arrays = saved.unpack(saved.save(maker))
    del arrays["60/unknown"]
    maker = saved.load(saved.pack(meta, arrays))
    maker.advance({"A/B.C": T0 + 60 * SECOND})
    assert [made.bars.unknown.tolist() for made in maker.take()] == [[0]]


def test_sums_past_64_bits_survive() -> None:
    maker = BarMaker(periods=[60])
    maker.add([_trades("A/B.C", [(T0, 1, 1e17, 1e17), (T0, 2, 1e-9, 1e-9)])])
    maker = saved.load(saved.save(maker))
    maker.add([_trades("A/B.C", [_at(1, 3)])])
    maker.advance({"A/B.C": T0 + 60 * SECOND})
    assert _rows(maker, maker.take())[0][7:9] == (1e17, 3)
