"""Bounds on a plan's inputs as a condition for Spark."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from candlewright_cep.planning.pushdown import Bound
from candlewright_cep.spark.words import quoted

__all__ = ["any_of"]


def any_of(lists: Sequence[Sequence[Bound]], schema: pa.Schema) -> str:
    """That all bounds of one of the lists hold, as far as Spark can check them; empty if it needs every row."""
    found = [[text for bound in bounds for text in _texts(bound, schema.field(bound.column))] for bounds in lists]
    if not all(found):
        return ""
    return " OR ".join(dict.fromkeys(f"({' AND '.join(texts)})" for texts in found))


def _texts(bound: Bound, field: pa.Field) -> Iterator[str]:
    column = quoted(field.name)
    if pa.types.is_timestamp(field.type):
        # A time without a zone would be compared in that of the session.
        if field.type.tz is None:
            return
        # Whole microseconds outside the bounds, which are in nanoseconds.
        ends = (bound.least, bound.most) if not bound.among else (min(bound.among), max(bound.among))
        least = None if ends[0] is None else f"timestamp_micros({ends[0] // 1000})"
        most = None if ends[1] is None else f"timestamp_micros({-(-ends[1] // 1000)})"
    elif bound.among:
        # Text as the hexadecimal digits of its bytes: none of the query's reaches Spark's parser.
        is_text = isinstance(bound.among[0], str)
        values = (f"CAST(X'{value.encode().hex()}' AS STRING)" if is_text else str(int(value)) for value in bound.among)
        yield f"{column} IN ({', '.join(values)})"
        return
    else:
        least, most = (None if end is None else str(int(end)) for end in (bound.least, bound.most))
    if least is not None:
        yield f"{column} >= {least}"
    if most is not None:
        yield f"{column} <= {most}"
