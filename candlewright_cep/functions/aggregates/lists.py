"""Aggregates that keep every value in order: ARRAY_AGG and STRING_AGG."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep import work
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.functions.signatures import Mismatch, Signature
from candlewright_cep.limits import MADE_TEXT
from candlewright_cep.types import Kind, SqlType, from_arrow, to_arrow
from candlewright_cep.vector import Index, Vector, codes, from_list, ranges

#: In place of a direction of such a list: the key is a condition, and only rows for which it is true are in the list.
KEPT_IF = 4
MAX_ARRAY_ITEMS = 20_000_000
#: The texts made so far are checked after this many characters.
_STRETCH = 1 << 20


def joined(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    found: list[str | None] = []
    begins = set(firsts.tolist())
    text: str | None = None
    size, checked = 0, _STRETCH
    for position, (value, separator) in enumerate(zip(*(part.to_list() for part in arguments), strict=True)):
        if position in begins:
            text = None
        if value is not None:
            text = value if text is None else text + (separator or "") + value
        if text is not None and len(text) > MADE_TEXT:
            text = text[:MADE_TEXT]
        found.append(text)
        size += len(text or "")
        if size > checked:
            work.check_made(size)
            checked = size + _STRETCH
    return from_list(kind, found)


def joined_whole(arguments: Sequence[Vector], firsts: Index, sizes: Index, kind: SqlType) -> Vector:
    """Only each segment's final text: all its intermediate texts would take quadratic memory."""
    values, separators = (part.to_list() for part in arguments)
    found: list[str | None] = []
    for first, size in zip(firsts.tolist(), sizes.tolist(), strict=True):
        parts: list[str] = []
        length = 0
        for value, separator in zip(values[first : first + size], separators[first : first + size], strict=True):
            if value is not None:
                more = (separator or "") + value if parts else value
                parts.append(more)
                length += len(more)
                if length > MADE_TEXT:
                    break
        found.append("".join(parts)[:MADE_TEXT] if parts else None)
    work.check_made(sum(len(text or "") for text in found))
    return from_list(kind, found)


def ordered_signature(own: Signature, count: int) -> Signature:
    """`own` for the first `count` arguments, then pairs of a key and its direction (see the parser, and KEPT_IF)."""

    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        if any(key.kind is Kind.OPAQUE for key in types[count::2]):
            raise Mismatch
        wanted, kind = own(types[:count])
        return [*wanted, *types[count:]], kind

    return resolve


def ordered_whole(count: int, join: Callable[..., Vector]) -> Callable[..., Vector]:
    """`join` over each segment in the order of its keys; ties keep their order."""

    def run(arguments: Sequence[Vector], firsts: Index, sizes: Index, kind: SqlType) -> Vector:
        segments = np.repeat(np.arange(len(sizes)), sizes)
        columns, kept = [segments], np.ones(len(segments), np.bool_)
        for key, direction in zip(arguments[count::2], arguments[count + 1 :: 2], strict=True):
            how = direction.expand().values
            if len(how) and how[0] == KEPT_IF:
                kept &= key.true()
                continue
            ranks = codes(key)
            turned = np.where(how & 1, -ranks, ranks)
            columns.append(np.where(ranks >= 0, turned, np.where(how & 2, -len(ranks), len(ranks))))
        order = np.lexsort(columns[::-1])
        if not kept.all():
            order, sizes = order[kept[order]], np.bincount(segments[kept], minlength=len(sizes))
            firsts = np.cumsum(sizes) - sizes
        return join([argument.take(order) for argument in arguments[:count]], firsts, sizes, kind)

    return run


def no_running_array(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    """Arrays are made only for the rows that show them, see `arrays`."""
    length = arguments[0].length
    starts = np.zeros(length, dtype=np.int64)
    starts[firsts] = firsts
    return arrays(arguments[0], np.maximum.accumulate(starts), np.arange(1, length + 1, dtype=np.int64), kind=kind)


def arrays(values: Vector, begins: Index, ends: Index, *, kind: SqlType) -> Vector:
    """One array per row: the values from `begins[i]` to `ends[i]`, NULL if there are none."""
    sizes = np.maximum(ends - begins, 0)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    if int(offsets[-1]) > MAX_ARRAY_ITEMS:
        raise TriggerRejected(f"the arrays of ARRAY_AGG hold more than {MAX_ARRAY_ITEMS} values in all")
    work.check_made(8 * int(offsets[-1]))
    for text in _texts(values) if values.length else ():
        lengths = pc.fill_null(pc.binary_length(text), 0).to_numpy(zero_copy_only=False)
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        work.check_made(int((before[np.maximum(ends, begins)] - before[begins]).sum()))
    items = values.take(ranges(begins, sizes)).to_arrow()
    made = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)
    return Vector(kind, made.cast(kind.arrow), None if sizes.all() else sizes > 0)


def _texts(values: Vector) -> list[pa.Array]:
    """The arrays of texts in a column: itself, or fields of its STRUCTs."""
    if not values.type.is_text or values.type.kind is Kind.DECIMAL:
        return []
    pending, found = [values.expand().text()], []
    while pending:
        array = pending.pop()
        if pa.types.is_struct(array.type):
            pending += array.flatten()
        elif pa.types.is_string(array.type) or pa.types.is_binary(array.type):
            found.append(array)
    return found


def whole_arrays(arguments: Sequence[Vector], firsts: Index, sizes: Index, kind: SqlType) -> Vector:
    return arrays(arguments[0], firsts, firsts + sizes, kind=kind)


def array_signature(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 1 or not _is_plain(to_arrow(types[0])):
        raise Mismatch
    return list(types), SqlType(Kind.OPAQUE, arrow=pa.list_(to_arrow(types[0])))


def _is_plain(kind: pa.DataType) -> bool:
    """Whether it is a single value, or a STRUCT of such."""
    if pa.types.is_struct(kind):
        return all(_is_plain(part.type) for part in kind)
    return from_arrow(kind).kind not in (Kind.OPAQUE, Kind.NULL)
