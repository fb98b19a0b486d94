"""Functions of times, all in UTC."""

from collections.abc import Callable, Sequence

import numpy as np

from candlewright_cep.functions.signatures import Mismatch, Signature, fits
from candlewright_cep.functions.usage import Declared, Extent, Usage
from candlewright_cep.times import UNITS
from candlewright_cep.types import BIGINT, DOUBLE, INTERVAL, NANOSECONDS, Kind, SqlType, timestamp
from candlewright_cep.vector import Array, Bools, Vector

_DAY = UNITS["DAY"]
# The week that contains the epoch starts on Monday 1969-12-29.
_MONDAY = -3 * _DAY
# The range of a time in nanoseconds, a little less than 64 bits.
_LATEST = 9.2e18
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}

_Implementation = Callable[[Sequence[Vector], SqlType, str], Vector]


def moved(kind: SqlType) -> SqlType:
    """The type of a time plus an interval."""
    return timestamp("ms") if kind.kind is Kind.DATE else kind


def rescaled(vector: Vector, target: SqlType) -> Vector:
    """The same times in the precision of `target`, rounded down."""
    unit = NANOSECONDS["D" if target.kind is Kind.DATE else target.unit]
    values = vector.values - vector.values % unit if unit > 1 else vector.values
    return Vector(target, values, vector.valid, length=vector.length, constant=vector.constant)


def _calendar(values: Array, unit: str) -> Array:
    """Years or months since 1970 of nanosecond times."""
    days = np.floor_divide(values, _DAY).astype("datetime64[D]")
    found: Array = days.astype(f"datetime64[{unit}]").astype(np.int64)
    return found


def field(values: Array, name: str) -> Array:
    """One field of nanosecond times."""
    within = np.mod(values, _DAY)
    days = np.floor_divide(values, _DAY)
    months = _calendar(values, "M") if name in ("MONTH", "QUARTER", "DAY", None) else values
    if name == "YEAR":
        return _calendar(values, "Y") + 1970
    if name == "QUARTER":
        quarter: Array = np.mod(months, 12) // 3 + 1
        return quarter
    if name == "MONTH":
        month: Array = np.mod(months, 12) + 1
        return month
    if name == "DAY":
        first: Array = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        return days - first + 1
    if name == "DOY":
        start: Array = _calendar(values, "Y").astype("datetime64[Y]").astype("datetime64[D]").astype(np.int64)
        day_of_year: Array = days - start + 1
        return day_of_year
    if name == "DOW":
        weekday: Array = np.mod(days + 3, 7) + 1
        return weekday
    if name == "WEEK":
        thursday = np.floor_divide(days + 3, 7) * 7
        year: Array = thursday.astype("datetime64[D]").astype("datetime64[Y]").astype("datetime64[D]").astype(np.int64)
        week: Array = (thursday - year) // 7 + 1
        return week
    if name == "ISOYEAR":
        iso_year: Array = _calendar((np.floor_divide(days + 3, 7) * 7) * _DAY, "Y") + 1970
        return iso_year
    if name == "EPOCH":
        seconds: Array = np.floor_divide(values, UNITS["SECOND"])
        return seconds
    size, cycle = {
        "HOUR": ("HOUR", 24),
        "MINUTE": ("MINUTE", 60),
        "SECOND": ("SECOND", 60),
        "MILLISECOND": ("MILLISECOND", 1000),
        "MICROSECOND": ("MICROSECOND", 1_000_000),
        "NANOSECOND": ("NANOSECOND", 1_000_000_000),
    }[name]
    found: Array = np.mod(within // UNITS[size], cycle)
    return found


_FIELDS = {
    "YEAR": "YEAR", "QUARTER": "QUARTER", "MONTH": "MONTH", "WEEK": "WEEK", "DAY": "DAY", "DAY_OF_MONTH": "DAY",
    "DAY_OF_WEEK": "DOW", "DOW": "DOW", "ISODOW": "DOW", "ISOYEAR": "ISOYEAR", "YEAR_OF_WEEK": "ISOYEAR",
    "YOW": "ISOYEAR", "DAY_OF_YEAR": "DOY", "DOY": "DOY", "HOUR": "HOUR", "MINUTE": "MINUTE",
    "SECOND": "SECOND", "MILLISECOND": "MILLISECOND", "MICROSECOND": "MICROSECOND", "NANOSECOND": "NANOSECOND",
    "EPOCH": "EPOCH",
}  # fmt: skip


#: The values of the fields that have bounds.
FIELD_EXTENTS = {
    "QUARTER": Extent(1, 4), "MONTH": Extent(1, 12), "WEEK": Extent(1, 53), "DAY": Extent(1, 31), "DOW": Extent(1, 7),
    "DOY": Extent(1, 366), "HOUR": Extent(0, 23), "MINUTE": Extent(0, 59), "SECOND": Extent(0, 59),
    "MILLISECOND": Extent(0, 999), "MICROSECOND": Extent(0, 999_999), "NANOSECOND": Extent(0, 999_999_999),
}  # fmt: skip


def field_name(text: str) -> str | None:
    return _FIELDS.get(text.upper())


def _extract(name: str) -> _Implementation:
    def run(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
        source = arguments[0]
        return Vector(
            kind, field(source.values, name or extra), source.valid, length=source.length, constant=source.constant
        )

    return run


def truncated(values: Array, unit: str) -> Array:
    """Times cut to the start of their unit."""
    if unit in UNITS:
        start = _MONDAY if unit == "WEEK" else 0
        cut: Array = values - np.mod(values - start, UNITS[unit])
        return cut
    count = _calendar(values, "M")
    count = count - np.mod(count, _MONTHS[unit])
    found: Array = count.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) * _DAY
    return found


def _date_trunc(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    source = arguments[0]
    return Vector(kind, truncated(source.values, extra), source.valid, length=source.length, constant=source.constant)


def _date_ceil(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    source = arguments[0]
    cut = truncated(source.values, extra)
    following = cut + UNITS[extra] if extra in UNITS else _months_later(cut, np.int64(_MONTHS[extra]))
    return Vector(
        kind,
        np.where(cut == source.values, cut, following),
        source.valid,
        length=source.length,
        constant=source.constant,
    )


def _months_later(values: Array, count: Array | np.int64) -> Array:
    """Times moved by calendar months; a day that the month lacks becomes its last day."""
    months = (_calendar(values, "M") + count).astype("datetime64[M]")
    first: Array = months.astype("datetime64[D]").astype(np.int64)
    size = (months + 1).astype("datetime64[D]").astype(np.int64) - first
    day = np.minimum(field(values, "DAY"), size)
    found: Array = (first + day - 1) * _DAY + np.mod(values, _DAY)
    return found


def _both(arguments: Sequence[Vector]) -> Bools | None:
    one, other = arguments[0].valid, arguments[1].valid
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _finish(arguments: Sequence[Vector], kind: SqlType, values: Array, valid: Bools | None) -> Vector:
    length = arguments[0].length
    if all(argument.constant for argument in arguments):
        return Vector(kind, values, valid, length=length, constant=True)
    full = np.ascontiguousarray(np.broadcast_to(values, (length,)))
    return Vector(kind, full, None if valid is None else np.ascontiguousarray(np.broadcast_to(valid, (length,))))


def _date_diff(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    start, end = arguments[0].values, arguments[1].values
    if extra in UNITS:
        apart = end - start
        values = np.sign(apart) * (np.abs(apart) // UNITS[extra])
    else:
        # Whole months between the two: the most by which the earlier can be moved without passing the later.
        first, last = np.minimum(start, end), np.maximum(start, end)
        count = _calendar(last, "M") - _calendar(first, "M")
        count = count - (_months_later(first, count) > last)
        values = np.where(start <= end, 1, -1) * (count // _MONTHS[extra])
    return _finish(arguments, kind, values, _both(arguments))


def _date_add(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    amount, source = arguments[0].values, arguments[1].values
    valid = _both(arguments)
    size = UNITS[extra] if extra in UNITS else _MONTHS[extra] * 31 * _DAY
    fits_in = np.abs(source.astype(np.float64) + amount.astype(np.float64) * size) < _LATEST
    counted = np.where(fits_in, amount, 0)
    values = source + counted * size if extra in UNITS else _months_later(source, counted * _MONTHS[extra])
    if not fits_in.all():
        valid = fits_in if valid is None else valid & fits_in
    return _finish(arguments, kind, values, valid)


def _to_unixtime(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    source = arguments[0]
    return Vector(kind, source.values / UNITS["SECOND"], source.valid, length=source.length, constant=source.constant)


def _from_unixtime(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    source = arguments[0]
    with np.errstate(all="ignore"):
        scaled = np.rint(source.values * 1000.0)
        usable = np.abs(scaled) < 9.2e15 / 1000
        values = np.where(usable, scaled, 0).astype(np.int64) * UNITS["MILLISECOND"]
    valid = source.valid if usable.all() else (usable if source.valid is None else source.valid & usable)
    return Vector(kind, values, valid, length=source.length, constant=source.constant)


def _seconds(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    source = arguments[0]
    return Vector(kind, source.values / UNITS["SECOND"], source.valid, length=source.length, constant=source.constant)


def _time_first(result: Callable[[SqlType], SqlType]) -> Signature:
    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        if len(types) != 1:
            raise Mismatch
        kind = timestamp("ms") if types[0].kind is Kind.NULL else types[0]
        if not kind.is_time:
            raise Mismatch
        return [kind], result(kind)

    return resolve


def _two_times(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 2 or not all(kind.is_time or kind.kind is Kind.NULL for kind in types):
        raise Mismatch
    return [timestamp("ms") if kind.kind is Kind.NULL else kind for kind in types], BIGINT


def _amount_and_time(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 2 or not fits(types[0], BIGINT) or not types[1].is_time:
        raise Mismatch
    return [BIGINT, types[1]], moved(types[1])


def _one(wanted: SqlType, result: SqlType) -> Signature:
    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        if len(types) != 1 or not fits(types[0], wanted):
            raise Mismatch
        return [wanted], result

    return resolve


def _field_usage(name: str, field: str) -> Usage:
    asked = f"EXTRACT({field} FROM "
    time = "TIMESTAMP '2024-01-31 09:30:00')"
    example = f"{name}({time} = {asked}{time}"
    return Usage(f"{name}(time)", f"the same as {asked}time)", example, values=FIELD_EXTENTS.get(field))


# These take their unit or field from `extra`, which the binder reads from the first argument.
UNIT_FUNCTIONS = ("DATE_TRUNC", "DATE_CEIL", "DATE_DIFF", "DATE_ADD", "EXTRACT")

ENTRIES: list[Declared] = [
    (
        "EXTRACT",
        _time_first(lambda _kind: BIGINT),
        _extract(""),
        Usage(
            "EXTRACT(field FROM time)",
            "a part of a time: YEAR … NANOSECOND, DOW (Monday is 1), DOY, WEEK, EPOCH",
            "EXTRACT(HOUR FROM TIMESTAMP '2024-01-31 09:30:00') = 9",
        ),
    ),
    (
        "DATE_TRUNC",
        _time_first(lambda kind: kind),
        _date_trunc,
        Usage(
            "DATE_TRUNC('unit', time)",
            "the start of the unit that holds the time",
            "DATE_TRUNC('HOUR', TIMESTAMP '2024-01-31 09:30:00') = TIMESTAMP '2024-01-31 09:00:00'",
        ),
    ),
    (
        "DATE_CEIL",
        _time_first(lambda kind: kind),
        _date_ceil,
        Usage(
            "DATE_CEIL('unit', time)",
            "the first start of a unit at or after the time",
            "DATE_CEIL('HOUR', TIMESTAMP '2024-01-31 09:30:00') = TIMESTAMP '2024-01-31 10:00:00'",
        ),
    ),
    (
        "DATE_DIFF",
        _two_times,
        _date_diff,
        Usage(
            "DATE_DIFF('unit', from, to)",
            "whole units from one time to another",
            "DATE_DIFF('DAY', DATE '2024-01-01', DATE '2024-01-31') = 30",
        ),
    ),
    (
        "DATE_ADD",
        _amount_and_time,
        _date_add,
        Usage(
            "DATE_ADD('unit', count, time)",
            "the time this many units later",
            "DATE_ADD('DAY', 1, DATE '2024-02-28') = DATE '2024-02-29'",
        ),
    ),
    (
        "TO_UNIXTIME",
        _time_first(lambda _kind: DOUBLE),
        _to_unixtime,
        Usage(
            "TO_UNIXTIME(time)",
            "seconds since 1970, with fractions",
            "TO_UNIXTIME(TIMESTAMP '1970-01-01 00:01:00') = 60",
        ),
    ),
    (
        "FROM_UNIXTIME",
        _one(DOUBLE, timestamp("ms")),
        _from_unixtime,
        Usage(
            "FROM_UNIXTIME(seconds)",
            "the time this many seconds after 1970",
            "FROM_UNIXTIME(60) = TIMESTAMP '1970-01-01 00:01:00'",
        ),
    ),
    (
        "TO_SECONDS",
        _one(INTERVAL, DOUBLE),
        _seconds,
        Usage("TO_SECONDS(interval)", "an interval as seconds", "TO_SECONDS(INTERVAL '2' MINUTE) = 120"),
    ),
    *(
        (name, _time_first(lambda _kind: BIGINT), _extract(kind), _field_usage(name, kind))
        for name, kind in _FIELDS.items()
        if name != "EPOCH"
    ),
]
