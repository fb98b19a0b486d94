"""Rows, types and parameters between Spark and the engine."""

import re
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from candlewright_cep.spark.words import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["arrow_schema", "for_spark", "parameters_of", "result_type", "together"]

_PARAMETER = re.compile(r":([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)\}")


def arrow_schema(rows: "DataFrame") -> pa.Schema:
    # The parameter exists from Spark 4.2 on; earlier versions use UTC anyway.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(rows.schema, **zone)


def result_type(types: Sequence[pa.DataType]) -> StructType:
    """Columns c0, c1 and so on."""
    return StructType(
        [StructField(f"c{place}", from_arrow_type(kind, prefer_timestamp_ntz=True)) for place, kind in enumerate(types)]
    )


def parameters_of(text: str, args: Any) -> dict[str, str]:
    """Those of the named arguments of `SparkSession.sql` that the text uses."""
    if not isinstance(args, Mapping):
        return {}
    named = {one or other for one, other in _PARAMETER.findall(text)}
    return {name: _as_text(args[name]) for name in named if args.get(name) is not None}


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def for_spark(kind: pa.DataType) -> pa.DataType:
    """The type that Spark has for a result's column: times have microseconds."""
    if pa.types.is_list(kind):
        return pa.list_(for_spark(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(for_spark(part.type)) for part in kind])
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    return pa.string() if pa.types.is_null(kind) else kind


def together(rows: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """Each task gets whole partitions, one after another."""
    if not keys:
        return rows.repartition(1)
    columns = [quoted(key) for key in keys]
    return rows.repartition(*columns).sortWithinPartitions(*columns)
