"""Triggers: list, check, try over stored rows, register, remove, and read their events."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import Field
from starlette.responses import Response

from candlewright.client import AsyncClient, PlatformRefused, TriggerEvent, TriggerInfo
from candlewright.wire import streams
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from candlewright.wire.ticker import Ticker
from console.messages import event_json
from console.openapi import PREFIX
from console.operation import Answer, Body, Call, Operation, Query
from console.problems import Problem
from console.routes.shapes import Shape, TickerText, json_response
from console.routes.worked import done_with_views, worked
from console.times import Instant, Moment, iso
from core.doors import Role

__all__ = ["OPERATIONS"]

SqlText = Annotated[str, Field(min_length=1, max_length=1 << 16, examples=["close > open * 1.02"])]
Parameters = Annotated[
    dict[str, str | int | float | bool], Field(description="Values for `:name`, and options such as `period_seconds`.")
]
TriggerId = Annotated[str, Field(min_length=1, max_length=200)]
_SHOWN_ROWS = 10_000
_PAGE_EVENTS = 1_000


class TriggerText(Body):
    sql: SqlText
    tickers: list[TickerText] = Field([], max_length=10_000, description="Empty = every active ticker.")
    parameters: Parameters = Field({})


class NewTrigger(TriggerText):
    """Without `trigger_id`, the id is derived from the content."""

    trigger_id: TriggerId | None = None


class Attempt(TriggerText):
    """`tickers` must have one ticker. Reads bars with the parameter `period_seconds`, otherwise trades."""

    ticker: TickerText | None = None
    since: Moment | None = None
    as_seen: bool = Field(False, description="Over bars as they were published, corrections included.")
    limit: int = Field(1_000, ge=1, le=_SHOWN_ROWS, description="The maximum number of rows in the answer.")


class TriggerBody(Shape):
    trigger_id: str
    sql: str
    tickers: list[str]
    parameters: dict[str, str]
    state: str = Field(description="active or suspended.")
    reason: str = Field(description="Why it is suspended.")
    is_starting: bool
    registered_at: Instant
    events: int
    warnings: list[str] = Field([], description="Warnings about its text; only in the answer to its registration.")


class TriggerList(Shape):
    triggers: list[TriggerBody]


class Column(Shape):
    name: str
    type: str


class Checked(Shape):
    """The text is valid."""

    columns: list[Column]
    warnings: list[str]


class AfterBars(Shape):
    """How the close had changed, as a fraction, this many bars after the events."""

    bars: int
    count: int
    mean: float | None
    median: float | None
    rose: float | None = Field(description="Share of the events after which the close was higher.")


class Tried(Shape):
    columns: list[Column]
    rows: list[dict[str, Any]] = Field(description="The first `limit` rows of the result.")
    total_rows: int
    fired_at: list[Instant] = Field(description="Event time of each event.")
    suppressed: int = Field(description="Events that cooldown_seconds suppresses.")
    over: str = Field(description="What was read.")
    input_rows: int
    first: Instant | None
    last: Instant | None
    after: list[AfterBars] = Field(description="Empty for texts over trades.")


class EventsQuery(Query):
    from_sequence: int = Field(1, ge=1, le=(1 << 62), description="Inclusive.")
    limit: int = Field(_PAGE_EVENTS, ge=1, le=_PAGE_EVENTS)


class EventBody(Shape):
    sequence: int
    event_id: str
    trigger_id: str
    ticker: str
    time: Instant
    match_number: int | None
    columns: list[str]
    column_types: list[str]
    rows: list[dict[str, Any]]


class EventList(Shape):
    """`next_sequence`: where to continue."""

    events: list[EventBody]
    next_sequence: int


class PlanStepBody(Shape):
    """`keeps`: its state; `bound`: what bounds that; `fires`: when its rows come."""

    kind: str
    text: str
    keeps: str
    bound: str
    fires: str


class MeasuredBody(Shape):
    """Measurements over stored rows; the state is that at their end."""

    tickers: list[str]
    rows: int
    span_seconds: float
    events: int
    cpu_seconds: float
    state_bytes: int
    partitions: int
    kept_rows: int
    rows_per_second: float = Field(description="The average rate at which the rows arrived.")
    rows_per_cpu_second: float = Field(description="The rate at which the engine processes them.")
    core_share: float = Field(description="The share of one core needed at the rate at which the rows arrived.")


class PlanBody(Shape):
    reads: list[str]
    together: str
    steps: list[PlanStepBody]
    fires: list[str]
    measured: MeasuredBody | None
    over: str = Field(description="The rows that were used.")
    note: str = Field(description="Why nothing was measured.")
    warnings: list[str]


class ExplainQuery(Query):
    """`ticker`: required if the trigger has several."""

    at: Moment | None = None
    ticker: TickerText | None = None
    attempts: int = Field(3, ge=1, le=50, description="How many of the nearest attempts to return.")


class OperandBody(Shape):
    text: str
    value: str | float | int | bool | None
    is_known: bool = Field(description="False if it depends on a row that has not arrived.")


class ConditionBody(Shape):
    text: str
    holds: bool | None = Field(description="Null: unknown because of a NULL, or of a row that has not arrived.")
    operands: list[OperandBody]
    connective: str = Field(description="AND, OR, NOT, or empty.")
    parts: list["ConditionBody"]


class RowBody(Shape):
    time: Instant | None
    variable: str
    values: dict[str, Any] = Field(description="Columns that the conditions read.")


class TestedBody(Shape):
    """A row tested as a variable. Without `row`: the next row; without `condition`: any row is accepted."""

    variable: str
    row: RowBody | None
    condition: ConditionBody | None


class AttemptBody(Shape):
    """`nearest`: where it failed, or came nearest to advancing; `awaits`: what the next row will be tested as."""

    outcome: str = Field(description="matched, failed, expired or waiting.")
    key: dict[str, Any]
    start: Instant | None
    rows: list[RowBody] = Field(description="The first and the last rows that it took.")
    taken: int
    missing: int = Field(description="The minimum number of rows that a match still needs.")
    nearest: list[TestedBody]
    awaits: list[TestedBody]
    can_end: bool = Field(description="Whether it is a match unless the next row continues it.")
    deadline: Instant | None


class StageBody(Shape):
    kind: str = Field(description="WHERE, HAVING, QUALIFY or MATCH_RECOGNIZE.")
    text: str
    rows: int
    passed: int
    failed: int
    examined: int
    attempts: list[AttemptBody]


class ViewReadersBody(Shape):
    """A view that is computed once for all triggers that read it."""

    name: str
    triggers: int = Field(description="How many triggers read it.")


class Explained(Shape):
    """The result of running its text over stored rows: `fired` counts the rows returned."""

    trigger_id: str
    tickers: list[str]
    over: str
    views: list[ViewReadersBody]
    rows: int
    first: Instant | None
    last: Instant | None
    fired: int
    stages: list[StageBody]


async def list_triggers(call: Call) -> Response:
    client = await call.services.client()
    return json_response({"triggers": [_trigger(each) for each in await client.triggers.list()]})


async def add_trigger(call: Call) -> Response:
    body: NewTrigger = call.body
    client = await call.services.client()
    added = await client.triggers.add(
        body.sql, tickers=body.tickers, parameters=body.parameters, trigger_id=body.trigger_id
    )
    try:
        info = await added.info()
    finally:
        await added.close()
    place = {"Location": f"{PREFIX}/triggers/{quote(added.id, safe='')}"}
    return json_response({**_trigger(info), "warnings": list(added.warnings)}, 201 if added.is_new else 200, place)


async def get_trigger(call: Call) -> Response:
    client = await call.services.client()
    return json_response(_trigger(await client.triggers.get(call.path["trigger_id"])))


async def remove_trigger(call: Call) -> Response:
    client = await call.services.client()
    await client.triggers.remove(call.path["trigger_id"])
    return Response(status_code=204)


async def check_trigger(call: Call) -> Response:
    body: TriggerText = call.body
    tickers = [str(Ticker.parse(ticker)) for ticker in body.tickers]
    settings = call.services.settings
    given = {
        "sql": body.sql,
        "parameters": _texts(body),
        "tickers": tickers,
        "partitions": settings.bus.partitions,
        "destinations": [*settings.alerts.destinations],
    }
    return await _of_text(call, "check", given)


async def try_trigger(call: Call) -> Response:
    body: Attempt = call.body
    named = [body.ticker] if body.ticker is not None else body.tickers
    if len(named) != 1:
        raise Problem(400, "invalid_request", f"ticker: a text is tried over one ticker, not {len(named)}")
    given = {
        "sql": body.sql,
        "parameters": _texts(body),
        "ticker": str(Ticker.parse(named[0])),
        "since": None if body.since is None else int(body.since),
        "as_seen": body.as_seen,
        "limit": body.limit,
    }
    return await _of_text(call, "try", given)


async def plan_trigger_text(call: Call) -> Response:
    body: TriggerText = call.body
    tickers = [str(Ticker.parse(ticker)) for ticker in body.tickers]
    return await _of_text(call, "plan", {"sql": body.sql, "parameters": _texts(body), "tickers": tickers})


async def plan_trigger(call: Call) -> Response:
    client = await call.services.client()
    info = await client.triggers.get(call.path["trigger_id"])
    given = {"sql": info.sql, "parameters": dict(info.parameters), "tickers": list(info.tickers)}
    return await worked(call, "plan", given | await _views_of(client, info))


async def explain_trigger(call: Call) -> Response:
    query: ExplainQuery = call.query
    ticker = str(Ticker.parse(query.ticker)) if query.ticker is not None else None
    at = None if query.at is None else int(query.at)
    client = await call.services.client()
    info = await client.triggers.get(call.path["trigger_id"])
    given = {
        "trigger": {**asdict(info), "parameters": dict(info.parameters)},
        "ticker": ticker,
        "at": at,
        "attempts": query.attempts,
    }
    return await worked(call, "explain", given | await _views_of(client, info))


async def list_trigger_events(call: Call) -> Response:
    query: EventsQuery = call.query
    trigger_id = call.path["trigger_id"]
    client = await call.services.client()
    newest = await client.triggers.newest_number(trigger_id)
    last = min(newest, query.from_sequence + query.limit - 1)
    if last < query.from_sequence:
        if not newest:
            await client.triggers.get(trigger_id)
        return json_response({"events": [], "next_sequence": max(query.from_sequence, 1)})
    try:
        found = await client.replay(streams.trigger(trigger_id), query.from_sequence, last)
    except PlatformRefused as error:
        if error.code != "NOT_KEPT":
            raise
        text = f"{error.text} Older events are in lake.market.trigger_events."
        raise Problem(410, "not_kept", text) from error
    events = [TriggerEvent.from_message(each) for _, each in found if isinstance(each, CEPTriggerEvent)]
    return json_response({"events": [event_json(each) for each in events], "next_sequence": last + 1})


# ---- inside
async def _views_of(client: AsyncClient, info: TriggerInfo) -> dict[str, Any]:
    """The texts of the views that a trigger reads, and how many triggers read each."""
    known = {name: await client.views.show(name) for name in info.views}
    return {
        "views": {name: view.sql for name, view in known.items()},
        "readers": {name: view.trigger_count for name, view in known.items()},
    }


async def _of_text(call: Call, task: str, given: Mapping[str, Any]) -> Response:
    """The JSON of a task."""
    _, body = await done_with_views(call, task, given)
    return Response(body, media_type="application/json")


def _texts(body: TriggerText) -> dict[str, str]:
    from candlewright.client.triggers.parameters import parameter_texts

    return parameter_texts(body.parameters)


def _trigger(info: TriggerInfo) -> dict[str, Any]:
    return {
        "trigger_id": info.trigger_id,
        "sql": info.sql,
        "tickers": list(info.tickers),
        "parameters": dict(info.parameters),
        "state": info.state,
        "reason": info.reason,
        "is_starting": info.is_starting,
        "registered_at": iso(info.registered_at),
        "events": info.events,
        "warnings": [],
    }


_LOCATION = {"Location": "The address of the trigger."}
OPERATIONS = (
    Operation(
        method="GET",
        path="/triggers",
        handler=list_triggers,
        summary="Registered triggers",
        answers={200: Answer("By id.", TriggerList)},
        problems=(409, 503),
        tag="triggers",
    ),
    Operation(
        method="POST",
        path="/triggers",
        handler=add_trigger,
        summary="Register a trigger",
        answers={
            201: Answer("The trigger is durable and active.", TriggerBody, headers=_LOCATION),
            200: Answer("It was already registered.", TriggerBody, headers=_LOCATION),
        },
        body=NewTrigger,
        problems=(409, 503),
        role=Role.operator,
        tag="triggers",
    ),
    Operation(
        method="POST",
        path="/triggers/check",
        handler=check_trigger,
        summary="Check a text without registering it",
        answers={200: Answer("The text is valid.", Checked)},
        body=TriggerText,
        problems=(503,),
        tag="triggers",
    ),
    Operation(
        method="POST",
        path="/triggers/try",
        handler=try_trigger,
        summary="Run a text over the stored rows of a ticker",
        answers={200: Answer("The events that it would have fired.", Tried)},
        body=Attempt,
        problems=(409, 503),
        tag="triggers",
    ),
    Operation(
        method="GET",
        path="/triggers/{trigger_id}",
        handler=get_trigger,
        summary="One trigger",
        answers={200: Answer("The trigger.", TriggerBody)},
        problems=(404, 409, 503),
        tag="triggers",
    ),
    Operation(
        method="DELETE",
        path="/triggers/{trigger_id}",
        handler=remove_trigger,
        summary="Remove a trigger",
        answers={204: Answer("The trigger has been removed.")},
        problems=(404, 409, 503),
        role=Role.operator,
        tag="triggers",
    ),
    Operation(
        method="POST",
        path="/triggers/plan",
        handler=plan_trigger_text,
        summary="What state a text keeps, when it fires, and what it costs over the last stored hour of its tickers",
        answers={200: Answer("Its plan.", PlanBody)},
        body=TriggerText,
        problems=(503,),
        tag="triggers",
    ),
    Operation(
        method="GET",
        path="/triggers/{trigger_id}/plan",
        handler=plan_trigger,
        summary="What state a trigger keeps, when it fires, and what it costs over the last stored hour of its tickers",
        answers={200: Answer("Its plan.", PlanBody)},
        problems=(404, 409, 503),
        tag="triggers",
    ),
    Operation(
        method="GET",
        path="/triggers/{trigger_id}/explain",
        handler=explain_trigger,
        summary="How close a trigger came to firing, over stored rows",
        answers={200: Answer("How its text evaluated the stored rows.", Explained)},
        query=ExplainQuery,
        problems=(404, 409, 503),
        tag="triggers",
    ),
    Operation(
        method="GET",
        path="/triggers/{trigger_id}/events",
        handler=list_trigger_events,
        summary="Events of a trigger that are still on the bus",
        answers={200: Answer("The events, in order.", EventList)},
        query=EventsQuery,
        problems=(404, 409, 410, 503),
        tag="triggers",
    ),
)
