"""Calls of the platform's HTTP API."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import Any
from urllib.parse import urlencode

from candlewright.client.errors import PlatformUnreachable
from candlewright.settings import ClientConfig

__all__ = ["Refused", "address", "call"]

_PREFIX = "/api/v1"


class Refused(Exception):
    """The answer is a problem (RFC 9457)."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(str(problem.get("detail", "")))
        self.status = status
        self.problem = problem


def address(settings: ClientConfig) -> str:
    host, _, port = settings.console.bind.rpartition(":")
    return f"http://{'127.0.0.1' if host in ('0.0.0.0', '*') else '[::1]' if host == '[::]' else host}:{port}"


def call(
    settings: ClientConfig,
    method: str,
    path: str,
    *,
    query: Mapping[str, object] | None = None,
    body: Mapping[str, object] | None = None,
    timeout: float = 120.0,
) -> tuple[bytes, Message]:
    """The answer's content and headers; parameters that are None are left out.

    Raises Refused and PlatformUnreachable.
    """
    given = {name: value for name, value in (query or {}).items() if value is not None}
    url = f"{address(settings)}{_PREFIX}{path}" + (f"?{urlencode(given)}" if given else "")
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if settings.client.token:
        headers["Authorization"] = f"Bearer {settings.client.token}"
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, content, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        raise Refused(error.code, _problem(error)) from None
    except OSError as error:
        raise PlatformUnreachable(address(settings), timeout) from error


def _problem(error: urllib.error.HTTPError) -> dict[str, Any]:
    try:
        found = json.loads(error.read())
    except (OSError, ValueError):
        found = None
    return found if isinstance(found, dict) else {"detail": f"HTTP {error.code} {error.reason}"}
