"""Parts of a state, compressed or not, come back whole or not at all."""

import pytest

from triggers.packing import squeezed, unsqueezed


@pytest.mark.parametrize("data", [b"", b"{}", b"a part" * 10_000], ids=["empty", "short", "long"])
def test_a_part_comes_back_as_it_was(data: bytes) -> None:
    assert unsqueezed(squeezed(data)) == data


def test_a_long_part_is_compressed() -> None:
    assert len(squeezed(b"a part" * 10_000)) < 1_000


@pytest.mark.parametrize("data", [b"a short part", b"a part" * 10_000], ids=["short", "long"])
def test_a_truncated_part_is_refused(data: bytes) -> None:
    for written in (squeezed(data)[:-1], squeezed(data)[:7]):
        with pytest.raises(ValueError, match="a part of a state"):
            unsqueezed(written)
