"""All requests, for `candlewright requests`: running ones from the bus, finished ones from the table of coverage."""

from collections.abc import Mapping, Sequence
from typing import Any

from cachetools import LRUCache

from bus import Registries, topics
from bus.connect import connect
from candlewright.cli.output import say
from candlewright.wire.errors import BusError
from candlewright.wire.ingestor_pb2 import HistoryReadyNotification
from candlewright.wire.periods import format_period
from candlewright_platform.cli.records.pending_requests import unfinished
from candlewright_platform.supervisor.parts import bus_url_of
from core.settings import Settings
from iceberg.coverage import read_coverage

#: When requests ended, by id, as far as known. Cached, because it never changes and lists are read repeatedly.
_ENDED_NS: LRUCache[str, int] = LRUCache(100_000)
_IDS_AT_ONCE = 1_000


def all_requests(settings: Settings) -> list[dict[str, Any]]:
    """Unfinished requests, then finished ones in the order in which they ended. The bus forgets that order after a few
    days; such requests come before the other finished ones, ordered by their range.
    """
    url = bus_url_of(settings)
    if not url:
        return _finished(settings)
    bus = connect(settings.bus.model_copy(update={"url": url}))
    try:
        running = unfinished(bus)
        # Read after the bus, so that a request that ends meanwhile is in both, and never missing from both.
        finished = _finished(settings)
        ended_ns = _ended_ns(bus, [row["request_id"] for row in finished])
    except BusError as error:
        say(f"running requests are not shown: {error}")
        return _finished(settings)
    finally:
        bus.close()
    known = {row["request_id"] for row in finished}
    running = [row for row in running if row["request_id"] not in known]
    return running + sorted(finished, key=lambda row: ended_ns.get(row["request_id"], 0))


def _ended_ns(bus: Registries, request_ids: Sequence[str]) -> Mapping[str, int]:
    """Raises BusError."""
    unknown = [name for name in request_ids if name not in _ENDED_NS]
    for start in range(0, len(unknown), _IDS_AT_ONCE):
        some = unknown[start : start + _IDS_AT_ONCE]
        for name, final in zip(some, bus.recall(topics.REGISTRY_FINALS, some), strict=True):
            if final is not None:
                _ENDED_NS[name] = HistoryReadyNotification.FromString(final).completed_at
    return _ENDED_NS


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
