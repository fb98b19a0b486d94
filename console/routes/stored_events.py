"""Stored events of triggers, also of those that have been removed."""

import json
import time
from collections.abc import Sequence
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field
from starlette.responses import Response

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.ticker import Ticker
from console.operation import Answer, Call, Operation, Query
from console.routes.shapes import Shape, TickerText, json_response
from console.stored import Tables
from console.times import Instant, Moment, iso

__all__ = ["OPERATIONS"]

_SECOND = 1_000_000_000
_DAYS = 30
_MAX_EVENTS = 1_000


class StoredEventsQuery(Query):
    """Without `start`: the 30 days before `end`."""

    trigger: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    ticker: TickerText | None = None
    removed: bool = Field(False, description="Only events of triggers that are no longer registered.")
    start: Moment | None = None
    end: Moment | None = None
    limit: int = Field(200, ge=1, le=_MAX_EVENTS, description="The newest N.")


class StoredEvent(Shape):
    """A row of `lake.market.trigger_events`."""

    event_id: str
    trigger_id: str
    ticker: str
    time: Instant
    rows: list[dict[str, Any]]


class StoredEvents(Shape):
    """Ordered by time."""

    events: list[StoredEvent]


async def list_events(call: Call) -> Response:
    query: StoredEventsQuery = call.query
    ticker = None if query.ticker is None else str(Ticker.parse(query.ticker))
    end = time.time_ns() + _SECOND if query.end is None else int(query.end)
    start = max(0, end - _DAYS * 86_400 * _SECOND) if query.start is None else int(query.start)
    if start >= end:
        raise InvalidRequest("the start of the range must be before its end")
    registered: Sequence[str] = ()
    if query.removed:
        client = await call.services.client()
        registered = [each.trigger_id for each in await client.triggers.list()]

    def read(tables: Tables) -> list[dict[str, Any]]:
        from iceberg.read import read_last_events

        table = tables.open("trigger_events")
        if table is None:
            return []
        found = read_last_events(
            table,
            start_ns=start,
            end_ns=end,
            limit=query.limit,
            ticker=ticker,
            trigger_id=query.trigger,
            without=registered,
        )
        return _events(found)

    return json_response({"events": await call.services.tables.read(read)})


def _events(found: pa.Table) -> list[dict[str, Any]]:
    times = found["fired_at"].cast(pa.int64()).to_pylist()
    events = []
    for row, fired_at in zip(found.drop_columns(["fired_at", "context"]).to_pylist(), times, strict=True):
        # One row is stored as an object, several as an array.
        rows = json.loads(row.pop("columns"))
        events.append({**row, "time": iso(fired_at * 1_000), "rows": rows if isinstance(rows, list) else [rows]})
    return events


OPERATIONS = (
    Operation(
        method="GET",
        path="/events",
        handler=list_events,
        summary="Stored events, also of removed triggers",
        answers={200: Answer("The events, in order.", StoredEvents)},
        query=StoredEventsQuery,
        problems=(409, 503),
        tag="triggers",
    ),
)
