"""What an executor does for MATCH_RECOGNIZE: it runs whole groups of rows through the matcher. Imports no Spark."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep.engine import compile_query

__all__ = ["BUNCH_ROWS", "OUTPUT_ROWS", "Recognition", "bunches", "in_order", "in_types", "recognizer"]

#: Small groups go through the matcher together, up to this many rows.
BUNCH_ROWS = 500_000
OUTPUT_ROWS = 50_000

Task = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


@dataclass(kw_only=True, frozen=True, slots=True)
class Recognition:
    """A clause, ready for the executors.

    `text`: for the matcher, over the input `name` with the columns `schema`; `types`: Spark's types of the result's
    columns; `first`: the column that ORDER BY begins with, if it is a column; `numbered`: a column of integers as text
    by which rows of equal time are ordered.
    """

    text: str
    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)
    first: str = ""
    numbered: str = ""

    def in_order(self, rows: pa.Table) -> pa.Table:
        return in_order(rows, self.first, self.numbered)

    def result(self, found: pa.Table) -> pa.Table:
        return in_types(found, self.types)


def recognizer(plan: Recognition) -> Task:
    """A function for `mapInArrow` over rows that are sorted by the keys, with each group complete."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        compiled = compile_query(plan.text, {plan.name: plan.schema}, plan.parameters, default_table=plan.name)
        for rows in bunches(batches, plan.keys, BUNCH_ROWS):
            found = compiled.run({plan.name: plan.in_order(rows.cast(plan.schema))})
            yield from plan.result(found).to_batches(max_chunksize=OUTPUT_ROWS)

    return run


def in_order(rows: pa.Table, first: str, numbered: str) -> pa.Table:
    """The rows with ties in a definite order, however they arrived; the engine keeps the order of ties. See
    `Recognition`.
    """
    keys: dict[str, pa.ChunkedArray] = {}
    for name in dict.fromkeys((first, numbered, *rows.column_names)):
        if name not in rows.column_names or not _has_order(rows.schema.field(name).type):
            continue
        column = rows.column(name)
        if name == numbered and pa.types.is_string(column.type):
            # Of two integers written as text, the longer one is greater.
            keys[f"k{len(keys)}"] = pc.binary_length(column)
        keys[f"k{len(keys)}"] = column
    if not keys:
        return rows
    return rows.take(pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys]))


def in_types(found: pa.Table, types: Sequence[pa.DataType]) -> pa.Table:
    """The results in Spark's types; columns are named c0, c1 and so on."""
    arrays = [
        column if column.type == kind else column.cast(kind, safe=False)
        for column, kind in zip(found.columns, types, strict=True)
    ]
    return pa.Table.from_arrays(arrays, names=[f"c{place}" for place in range(len(arrays))])


def _has_order(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_string(kind) or pa.types.is_decimal(kind))


def bunches(batches: Iterable[pa.RecordBatch], keys: Sequence[str], size: int) -> Iterator[pa.Table]:
    """The rows in tables of whole groups; without keys, all rows are one group."""
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
    """The last row of `batch` whose key differs from the previous row's."""
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
    """NULL equals NULL, and NaN equals NaN, as in grouping."""
    found = pc.not_equal(one, other)
    if pa.types.is_floating(one.type):
        found = pc.and_not(found, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return pc.coalesce(found, pc.xor(pc.is_null(one), pc.is_null(other)))
