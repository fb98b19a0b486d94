"""Reads the records of finished requests without Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, And

from core.settings import Settings
from iceberg.catalog import open_catalog
from iceberg.filters import equal, one_of
from iceberg.scan import read_rows
from iceberg.tables import COVERAGE


@dataclass(frozen=True, slots=True)
class Covered:
    """`holes`: half-open (start, end) ranges in ns for which the venue had no candles. `closed_until`: the open time
    (ns) of the first candle that had not closed; None if every candle in the range had.
    """

    holes: tuple[tuple[int, int], ...] = ()
    closed_until: int | None = None


#: A request that ended with one of these statuses accounts for every candle of its range.
_DECIDED = ("OK", "NOT_FOUND")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_coverage(settings: Settings) -> list[dict[str, Any]]:
    """The rows of finished requests, each once, ordered by start; empty if the tables do not exist yet."""
    try:
        table = open_catalog(settings).load_table(COVERAGE.identifier)
    except NoSuchTableError:
        return []
    rows = {row["request_id"]: row for row in read_rows(table, COVERAGE, AlwaysTrue()).to_pylist()}
    return sorted(rows.values(), key=lambda row: (row["start"], row["request_id"]))


def read_request(settings: Settings, request_id: str) -> Covered:
    """The content of a finished request's coverage row; an empty Covered if it has no row."""
    return read_requests(settings, [request_id])[request_id]


def read_requests(settings: Settings, request_ids: Sequence[str]) -> dict[str, Covered]:
    """The content of the coverage rows of finished requests, by request id, from one scan."""
    table = open_catalog(settings).load_table(COVERAGE.identifier)
    found = read_rows(
        table, COVERAGE, one_of("request_id", request_ids), columns=("request_id", "holes", "closed_until")
    )
    rows: dict[str, list[dict[str, Any]]] = {request_id: [] for request_id in request_ids}
    for row in found.to_pylist():
        rows[row["request_id"]].append(row)
    return {request_id: _covered(own) for request_id, own in rows.items()}


def _covered(rows: Sequence[dict[str, Any]]) -> Covered:
    # A request that was written again after a crash has two equal rows.
    holes = {(_nanoseconds(hole["start"]), _nanoseconds(hole["end"])) for row in rows for hole in row["holes"] or ()}
    closed = next((row["closed_until"] for row in rows if row["closed_until"]), None)
    return Covered(tuple(sorted(holes)), closed and _nanoseconds(closed))


def read_holes(
    settings: Settings, ticker: str, period_seconds: int, *, catalog: Catalog | None = None
) -> list[tuple[int, int]]:
    """Half-open ranges in ns, in any order, in which requests found that the venue has no candles."""
    table = (catalog or open_catalog(settings)).load_table(COVERAGE.identifier)
    wanted = And(equal("ticker", ticker), equal("period_seconds", period_seconds), one_of("status", _DECIDED))
    rows = read_rows(table, COVERAGE, wanted, columns=("holes",))["holes"].to_pylist()
    return list({(_nanoseconds(hole["start"]), _nanoseconds(hole["end"])) for holes in rows for hole in holes or ()})


def _nanoseconds(moment: datetime) -> int:
    delta = moment - _EPOCH
    return ((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds) * 1_000
