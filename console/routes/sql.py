"""Queries over the tables."""

import asyncio
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from console.operation import Answer, Body, Call, Operation, Query
from console.problems import Problem
from console.routes.shapes import Shape
from console.rows import CHUNKED, MEDIA, Form, check_times, encoded
from core.background import awaited_task

__all__ = ["OPERATIONS"]

#: No one reads it.
_GONE = 408


class QueryText(Body):
    sql: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1 << 16,
            description="DuckDB's dialect over `ohlc`, `ohlc_revisions`, `ticks`, `trigger_events`, `gaps`, `coverage`"
            " and `deliveries`, with or without `lake.market.` in front. A text with MATCH_RECOGNIZE is in the"
            " trigger language. JSON and CSV have intervals, binary values and unions as DuckDB's text; CSV has nested"
            " values as JSON.",
            examples=["SELECT ticker, count(*) AS n FROM ohlc GROUP BY ticker"],
        ),
    ]
    limit: int = Field(10_000, ge=1, le=1_000_000, description="The first N rows, at most `console.sql_rows`.")


class FormatQuery(Query):
    format: Form = Form.json


class SqlColumn(Shape):
    name: str
    type: str


class SqlRows(Shape):
    rows: list[dict[str, Any]]
    columns: list[SqlColumn]
    truncated: bool = Field(description="Whether there are more rows than `limit`.")


async def query_sql(call: Call) -> Response:
    body: QueryText = call.body
    form: Form = call.query.format
    query = call.services.queries.run(body.sql, body.limit, is_for_text=form is not Form.arrow)
    data, is_truncated = await _unless_gone(call.request, query)
    headers = {"X-Truncated": "true" if is_truncated else "false"}
    if form is Form.arrow:
        return Response(data, headers=headers, media_type=MEDIA[form])
    table = pa.ipc.open_stream(data).read_all()
    check_times(table)
    columns = [{"name": each.name, "type": str(each.type)} for each in table.schema]
    more = {"columns": columns, "truncated": is_truncated}
    text = await asyncio.to_thread(lambda: b"".join(encoded(iter([table]), form, lambda: more)))
    return Response(text, headers=headers, media_type=MEDIA[form])


async def _unless_gone(request: Request, work: Any) -> tuple[bytes, bool]:
    """If the caller hangs up, its query is cancelled."""
    query = awaited_task(work, "sql")
    gone = awaited_task(_disconnected(request), "sql-caller")
    try:
        await asyncio.wait([query, gone], return_when=asyncio.FIRST_COMPLETED)
        if not query.done():
            raise Problem(_GONE, "gone", "the caller has gone")
        found: tuple[bytes, bool] = query.result()
        return found
    finally:
        gone.cancel()
        query.cancel()


async def _disconnected(request: Request) -> None:
    # The body has been read, so the next message is the end of the connection.
    while (await request.receive())["type"] != "http.disconnect":
        pass


OPERATIONS = (
    Operation(
        method="POST",
        path="/sql",
        handler=query_sql,
        summary="Query the tables",
        answers={
            200: Answer("The rows.", SqlRows, CHUNKED, {"X-Truncated": "Whether there are more rows than `limit`."})
        },
        query=FormatQuery,
        body=QueryText,
        problems=(503,),
        tag="sql",
    ),
)
