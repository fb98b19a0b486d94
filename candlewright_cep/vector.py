"""Columns of values with NULLs: the unit of vectorised evaluation."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep import work
from candlewright_cep.types import NANOSECONDS, Kind, SqlType, from_arrow, is_array, is_struct, to_arrow

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]

#: Times are converted to numbers and back by a view: on columns of few rows, a cast takes fifteen times as long.
_INT64 = pa.int64()
_INT64_MAX = 2**63 - 1
#: Up to the first number of values, sorting is used; a lookup table may have the second number of entries per value;
#: the third is the size of the evenly spaced sample that decides whether values repeat often.
_MANY, _SPREAD, _SAMPLE = 256, 4, 256
#: Arrow takes longer to encode this many strings than Python does.
_FEW = 16
#: The bytes of this many texts are not counted: on a stream, that would take as long as half of what makes them.
_FEW_COUNTED = 256
#: This many bytes of each value are not counted: a query has at most a thousand columns, so short values need no bound.
_SHORT = 64
#: Arrays of so few bytes are not copied out of the table they came from.
_SMALL = 256
#: A block of segments has about this many values.
_AT_A_TIME = 1 << 20


def counted(made: "Vector") -> "Vector":
    """Count what a function made, beyond the bytes of short texts. Raises TriggerRejected for too many bytes."""
    is_long = made.type.is_text and not made.constant and made.length > _FEW_COUNTED
    if is_long and (size := made.values.nbytes - _SHORT * made.length) > 0:
        work.made(size)
    return made


class Vector:
    """`length` values of one type. `valid` is None if no value is NULL.

    A constant holds one value (a numpy or Arrow array of length 1) and broadcasts.
    """

    __slots__ = ("constant", "length", "type", "valid", "values")

    def __init__(
        self, kind: SqlType, values: Any, valid: Bools | None, *, length: int | None = None, constant: bool = False
    ) -> None:
        self.type = kind
        self.values = values
        self.valid = valid
        self.length = len(values) if length is None else length
        self.constant = constant

    def __len__(self) -> int:
        return self.length

    @property
    def mask(self) -> Bools:
        """True where the value is not NULL; length 1 for a constant."""
        if self.valid is None:
            return np.ones(1 if self.constant else self.length, dtype=np.bool_)
        return self.valid

    def true(self) -> Bools:
        """True where a boolean is TRUE (NULL counts as false); always of full length."""
        found = self.values if self.valid is None else self.values & self.valid
        return np.broadcast_to(found, (self.length,)) if self.constant else found

    def expand(self) -> "Vector":
        """The same values at full length, without broadcasting."""
        if not self.constant:
            return self
        if self.type.is_text:
            picked = _taken(self.values, np.zeros(self.length, dtype=np.int64))
            valid = None if self.valid is None else np.repeat(self.valid, self.length)
            return Vector(self.type, picked, valid)
        valid = None if self.valid is None else np.repeat(self.valid, self.length)
        return Vector(self.type, np.repeat(self.values, self.length), valid)

    def take(self, rows: Index) -> "Vector":
        """The values at `rows`; NULL where a row number is negative."""
        missing = rows < 0
        any_missing = bool(missing.any())
        if self.constant:
            same = Vector(self.type, self.values, self.valid, length=len(rows), constant=True)
            return same.with_nulls(missing) if any_missing else same
        if len(self.values) == 0:
            return nulls(self.type, len(rows))
        safe = np.where(missing, 0, rows) if any_missing else rows
        if len(rows) > self.length:
            work.spend(len(rows) - self.length)
        values = _taken(self.values, safe) if self.type.is_text else self.values[safe]
        if self.valid is None and not any_missing:
            return Vector(self.type, values, None)
        valid = self.mask[safe] & ~missing if any_missing else self.mask[safe]
        return Vector(self.type, values, valid)

    def copy(self) -> "Vector":
        """The same values at full length, in memory of their own."""
        if self.constant:
            return self.expand()
        values = pa.concat_arrays([self.values]) if self.type.is_text else self.values.copy()
        return Vector(self.type, values, None if self.valid is None else self.valid.copy())

    def slice(self, start: int, length: int) -> "Vector":
        """A view of consecutive values."""
        if self.constant:
            return Vector(self.type, self.values, self.valid, length=length, constant=True)
        values = self.values.slice(start, length) if self.type.is_text else self.values[start : start + length]
        return Vector(self.type, values, None if self.valid is None else self.valid[start : start + length])

    def with_nulls(self, is_null: Bools) -> "Vector":
        """The same values, with additional NULLs where `is_null`."""
        if not is_null.any():
            return self
        whole = self.expand()
        return Vector(whole.type, whole.values, whole.mask & ~is_null)

    def text(self) -> Any:
        """Strings with their NULLs as one Arrow array, or an Arrow scalar for a constant."""
        array = self.values
        if self.valid is not None:
            array = pc.if_else(pa.array(self.valid), array, pa.scalar(None, array.type))
        return array[0] if self.constant else array

    def to_list(self) -> list[Any]:
        """Python values, None for NULL; times as integers in nanoseconds."""
        whole = self.expand()
        found: list[Any] = whole.text().to_pylist() if whole.type.is_text else whole.values.tolist()
        if whole.valid is not None and not whole.type.is_text:
            for row in np.flatnonzero(~whole.valid).tolist():
                found[row] = None
        return found

    def to_arrow(self) -> pa.Array:
        whole = self.expand()
        target = to_arrow(whole.type)
        if whole.type.kind is Kind.NULL:
            return pa.nulls(whole.length)
        if whole.type.is_text:
            array = whole.text()
            return array if array.type == target else array.cast(target)
        null = None if whole.valid is None else ~whole.valid
        values = whole.values
        if whole.type.kind is Kind.INT:
            return pa.array(values, _INT64, mask=null).cast(pa.int32())
        if whole.type.is_time:
            unit = "D" if whole.type.kind is Kind.DATE else whole.type.unit
            scaled = values // NANOSECONDS[unit] if unit != "ns" else values
            if whole.type.kind is Kind.DATE:
                return pa.array(scaled.astype(np.int32), pa.int32(), mask=null).view(target)
            return pa.array(scaled, _INT64, mask=null).view(target)
        if whole.type.kind is Kind.INTERVAL:
            return pa.array(values, _INT64, mask=null).view(target)
        return pa.array(values, target, mask=null)


def _taken(texts: pa.Array, rows: Index) -> pa.Array:
    """The texts or arrays at `rows`. Raises TriggerRejected before it makes too many bytes more than there were."""
    if len(rows) <= _FEW_COUNTED:
        return texts.take(pa.array(rows))
    had = texts.nbytes
    if pa.types.is_string(texts.type):
        sizes = _sizes(texts)
        planned = int(sizes.max()) * len(rows)
        if planned > had:
            planned = int(sizes[rows].sum(dtype=np.int64))
    else:
        planned = had * len(rows) // len(texts)
    work.check_made(planned - had)
    found = texts.take(pa.array(rows))
    if len(rows) > len(texts):
        work.made(found.nbytes - had)
    return found


def _sizes(texts: pa.StringArray) -> Index:
    """The bytes of each text."""
    if texts.null_count:
        found: Index = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
        return found
    ends = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset)
    return ends[1:] - ends[:-1]


def _are_equal(texts: pa.Array) -> bool:
    """Whether these are equal strings without NULLs, as the tickers of most steps are; far faster than encoding
    them.
    """
    if not len(texts) or not pa.types.is_string(texts.type) or texts.null_count:
        return False
    ends = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset)
    first, last, size = int(ends[0]), int(ends[-1]), int(ends[1] - ends[0])
    if last - first != size * len(texts):
        return False
    data = memoryview(texts.buffers()[2] or b"")
    one = bytes(data[first : first + size])
    if bytes(data[last - size : last]) != one:
        return False
    return bool((ends[1:] - ends[:-1] == size).all()) and bytes(data[first:last]) == one * len(texts)


def constant(kind: SqlType, value: Any, length: int) -> Vector:
    """The same Python value `length` times (None = NULL)."""
    valid = np.zeros(1, dtype=np.bool_) if value is None else None
    if kind.is_text:
        return Vector(kind, pa.array([value], to_arrow(kind)), valid, length=length, constant=True)
    return Vector(
        kind,
        np.array([_ZERO[kind.kind] if value is None else value], _DTYPE[kind.kind]),
        valid,
        length=length,
        constant=True,
    )


def nulls(kind: SqlType, length: int) -> Vector:
    if kind.is_text:
        return Vector(kind, pa.nulls(length, to_arrow(kind)), np.zeros(length, dtype=np.bool_))
    return Vector(kind, np.zeros(length, _DTYPE[kind.kind]), np.zeros(length, dtype=np.bool_))


_DTYPE: dict[Kind, Any] = {
    Kind.NULL: np.bool_,
    Kind.BOOLEAN: np.bool_,
    Kind.INT: np.int64,
    Kind.BIGINT: np.int64,
    Kind.DOUBLE: np.float64,
    Kind.TIMESTAMP: np.int64,
    Kind.DATE: np.int64,
    Kind.INTERVAL: np.int64,
}
_ZERO: dict[Kind, Any] = {kind: (0.0 if kind is Kind.DOUBLE else 0) for kind in _DTYPE}


def from_list(kind: SqlType, values: Sequence[Any]) -> Vector:
    """The inverse of `Vector.to_list`."""
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    none_missing = bool(valid.all())
    if kind.is_text:
        return Vector(kind, pa.array(values, to_arrow(kind)), None if none_missing else valid)
    zero = _ZERO[kind.kind]
    filled = values if none_missing else [zero if value is None else value for value in values]
    return Vector(kind, np.array(filled, _DTYPE[kind.kind]), None if none_missing else valid)


def from_column(column: pa.Array | pa.ChunkedArray) -> Vector:
    """An Arrow column as a vector. Raises pyarrow.ArrowInvalid for a time or number outside the 64-bit range."""
    array = _whole(column)
    kind = from_arrow(array.type)
    if array.null_count and array.null_count == len(array):
        return nulls(kind, len(array))
    valid = None if array.null_count == 0 else np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False))
    if kind.is_text:
        wanted = to_arrow(kind)
        return Vector(kind, array if array.type == wanted else array.cast(wanted), valid)
    if kind.kind is Kind.NULL:
        return nulls(kind, len(array))
    if kind.kind is Kind.BOOLEAN:
        filled = array if valid is None else array.fill_null(False)
        return Vector(kind, np.asarray(filled.to_numpy(zero_copy_only=False)), valid)
    if kind.kind is Kind.DOUBLE:
        wide = array if pa.types.is_float64(array.type) else array.cast(pa.float64())
        filled = wide if valid is None else wide.fill_null(0.0)
        return Vector(kind, filled.to_numpy(zero_copy_only=False), valid)
    if kind.kind is Kind.DATE:
        array = array.cast(pa.timestamp("ns"))
    elif kind.kind is Kind.INTERVAL and array.type.unit != "ns":
        array = array.cast(pa.duration("ns"))
    if not kind.is_integer:
        wide = array.view(_INT64)
    else:
        wide = array if array.type == _INT64 else array.cast(_INT64)
    filled = wide if valid is None else wide.fill_null(0)
    values = filled.to_numpy(zero_copy_only=False)
    if kind.kind is Kind.TIMESTAMP and kind.unit != "ns":
        values = _in_nanoseconds(values, NANOSECONDS[kind.unit])
    return Vector(kind, values, valid)


def _in_nanoseconds(times: Index, unit: int) -> Index:
    """Raises pyarrow.ArrowInvalid for times outside the range. An Arrow cast of a few rows takes five times as long."""
    most = _INT64_MAX // unit
    if len(times) and not -most <= int(times.min()) <= int(times.max()) <= most:
        raise pa.ArrowInvalid("a time is outside the range of 64-bit nanoseconds")
    return times * unit


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The same values in one array. Values within a larger array are copied, so that the few that an operator keeps do
    not keep that array in memory.
    """
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1 and column.get_total_buffer_size() <= _SMALL:
        return column.chunk(0)
    return column.combine_chunks()


def concatenate(parts: Sequence[Vector]) -> Vector:
    """Vectors of one type, one after another."""
    whole = [part.expand() if part.constant else part for part in parts]
    kind = whole[0].type
    valid = None
    if [part for part in whole if part.valid is not None]:
        valid = np.concatenate([part.mask for part in whole])
    if kind.is_text:
        return Vector(kind, pa.concat_arrays([part.values for part in whole]), valid)
    return Vector(kind, np.concatenate([part.values for part in whole]), valid)


def codes(vector: Vector) -> Index:
    """Dense integers in the order of the values; equal values have equal numbers, NULL is -1."""
    whole = vector.expand()
    if is_struct(whole.type):
        array = whole.text()
        columns = [codes(from_column(array.field(place))) for place in range(array.type.num_fields)]
        return np.where(whole.mask & np.asarray(array.is_valid()), row_codes(columns), -1)
    if is_array(whole.type):
        return _list_codes(whole.text())
    if whole.type.is_text:
        if whole.valid is None and _are_equal(whole.values):
            return np.zeros(len(whole), np.int64)
        encoded = whole.text().dictionary_encode()
        ranks = np.empty(len(encoded.dictionary), dtype=np.int64)
        order = pc.sort_indices(encoded.dictionary) if len(encoded.dictionary) else pa.array([], pa.int64())
        ranks[np.asarray(order)] = np.arange(len(ranks))
        if whole.valid is None and encoded.indices.null_count == 0:
            known: Index = ranks.take(encoded.indices.to_numpy(zero_copy_only=False))
            return known
        indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        if not len(ranks):
            return np.full(len(whole), -1, dtype=np.int64)
        return np.where(indices < 0, -1, ranks[indices])
    found = ranks_of(whole.values)
    return found if whole.valid is None else np.where(whole.valid, found, -1)


def row_codes(columns: Sequence[Index]) -> Index:
    """Dense integers in the order of rows of numbers, where -1 is NULL, the greatest."""
    if not len(columns[0]):
        return np.zeros(0, np.int64)
    work.spend(len(columns) * len(columns[0]), work.FOLDED_A_STEP)
    numbers = np.stack([np.where(column < 0, len(column), column) for column in columns], axis=1)
    found: Index = np.unique(numbers, axis=0, return_inverse=True)[1].astype(np.int64).ravel()
    return found


def _list_codes(array: pa.Array) -> Index:
    """Dense integers in the order of the lists, by their first value that differs; NULL is -1."""
    work.spend(len(array) + len(array.flatten()), work.FOLDED_A_STEP)
    items = codes(from_column(array.flatten()))
    numbers = np.where(items < 0, len(items), items).tolist()
    ends = np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)).tolist()
    lists = [tuple(numbers[begin:end]) for begin, end in pairwise([0, *ends])]
    places = {numbers: place for place, numbers in enumerate(sorted(set(lists)))}
    return np.where(np.asarray(array.is_valid()), np.array([places[one] for one in lists], np.int64), -1)


def ranks_of(values: npt.NDArray[Any]) -> Index:
    """Dense integers in the order of the values. Runs of equal neighbours, as those of one window, are sorted as one
    value.
    """
    firsts = np.flatnonzero(values[1:] != values[:-1]) + 1
    if 4 * len(firsts) > len(values) or not len(values):
        return _ranks(values)
    firsts = np.concatenate([np.zeros(1, np.int64), firsts])
    found: Index = np.repeat(_ranks(values[firsts]), np.diff(firsts, append=len(values)))
    return found


def _ranks(values: npt.NDArray[Any]) -> Index:
    """Avoids sorting all values: uses a lookup table if they are close together, or sorts only the few distinct
    ones.
    """
    if values.dtype == np.int64 and len(values) >= _MANY:
        least = int(values.min())
        if int(values.max()) - least < _SPREAD * len(values):
            above = values - least
            present = np.zeros(int(above.max()) + 1, np.bool_)
            present[above] = True
            close: Index = (np.cumsum(present) - 1).take(above)
            return close
        if 2 * len(np.unique(values[:: len(values) // _SAMPLE])) < _SAMPLE:
            encoded = pa.array(values).dictionary_encode()
            known = encoded.dictionary.to_numpy()
            ranks = np.empty(len(known), np.int64)
            ranks[np.argsort(known)] = np.arange(len(known))
            few: Index = ranks.take(encoded.indices.to_numpy())
            return few
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def choose(condition: Bools, chosen: Vector, otherwise: Vector) -> Vector:
    """`chosen` where the condition is true, `otherwise` elsewhere."""
    one, other = chosen.expand(), otherwise.expand()
    valid = None if one.valid is None and other.valid is None else np.where(condition, one.mask, other.mask)
    if one.type.is_text:
        return Vector(one.type, pc.if_else(pa.array(condition), one.values, other.values), valid)
    return Vector(one.type, np.where(condition, one.values, other.values), valid)


def distinct(texts: pa.Array | pa.ChunkedArray) -> tuple[list[str], Index]:
    """The distinct values of strings, and which of them each one is; NULL counts as an empty string."""
    if texts.null_count:
        texts = texts.fill_null("")
    if len(texts) <= _FEW:
        places: dict[str, int] = {}
        numbers = [places.setdefault(text, len(places)) for text in texts.to_pylist()]
        return list(places), np.array(numbers, np.int64)
    whole = _whole(texts)
    if _are_equal(whole):
        return [whole[0].as_py()], np.zeros(len(whole), np.int64)
    encoded = whole.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)


def ranges(firsts: Index, lengths: Index) -> Index:
    """The integers of all ranges, one range after another."""
    if len(firsts) == 1:
        first = int(firsts[0])
        return np.arange(first, first + int(lengths[0]))
    ends: Index = lengths.cumsum()
    found: Index = np.repeat(firsts - (ends - lengths), lengths) + np.arange(int(ends[-1]) if len(ends) else 0)
    return found


def blocks(sizes: Index) -> Iterator[tuple[int, int]]:
    """Where blocks of segments begin and end that have about `_AT_A_TIME` values each, so that what a function needs
    beside its result is bounded. `sizes`: of the segments.
    """
    edges = np.flatnonzero(np.diff(np.cumsum(sizes) // _AT_A_TIME)) + 1
    return pairwise([0, *edges.tolist(), len(sizes)])


def is_ascending(numbers: Index) -> bool:
    return len(numbers) < 2 or bool((numbers[1:] >= numbers[:-1]).all())


def is_every(numbers: Index, length: int) -> bool:
    """Whether these are 0 to `length` - 1 in order."""
    if len(numbers) != length:
        return False
    return not length or (int(numbers[0]) == 0 and bool((numbers[1:] - numbers[:-1] == 1).all()))
