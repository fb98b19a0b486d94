import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.api import partition_of


@pytest.mark.parametrize(
    ("key", "of_1", "of_3", "of_4", "of_8", "of_12"),
    [
        (b"", 0, 0, 3, 3, 3),
        (b"BTC/USDT", 0, 2, None, 7, 11),
        (b"ETH/USDT", 0, 0, None, 3, 3),
        (b"\xff\x00\x80", 0, 1, None, 2, 10),
        (b"bar", 0, 2, 2, 2, 2),
    ],
)
def test_keys_hash_as_in_kafka_pixy(key: bytes, of_1: int, of_3: int, of_4: int | None, of_8: int, of_12: int) -> None:
    assert [partition_of(key, n) for n in (1, 3, 8, 12)] == [of_1, of_3, of_8, of_12]
    assert of_4 is None or partition_of(key, 4) == of_4


def test_one_letter_keys_hash_as_in_kafka_pixy() -> None:
    assert [partition_of(key, 4) for key in (b"A", b"B", b"C", b"D")] == [0, 3, 2, 1]
    assert [partition_of(b"%d" % n, 4) for n in range(10)] == [3, 0, 1, 2, 3, 0, 1, 2, 3, 0]


@given(st.binary(max_size=60), st.integers(1, 1_024))
def test_the_remainder_is_truncated_and_in_range(key: bytes, partitions: int) -> None:
    value = 0x811C9DC5
    for byte in key:
        value = ((value ^ byte) * 0x01000193) % 2**32
    signed = value - 2**32 if value >= 2**31 else value
    assert partition_of(key, partitions) == abs(int(math.fmod(signed, partitions))) < partitions
