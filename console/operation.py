"""One call of the API. Its declaration determines what is served, what is checked, and what the document says."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from console.access import Who
from console.problems import Problem
from core.doors import Role

if TYPE_CHECKING:
    from console.services import Services

__all__ = ["Answer", "Body", "Call", "Operation", "Query", "checked_body", "checked_query"]

_JSON = "application/json"
_SHOWN_CHARACTERS = 200
#: How long a call may take to send its body.
_BODY_SECONDS = 30.0


class Query(BaseModel):
    """Parameters in the address."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Body(BaseModel):
    """The body of a call."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """`model`: of the JSON; `media`: other formats of the same content; `events`: for a stream, the JSON of each kind
    of event.
    """

    description: str
    model: type[BaseModel] | None = None
    media: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    events: Mapping[str, type[BaseModel]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """A checked call. `query` and `body` are instances of the operation's models."""

    request: Request
    services: "Services"
    who: Who
    path: Mapping[str, str]
    query: Any
    body: Any


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(kw_only=True, frozen=True, slots=True)
class Operation:
    """`path` is below `/api/v1`; `answers`: the successful ones by status; `problems`: further errors that it may end
    with; `role`: who may call it.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answers: Mapping[int, Answer]
    query: type[Query] | None = None
    body: type[Body] | None = None
    problems: Sequence[int] = ()
    role: Role = Role.viewer
    is_public: bool = False
    tag: str = ""

    @property
    def name(self) -> str:
        return self.handler.__name__


def checked_query(model: type[Query] | None, connection: HTTPConnection) -> Query | None:
    """Raises Problem."""
    given = connection.query_params
    if model is None:
        if given:
            raise _wrong(f"{next(iter(given))}: this call takes no parameters")
        return None
    values: dict[str, Any] = {}
    for name in given:
        several = given.getlist(name)
        found = model.model_fields.get(name)
        if found is not None and get_origin(found.annotation) in (tuple, list):
            values[name] = tuple(several)
        elif len(several) > 1:
            raise _wrong(f"{name}: given {len(several)} times, allowed once")
        else:
            values[name] = several[0]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _invalid(error) from error


async def checked_body(model: type[Body] | None, request: Request, most_bytes: int) -> Body | None:
    """Raises Problem for a body that is too long, not JSON, or does not fit."""
    text = await _read(request, most_bytes)
    if model is None:
        if text:
            raise _wrong("this call takes no body")
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise Problem(415, "not_json", f"send {_JSON}, not {kind[:_SHOWN_CHARACTERS] or 'a body without Content-Type'}")
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise _invalid(error) from error


async def _read(request: Request, most_bytes: int) -> bytes:
    # What remains of the body is not read.
    closing = {"Connection": "close"}
    too_large = Problem(413, "too_large", f"a body has at most {most_bytes} bytes", headers=closing)
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and (len(stated) > 18 or int(stated) > most_bytes):
        raise too_large
    size, parts = 0, []
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most_bytes:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        text = f"the body did not come within {_BODY_SECONDS:.0f} s"
        raise Problem(408, "too_slow", text, headers=closing) from None
    return b"".join(parts)


def _invalid(error: ValidationError) -> Problem:
    """A sentence for each mistake, the first one in `detail`."""
    errors = [
        {"place": ".".join(map(str, each["loc"])), "message": _sentence(each)}
        for each in error.errors(include_url=False, include_context=True, include_input=False)
    ]
    first = errors[0]
    text = f"{first['place']}: {first['message']}" if first["place"] else first["message"]
    return Problem(400, "invalid_request", text, more={"errors": errors})


def _sentence(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown name"
    if error["type"] == "missing":
        return "is missing"
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _wrong(text: str) -> Problem:
    return Problem(400, "invalid_request", text)
