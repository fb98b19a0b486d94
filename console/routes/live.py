"""Live topics over server-sent events."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response

from candlewright.wire.streams import TOPICS
from console.live.sending import EventStream
from console.operation import Answer, Call, Operation, Query
from console.routes.history import Final
from console.routes.shapes import Shape
from console.routes.triggers import EventBody
from console.times import Instant

__all__ = ["EVENTS", "OPERATIONS"]


class OfTopic(Shape):
    topic: str


class Tick(Shape):
    sequence: int
    trade_id: str
    timestamp: Instant = Field(description="The exchange's time.")
    price: float | None
    size: float | None
    side: Literal["buy", "sell", "unknown"]
    received_at: Instant


class TicksMessage(OfTopic):
    """Trades in order; `sequence` is that of the first."""

    sequence: int
    ticker: str
    ticks: list[Tick]


# Not a BarRow: a message has its number and always a revision, while a stored candle can lack its source and has the
# time at which the table got it.
class BarMessage(OfTopic):
    """A closed bar, or with a `revision` above 0 a corrected one."""

    sequence: int
    ticker: str
    period_seconds: int
    open_time: Instant
    open: float | None
    high: float | None
    low: float | None
    close: float | None
    volume: float | None
    quote_volume: float | None
    trade_count: int | None
    complete: bool
    revision: int
    source: str


class SnapshotMessage(OfTopic):
    """The newest prices."""

    sequence: int
    ticker: str
    exchange_time: Instant
    received_at: Instant
    last: float | None
    bid: float | None
    ask: float | None
    bid_size: float | None
    ask_size: float | None
    volume_24h: float | None


class EventMessage(OfTopic, EventBody):
    """A trigger's event."""


class FinalMessage(OfTopic, Final):
    """How a history request ended."""


class GapMessage(OfTopic):
    """Numbers that the platform no longer keeps; the stream continues after them."""

    first: int
    last: int
    reason: str


class SuspendedMessage(OfTopic):
    """A trigger was stopped."""

    trigger_id: str
    reason: str
    registered_at: Instant


class ErrorMessage(OfTopic):
    """Why this topic will have no messages."""

    code: str
    reason: str


class ClosedMessage(Shape):
    """Why the server ends the stream."""

    code: Literal["too_slow", "stopping"]
    reason: str


#: The content of `data`, by the name in `event`.
EVENTS: Mapping[str, type[Shape]] = {
    "ticks": TicksMessage,
    "bar": BarMessage,
    "snapshot": SnapshotMessage,
    "event": EventMessage,
    "final": FinalMessage,
    "gap": GapMessage,
    "suspended": SuspendedMessage,
    "error": ErrorMessage,
    "closed": ClosedMessage,
}


class StreamQuery(Query):
    topic: tuple[Annotated[str, Field(min_length=1, max_length=400)], ...] = Field(
        min_length=1,
        max_length=100,
        description=f"One of {', '.join(f'`{topic.form}`' for topic in TOPICS)}; may be repeated.",
    )
    from_sequence: int | None = Field(
        None,
        ge=1,
        le=(1 << 62),
        description="For a single topic with numbers: the first number to send, if it is still kept.",
    )
    cursor: str = Field(
        "", max_length=1 << 16, description="The same as the header `Last-Event-ID`, which takes precedence."
    )


async def stream(call: Call) -> Response:
    query: StreamQuery = call.query
    if call.request.method == "HEAD":
        return Response(media_type=EventStream.media_type)
    cursor = call.request.headers.get("last-event-id", "") or query.cursor
    hub, who = call.services.hub, call.who.name
    reader = await hub.attach(who, query.topic, cursor, from_sequence=None if cursor else query.from_sequence)
    return EventStream(reader, lambda: hub.detach(who, query.topic, reader))


OPERATIONS = (
    Operation(
        method="GET",
        path="/stream",
        handler=stream,
        summary="Live topics as server-sent events; `Last-Event-ID` resumes without gaps or duplicates",
        answers={200: Answer("Until either side closes it.", media=("text/event-stream",), events=EVENTS)},
        query=StreamQuery,
        problems=(404, 409, 503),
        tag="live",
    ),
)
