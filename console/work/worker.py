"""A worker process: a line of JSON in, a line of JSON and a body out, one task at a time."""

import resource
import traceback
from typing import Any, BinaryIO

import orjson
import pyarrow as pa

from candlewright.wire.errors import CandlewrightError, InvalidRequest
from console.work.tasks import TASKS
from core.settings import Settings

__all__ = ["serve"]

#: Address space beyond a query's limit: for libraries, and for the files that are read.
_OWN_BYTES = 4 << 30
#: Of an answer, which the console holds whole. JSON has the names of the columns in every row.
_MAX_BODY_BYTES = 256 << 20


def serve(settings: Settings, source: BinaryIO, sink: BinaryIO) -> None:
    """Runs until `source` ends."""
    bound = _OWN_BYTES + 2 * settings.console.sql_memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    # No other output may get between the answers.
    for line in source:
        answer, body = _answered(settings, orjson.loads(line))
        sink.write(orjson.dumps({**answer, "size": len(body)}) + b"\n")
        sink.write(body)
        sink.flush()


def _answered(settings: Settings, asked: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    # Only a failed task needs what reports problems.
    try:
        answer, body = TASKS[asked["task"]](settings, asked["given"])
        if len(body) > _MAX_BODY_BYTES:
            raise InvalidRequest(f"the answer has more than {_MAX_BODY_BYTES >> 20} MiB; select less of it")
        return answer, body
    except CandlewrightError as error:
        from console.problems import problem_of

        problem = problem_of(error)
    except (MemoryError, pa.ArrowMemoryError):
        from console.problems import Problem

        text = "the work needs more memory than console.sql_memory_bytes"
        problem = Problem(400, "invalid_request", text)
    except (OSError, pa.ArrowException) as error:
        from candlewright.client import RowsUnavailable
        from console.problems import problem_of

        problem = problem_of(RowsUnavailable(f"the tables cannot be read: {error}"))
    except Exception:
        # The console logs and counts it.
        return {"failed": traceback.format_exc()}, b""
    told = {
        "status": problem.status,
        "kind": problem.kind,
        "detail": problem.detail,
        "more": problem.more,
        "headers": problem.headers,
    }
    return {"problem": told}, b""
