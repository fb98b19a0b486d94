"""Queries over the tables, by the platform's HTTP API: without Spark, and without access to the files."""

from typing import TYPE_CHECKING

from candlewright.client import http
from candlewright.client.errors import InvalidRequest, InvalidTrigger, PlatformRefused
from candlewright.settings import ClientConfig
from candlewright.wire.errors import NotAuthorised

if TYPE_CHECKING:
    import pyarrow as pa

#: The most rows that the platform returns.
_ALL_ROWS = 1_000_000


def query(settings: ClientConfig, sql: str, limit: int | None) -> "pa.Table":
    """Raises InvalidTrigger with the place of a mistake, InvalidRequest, NotAuthorised, PlatformRefused and
    PlatformUnreachable.
    """
    import pyarrow as pa

    body = {"sql": sql, "limit": _ALL_ROWS if limit is None else limit}
    try:
        content, headers = http.call(settings, "POST", "/sql", query={"format": "arrow"}, body=body)
    except http.Refused as error:
        if "line" in error.problem:
            first = error.problem["errors"][0]
            raise InvalidTrigger(
                sql, first["message"], line=first["line"], column=first["column"], hint=first["hint"]
            ) from None
        raise refused(error) from None
    table = pa.ipc.open_stream(content).read_all()
    if headers.get("X-Truncated") == "true" and limit is None:
        raise InvalidRequest(f"the result has more than {table.num_rows} rows: select less, or give a limit")
    return table


def refused(error: http.Refused) -> Exception:
    """The client's error for a problem of the HTTP API."""
    detail = str(error)
    if error.status == 400:
        return InvalidRequest(detail)
    if error.status in (401, 403):
        return NotAuthorised(detail)
    return PlatformRefused(str(error.problem.get("type", error.status)).rpartition(":")[2].upper(), detail)
