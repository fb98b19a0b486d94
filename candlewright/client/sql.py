"""Queries over the tables, by the platform's HTTP API: without Spark, and without access to the files."""

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from candlewright.client.errors import InvalidRequest, InvalidTrigger, PlatformRefused, PlatformUnreachable
from candlewright.settings import ClientConfig
from candlewright.wire.errors import NotAuthorised

if TYPE_CHECKING:
    import pyarrow as pa

#: As many rows as the platform gives at all.
_ALL_ROWS = 1_000_000
_SECONDS = 120.0


def query(settings: ClientConfig, sql: str, limit: int | None) -> "pa.Table":
    """Raises InvalidTrigger with the place of a mistake, InvalidRequest, NotAuthorised, PlatformRefused and
    PlatformUnreachable.
    """
    import pyarrow as pa

    host, _, port = settings.console.bind.rpartition(":")
    address = f"http://{'127.0.0.1' if host in ('0.0.0.0', '*') else '[::1]' if host == '[::]' else host}:{port}"
    body = json.dumps({"sql": sql, "limit": _ALL_ROWS if limit is None else limit}).encode()
    headers = {"Content-Type": "application/json"}
    if settings.client.token:
        headers["Authorization"] = f"Bearer {settings.client.token}"
    request = urllib.request.Request(f"{address}/api/v1/sql?format=arrow", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            table = pa.ipc.open_stream(answer.read()).read_all()
            is_truncated = answer.headers.get("X-Truncated") == "true"
    except urllib.error.HTTPError as error:
        raise _refused(sql, error.code, _problem(error)) from None
    except OSError as error:
        raise PlatformUnreachable(address, _SECONDS) from error
    if is_truncated and limit is None:
        raise InvalidRequest(f"the result has more than {table.num_rows} rows: select less, or give a limit")
    return table


def _problem(error: urllib.error.HTTPError) -> dict[str, Any]:
    try:
        found = json.loads(error.read())
    except (OSError, ValueError):
        found = None
    return found if isinstance(found, dict) else {"detail": f"HTTP {error.code} {error.reason}"}


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
