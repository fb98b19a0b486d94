"""Runs a query in the trigger language on Spark: where its plan allows, each task evaluates it over the rows of some
keys, and one task the rest, such as ORDER BY, over all results.

Spark reads the tables: only columns that the query names, and rows that its conditions on single columns select.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException

from candlewright_cep.errors import TriggerRejected
from candlewright_cep.limits import DEFAULT
from candlewright_cep.planning.candle_views import CANDLE_VIEWS
from candlewright_cep.planning.partitions import Division, divided, is_row_by_row
from candlewright_cep.planning.plans import Plan
from candlewright_cep.planning.pushdown import bounds_on_inputs
from candlewright_cep.planning.reads import columns_of_inputs
from candlewright_cep.spark.conditions import any_of
from candlewright_cep.spark.query_tasks import BELOW, Checked, Evaluation, below, evaluator
from candlewright_cep.spark.schemas import arrow_schema, for_spark, parameters_of, result_type, together
from candlewright_cep.spark.selects import Query
from candlewright_cep.spark.words import quoted
from candlewright_cep.syntax.names import table_names
from candlewright_cep.syntax.query_parser import parse, parse_view
from candlewright_cep.syntax.slips import hinted
from candlewright_cep.types import Kind, SqlType, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["frame_of_query"]

#: Further columns would divide the rows into more parts than there are tasks.
_MOST_KEYS = 2
_BARS = "ohlc"
#: Types whose values are the same after a way through Spark.
_KEPT = (Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE, Kind.STRING, Kind.DATE)
_Sql = Callable[[str], "DataFrame"]


def frame_of_query(sql: _Sql, query: Query, args: Any, *, numbered: str, views: Mapping[str, str]) -> "DataFrame":
    """The results of a query. `sql` runs Spark's texts; `views`: the texts of the registered views, by names in lower
    case; `args`, `numbered`: see `frame_of`. Raises TriggerRejected with the position in the whole text.
    """
    parameters = parameters_of(query.text, args)
    frames, used = _read(sql, query, parameters, views)
    schemas = {name: arrow_schema(rows) for name, rows in frames.items()}
    checked = Checked(text=query.for_engine(), schemas=schemas, views=used, parameters=parameters)
    compiled = checked.compiled()
    plan, divisions = _divided(compiled.plan)
    is_whole = plan is compiled.plan
    lower = compiled if is_whole else below(compiled)
    bounds, wanted = bounds_on_inputs(compiled.plan), columns_of_inputs(compiled.plan)
    read = {name: _columns(schemas[name], wanted[name], numbered) for name in frames if name in wanted}
    inputs = [
        _input(
            place,
            frames[name].where(any_of(bounds[name], schemas[name]) or "true"),
            columns,
            _keys(schemas[name], divisions, name),
        )
        for place, (name, columns) in enumerate(read.items())
    ]
    evaluation = Evaluation(
        query=checked,
        read=read,
        types=tuple(for_spark(to_arrow(kind)) for _, kind in lower.columns),
        part="" if is_whole else "below",
        keys=len(divisions),
        is_row_by_row=is_row_by_row(plan),
        numbered=numbered,
    )
    found = _evaluated(sql, inputs, evaluation)
    if not is_whole:
        results = tuple(name for name, _ in lower.columns)
        types = tuple(for_spark(to_arrow(kind)) for _, kind in compiled.columns)
        rest = Evaluation(query=checked, read={BELOW: results}, types=types, part="above")
        found = _evaluated(sql, [_input(0, found, results, ())], rest)
    return found.toDF(*(column for column, _ in compiled.columns))


def _read(
    sql: _Sql, query: Query, parameters: Mapping[str, str], views: Mapping[str, str]
) -> tuple[dict[str, "DataFrame"], dict[str, str]]:
    """The tables that a query reads, itself or through views, by their names in lower case; and the texts of the
    registered views.
    """
    text = query.for_engine()
    try:
        own = {*table_names(parse(text, DEFAULT, parameters))}
    except TriggerRejected as error:
        raise hinted(error, text) from None
    hidden = {name for name in own & {*views, *CANDLE_VIEWS} if _is_table(sql, query.rows_of(name))}
    of_views: set[str] = set()
    used: dict[str, str] = {}
    pending = own & {*views, *CANDLE_VIEWS} - hidden
    while pending:
        name = pending.pop()
        if name in views:
            used[name] = views[name]
        inner = {*table_names(parse_view(views[name], DEFAULT))} if name in views else {_BARS}
        of_views |= inner
        pending |= inner & {*views, *CANDLE_VIEWS} - used.keys()
    tables: dict[str, DataFrame] = {}
    for name in sorted((own | of_views) - {*views, *CANDLE_VIEWS} | hidden):
        if name in of_views and (name in hidden or (name in own and query.redefines(name))):
            raise _refused(
                query, f"{name} is one table here, and another one in a view", f"give {name} another name by WITH"
            )
        rows = sql(query.rows_of(name) if name in own else f"SELECT * FROM {quoted(name)}")
        columns = [column.lower() for column in rows.columns]
        if rows.isStreaming:
            raise _refused(query, f"{name} is a stream", "on a stream, Spark takes MATCH_RECOGNIZE alone")
        if len({*columns}) < len(columns):
            raise _refused(query, f"{name} has two columns of one name", "name its columns in WITH")
        tables[name] = rows
    return tables, used


def _is_table(sql: _Sql, rows: str) -> bool:
    """Whether Spark has the table that a text reads, which hides a view of that name."""
    try:
        return bool(sql(rows).columns)
    except AnalysisException:
        return False


def _refused(query: Query, message: str, hint: str) -> TriggerRejected:
    return TriggerRejected(message, query.line, query.column, hint=hint)


def _divided(whole: Plan) -> tuple[Plan, list[Division]]:
    """The part of a plan that tasks evaluate by themselves, or the whole plan for a single task."""
    plan, divisions = divided(whole)
    if plan is not whole and not all(_is_kept(part.type) for part in plan.fields):
        return whole, []
    return plan, divisions[:_MOST_KEYS]


def _is_kept(kind: SqlType) -> bool:
    return kind.kind in _KEPT or (kind.kind is Kind.TIMESTAMP and kind.unit != "ns")


def _columns(schema: pa.Schema, wanted: frozenset[int], numbered: str) -> tuple[str, ...]:
    """The columns that are read, with those by which rows are put in order."""
    first = next((place for place, part in enumerate(schema) if pa.types.is_timestamp(part.type)), 0)
    return tuple(
        part.name for place, part in enumerate(schema) if place in wanted or place == first or part.name == numbered
    )


def _keys(schema: pa.Schema, divisions: Sequence[Division], name: str) -> tuple[str, ...]:
    return tuple(schema.names[division.inputs[name]] for division in divisions)


def _input(place: int, rows: "DataFrame", columns: Sequence[str], keys: Sequence[str]) -> "DataFrame":
    """The rows of one input as `Evaluation` describes them."""
    parts = ", ".join(f"'c{number}', {quoted(name)}" for number, name in enumerate(columns))
    named = [f"{quoted(key)} AS k{number}" for number, key in enumerate(keys)]
    return rows.selectExpr(f"{place} AS input", *named, f"named_struct({parts}) AS t{place}")


def _evaluated(sql: _Sql, inputs: Sequence["DataFrame"], evaluation: Evaluation) -> "DataFrame":
    if not (evaluation.keys or evaluation.is_row_by_row):
        # A task without any row would not be run, but a query may have a result even so.
        inputs = [*inputs, sql("SELECT -1 AS input")]
    rows, *others = inputs
    for other in others:
        rows = rows.unionByName(other, allowMissingColumns=True)
    if not evaluation.is_row_by_row:
        rows = together(rows, [f"k{place}" for place in range(evaluation.keys)])
    return rows.mapInArrow(evaluator(evaluation), result_type(evaluation.types))
