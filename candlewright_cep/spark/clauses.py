"""MATCH_RECOGNIZE in Spark SQL: a clause becomes a view that runs on the executors; Spark runs the text around it.

So the query around a clause may use all of Spark SQL: joins, WITH, aggregates, UNION, INSERT. A shuffle brings the rows
of each partition together; without PARTITION BY one task takes all rows.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from candlewright_cep.binding.expressions import Column
from candlewright_cep.engine import compile_query
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.matching.recognize import RecognizePlan
from candlewright_cep.spark.groups import Recognition, recognizer
from candlewright_cep.spark.statement import Clause, Statement
from candlewright_cep.spark.streams import matches_of_stream
from candlewright_cep.spark.words import quoted
from candlewright_cep.types import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

__all__ = ["frame_of", "matches_in"]

_PARAMETER = re.compile(r":([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)\}")


def frame_of(
    session: "SparkSession | ConnectSession",
    text: str,
    args: Mapping[str, Any] | list[Any] | None = None,
    *,
    numbered: str = "",
    run: Any = None,
) -> "DataFrame":
    """The result of a Spark SQL text that may contain MATCH_RECOGNIZE. Temporary views of `session` hold the matches.

    `args`: as for `SparkSession.sql`; clauses may use named ones too. `numbered`: see `Recognition`. `run`: executes
    texts without clauses, in place of `session.sql`. Raises TriggerRejected, with the position in `text`, for an
    invalid clause, and PySparkException for other errors.
    """
    return _frame(session, Statement(text), args, numbered, run or session.sql)


def matches_in(rows: "DataFrame", text: str, args: Mapping[str, Any] | None = None) -> "DataFrame":
    """`frame_of` a text that reads `rows` under the name before MATCH_RECOGNIZE, and under each name that the session
    does not know. The text may be the clause alone.
    """
    session = rows.sparkSession
    statement = Statement(text)
    statement.wrap()
    clause = statement.clause()
    if clause is None:
        raise TriggerRejected("the text has no MATCH_RECOGNIZE", hint="SELECT * FROM rows MATCH_RECOGNIZE (...)")
    with _view(rows) as view:
        for name, is_matched in statement.tables().items():
            if is_matched or not session.catalog.tableExists(quoted(name)):
                statement.define(name, f"SELECT * FROM {view}")
        return _frame(session, statement, args, "", getattr(session.sql, "unchanged", session.sql))


def _frame(
    session: "SparkSession | ConnectSession", statement: Statement, args: Any, numbered: str, run: Any
) -> "DataFrame":
    def sql(text: str) -> "DataFrame":
        found: DataFrame = run(text, args) if args else run(text)
        return found

    clause = statement.clause()
    if clause is None:
        return sql(statement.text)
    with _view(_matches(sql, clause, args, numbered), keeps=_keeps_views(statement.text)) as view:
        statement.replace(clause, view)
        return _frame(session, statement, args, numbered, run)


@contextmanager
def _view(rows: "DataFrame", *, keeps: bool = False) -> Iterator[str]:
    """A temporary view that exists until a text that reads it has been analysed. Spark Connect analyses when a query
    runs.
    """
    name = f"match_recognize_{uuid4().hex[:12]}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        if not keeps and "connect" not in type(rows).__module__:
            rows.sparkSession.catalog.dropTempView(name)


def _keeps_views(text: str) -> bool:
    """Whether the text creates a view, which Spark analyses again whenever it is read."""
    return re.match(r"\s*(CREATE|ALTER|CACHE)\b", text, re.IGNORECASE) is not None


def _matches(sql: Any, clause: Clause, args: Any, numbered: str) -> "DataFrame":
    rows: DataFrame = sql(clause.query())
    schema = _arrow_schema(rows)
    if len({name.lower() for name in schema.names}) < len(schema.names):
        raise TriggerRejected(
            "the table before MATCH_RECOGNIZE has two columns of one name", clause.line, clause.column,
            hint="name its columns in a sub-query",
        )  # fmt: skip
    text, name = clause.for_matcher(), clause.alias
    parameters = _parameters(clause, args)
    compiled = compile_query(text, {name: schema}, parameters, default_table=name)
    plan = compiled.matches[0].recognize
    types = _types(plan, schema)
    if not types:
        raise TriggerRejected("the result has no columns", clause.line, clause.column, hint="add MEASURES")
    keys = tuple(schema.names[place] for place in plan.partition)
    for condition, names in clause.conditions:
        # Leaves out whole partitions; the query around the clause repeats the condition, which changes nothing.
        if names <= {key.lower() for key in keys}:
            rows = rows.where(condition)
    rows = _narrowed(rows, clause, plan, schema, numbered)
    recognition = Recognition(
        text=text,
        name=name,
        schema=_arrow_schema(rows),
        keys=keys,
        types=tuple(types),
        parameters=parameters,
        first=_first(plan, schema),
        numbered=numbered,
    )
    result = StructType(
        [StructField(f"c{place}", from_arrow_type(kind, prefer_timestamp_ntz=True)) for place, kind in enumerate(types)]
    )
    if rows.isStreaming:
        found = matches_of_stream(rows, recognition, result)
    else:
        found = _together(rows, keys).mapInArrow(recognizer(recognition), result)
    return found.toDF(*(column for column, _ in compiled.columns))


def _arrow_schema(rows: "DataFrame") -> pa.Schema:
    # The parameter exists from Spark 4.2 on; earlier versions use UTC anyway.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(rows.schema, **zone)


def _first(plan: RecognizePlan, schema: pa.Schema) -> str:
    first = plan.order[0].expression if plan.order else None
    return schema.names[first.index] if isinstance(first, Column) else ""


def _parameters(clause: Clause, args: Any) -> dict[str, str]:
    """The parameters that the clause uses."""
    if not isinstance(args, Mapping):
        return {}
    named = {one or other for one, other in _PARAMETER.findall(clause.text)}
    return {name: _as_text(args[name]) for name in named if args.get(name) is not None}


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _types(plan: RecognizePlan, schema: pa.Schema) -> list[pa.DataType]:
    """Columns that are passed on keep Spark's types; times have microseconds."""
    passed = [schema.field(place).type for place in plan.columns]
    measures = [_for_spark(to_arrow(measure.expression.type)) for measure in plan.measures]
    return [*passed[: plan.measures_at], *measures, *passed[plan.measures_at :]]


def _for_spark(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    return pa.string() if pa.types.is_null(kind) else kind


def _narrowed(rows: "DataFrame", clause: Clause, plan: RecognizePlan, schema: pa.Schema, numbered: str) -> "DataFrame":
    """Drop the columns that nothing in the clause names."""
    if plan.is_all_rows:
        return rows
    named = clause.names() | {numbered}
    wanted = [name for name in schema.names if name.lower() in named] or schema.names[:1]
    return rows.select(*map(quoted, wanted))


def _together(rows: "DataFrame", keys: tuple[str, ...]) -> "DataFrame":
    """Each task gets whole partitions, one after another."""
    if not keys:
        return rows.repartition(1)
    columns = [quoted(key) for key in keys]
    return rows.repartition(*columns).sortWithinPartitions(*columns)
