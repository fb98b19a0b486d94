"""The records of one commit as columns.

A commit of bars needs no object for each record, unless one of them cannot be stored.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray

from bus import RecordRun, StoredRecord
from core.poison import is_poison

__all__ = ["Decode", "DecodedRun", "Places", "TakenRecords", "places_of", "values_of"]

#: Makes columns of the `values` and `lengths` of a run.
Decode = Callable[[Sequence[bytes], Sequence[int]], Any]


class Places(NamedTuple):
    """Of each record."""

    partition: NDArray[np.int64]
    offset: NDArray[np.int64]
    time_ms: NDArray[np.int64]


class Values(NamedTuple):
    """The values of all records, one after the other; each of `joined` has one or several whole ones."""

    joined: list[bytes]
    lengths: list[int]


class DecodedRun(NamedTuple):
    """A run and its columns; None without any, or if a record cannot be decoded."""

    run: RecordRun
    decoded: Any

    @classmethod
    def of(cls, run: RecordRun, decode: Decode | None) -> Self:
        try:
            return cls(run, decode and decode(run.values, run.lengths))
        except Exception as error:  # The commit finds out which record it is.
            if not is_poison(error):
                raise
            return cls(run, None)

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.run.offset + len(self.run.lengths)


_NONE = np.empty(0, np.int64)


class TakenRecords(Sequence[StoredRecord]):
    """The records of these runs, one run after the other. `decoded`: the columns of each run, or nothing if they are
    still to be decoded.
    """

    def __init__(self, runs: Sequence[RecordRun], decoded: Sequence[Any] = ()) -> None:
        self._runs = runs
        self.decoded = () if any(columns is None for columns in decoded) else decoded
        self._count = sum(len(run.lengths) for run in runs)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> StoredRecord: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[StoredRecord]: ...
    def __getitem__(self, at: int | slice) -> StoredRecord | Sequence[StoredRecord]:
        return self._records[at]

    @property
    def values(self) -> Values:
        return Values(
            list(chain.from_iterable(run.values for run in self._runs)),
            list(chain.from_iterable(run.lengths for run in self._runs)),
        )

    @cached_property
    def places(self) -> Places:
        runs = self._runs
        times_ms = np.array(list(chain.from_iterable(run.times_ms for run in runs)), np.int64)
        return Places(
            np.repeat(np.array([run.partition for run in runs], np.int64), [len(run.lengths) for run in runs]),
            np.concatenate([_NONE, *(np.arange(run.offset, run.offset + len(run.lengths)) for run in runs)]),
            np.repeat(times_ms, list(chain.from_iterable(run.counts for run in runs))),
        )

    @cached_property
    def _records(self) -> list[StoredRecord]:
        return list(chain.from_iterable(run.records() for run in self._runs))


def values_of(records: Sequence[StoredRecord]) -> Values:
    """Their values; the number that the bus has appended to one may be missing."""
    if isinstance(records, TakenRecords):
        return records.values
    values = [record.value for record in records]
    return Values(values, list(map(len, values)))


def places_of(records: Sequence[StoredRecord]) -> Places:
    if isinstance(records, TakenRecords):
        return records.places
    names = ("partition", "offset", "timestamp_ms")
    return Places(*(np.fromiter(map(attrgetter(name), records), np.int64, len(records)) for name in names))
