"""Times in JSON: ISO 8601 in UTC with nine digits of the second and `Z`."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.times import to_nanoseconds

__all__ = ["Instant", "Moment", "iso", "iso_of"]

_SECOND = 1_000_000_000


def iso(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, _SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def iso_of(moment: datetime) -> str:
    """The ISO text of a time from a table, which has microseconds."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}000Z"


def _parsed(text: str) -> int:
    try:
        return to_nanoseconds(text)
    except InvalidRequest as error:
        raise ValueError(str(error)) from error


#: A time in a request, which is converted to nanoseconds.
Moment = Annotated[
    str,
    AfterValidator(_parsed),
    WithJsonSchema(
        {
            "type": "string",
            "description": "ISO 8601, UTC where no zone is given; or nanoseconds since the epoch.",
            "pattern": r"^(19[7-9][0-9]|20[0-9]{2}|21[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
            r"(T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z)?$",
            "examples": ["2024-01-01", "2024-01-01T12:30:00Z"],
        }
    ),
]
#: A time in an answer.
Instant = Annotated[
    str,
    Field(
        description="ISO 8601 in UTC, with nanoseconds.",
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$",
        examples=["2024-01-01T00:00:00.000000000Z"],
    ),
]
