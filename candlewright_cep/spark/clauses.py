"""MATCH_RECOGNIZE in Spark SQL: a clause becomes a view that runs on the executors; Spark runs the text around it.

So the query around a clause may use all of Spark SQL: joins, WITH, aggregates, UNION, INSERT. A shuffle brings the rows
of each partition together; without PARTITION BY one task takes all rows.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from candlewright_cep.binding.expressions import Column
from candlewright_cep.engine import compile_query
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.matching.recognize import RecognizePlan
from candlewright_cep.planning.candle_views import CANDLE_VIEWS
from candlewright_cep.spark.groups import Recognition, recognizer
from candlewright_cep.spark.query_frames import frame_of_query
from candlewright_cep.spark.schemas import arrow_schema, for_spark, parameters_of, result_type, together
from candlewright_cep.spark.selects import Query
from candlewright_cep.spark.statement import Clause, Statement
from candlewright_cep.spark.streams import matches_of_stream
from candlewright_cep.spark.words import quoted
from candlewright_cep.types import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

__all__ = ["frame_of", "matches_in"]


def frame_of(
    session: "SparkSession | ConnectSession",
    text: str,
    args: Mapping[str, Any] | list[Any] | None = None,
    *,
    numbered: str = "",
    run: Any = None,
    views: Mapping[str, str] | None = None,
) -> "DataFrame":
    """The result of a Spark SQL text that may contain MATCH_RECOGNIZE. Temporary views of `session` hold the matches.

    `args`: as for `SparkSession.sql`; clauses may use named ones too. `numbered`: see `Recognition`. `run`: executes
    texts without clauses, in place of `session.sql`. `views`: the texts of registered views by name; if given, even
    empty, the text may also contain queries in the trigger language. Raises TriggerRejected, with the position in
    `text`, for an invalid clause or query, and PySparkException for other errors.
    """
    known = None if views is None else {name.lower(): view for name, view in views.items()}
    return _frame(_Texts(run or session.sql, args, numbered, known), Statement(text))


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
        return _frame(_Texts(getattr(session.sql, "unchanged", session.sql), args), statement)


@dataclass(frozen=True, slots=True)
class _Texts:
    """How the parts of a text are run; see `frame_of`."""

    run: Callable[..., "DataFrame"]
    args: Any
    numbered: str = ""
    views: Mapping[str, str] | None = None

    def sql(self, text: str) -> "DataFrame":
        return self.run(text, self.args) if self.args else self.run(text)


def _frame(texts: _Texts, statement: Statement) -> "DataFrame":
    views = texts.views
    query = None if views is None else statement.query({*views, *CANDLE_VIEWS})
    clause = statement.clause()
    part: Clause | Query
    if clause is not None and (query is None or clause.end <= query.start):
        part, rows = clause, _matches(texts, clause)
    elif query is not None and views is not None:
        part, rows = query, frame_of_query(texts.sql, query, texts.args, numbered=texts.numbered, views=views)
    else:
        return texts.sql(statement.text)
    with _view(rows, keeps=_keeps_views(statement.text)) as view:
        statement.replace(part, view)
        return _frame(texts, statement)


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


def _matches(texts: _Texts, clause: Clause) -> "DataFrame":
    rows, numbered = texts.sql(clause.query()), texts.numbered
    schema = arrow_schema(rows)
    if len({name.lower() for name in schema.names}) < len(schema.names):
        raise TriggerRejected(
            "the table before MATCH_RECOGNIZE has two columns of one name", clause.line, clause.column,
            hint="name its columns in a sub-query",
        )  # fmt: skip
    text, name = clause.for_matcher(), clause.alias
    parameters = parameters_of(clause.text, texts.args)
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
        schema=arrow_schema(rows),
        keys=keys,
        types=tuple(types),
        parameters=parameters,
        first=_first(plan, schema),
        numbered=numbered,
    )
    result = result_type(types)
    if rows.isStreaming:
        found = matches_of_stream(rows, recognition, result)
    else:
        found = together(rows, keys).mapInArrow(recognizer(recognition), result)
    return found.toDF(*(column for column, _ in compiled.columns))


def _first(plan: RecognizePlan, schema: pa.Schema) -> str:
    first = plan.order[0].expression if plan.order else None
    return schema.names[first.index] if isinstance(first, Column) else ""


def _types(plan: RecognizePlan, schema: pa.Schema) -> list[pa.DataType]:
    """Columns that are passed on keep Spark's types; times have microseconds."""
    passed = [schema.field(place).type for place in plan.columns]
    measures = [for_spark(to_arrow(measure.expression.type)) for measure in plan.measures]
    return [*passed[: plan.measures_at], *measures, *passed[plan.measures_at :]]


def _narrowed(rows: "DataFrame", clause: Clause, plan: RecognizePlan, schema: pa.Schema, numbered: str) -> "DataFrame":
    """Drop the columns that nothing in the clause names."""
    if plan.is_all_rows:
        return rows
    named = clause.names() | {numbered}
    wanted = [name for name in schema.names if name.lower() in named] or schema.names[:1]
    return rows.select(*map(quoted, wanted))
