"""Counter-based noise: every value is a pure function of (key, counter), so any time can be computed independently.

It uses only integer arithmetic and single IEEE additions and multiplications, because the last bit of a library's exp
or log differs between processors. So the same seed gives the same market everywhere.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_FIELD = np.uint64(0xFFFF)


def derive_key(seed: int, *names: str) -> np.uint64:
    """A 64-bit key for one purpose of one symbol."""
    digest = hashlib.blake2b("\0".join((str(seed), *names)).encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def words(key: np.uint64, counters: Ints) -> Words:
    """One 64-bit word per counter (the splitmix64 finaliser by Steele, Lea and Flood, over a keyed counter)."""
    word: Words = counters.astype(np.uint64)
    word *= _STEP
    word += key
    word ^= word >> _SHIFTS[0]
    word *= _MIX_1
    word ^= word >> _SHIFTS[1]
    word *= _MIX_2
    word ^= word >> _SHIFTS[2]
    return word


def field(word: Words, index: int) -> Ints:
    """The 16-bit field `index` (0 to 3) of each word, 0 to 65535."""
    return ((word >> np.uint64(16 * index)) & _FIELD).astype(np.int64)


def bell(word: Words) -> Floats:
    """Values of mean 0 and variance 1, at most 3.5 in size: the sum of four uniform fields."""
    total = field(word, 0) + field(word, 1) + field(word, 2) + field(word, 3)
    deviations: Floats = (total - 131070).astype(np.float64)
    return deviations * (1.7320508075688772 / 65536.0)


def unit(word: Words) -> Floats:
    """Values in [0, 1) with 53 bits."""
    return (word >> np.uint64(11)).astype(np.float64) * (1.0 / (1 << 53))


def exponential(values: Floats) -> Floats:
    """(1 + x/1024)**1024: an exponential from multiplications alone, accurate enough here."""
    result = values * (1.0 / 1024.0) + 1.0
    for _ in range(10):
        result = result * result
    return result
