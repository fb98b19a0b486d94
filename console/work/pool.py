"""The worker processes: started on demand, ended when they are stuck, cancelled or idle for long."""

import asyncio
import os
import sys
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from console.problems import Problem
from core.settings import Settings

__all__ = ["Workers"]

#: How many tasks of each kind run at a time. An editor's requests while its user types do not wait for long tasks.
_RUNNING = {"query": 2, "quick": 1, "long": 2}
_KIND = {"query": "query", "check": "quick", "language": "quick"}
#: How many more of each kind may wait.
_WAITING = 16
#: How long (s) a task without a limit of its own may take: trials over years take minutes.
_LONGEST_SECONDS = 600.0
#: A worker takes 100 MB, and about a second to start.
_IDLE_SECONDS = 60.0
#: How much longer than the work its answer may take: the start of the process, reading the tables.
_GRACE_SECONDS = 15.0
_MAX_LINE_BYTES = 1 << 20


@dataclass(slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    ending: asyncio.TimerHandle | None = None


class Workers:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._slots = {kind: asyncio.Semaphore(count) for kind, count in _RUNNING.items()}
        self._waiting: Counter[str] = Counter()
        self._idle: deque[_Worker] = deque()

    async def run(
        self, task: str, given: Mapping[str, Any], *, seconds: float | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """A task's description of its body, and the body. Cancelling the caller ends the work. `seconds`: of a query,
        `console.sql_seconds`; other tasks may take ten minutes. Raises Problem.
        """
        kind = _KIND.get(task, "long")
        slots = self._slots[kind]
        if self._waiting[kind] >= _WAITING:
            raise Problem(
                503,
                "busy",
                f"{self._waiting[kind]} calls like this are already waiting; try again later",
                headers={"Retry-After": "5"},
            )
        self._waiting[kind] += 1
        try:
            await slots.acquire()
        finally:
            self._waiting[kind] -= 1
        try:
            return await self._run({"task": task, "given": given}, seconds)
        finally:
            slots.release()

    async def close(self) -> None:
        while self._idle:
            await _end(self._idle.popleft())

    async def _run(self, asked: dict[str, Any], seconds: float | None) -> tuple[dict[str, Any], bytes]:
        worker = self._taken() or await _start(self._settings)
        try:
            async with asyncio.timeout((_LONGEST_SECONDS if seconds is None else seconds) + _GRACE_SECONDS):
                answer, body = await _ask(worker.process, asked)
        except BaseException as error:
            # Stuck, dead, or cancelled: the next call starts a new one.
            await _end(worker)
            if isinstance(error, TimeoutError):
                text = (
                    "the query took longer than console.sql_seconds"
                    if seconds is not None
                    else f"the work took longer than {_LONGEST_SECONDS:.0f} seconds; name a shorter range"
                )
            elif isinstance(error, asyncio.IncompleteReadError | ConnectionError | ValueError):
                text = "the work ended its process: it needs more memory than it may have"
            else:
                raise
            raise Problem(400, "invalid_request", text) from error
        self._keep(worker)
        if told := answer.get("failed"):
            raise RuntimeError(f"the task {asked['task']} failed in its worker:\n{told}")
        if told := answer.get("problem"):
            raise Problem(told["status"], told["kind"], told["detail"], more=told["more"], headers=told["headers"])
        return answer, body

    def _taken(self) -> _Worker | None:
        """An idle worker that has not died meanwhile, such as by the kernel for lack of memory."""
        while self._idle:
            worker = self._idle.pop()
            if worker.ending is not None:
                worker.ending.cancel()
            if worker.process.returncode is None:
                return worker
        return None

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
        "console.work",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_MAX_LINE_BYTES,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
    )
    assert process.stdin is not None
    own = settings.model_dump(mode="json", include={"data_dir", "iceberg", "console", "triggers"})
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
