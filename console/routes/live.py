"""Live topics over server-sent events."""

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from console.live.sending import EventStream
from console.operation import Answer, Call, Operation, Query

__all__ = ["OPERATIONS"]


class StreamQuery(Query):
    topic: tuple[Annotated[str, Field(min_length=1, max_length=400)], ...] = Field(
        min_length=1,
        max_length=100,
        description="`TICKS:{ticker}`, `OHLC:{ticker}:{period_seconds}`, `SNAPSHOT:{ticker}`, `TRIGGER:{trigger_id}`,"
        " `RESPONSE:{client_id}` or `HISTORY_READY:{request_id}`; may be repeated.",
    )
    from_sequence: int | None = Field(
        None, ge=1, le=(1 << 62), description="Of one topic with numbers: begin with this one, as far as it is kept."
    )
    cursor: str = Field("", max_length=1 << 16, description="As the header `Last-Event-ID`, which is preferred.")


async def stream(call: Call) -> Response:
    query: StreamQuery = call.query
    if call.request.method == "HEAD":
        return Response(media_type=EventStream.media_type)
    cursor = call.request.headers.get("last-event-id", "") or query.cursor
    hub, who = call.services.hub, call.who.name
    reader = await hub.attach(who, query.topic, cursor, None if cursor else query.from_sequence)
    return EventStream(reader, lambda: hub.detach(who, query.topic, reader))


OPERATIONS = (
    Operation(
        "GET",
        "/stream",
        stream,
        "Live topics as server-sent events; `Last-Event-ID` resumes without a hole or a double",
        {200: Answer("Until either side ends it.", media=("text/event-stream",))},
        query=StreamQuery,
        problems=(404, 409, 503),
        tag="live",
    ),
)
