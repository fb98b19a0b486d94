"""The state of the platform, and the caller's role."""

from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from candlewright.version import VERSION
from console.operation import Answer, Call, Operation

__all__ = ["OPERATIONS"]


class Status(BaseModel):
    """The supervisor's `/status`, with the caller's role."""

    model_config = ConfigDict(extra="allow")

    version: str
    role: str = Field(
        description="The caller's permissions: `viewer` reads and tries, `operator` may also make changes."
    )
    signed_in_as: str | None = Field(description="The name of the caller's token.")
    ready: bool
    healthy: bool
    parts: dict[str, Any] = Field(description="Every process of the platform; empty if no supervisor runs them.")


async def get_status(call: Call) -> Response:
    page = await call.services.supervisor()
    own: dict[str, Any] = {"version": VERSION, "ready": True, "healthy": True, "parts": {}}
    caller = {"role": call.who.role, "signed_in_as": call.who.name if call.who.has_token else None}
    return Response(orjson.dumps({**own, **(page or {}), **caller}, default=str), media_type="application/json")


OPERATIONS = (
    Operation(
        method="GET",
        path="/status",
        handler=get_status,
        summary="The state of every part of the platform",
        answers={200: Answer("The status page.", Status)},
        tag="platform",
    ),
)
