"""Array functions. Arrays come from ARRAY_AGG, ARRAY[...], and list columns of an input."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep import work
from candlewright_cep.functions.scalars.text import written
from candlewright_cep.functions.signatures import Mismatch, Signature, fits, whole_result_of
from candlewright_cep.functions.usage import NOT_NEGATIVE, Declared, Usage
from candlewright_cep.limits import MADE_TEXT
from candlewright_cep.types import (
    BIGINT,
    BOOLEAN,
    MOST_DIGITS,
    STRING,
    Kind,
    SqlType,
    common,
    from_arrow,
    is_array,
    is_struct,
    to_arrow,
)
from candlewright_cep.vector import (
    Bools,
    Index,
    Vector,
    blocks,
    codes,
    concatenate,
    constant,
    from_column,
    from_list,
    ranges,
    row_codes,
)

#: Functions that take whole STRUCTs.
STRUCT_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "ARRAY_CONTAINS")
#: The most values that ARRAY[...] may have.
_MOST_WRITTEN = 1_000


def item_type(kind: SqlType) -> SqlType:
    """The type of an array's values. Raises Mismatch for other types."""
    if not is_array(kind):
        raise Mismatch
    return from_arrow(kind.arrow.value_type)


def _takes(result: SqlType | None, *further: SqlType, optional: int = 0) -> Signature:
    """A signature: an array, then these types; without `result`, the result has the type of the array's values."""

    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        if not types or not 1 + len(further) - optional <= len(types) <= 1 + len(further):
            raise Mismatch
        item = item_type(types[0])
        if not all(fits(given, wanted) for given, wanted in zip(types[1:], further, strict=False)):
            raise Mismatch
        return [types[0], *further[: len(types) - 1]], result or item

    return resolve


def _joins(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if types and item_type(types[0]).kind is Kind.OPAQUE:
        raise Mismatch
    return _takes(STRING, STRING, STRING, optional=1)(types)


def opened(array: Vector) -> tuple[Vector, Index, Index]:
    """The values of all arrays, the start of each array among them, and its length."""
    whole = array.text() if not array.constant else array.expand().text()
    lists = pc.fill_null(pc.list_value_length(whole), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    items = whole.flatten()
    return from_column(items), np.cumsum(lists) - lists, lists


def cells(vector: Vector) -> list[Any]:
    """Python values as `Vector.to_list` gives them, with a tuple for each array."""
    if not is_array(vector.type):
        return vector.to_list()
    items, firsts, sizes = opened(vector)
    values = cells(items)
    present = np.broadcast_to(vector.mask, (vector.length,)).tolist()
    places = zip(firsts.tolist(), sizes.tolist(), present, strict=True)
    return [tuple(values[first : first + size]) if is_there else None for first, size, is_there in places]


def from_cell(kind: SqlType, value: Any) -> Vector:
    """One value, as `cells` gives it."""
    if value is None or not is_array(kind):
        return constant(kind, value, 1)
    item = item_type(kind)
    if is_array(item) and value:
        items = concatenate([from_cell(item, part) for part in value])
    else:
        items = from_list(item, value)
    offsets = pa.array([0, len(value)], pa.int32())
    return Vector(kind, pa.ListArray.from_arrays(offsets, items.to_arrow()).cast(kind.arrow), None)


def _joined(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    items, firsts, sizes = opened(arguments[0])
    separators = arguments[1].to_list()
    missing = arguments[2].to_list() if len(arguments) > 2 else [None] * len(separators)
    present = np.broadcast_to(arguments[0].mask, (arguments[0].length,)).tolist()
    edges = np.append(firsts, items.length)
    found: list[str | None] = []
    for begin, end in blocks(sizes):
        own, base = slice(begin, end), edges[begin]
        texts = _as_texts(items.take(np.arange(base, edges[end])))
        for first, size, is_there, separator, instead in zip(
            (firsts[own] - base).tolist(), sizes[own].tolist(), present[own], separators[own], missing[own], strict=True
        ):
            if not is_there or separator is None:
                found.append(None)
                continue
            parts = (instead if text is None else text for text in texts[first : first + size])
            joined = separator.join(part for part in parts if part is not None)
            found.append(joined if len(joined) <= MADE_TEXT else None)
    work.check_made(sum(len(text or "") for text in found))
    made = pa.array(found, pa.string())
    return Vector(kind, made, np.array([text is not None for text in found], np.bool_))


def _as_texts(items: Vector) -> list[str | None]:
    is_text = items.type.kind is Kind.STRING
    work.spend(items.length, work.FOLDED_A_STEP if is_text else 1)
    try:
        return items.to_list() if is_text else written(items).to_list()
    except Mismatch:
        return [None] * items.length


def _cardinality(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    return Vector(kind, opened(arguments[0])[2], np.broadcast_to(arguments[0].mask, (arguments[0].length,)))


def _element(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    """Indexes count from 1, negative ones from the end; NULL if the array has no such index."""
    items, firsts, sizes = opened(arguments[0])
    place = arguments[1].expand()
    wanted = np.where(place.values > 0, place.values - 1, place.values + sizes)
    inside = place.mask & (place.values != 0) & (wanted >= 0) & (wanted < sizes)
    found = items.take(np.where(inside, firsts + np.where(inside, wanted, 0), -1))
    return Vector(kind, found.values, found.valid)


def _array_of(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if not 1 <= len(types) <= _MOST_WRITTEN:
        raise Mismatch
    wanted, item = whole_result_of(types)
    if is_array(item):
        raise Mismatch
    if item.kind is Kind.NULL:
        raise Mismatch
    return wanted, SqlType(Kind.OPAQUE, arrow=pa.list_(to_arrow(item)))


def _made(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    count, length, rows = len(arguments), arguments[0].length, arguments[0].length
    if all(argument.constant for argument in arguments):
        length = 1
        arguments = [argument.slice(0, 1) for argument in arguments]
    work.spend(count * length)
    work.check_made(sum(argument.values.nbytes for argument in arguments if argument.type.is_text))
    # Every row's first value, then every row's second value, and so on.
    order = (np.arange(count * length) % count) * length + np.arange(count * length) // count
    items = concatenate(list(arguments)).take(order).to_arrow()
    offsets = pa.array(np.arange(0, count * length + 1, count), pa.int32())
    whole = pa.ListArray.from_arrays(offsets, items).cast(kind.arrow)
    return Vector(kind, whole, None, length=rows, constant=length == 1)


def are_equal(one: Vector, other: Vector) -> Bools:
    """Whether the arrays have the same values in the same order; NULL in an array equals NULL. Results for arrays that
    are NULL are meaningless.
    """
    left, firsts, sizes = opened(one)
    right, others, lengths = opened(other)
    found: Bools = np.equal(sizes, lengths)
    work.spend(left.length + right.length)
    numbers = _numbered(left, right)
    compared = np.where(found, sizes, 0)
    differs = numbers[: left.length][ranges(firsts, compared)] != numbers[left.length :][ranges(others, compared)]
    rows = np.repeat(np.arange(len(sizes)), compared)
    found[rows[differs]] = False
    return found


def _numbered(one: Vector, other: Vector) -> Index:
    """Numbers for the values of both vectors, one after the other: equal values have equal numbers, NULL has -1.
    Numbers of STRUCTs are in the order of their fields, where NULL is the greatest value.
    """
    if is_struct(one.type):
        return _numbered_structs(one, other)
    if one.type.is_text:
        return codes(concatenate([one, other]))
    values = np.concatenate([one.values, other.values])
    return codes(Vector(one.type, values, np.concatenate([one.mask, other.mask])))


def _fields(struct: Vector) -> list[Vector]:
    whole = struct.expand().values
    return [from_column(whole.field(place)) for place in range(whole.type.num_fields)]


def _numbered_structs(one: Vector, other: Vector) -> Index:
    present = np.concatenate([np.broadcast_to(each.mask, (each.length,)) for each in (one, other)])
    columns = [_numbered(left, right) for left, right in zip(_fields(one), _fields(other), strict=True)]
    return np.where(present, row_codes(columns), -1)


def compared_structs(one: Vector, other: Vector) -> tuple[Index, Index]:
    """Numbers that compare as the STRUCTs do; meaningless where one is NULL."""
    work.spend(one.length + other.length)
    numbers = _numbered(one, other)
    return numbers[: one.length], numbers[one.length :]


def _comparable(one: SqlType, other: SqlType) -> SqlType:
    """The type in which two values compare exactly as they are. Raises Mismatch if they do not compare."""
    wider = common(one, other)
    if wider is None or not _keeps(one, other, wider):
        raise Mismatch
    return wider


def _keeps(one: SqlType, other: SqlType, wider: SqlType) -> bool:
    if is_struct(wider):
        kinds = [[from_arrow(part.type) for part in kind.arrow] for kind in (one, other, wider)]
        return all(_keeps(*parts) for parts in zip(*kinds, strict=True))
    # A DECIMAL of the most digits is one that may have had to drop some.
    is_whole = wider.kind is not Kind.DECIMAL or one == other or wider.precision < MOST_DIGITS
    return is_whole and not {Kind.OPAQUE, Kind.NULL} & {one.kind, other.kind}


def both_structs(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType] | None:
    """The signature for comparing two STRUCTs of comparable fields, in their order; None for other types."""
    if len(types) != 2 or not all(map(is_struct, types)):
        return None
    return [_comparable(*types)] * 2, BOOLEAN


def both_arrays(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType] | None:
    """The signature for comparing two arrays of comparable values; None for other types."""
    if len(types) != 2 or any(kind.kind is not Kind.OPAQUE for kind in types):
        return None
    wider = _comparable(*map(item_type, types))
    return [_array(kind, wider) for kind in types], BOOLEAN


def _array(kind: SqlType, item: SqlType) -> SqlType:
    """The array type `kind` with values of the type `item`."""
    return kind if item_type(kind) == item else SqlType(Kind.OPAQUE, arrow=pa.list_(to_arrow(item)))


def _contains(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    """NULL if the array or the value is NULL."""
    items, _, sizes = opened(arguments[0])
    wanted = arguments[1].expand()
    numbers = _numbered(items, wanted)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    own = numbers[items.length :]
    same = (numbers[: items.length] == own[rows]) & (own[rows] >= 0)
    found = np.bincount(rows[same], minlength=len(sizes)) > 0
    return Vector(kind, found, np.broadcast_to(arguments[0].mask, (len(sizes),)) & wanted.mask)


def _holds(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 2:
        raise Mismatch
    item = item_type(types[0])
    wider = item if types[1].kind is Kind.NULL else _comparable(item, types[1])
    return [_array(types[0], wider), wider], BOOLEAN


ENTRIES: list[Declared] = [
    ("ARRAY", _array_of, _made, None),
    (
        "ARRAY_CONTAINS",
        _holds,
        _contains,
        Usage("ARRAY_CONTAINS(array, x)", "whether the array contains x", "ARRAY_CONTAINS(ARRAY[1, 2], 2)"),
    ),
    (
        "ARRAY_JOIN",
        _joins,
        _joined,
        Usage(
            "ARRAY_JOIN(array, separator, for_null)",
            "the values as one text; NULLs are left out, or written as for_null",
            "ARRAY_JOIN(ARRAY[1, 2], '-') = '1-2'",
        ),
    ),
    (
        "CARDINALITY",
        _takes(BIGINT),
        _cardinality,
        Usage(
            "CARDINALITY(array)", "how many values the array has", "CARDINALITY(ARRAY[1, 2]) = 2", values=NOT_NEGATIVE
        ),
    ),
    (
        "ELEMENT_AT",
        _takes(None, BIGINT),
        _element,
        Usage(
            "ELEMENT_AT(array, place)",
            "the value at a position, from 1, or from the end if negative; also array[place]",
            "ELEMENT_AT(ARRAY[1, 2], -1) = 2",
            "NULL if an argument is NULL, or the array has no such position",
        ),
    ),
]
#: Functions whose first argument is an array, and that are NULL if it is NULL.
INSIDE = ("ARRAY_CONTAINS", "ARRAY_JOIN", "CARDINALITY", "ELEMENT_AT")
