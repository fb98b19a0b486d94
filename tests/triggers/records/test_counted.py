"""Which trades were read, saved in parts of some tickers each."""

import numpy as np
import pytest

from triggers.records.counted import CountedTrades

TICKERS = [f"T{number}/USDT.SIM" for number in range(200)]


def counted() -> CountedTrades:
    found = CountedTrades()
    for ticker in TICKERS:
        found.read(ticker, 3)
        assert found.add(ticker, np.array([1, 2, 3])).all()
    return found


def again(of: CountedTrades) -> CountedTrades:
    parts, found = dict(of.save()), CountedTrades()
    found.restore(parts)
    assert not parts
    return found


def test_a_step_over_one_ticker_changes_one_part() -> None:
    found = counted()
    before = found.save()

    found.read(TICKERS[7], 4)
    found.extend(TICKERS[7], 4, 4)

    after = found.save()
    assert before.keys() == after.keys()
    assert sum(before[name] is not after[name] for name in before) == 1
    assert sum(map(len, after.values())) / max(map(len, after.values())) > 10


def test_trades_stay_known_after_a_restart() -> None:
    found = counted()
    found.save()
    found.read("TEXT/USDT.SIM", 2)
    found.add_texts("TEXT/USDT.SIM", np.array([b"a", b"b"]))

    restored = again(again(found))

    assert restored.numbers == dict.fromkeys(TICKERS, 3) | {"TEXT/USDT.SIM": 2}
    assert restored.add(TICKERS[0], np.array([2, 4])).tolist() == [False, True]
    assert restored.extend(TICKERS[1], 4, 9)
    assert restored.add_texts("TEXT/USDT.SIM", np.array([b"b", b"c"])).tolist() == [False, True]


def test_forgotten_numbers_stay_forgotten_after_a_restart() -> None:
    found = counted()
    found.save()

    found.forget_numbers()

    restored = again(found)
    assert restored.numbers == {}
    assert not restored.add(TICKERS[0], np.array([3])).any()


def test_the_state_of_versions_that_saved_all_tickers_together_is_read() -> None:
    found = CountedTrades()
    found.restore_old({"counted": {"A": 3, "B": 1}, "seen": {"A": [10, -1, [1], [3]]}, "text_ids": {"B": ["x"]}})

    restored = again(found)

    assert restored.numbers == {"A": 3, "B": 1}
    assert restored.add("A", np.array([3, 4])).tolist() == [False, True]
    assert restored.add_texts("B", np.array([b"x", b"y"])).tolist() == [False, True]


def test_a_damaged_part_is_an_error() -> None:
    name = next(iter(counted().save()))

    with pytest.raises(ValueError, match="part of a state"):
        CountedTrades().restore({name: b"\0" * 12})
