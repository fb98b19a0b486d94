"""Finds the records on which pure work fails, and recognises failures that are not the records' fault."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire.errors import BadFrame, BusUnavailable, CommitConflict
from core import poison
from core.poison import culprits, is_poison


@given(st.lists(st.integers(0, 40)), st.sets(st.integers(0, 40), max_size=4))
def test_exactly_the_records_that_fail_are_found(items: list[int], bad: set[int]) -> None:
    def digest(given: object) -> None:
        for item in given:  # type: ignore[attr-defined]
            if item in bad:
                raise ValueError(f"{item} is bad")

    expected = [(item, f"ValueError: {item} is bad") for item in items if item in bad][: poison.MAX_CULPRITS]
    assert culprits(items, digest)[: poison.MAX_CULPRITS] == expected


def test_beyond_many_culprits_the_rest_is_put_aside_with_them() -> None:
    def digest(given: object) -> None:
        if given:
            raise KeyError("all")

    found = culprits(range(100), digest)
    assert sorted(item for item, _ in found) == list(range(100))


def test_a_bad_environment_does_not_blame_the_records() -> None:
    def digest(given: object) -> None:
        raise BusUnavailable("away")

    with pytest.raises(BusUnavailable):
        culprits([1, 2], digest)


def test_a_digest_that_always_fails_names_every_record() -> None:
    calls = []

    def digest(given: object) -> None:
        calls.append(given)
        raise ValueError("always")

    assert len(culprits([1, 2, 3], digest)) == 3


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BadFrame("X", "y"), True),
        (OverflowError(), True),
        (AssertionError(), True),
        (OSError(), False),
        (MemoryError(), False),
        (CommitConflict(), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_poison_is_distinguished_from_a_bad_environment(error: BaseException, expected: bool) -> None:
    assert is_poison(error) == expected
