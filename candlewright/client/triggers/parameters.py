"""Parameters of triggers: Python values as the texts that the platform expects."""

import math
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.times import format_nanoseconds, to_nanoseconds

#: A time becomes ISO 8601 text in UTC, a duration its seconds; text stays as it is.
Parameter = str | bool | int | float | Decimal | datetime | date | timedelta


def parameter_texts(parameters: Mapping[str, Parameter] | None) -> dict[str, str]:
    """Raises InvalidRequest for names and values that cannot be parameters."""
    return {_name(name): _text(name, value) for name, value in (parameters or {}).items()}


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"{name!r} is not a valid parameter name")
    return name


def _text(name: str, value: object) -> str:
    if not isinstance(value, str | bool | int | float | Decimal | date) and hasattr(value, "item"):
        # A scalar of numpy.
        value = value.item()
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            raise InvalidRequest(f"the parameter {name} is {value}, which is not a finite number")
        # A subclass of float may print more than its number.
        return repr(float(value)) if isinstance(value, float) else format(value, "f")
    if isinstance(value, date):
        # A datetime is a date, too.
        is_day = not isinstance(value, datetime)
        return value.isoformat() if is_day else format_nanoseconds(to_nanoseconds(value))
    if isinstance(value, timedelta):
        return repr(value / timedelta(seconds=1))
    raise InvalidRequest(f"the parameter {name} is a {type(value).__name__}: write text, a number, a boolean or a time")
