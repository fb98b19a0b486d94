"""What is known of finished requests, read without Spark."""

from datetime import UTC, datetime
from typing import Any

from pyiceberg.exceptions import NoSuchTableError

from core.settings import Settings
from iceberg.catalog import open_catalog
from iceberg.filters import equal
from iceberg.tables import COVERAGE

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_coverage(settings: Settings) -> list[dict[str, Any]]:
    """The rows of finished requests, by start; each request once. Empty where there are no tables yet."""
    try:
        table = open_catalog(settings).load_table(COVERAGE.identifier)
    except NoSuchTableError:
        return []
    rows = {row["request_id"]: row for row in table.scan().to_arrow().to_pylist()}
    return sorted(rows.values(), key=lambda row: (row["start"], row["request_id"]))


def read_holes(settings: Settings, request_id: str) -> list[tuple[int, int]]:
    """Half-open (start, end) ranges in ns that the venue had no candles for, as the request's coverage row says."""
    table = open_catalog(settings).load_table(COVERAGE.identifier)
    rows = table.scan(row_filter=equal("request_id", request_id), selected_fields=("holes",)).to_arrow()
    # A request that was written twice after a crash has two equal rows.
    holes = {
        (_nanoseconds(hole["start"]), _nanoseconds(hole["end"]))
        for row in rows["holes"].to_pylist()
        for hole in row or ()
    }
    return sorted(holes)


def _nanoseconds(moment: datetime) -> int:
    delta = moment - _EPOCH
    return ((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds) * 1_000
