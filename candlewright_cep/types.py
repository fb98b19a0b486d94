"""The types of the trigger language and how they map to Arrow.

Inside the evaluator, booleans are bool, INT and BIGINT are int64, DOUBLE is float64, TIMESTAMP, DATE and INTERVAL are
int64 nanoseconds (UTC), STRING and DECIMAL stay Arrow arrays. The unit of a timestamp is part of its type, so that a
result has the precision of its input.
"""

import enum
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1, "D": 86_400_000_000_000}


class Kind(enum.Enum):
    NULL = "unknown"
    BOOLEAN = "boolean"
    INT = "int"
    BIGINT = "bigint"
    DECIMAL = "decimal"
    DOUBLE = "double"
    STRING = "string"
    TIMESTAMP = "timestamp"
    DATE = "date"
    INTERVAL = "interval"
    OPAQUE = "opaque"

    # Types are keys of many lookups, and the hash of a member of an Enum is computed by a Python function.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class SqlType:
    """One type. `unit` and `zone` are only for TIMESTAMP; `arrow` is only for DECIMAL, whose digits it has, and for
    columns that are passed through unread. `is_text`: whether values are stored as an Arrow array instead of a numpy
    one.
    """

    kind: Kind
    unit: str = ""
    zone: str | None = None
    arrow: Any = None
    is_text: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_text", self.kind in (Kind.STRING, Kind.DECIMAL, Kind.OPAQUE))

    def __str__(self) -> str:
        if self.kind is Kind.TIMESTAMP:
            return f"timestamp({ {'s': 0, 'ms': 3, 'us': 6, 'ns': 9}[self.unit] })"
        if self.kind is Kind.DECIMAL:
            return f"decimal({self.precision}, {self.scale})"
        return str(self.arrow) if self.kind is Kind.OPAQUE else self.kind.value

    @property
    def is_numeric(self) -> bool:
        return self.kind in _NUMERIC

    @property
    def is_measured(self) -> bool:
        """Whether values are stored as numpy numbers with a meaningful distance between them."""
        return self.is_time or self.kind in (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.INTERVAL)

    @property
    def is_integer(self) -> bool:
        return self.kind in (Kind.INT, Kind.BIGINT)

    @property
    def is_time(self) -> bool:
        return self.kind in (Kind.TIMESTAMP, Kind.DATE)

    @property
    def precision(self) -> int:
        """The number of digits of a DECIMAL."""
        return int(self.arrow.precision)

    @property
    def scale(self) -> int:
        """The number of digits after the point of a DECIMAL."""
        return int(self.arrow.scale)


_NUMERIC = (Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE)

NULL = SqlType(Kind.NULL)
BOOLEAN = SqlType(Kind.BOOLEAN)
INT = SqlType(Kind.INT)
BIGINT = SqlType(Kind.BIGINT)
DOUBLE = SqlType(Kind.DOUBLE)
STRING = SqlType(Kind.STRING)
DATE = SqlType(Kind.DATE)
INTERVAL = SqlType(Kind.INTERVAL)


@lru_cache(maxsize=64)
def timestamp(unit: str, zone: str | None = None) -> SqlType:
    return SqlType(Kind.TIMESTAMP, unit, zone)


#: The most digits that a DECIMAL may have.
MOST_DIGITS = 38


def decimal(precision: int, scale: int) -> SqlType:
    """A DECIMAL type; `precision` is capped at MOST_DIGITS."""
    return SqlType(Kind.DECIMAL, arrow=pa.decimal128(min(precision, MOST_DIGITS), scale))


def as_decimal(kind: SqlType) -> SqlType:
    """The DECIMAL type that can hold every value of a DECIMAL or integer type."""
    return kind if kind.kind is Kind.DECIMAL else decimal(10 if kind.kind is Kind.INT else 19, 0)


def from_arrow(kind: pa.DataType) -> SqlType:
    """The SQL type of an Arrow column; columns of unknown Arrow types can be passed on but not used in expressions."""
    plain = _PLAIN.get(kind.id)
    if plain is not None:
        return plain
    checks = pa.types
    if checks.is_timestamp(kind):
        return timestamp(kind.unit, kind.tz)
    if checks.is_dictionary(kind) and from_arrow(kind.value_type) == STRING:
        return STRING
    if checks.is_decimal(kind):
        fits = kind.precision <= MOST_DIGITS and 0 <= kind.scale <= kind.precision
        return decimal(kind.precision, kind.scale) if fits else DOUBLE
    return SqlType(Kind.OPAQUE, arrow=kind)


#: By Arrow's number of a type, those that have no parameters.
_PLAIN = {
    arrow.id: kind
    for kind, alike in {
        NULL: [pa.null()],
        BOOLEAN: [pa.bool_()],
        INT: [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()],
        BIGINT: [pa.int64(), pa.uint32(), pa.uint64()],
        DOUBLE: [pa.float16(), pa.float32(), pa.float64()],
        STRING: [pa.string(), pa.large_string(), pa.string_view()],
        DATE: [pa.date32(), pa.date64()],
        INTERVAL: [pa.duration("ns")],
    }.items()
    for arrow in alike
}


def to_arrow(kind: SqlType) -> pa.DataType:
    if kind.kind is Kind.TIMESTAMP:
        return pa.timestamp(kind.unit, kind.zone)
    if kind.kind in (Kind.OPAQUE, Kind.DECIMAL):
        return kind.arrow
    return _ARROW[kind.kind]


_ARROW = {
    Kind.NULL: pa.null(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.DATE: pa.date32(),
    Kind.INTERVAL: pa.duration("ns"),
}


def flink_name(kind: SqlType) -> str:
    """The Flink SQL name of a type, as CEPTriggerEvent.column_types carries it."""
    if kind.kind is Kind.TIMESTAMP:
        return f"TIMESTAMP_LTZ({ {'s': 0, 'ms': 3, 'us': 6, 'ns': 9}[kind.unit] })"
    if kind.kind is Kind.DECIMAL:
        return str(kind).upper()
    names: dict[Kind, str] = {
        Kind.NULL: "STRING",
        Kind.INT: "INT",
        Kind.INTERVAL: "BIGINT",
        Kind.OPAQUE: "BYTES",
    }
    return names.get(kind.kind, str(kind.kind.value).upper())


_FINENESS = ("s", "ms", "us", "ns")


def common(left: SqlType, right: SqlType) -> SqlType | None:
    """The type to which both sides are converted implicitly, or None: numbers widen, times take the finer unit. STRUCTs
    and arrays do so in their parts; the fields have the names of the left side.
    """
    if left == right:
        return left
    if left.kind is Kind.NULL:
        return right
    if right.kind is Kind.NULL:
        return left
    if left.is_numeric and right.is_numeric:
        if Kind.DECIMAL in (left.kind, right.kind) and DOUBLE not in (left, right):
            one, other = as_decimal(left), as_decimal(right)
            scale = max(one.scale, other.scale)
            return decimal(max(one.precision - one.scale, other.precision - other.scale) + scale, scale)
        if DOUBLE in (left, right):
            return DOUBLE
        return BIGINT
    if left.is_time and right.is_time:
        if left.kind is Kind.DATE:
            return right
        if right.kind is Kind.DATE:
            return left
        unit = max(left.unit, right.unit, key=_FINENESS.index)
        return timestamp(unit, left.zone or right.zone)
    if is_struct(left) and is_struct(right) and left.arrow.num_fields == right.arrow.num_fields:
        fields = [
            common(from_arrow(one.type), from_arrow(other.type))
            for one, other in zip(left.arrow, right.arrow, strict=True)
        ]
        known = [to_arrow(kind) for kind in fields if kind is not None]
        if len(known) == len(fields):
            return SqlType(
                Kind.OPAQUE, arrow=pa.struct([part.with_type(k) for part, k in zip(left.arrow, known, strict=True)])
            )
    if is_array(left) and is_array(right):
        item = common(from_arrow(left.arrow.value_type), from_arrow(right.arrow.value_type))
        return None if item is None else SqlType(Kind.OPAQUE, arrow=pa.list_(to_arrow(item)))
    return None


def is_struct(kind: SqlType) -> bool:
    return kind.kind is Kind.OPAQUE and bool(pa.types.is_struct(kind.arrow))


def is_array(kind: SqlType) -> bool:
    return kind.kind is Kind.OPAQUE and bool(pa.types.is_list(kind.arrow) or pa.types.is_large_list(kind.arrow))
