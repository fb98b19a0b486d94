"""Queries over the tables, by the platform's HTTP API: without Spark, and without access to the files."""

from typing import TYPE_CHECKING, Any

from candlewright.client import http
from candlewright.client.errors import InvalidRequest, InvalidTrigger, PlatformRefused
from candlewright.settings import ClientConfig
from candlewright.wire.errors import NotAuthorised

if TYPE_CHECKING:
    import pyarrow as pa

#: As many rows as the platform gives at all.
_ALL_ROWS = 1_000_000


def query(settings: ClientConfig, sql: str, limit: int | None) -> "pa.Table":
    """Raises InvalidTrigger with the place of a mistake, InvalidRequest, NotAuthorised, PlatformRefused and
    PlatformUnreachable.
    """
    import pyarrow as pa

    body = {"sql": sql, "limit": _ALL_ROWS if limit is None else limit}
    try:
        content, headers = http.call(settings, "POST", "/sql", {"format": "arrow"}, body)
    except http.Refused as error:
        raise _refused(sql, error.status, error.problem) from None
    table = pa.ipc.open_stream(content).read_all()
    if headers.get("X-Truncated") == "true" and limit is None:
        raise InvalidRequest(f"the result has more than {table.num_rows} rows: select less, or give a limit")
    return table


def _refused(sql: str, status: int, problem: dict[str, Any]) -> Exception:
    detail = str(problem.get("detail", ""))
    if "line" in problem:
        first = problem["errors"][0]
        return InvalidTrigger(sql, first["message"], first["line"], first["column"], first["hint"])
    if status == 400:
        return InvalidRequest(detail)
    if status in (401, 403):
        return NotAuthorised(detail)
    return PlatformRefused(str(problem.get("type", status)).rpartition(":")[2].upper(), detail)
