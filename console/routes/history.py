"""Historical requests: submit, watch, read, cancel."""

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from starlette.responses import Response

from candlewright.client import (
    AsyncClient,
    Notification,
    Outcome,
    RequestFailed,
    RequestNotFound,
    RequestState,
    RowsUnavailable,
)
from candlewright.client.records import Submission
from candlewright.extensions import extension
from candlewright.wire.periods import parse_period
from candlewright.wire.times import to_nanoseconds
from console.messages import final_json
from console.openapi import PREFIX
from console.operation import Answer, Body, Call, Operation, Query
from console.problems import Problem
from console.routes.shapes import BarRow, PeriodText, Shape, TickerText, json_response
from console.rows import CHUNKED, Form
from console.stored import Tables, row_answer
from console.times import Instant, Moment, iso
from core.doors import Role

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OPERATIONS"]

#: How often a range may be requested again without a request id.
_TURNS = 50
_UNFINISHED_SECONDS = 1


class NewRequest(Body):
    """Candles to fetch into the table. Without `request_id` the same range is the same request, unless a repetition can
    bring more: after a failure, or if candles had not closed.
    """

    ticker: TickerText
    period: PeriodText = "1m"
    start: Moment
    end: Moment
    limit: Annotated[int, Field(ge=1, le=1 << 31, description="The first N candles.")] | None = None
    request_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    refresh: bool = Field(
        False, description="Request the range from the exchange even if the table already proves it complete."
    )


class Final(Shape):
    """How a request ended."""

    request_id: str
    ticker: str
    period_seconds: int
    start: Instant
    end: Instant
    status: str = Field(description="OK, NOT_FOUND, ERROR or TIMEOUT.")
    error_message: str
    table: str
    row_count: int
    completed_at: Instant


class RequestBody(Shape):
    """The state of a request."""

    request_id: str
    state: str = Field(description="queued, running, done or unknown.")
    done_candles: int
    expected_candles: int
    reason: str = Field(description="What an unfinished request is waiting for.")
    closed_until: Instant | None = Field(
        description="Start of the candles that were left out because they had not closed."
    )
    notification: Final | None


class RequestRow(Shape):
    """An entry in the list of requests."""

    request_id: str
    state: str
    ticker: str | None
    period: str | None
    start: Instant | None
    end: Instant | None
    done_candles: int | None
    expected_candles: int | None
    status: str | None
    holes: int | None
    closed_until: Instant | None
    reason: str | None = Field(description="What an unfinished request is waiting for.")


class Requests(Shape):
    requests: list[RequestRow]


class Rows(Shape):
    rows: list[BarRow]


class RowsQuery(Query):
    format: Form = Form.json


class ListQuery(Query):
    limit: int = Field(1_000, ge=1, le=10_000, description="The N finished requests that ended last.")


async def add_history(call: Call) -> Response:
    body: NewRequest = call.body
    client = await call.services.client()
    if body.request_id is not None:
        submission = await _submit(client, body, body.request_id)
    else:
        submission = await _submit_again(client, body)
    state = await client.state(submission.request_id)
    place = {"Location": f"{PREFIX}/history/{_quoted(submission.request_id)}"}
    return json_response(_state(state), 200 if submission.is_duplicate else 201, place)


async def list_history(call: Call) -> Response:
    query: ListQuery = call.query
    settings = call.services.settings
    found: list[dict[str, Any]] = await call.services.tables.read(lambda _: extension("requests")(settings))
    unfinished = [row for row in found if row["state"] != "done"]
    done = [row for row in found if row["state"] == "done"]
    return json_response({"requests": [_row(row) for row in unfinished + done[-query.limit :]]})


async def get_history(call: Call) -> Response:
    return json_response(_state(await _known(call)))


async def get_history_rows(call: Call) -> Response:
    state = await _known(call)
    final = state.notification
    if final is None:
        text = f"request {state.request_id} is {state.state}: {state.done_candles} of {state.expected_candles} candles"
        raise Problem(409, "not_finished", text, headers={"Retry-After": str(_UNFINISHED_SECONDS)})
    if final.status is Outcome.NOT_FOUND:
        raise RequestNotFound(final.request_id, final.error_message or f"the venue has no candle of {final.ticker}")
    if final.status is not Outcome.OK:
        raise RequestFailed(final.request_id, final.error_message or "the request failed", final)
    version, parts = await call.services.tables.read(lambda tables: _promised(tables, final))
    return await row_answer(call.request, parts, call.query.format, version=version)


async def cancel_history(call: Call) -> Response:
    client = await call.services.client()
    state = await client.cancel(call.path["request_id"])
    return json_response(_state(state))


# ---- inside
async def _submit(client: AsyncClient, body: NewRequest, request_id: str) -> Submission:
    return await client.submit(
        body.ticker,
        body.period,
        start=int(body.start),
        end=int(body.end),
        limit=body.limit,
        refresh=body.refresh,
        request_id=request_id,
    )


async def _submit_again(client: AsyncClient, body: NewRequest) -> Submission:
    """Submit under an id derived from the request, so that a repeated call requests nothing new."""
    content = (body.ticker, parse_period(body.period), int(body.start), int(body.end), body.limit, body.refresh)
    base = f"http-{hashlib.sha256(repr(content).encode()).hexdigest()[:16]}"
    for turn in range(1, _TURNS):
        request_id = base if turn == 1 else f"{base}-{turn}"
        if not _can_bring_more(await client.state(request_id)):
            return await _submit(client, body, request_id)
    return await _submit(client, body, client.new_request_id())


def _can_bring_more(state: RequestState) -> bool:
    final = state.notification
    return final is not None and (final.status not in (Outcome.OK, Outcome.NOT_FOUND) or state.closed_until is not None)


async def _known(call: Call) -> RequestState:
    request_id = call.path["request_id"]
    client = await call.services.client()
    state = await client.state(request_id)
    if state.state == "unknown":
        raise RequestNotFound(request_id, f"the platform knows no request {request_id}")
    return state


def _promised(tables: Tables, final: Notification) -> tuple[str, Iterator["pa.Table"]]:
    """The rows that the final promised, from one state of the table. Fewer rows are an error, never a shorter
    answer.
    """
    from iceberg.views import bars_in_parts, version_of

    table = tables.open("ohlc")
    if table is None:
        raise RowsUnavailable("the platform has no tables yet")

    def parts() -> Iterator["pa.Table"]:
        left = final.row_count
        for part in bars_in_parts(table, final.ticker, final.period_seconds, start_ns=final.start, end_ns=final.end):
            yield part.slice(0, left)
            left -= part.num_rows
            if left <= 0:
                return
        if left > 0:
            raise RowsUnavailable(
                f"the platform confirmed {final.row_count} rows, {final.row_count - left} of which can be read here"
            )

    return f"{final.request_id} {version_of(table)}", parts()


def _state(state: RequestState) -> dict[str, Any]:
    final = state.notification
    return {
        "request_id": state.request_id,
        "state": state.state,
        "done_candles": state.done_candles,
        "expected_candles": state.expected_candles,
        "reason": state.reason,
        "closed_until": None if state.closed_until is None else iso(state.closed_until),
        "notification": None if final is None else final_json(final),
    }


def _row(row: dict[str, Any]) -> dict[str, Any]:
    own = {name: row.get(name) for name in RequestRow.model_fields}
    for name in ("start", "end", "closed_until"):
        if (moment := own[name]) is not None:
            own[name] = iso(to_nanoseconds(moment))
    return own


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


_LOCATION = {"Location": "The address of the request."}
OPERATIONS = (
    Operation(
        method="POST",
        path="/history",
        handler=add_history,
        summary="Fetch candles into the table",
        answers={
            201: Answer("The request is queued and durable.", RequestBody, headers=_LOCATION),
            200: Answer("The same request as before.", RequestBody, headers=_LOCATION),
        },
        body=NewRequest,
        problems=(409, 503),
        role=Role.operator,
        tag="history",
    ),
    Operation(
        method="GET",
        path="/history",
        handler=list_history,
        summary="Unfinished requests, then finished ones in the order in which they ended",
        answers={200: Answer("The requests.", Requests)},
        query=ListQuery,
        problems=(503,),
        tag="history",
    ),
    Operation(
        method="GET",
        path="/history/{request_id}",
        handler=get_history,
        summary="The state of a request",
        answers={200: Answer("Its state.", RequestBody)},
        problems=(404, 409, 503),
        tag="history",
    ),
    Operation(
        method="GET",
        path="/history/{request_id}/rows",
        handler=get_history_rows,
        summary="The rows of a finished request",
        answers={
            200: Answer("The rows.", Rows, CHUNKED),
            304: Answer("Unchanged since the given ETag (`If-None-Match`)."),
        },
        query=RowsQuery,
        problems=(404, 409, 503),
        tag="history",
    ),
    Operation(
        method="DELETE",
        path="/history/{request_id}",
        handler=cancel_history,
        summary="Cancel a request",
        answers={200: Answer("The state before the cancellation.", RequestBody)},
        problems=(404, 409, 503),
        role=Role.operator,
        tag="history",
    ),
)
