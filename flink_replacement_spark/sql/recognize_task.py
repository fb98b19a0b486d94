"""What an executor does for MATCH_RECOGNIZE: whole groups of rows through the matcher. No Spark import."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep import compile_query

__all__ = ["recognizer"]

#: Small groups go through the matcher together, until there are so many rows.
BUNCH_ROWS = 500_000
_OUTPUT_ROWS = 50_000

Task = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def recognizer(text: str, name: str, keys: Sequence[str], types: Sequence[pa.DataType]) -> Task:
    """A function for `mapInArrow` over rows that are sorted by `keys` and hold their groups whole.

    `types`: of the result's columns, which are named c0, c1 and so on.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in bunches(batches, keys, BUNCH_ROWS):
            found = compile_query(text, {name: rows.schema}, default_table=name).run({name: rows})
            arrays = [
                column if column.type == kind else column.cast(kind, safe=False)
                for column, kind in zip(found.columns, types, strict=True)
            ]
            table = pa.Table.from_arrays(arrays, names=[f"c{place}" for place in range(len(types))])
            yield from table.to_batches(max_chunksize=_OUTPUT_ROWS)

    return run


def bunches(batches: Iterable[pa.RecordBatch], keys: Sequence[str], size: int) -> Iterator[pa.Table]:
    """The rows in tables of whole groups; without keys all rows are one group."""
    held: list[pa.RecordBatch] = []
    rows = cut = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if keys:
            before = held[-1] if held else None
            change = _last_change(batch, before, keys)
            cut = cut if change is None else rows + change
        held.append(batch)
        rows += batch.num_rows
        if rows >= size and cut:
            table = pa.Table.from_batches(held)
            yield table.slice(0, cut)
            held = table.slice(cut).to_batches()
            rows, cut = rows - cut, 0
    if held:
        yield pa.Table.from_batches(held)


def _last_change(batch: pa.RecordBatch, before: pa.RecordBatch | None, keys: Sequence[str]) -> int | None:
    """The last row of `batch` whose key is another one than that of the row before it."""
    changed = None
    for key in keys:
        column = batch.column(key)
        last = column.slice(0, 1) if before is None else before.column(key).slice(before.num_rows - 1)
        previous = pa.concat_arrays([last, column.slice(0, len(column) - 1)])
        differs = _differ(column, previous)
        changed = differs if changed is None else pc.or_(changed, differs)
    places = pc.indices_nonzero(changed)
    return places[-1].as_py() if len(places) else None


def _differ(one: pa.Array, other: pa.Array) -> pa.Array:
    """NULL equals NULL, and NaN equals NaN, as in groups."""
    found = pc.not_equal(one, other)
    if pa.types.is_floating(one.type):
        found = pc.and_not(found, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return pc.coalesce(found, pc.xor(pc.is_null(one), pc.is_null(other)))
