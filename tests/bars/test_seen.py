import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bars.seen import SeenIds

_BATCHES = st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=8)


@given(_BATCHES)
def test_each_id_is_new_once(batches: list[list[int]]) -> None:
    seen, known = SeenIds(), set[int]()
    for batch in batches:
        fresh, below = seen.add(np.array(batch, np.int64))
        expected = []
        for number in batch:
            expected.append(number not in known)
            known.add(number)
        assert fresh.tolist() == expected
        assert below == 0
        assert len(seen) == len(known)
        assert all(a > b + 1 for a, b in zip(seen.first[1:], seen.last[:-1], strict=True))


@given(_BATCHES)
def test_beyond_the_limit_no_id_is_new_twice_and_undecidable_ids_are_counted(batches: list[list[int]]) -> None:
    seen, counted = SeenIds(limit=3), set[int]()
    for batch in batches:
        floor = seen.floor
        fresh, below = seen.add(np.array(batch, np.int64))
        assert below == sum(number <= floor for number in batch)
        news = np.array(batch)[fresh].tolist() if batch else []
        assert not counted & set(news)
        assert len(news) == len(set(news))
        counted |= set(news)
        assert len(seen.first) <= 3


def test_a_million_neighbouring_ids_are_one_interval() -> None:
    seen = SeenIds()
    for start in range(0, 1_000_000, 10_000):
        fresh, _ = seen.add(np.arange(start, start + 10_000))
        assert fresh.all()
    assert (seen.first.tolist(), seen.last.tolist()) == ([0], [999_999])


def test_only_a_dense_run_after_the_newest_id_extends_it() -> None:
    seen = SeenIds()
    assert not seen.extend(1, 3)
    seen.add(np.array([1, 2, 3]))
    assert not seen.extend(5, 6)
    assert not seen.extend(3, 4)
    assert not seen.extend(4, 3)
    assert seen.extend(4, 6)
    assert (seen.first.tolist(), seen.last.tolist()) == ([1], [6])
