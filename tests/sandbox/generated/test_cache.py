from __future__ import annotations

from functools import partial

from sandbox.generated.cache import Recent


def test_value_is_made_once_while_it_is_kept() -> None:
    made: list[str] = []
    recent: Recent[str] = Recent(2)

    def get(key: str) -> str:
        def make() -> str:
            made.append(key)
            return key.upper()

        return recent.get(key, make)

    assert [get(key) for key in "aba"] == ["A", "B", "A"]
    assert made == ["a", "b"]


def test_least_recently_used_value_goes_first() -> None:
    recent: Recent[int] = Recent(2)
    for key in (1, 2, 1, 3):
        recent.get(key, partial(int, key))
    assert len(recent) == 2
    assert recent.get(1, lambda: -1) == 1
    assert recent.get(2, lambda: -2) == -2
