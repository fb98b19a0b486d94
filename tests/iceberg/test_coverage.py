"""The records of finished requests."""

from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.catalog import Catalog

from core.settings import Settings
from iceberg import COVERAGE
from iceberg.coverage import read_coverage


def row(request_id: str, start_year: int, ended_day: int | None) -> dict[str, object]:
    ended = None if ended_day is None else datetime(2026, 1, ended_day, tzinfo=UTC)
    return {"request_id": request_id, "start": datetime(start_year, 1, 1, tzinfo=UTC), "completed_at": ended}


def test_the_request_that_ended_last_is_the_last_one_however_old_its_range_is(
    catalog: Catalog, settings: Settings
) -> None:
    rows = [row("newest", 2019, 3), row("older", 2025, 2), row("of an earlier release", 2024, None)]
    catalog.load_table(COVERAGE.identifier).append(pa.Table.from_pylist(rows, schema=COVERAGE.arrow_schema))
    assert [each["request_id"] for each in read_coverage(settings)] == ["of an earlier release", "older", "newest"]
