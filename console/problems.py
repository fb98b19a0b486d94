"""Errors as `application/problem+json` (RFC 9457), with the same sentences as for every other client."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from starlette.responses import Response

from candlewright.client import (
    InvalidTrigger,
    PlatformRefused,
    PlatformUnreachable,
    RequestFailed,
    RequestNotFound,
    RequestTimedOut,
    RowsUnavailable,
    TickerNotFound,
    TriggerNotFound,
)
from candlewright.wire.errors import (
    BadFrame,
    BusUnavailable,
    CandlewrightError,
    ConfigurationError,
    InvalidRequest,
    NotAuthorised,
    TriggerRejected,
)

__all__ = ["MEDIA_TYPE", "Problem", "problem_of", "response_of"]

MEDIA_TYPE = "application/problem+json"
_RETRY_SECONDS = 1
#: The entry of the most specific class of an error applies.
_STATUS: Mapping[type[CandlewrightError], tuple[int, str]] = {
    InvalidRequest: (400, "invalid_request"),
    TriggerRejected: (400, "invalid_sql"),
    RequestNotFound: (404, "request_not_found"),
    TriggerNotFound: (404, "trigger_not_found"),
    TickerNotFound: (404, "ticker_not_found"),
    RequestFailed: (409, "request_failed"),
    RequestTimedOut: (504, "timed_out"),
    PlatformRefused: (409, "refused"),
    PlatformUnreachable: (503, "platform_unreachable"),
    RowsUnavailable: (503, "rows_unavailable"),
    BusUnavailable: (503, "bus_unavailable"),
    BadFrame: (502, "bad_frame"),
    NotAuthorised: (403, "not_allowed"),
    ConfigurationError: (503, "configuration"),
}
#: The platform's statuses on the wire.
_REFUSALS = {
    "NOT_KEPT": 410,
    "INVALID": 400,
    "UNKNOWN_REQUEST": 404,
    "UNKNOWN_VENUE": 404,
    "UNKNOWN_TICKER": 404,
    "BUSY": 503,
}


class Problem(Exception):
    """Ends a call with this answer. `more`: further members of the problem."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        more: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.more = more or {}
        self.headers = headers or {}


def problem_of(error: CandlewrightError) -> Problem:
    """An error of the platform or its client as the answer to the caller."""
    kind = next((each for each in type(error).__mro__ if each in _STATUS), None)
    if kind is None:
        return Problem(409, "refused", str(error))
    status, name = _STATUS[kind]
    if isinstance(error, PlatformRefused):
        status = _REFUSALS.get(error.code, status)
        name = error.code.lower() or name
        return Problem(status, name, error.text or str(error), headers=_retry(status))
    more = _of_sql(error) if isinstance(error, TriggerRejected) else {}
    detail = error.one_line if isinstance(error, InvalidTrigger) else str(error)
    return Problem(status, name, detail, more=more, headers=_retry(status))


def _retry(status: int) -> dict[str, str]:
    return {"Retry-After": str(_RETRY_SECONDS)} if status == 503 else {}


def _of_sql(error: TriggerRejected) -> dict[str, Any]:
    first = {"message": error.message, "line": error.line, "column": error.column, "hint": error.hint}
    return {"line": error.line, "column": error.column, "hint": error.hint, "errors": [first], **error.details}


def response_of(problem: Problem) -> Response:
    body = {
        "type": f"urn:candlewright:problem:{problem.kind}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        **problem.more,
    }
    return Response(orjson.dumps(body), problem.status, dict(problem.headers), MEDIA_TYPE)
