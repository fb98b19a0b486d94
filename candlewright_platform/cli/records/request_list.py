"""All requests, for `candlewright requests`: running ones from the bus, finished ones from the table of coverage."""

from typing import Any

from bus.connect import connect
from candlewright.cli.output import say
from candlewright.wire.errors import BusError
from candlewright.wire.periods import format_period
from candlewright_platform.cli.records.pending_requests import unfinished
from candlewright_platform.supervisor.parts import bus_url_of
from core.settings import Settings
from iceberg.coverage import read_coverage


def all_requests(settings: Settings) -> list[dict[str, Any]]:
    """Those that have not ended, then those that have."""
    return _unfinished(settings) + _finished(settings)


def _unfinished(settings: Settings) -> list[dict[str, Any]]:
    """Nothing, and a line on stderr, if the bus cannot be reached."""

    url = bus_url_of(settings)
    if not url:
        return []
    bus = connect(settings.bus.model_copy(update={"url": url}))
    try:
        return unfinished(bus)
    except BusError as error:
        say(f"running requests are not shown: {error}")
        return []
    finally:
        bus.close()


def _finished(settings: Settings) -> list[dict[str, Any]]:
    if settings.iceberg.catalog == "sqlite" and not (settings.data_dir / "catalog.db").exists():
        return []
    rows: list[dict[str, Any]] = []
    for row in read_coverage(settings):
        rows.append(
            {
                "request_id": row["request_id"],
                "state": "done",
                "ticker": row["ticker"],
                "period": format_period(row["period_seconds"]),
                "start": row["start"],
                "end": row["end"],
                "done_candles": row["got"],
                "expected_candles": row["expected"],
                "status": row["status"],
                "holes": len(row["holes"] or ()),
                "closed_until": row.get("closed_until"),
            }
        )
    return rows
