"""The worker processes for queries: started on demand, ended when they are stuck, cancelled or idle for long."""

import asyncio
import os
import sys
from collections import deque
from dataclasses import dataclass
from typing import Any

import orjson

from candlewright.client import RowsUnavailable
from candlewright.wire.errors import InvalidRequest, TriggerRejected
from console.problems import Problem
from core.settings import Settings

__all__ = ["QueryPool"]

#: How many queries run at a time, and how many more may wait.
_WORKERS = 2
_WAITING = 16
_IDLE_SECONDS = 300.0
#: How much longer than the query its answer may take: the start of the process, reading the tables.
_GRACE_SECONDS = 15.0
_MAX_LINE_BYTES = 1 << 20


@dataclass(slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    ending: asyncio.TimerHandle | None = None


class QueryPool:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(_WORKERS)
        self._waiting = 0
        self._idle: deque[_Worker] = deque()

    async def run(self, sql: str, limit: int, *, is_for_text: bool) -> tuple[bytes, bool]:
        """The rows as an Arrow stream, and whether there are more. Cancelling the caller ends the query. `is_for_text`:
        whether they will be written as JSON or CSV.

        Raises TriggerRejected, InvalidRequest, RowsUnavailable, Problem.
        """
        if self._waiting >= _WAITING:
            raise Problem(
                503,
                "busy",
                f"{self._waiting} queries are already waiting; try again later",
                headers={"Retry-After": "5"},
            )
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._run({"sql": sql, "limit": limit, "is_for_text": is_for_text})
        finally:
            self._slots.release()

    async def close(self) -> None:
        while self._idle:
            await _end(self._idle.popleft())

    async def _run(self, asked: dict[str, Any]) -> tuple[bytes, bool]:
        worker = self._idle.pop() if self._idle else await _start(self._settings)
        if worker.ending is not None:
            worker.ending.cancel()
        try:
            async with asyncio.timeout(self._settings.console.sql_seconds + _GRACE_SECONDS):
                answer, body = await _ask(worker.process, asked)
        except BaseException as error:
            # Stuck, dead, or cancelled: the next query starts a new one.
            await _end(worker)
            if isinstance(error, TimeoutError):
                raise InvalidRequest("the query took longer than console.sql_seconds") from error
            if isinstance(error, asyncio.IncompleteReadError | ConnectionError | ValueError):
                raise InvalidRequest("the query ended its process: it needs more memory than it may have") from error
            raise
        self._keep(worker)
        if told := answer.get("rejected"):
            raise TriggerRejected(told["message"], told["line"], told["column"], hint=told["hint"])
        if told := answer.get("refused"):
            raise InvalidRequest(told)
        if told := answer.get("unavailable"):
            raise RowsUnavailable(told)
        return body, bool(answer["truncated"])

    def _keep(self, worker: _Worker) -> None:
        def end() -> None:
            if worker in self._idle:
                self._idle.remove(worker)
                worker.process.kill()

        worker.ending = asyncio.get_running_loop().call_later(_IDLE_SECONDS, end)
        self._idle.append(worker)


async def _start(settings: Settings) -> _Worker:
    """Start a worker with the settings it needs, and no secrets except those of the tables."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "console.sql",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_MAX_LINE_BYTES,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
    )
    assert process.stdin is not None
    own = settings.model_dump(mode="json", include={"data_dir", "iceberg", "console"})
    process.stdin.write(orjson.dumps(own) + b"\n")
    return _Worker(process)


async def _ask(process: asyncio.subprocess.Process, asked: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(orjson.dumps(asked) + b"\n")
    await process.stdin.drain()
    line = await process.stdout.readuntil(b"\n")
    answer: dict[str, Any] = orjson.loads(line)
    return answer, await process.stdout.readexactly(answer["size"])


async def _end(worker: _Worker) -> None:
    if worker.ending is not None:
        worker.ending.cancel()
    if worker.process.returncode is None:
        worker.process.kill()
        await worker.process.wait()
