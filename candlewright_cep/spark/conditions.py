"""Conditions of a plan as texts for Spark, which may select more rows than the plan does."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from candlewright_cep.binding.expressions import Apply, Column, Constant, Expression
from candlewright_cep.spark.words import quoted

__all__ = ["any_of"]

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def any_of(lists: Sequence[Sequence[Expression]], schema: pa.Schema) -> str:
    """That all conditions of one of the lists hold, as far as Spark can check them; empty if it needs every row."""
    found = [list(dict.fromkeys(text for part in conditions for text in _texts(part, schema))) for conditions in lists]
    if not all(found):
        return ""
    return " OR ".join(dict.fromkeys(f"({' AND '.join(texts)})" for texts in found))


def _texts(part: Expression, schema: pa.Schema) -> Iterator[str]:
    assert isinstance(part, Apply)
    function, (first, *rest) = part.function, part.arguments
    if isinstance(first, Constant):
        function, first, rest = _MIRRORED[function], rest[0], [first]
    assert isinstance(first, Column)
    field = schema.field(first.index)
    values = [node.value for node in rest if isinstance(node, Constant)]
    if pa.types.is_timestamp(field.type):
        if field.type.tz is not None:
            yield from _of_time(quoted(field.name), function, values)
    elif pa.types.is_string(field.type):
        # Bytes in hexadecimal digits: no text of the query reaches Spark's parser.
        if function in ("=", "IN"):
            texts = ", ".join(f"CAST(X'{value.encode().hex()}' AS STRING)" for value in values)
            yield f"{quoted(field.name)} IN ({texts})"
    elif function == "IN":
        yield f"{quoted(field.name)} IN ({', '.join(map(str, map(int, values)))})"
    elif function == "BETWEEN":
        yield f"{quoted(field.name)} BETWEEN {int(values[0])} AND {int(values[1])}"
    else:
        yield f"{quoted(field.name)} {function} {int(values[0])}"


def _of_time(column: str, function: str, values: Sequence[int]) -> Iterator[str]:
    """Bounds in whole microseconds outside those of the condition, which has nanoseconds."""
    if function in ("=", "IN", "BETWEEN", ">", ">="):
        yield f"{column} >= timestamp_micros({min(values) // 1000})"
    if function in ("=", "IN", "BETWEEN", "<", "<="):
        yield f"{column} <= timestamp_micros({-(-max(values) // 1000)})"
