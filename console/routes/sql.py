"""Queries over the tables."""

from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from console.operation import Answer, Body, Call, Operation, Query
from console.routes.shapes import Shape
from console.routes.worked import done_with_views
from console.rows import CHUNKED, MEDIA, Form

__all__ = ["OPERATIONS"]


class QueryText(Body):
    sql: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1 << 16,
            description="DuckDB's dialect over `ohlc`, `ohlc_revisions`, `ticks`, `trigger_events`, `gaps`, `coverage`"
            " and `deliveries`, with or without `lake.market.` in front. A text that DuckDB refuses, with words of the"
            " trigger language (MATCH_RECOGNIZE, an indicator, BARS BY, a view …), is in that language. JSON and CSV"
            " have intervals, binary values and unions as DuckDB's text; CSV has nested values as JSON.",
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
    given = {"sql": body.sql, "limit": body.limit, "form": form}
    seconds = call.services.settings.console.sql_seconds
    told, rows = await done_with_views(call, "query", given, seconds=seconds)
    headers = {"X-Truncated": "true" if told["truncated"] else "false"}
    return Response(rows, headers=headers, media_type=MEDIA[form])


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
