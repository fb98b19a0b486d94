"""MATCH_RECOGNIZE in Spark SQL: a clause becomes a view that runs on the executors; Spark runs the text around it.

So the query around a clause may be anything that Spark knows: joins, WITH, aggregates, UNION, INSERT. Rows of a
clause's partitions meet by a shuffle; without PARTITION BY one task takes all rows.
"""

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructField, StructType, VariantType

from candlewright.wire.errors import TriggerRejected
from candlewright_cep import compile_query
from candlewright_cep.matching.recognize import RecognizePlan
from candlewright_cep.types import to_arrow
from flink_replacement_spark.sql.recognize_task import recognizer
from flink_replacement_spark.sql.recognize_text import Clause, Statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

__all__ = ["frame_of"]

#: Orders the trades of one time as the exchange did; kept even where the clause does not name it.
_TRADE_ID = "trade_id"
_WITHOUT_ORDER = (ArrayType, BinaryType, MapType, StructType, VariantType)


def frame_of(session: "SparkSession", text: str) -> "DataFrame":
    """The result of a Spark SQL text that may hold MATCH_RECOGNIZE. Temporary views of `session` carry the matches.

    Raises TriggerRejected, placed in `text`, for a clause that cannot be; PySparkException for the rest.
    """
    statement = Statement(text)
    while (clause := statement.clause()) is not None:
        view = f"match_recognize_{uuid4().hex[:12]}"
        _matches(session, clause).createOrReplaceTempView(view)
        statement.replace(clause, view)
    return session.sql(statement.text)


def _matches(session: "SparkSession", clause: Clause) -> "DataFrame":
    rows = session.sql(clause.query())
    schema = to_arrow_schema(rows.schema)
    if len({name.lower() for name in schema.names}) < len(schema.names):
        raise TriggerRejected(
            "the table before MATCH_RECOGNIZE has two columns of one name", clause.line, clause.column,
            hint="name its columns in a sub-query",
        )  # fmt: skip
    text, name = clause.for_matcher(), clause.alias
    compiled = compile_query(text, {name: schema}, default_table=name)
    plan = compiled.matches[0].recognize
    types = _types(plan, schema)
    if not types:
        raise TriggerRejected("the result has no columns", clause.line, clause.column, hint="add MEASURES")
    keys = [schema.names[place] for place in plan.partition]
    for condition, names in clause.conditions:
        # Whole partitions are left out; the query around asks again, which changes nothing.
        if names <= {key.lower() for key in keys}:
            rows = rows.where(condition)
    rows = _sorted(_narrowed(rows, clause, plan, schema), keys)
    fields = [StructField(f"c{place}", from_arrow_type(kind)) for place, kind in enumerate(types)]
    found = rows.mapInArrow(recognizer(text, name, keys, types), StructType(fields))
    return found.toDF(*(column for column, _ in compiled.columns))


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


def _narrowed(rows: "DataFrame", clause: Clause, plan: RecognizePlan, schema: pa.Schema) -> "DataFrame":
    """Without the columns that nothing in the clause names."""
    if plan.is_all_rows:
        return rows
    named = clause.names() | {_TRADE_ID}
    wanted = [name for name in schema.names if name.lower() in named] or schema.names[:1]
    return rows.select(*map(_quoted, wanted))


def _sorted(rows: "DataFrame", keys: list[str]) -> "DataFrame":
    """Each task gets whole partitions. The matcher puts them into the order of ORDER BY and leaves ties as they stand,
    so that these are in one order whenever the query runs."""
    from pyspark.sql.connect.functions import col, length

    together = rows.repartition(*(col(_quoted(key)) for key in keys)) if keys else rows.repartition(1)
    order: list[Any] = [col(_quoted(key)) for key in keys]
    kinds: dict[str, DataType] = {field.name: field.dataType for field in rows.schema.fields}
    for name in kinds:
        if name.lower() == _TRADE_ID:
            # Numbers as texts: a longer one is larger.
            order += [length(col(_quoted(name)).cast("string")), col(_quoted(name))]
    order += [
        col(_quoted(name))
        for name, kind in kinds.items()
        if not isinstance(kind, _WITHOUT_ORDER) and name not in keys and name.lower() != _TRADE_ID
    ]
    return together.sortWithinPartitions(*order) if order else together


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
