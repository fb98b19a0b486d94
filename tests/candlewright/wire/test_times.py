from datetime import UTC, date, datetime, timedelta, timezone

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.times import format_nanoseconds, to_nanoseconds

JAN_1_2024 = 1_704_067_200_000_000_000


@pytest.mark.parametrize(
    "time",
    [
        "2024-01-01",
        "2024-01-01T00:00:00Z",
        "2024-01-01 00:00",
        "2024-01-01T01:00:00+01:00",
        "2024-01-01T00:00:00.000000000Z",
        date(2024, 1, 1),
        datetime(2024, 1, 1),
        datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        pd.Timestamp("2024-01-01", tz="UTC"),
        JAN_1_2024,
        str(JAN_1_2024),
    ],
)
def test_every_way_to_write_a_time_means_the_same(time: object) -> None:
    assert to_nanoseconds(time) == JAN_1_2024  # type: ignore[arg-type]


def test_nanoseconds_are_kept() -> None:
    assert to_nanoseconds("2024-01-01T00:00:00.123456789Z") == JAN_1_2024 + 123_456_789
    assert to_nanoseconds("2024-01-01T00:00:00.5+00:00") == JAN_1_2024 + 500_000_000
    assert to_nanoseconds(pd.Timestamp(JAN_1_2024 + 7, tz="UTC")) == JAN_1_2024 + 7


@pytest.mark.parametrize(
    "time", ["", "yesterday", "2024-13-01", "2024-01-01T00:00:00.1234567891Z", "1960-01-01", -1, 1 << 63, True]
)
def test_a_non_time_is_invalid(time: object) -> None:
    with pytest.raises(InvalidRequest):
        to_nanoseconds(time)  # type: ignore[arg-type]


@pytest.mark.parametrize(("factor", "unit"), [(10**9, "seconds"), (10**6, "milliseconds"), (10**3, "microseconds")])
@pytest.mark.parametrize("form", [int, str])
def test_digits_in_another_unit_are_refused_with_its_name(form: type, factor: int, unit: str) -> None:
    with pytest.raises(InvalidRequest, match=f"looks like {unit}; a time in digits is nanoseconds"):
        to_nanoseconds(form(JAN_1_2024 // factor))


@given(st.integers(0, 9_000_000_000_000_000_000))
def test_a_formatted_time_reads_back_exactly(time: int) -> None:
    assert to_nanoseconds(format_nanoseconds(time)) == time


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_datetimes_are_exact_to_the_microsecond(moment: datetime) -> None:
    assert datetime.fromtimestamp(to_nanoseconds(moment) // 10**9, UTC) == moment.replace(microsecond=0)
    assert to_nanoseconds(moment) // 1_000 % 1_000_000 == moment.microsecond
