"""Runs a query in the trigger language over the tables, of which it reads only the columns and rows that matter."""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from candlewright.wire.errors import TriggerRejected
from candlewright_cep import SkipFailed, compile_query
from candlewright_cep import TriggerRejected as Rejected
from candlewright_cep.planning.candle_views import CANDLE_VIEWS
from candlewright_cep.planning.pushdown import Bound, bounds_on_inputs
from candlewright_cep.planning.reads import columns_of_inputs
from candlewright_cep.spark.selects import first_query
from candlewright_cep.spark.words import words_of

__all__ = ["evaluated", "is_in_language"]


def is_in_language(sql: str, views: Mapping[str, str]) -> bool:
    """Whether the text has a word that only the trigger language has."""
    return first_query(words_of(sql), {name.lower() for name in views} | CANDLE_VIEWS.keys()) is not None


def evaluated(sql: str, tables: Mapping[str, Any], views: Mapping[str, str]) -> pa.Table:
    """`tables`: pyarrow tables or data sets. Raises TriggerRejected with the position of a mistake."""
    try:
        schemas = {name: table.schema for name, table in tables.items()}
        compiled = compile_query(sql, schemas, is_stored=True, views=views)
        bounds, read = bounds_on_inputs(compiled.plan), columns_of_inputs(compiled.plan)
        return compiled.run({name: _rows(tables[name], columns, bounds[name]) for name, columns in read.items()})
    except Rejected as error:
        raise TriggerRejected(error.message, error.line, error.column, hint=error.hint) from error
    except SkipFailed as error:
        raise TriggerRejected(str(error)) from error


def _rows(table: Any, columns: frozenset[int], lists: Sequence[Sequence[Bound]]) -> pa.Table:
    """The rows that meet all bounds of one of the lists; the columns that nothing reads are NULL."""
    schema = table.schema
    names = [field.name for place, field in enumerate(schema) if place in columns]
    each = [[part for bound in bounds for part in _filters(bound, schema.field(bound.column))] for bounds in lists]
    kept = reduce(or_, (reduce(and_, parts) for parts in each)) if all(each) else None
    found = (ds.dataset(table) if isinstance(table, pa.Table) else table).to_table(columns=names, filter=kept)
    return pa.table(
        [found.column(field.name) if field.name in names else pa.nulls(len(found), field.type) for field in schema],
        schema,
    )


def _filters(bound: Bound, field: pa.Field) -> Iterator[pc.Expression]:
    column, is_time = pc.field(field.name), pa.types.is_timestamp(field.type)
    if bound.among and not is_time:
        yield column.isin(pa.array(bound.among).cast(field.type))
        return
    least, most = (min(bound.among), max(bound.among)) if bound.among else (bound.least, bound.most)
    # The tables have microseconds; the bounds, in nanoseconds, are moved outwards to whole ones.
    if least is not None:
        yield column >= (pa.scalar(least // 1000, pa.timestamp("us", field.type.tz)) if is_time else least)
    if most is not None:
        yield column <= (pa.scalar(-(-most // 1000), pa.timestamp("us", field.type.tz)) if is_time else most)
