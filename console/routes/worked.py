"""Answers calls by the workers."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from candlewright.client import PlatformUnreachable
from console.operation import Call
from console.problems import Problem
from core.background import awaited_task

__all__ = ["done_by_worker", "done_with_views", "worked"]

#: No client reads it.
_GONE = 408


async def worked(call: Call, task: str, given: Mapping[str, Any]) -> Response:
    """The JSON that a task returns."""
    _, body = await done_by_worker(call, task, given)
    return Response(body, media_type="application/json")


async def done_by_worker(
    call: Call, task: str, given: Mapping[str, Any], *, seconds: float | None = None
) -> tuple[dict[str, Any], bytes]:
    """If the caller hangs up, the task is cancelled. Raises Problem."""
    work = awaited_task(call.services.workers.run(task, given, seconds=seconds), "work")
    gone = awaited_task(_disconnected(call.request), "work-caller")
    try:
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Problem(_GONE, "gone", "the caller has gone")
        return work.result()
    finally:
        gone.cancel()
        work.cancel()


async def done_with_views(
    call: Call, task: str, given: Mapping[str, Any], *, seconds: float | None = None
) -> tuple[dict[str, Any], bytes]:
    """`done_by_worker` for a task that gets the registered views if its text is refused without them."""
    told, body = await done_by_worker(call, task, {**given, "views": None}, seconds=seconds)
    if not told.get("needs_views"):
        return told, body
    try:
        views = {view.name: view.sql for view in await (await call.services.client()).views.list()}
    except PlatformUnreachable:
        views = {}
    return await done_by_worker(call, task, {**given, "views": views}, seconds=seconds)


async def _disconnected(request: Request) -> None:
    # The body has been read, so the next message is the end of the connection.
    while (await request.receive())["type"] != "http.disconnect":
        pass
