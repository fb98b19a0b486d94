"""The HTTP API as tools call it: JSON in and out, and a sentence for every failure."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
from mcp.server.mcpserver.exceptions import ToolError

from candlewright.client import http
from candlewright.settings import ClientConfig
from candlewright.wire.errors import CandlewrightError

#: (method, path, parameters in the address, body) -> the answer.
Ask = Callable[..., Awaitable[dict[str, Any]]]


def asking(settings: ClientConfig) -> Ask:
    """Raises ToolError, which the assistant reads."""

    async def ask(
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        def work() -> dict[str, Any]:
            content, _ = http.call(settings, method, path, query=query, body=body)
            found: dict[str, Any] = json.loads(content) if content else {}
            return found

        try:
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        except http.Refused as error:
            raise ToolError(_sentence(error.problem)) from None
        except CandlewrightError as error:
            raise ToolError(str(error)) from None
        except ValueError:
            raise ToolError(f"what answers at {http.address(settings)} is not the platform's HTTP API") from None

    return ask


def _sentence(problem: Mapping[str, Any]) -> str:
    """The first line of the problem, then every error in a text with its position."""
    lines = [str(problem.get("detail") or problem.get("title") or "refused")]
    errors = problem.get("errors")
    if isinstance(errors, list) and "line" in problem:
        lines += [
            f"{each['line']}:{each['column']}: {each['message']}" + (f" ({each['hint']})" if each.get("hint") else "")
            for each in errors
        ]
    if problem.get("mended"):
        lines.append(f"probably meant: {problem['mended']}")
    return "\n".join(lines)
