"""Runs the sandbox in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from core.background import start_thread
from sandbox.behaviour.faults import Fault
from sandbox.serving.server import Sandbox

_Result = TypeVar("_Result")


class SandboxThread:
    """A Sandbox in a thread with its own event loop, for tests and programs without asyncio.

    Takes the arguments of Sandbox. `call` runs a function with the Sandbox in that thread.
    """

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sandbox: Sandbox | None = None

    @property
    def url(self) -> str:
        """See Sandbox."""
        return self._running().url

    @property
    def ws_url(self) -> str:
        """See Sandbox."""
        return self._running().ws_url

    def call(self, function: Callable[[Sandbox], _Result]) -> _Result:
        """Run the function with the Sandbox in its thread; returns the result."""
        sandbox = self._running()

        async def run() -> _Result:
            return function(sandbox)

        if self._loop is None:
            raise RuntimeError("the sandbox is not running")
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def add_fault(self, fault: Fault) -> int:
        """See Sandbox."""
        return self.call(lambda sandbox: sandbox.add_fault(fault))

    def clear_faults(self) -> None:
        """See Sandbox."""
        self.call(lambda sandbox: sandbox.clear_faults())

    def __enter__(self) -> Self:
        started: Future[Sandbox] = Future()
        self._thread = start_thread("sandbox", lambda: asyncio.run(self._run(started)))
        self._sandbox = started.result(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._finish)
            self._thread.join(10)

    def _running(self) -> Sandbox:
        if self._sandbox is None:
            raise RuntimeError("the sandbox is not running")
        return self._sandbox

    def _finish(self) -> None:
        self._finished.set()

    async def _run(self, started: Future[Sandbox]) -> None:
        self._loop = asyncio.get_running_loop()
        self._finished = asyncio.Event()
        try:
            async with Sandbox(**self._arguments) as sandbox:
                started.set_result(sandbox)
                await self._finished.wait()
        except (OSError, ValueError) as error:
            started.set_exception(error)
