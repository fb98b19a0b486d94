"""A separate platform on free ports, which does not disturb another one: for the demo, benchmarks and tests."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from candlewright.settings import PREFIX
from candlewright.wire.errors import CandlewrightError
from candlewright_platform.supervisor.parts import merged
from candlewright_platform.supervisor.ports import free_port
from candlewright_platform.supervisor.processes import GUARD
from core.background import start_thread
from core.settings import Settings

READY_SECONDS = 1_800.0
STOP_SECONDS = 90.0


class PrivatePlatform:
    """`candlewright up` as a child process, which does not outlive this one.

    The variables and settings files of the caller are not inherited; `environment` names settings without the prefix
    (`BUS__FSYNC`). `hear` gets what `up` writes to stderr. `start` again after `stop` or `kill` keeps data and ports.
    """

    def __init__(
        self,
        data_dir: Path,
        arguments: Sequence[str] = ("--sandbox",),
        environment: Mapping[str, str] | None = None,
        *,
        hear: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self._arguments = tuple(arguments)
        self._hear = hear
        self._own = {
            "BROKER__BIND": f"tcp://127.0.0.1:{free_port()}",
            "RELAY__REQUESTS_BIND": f"tcp://127.0.0.1:{free_port()}",
            "RELAY__NOTIFICATIONS_BIND": f"tcp://127.0.0.1:{free_port()}",
            "SPARK__CONNECT_BIND": f"127.0.0.1:{free_port()}",
            "HTTP__BIND": f"127.0.0.1:{free_port()}",
            "CONSOLE__BIND": f"127.0.0.1:{free_port()}",
            **(environment or {}),
        }
        self._process: subprocess.Popen[str] | None = None
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    @property
    def settings(self) -> Settings:
        """The settings of this platform's clients."""
        groups: dict[str, Any] = {"data_dir": self.data_dir, "client": {"key": ""}}
        for name in ("relay", "broker", "spark", "http", "console"):
            prefix = f"{name.upper()}__"
            binds = {k: v for k, v in self._own.items() if k.startswith(prefix) and k.endswith("BIND")}
            groups[name] = {key.removeprefix(prefix).lower(): value for key, value in binds.items()}
        return Settings.model_validate(groups)

    @property
    def pid(self) -> int:
        """The process id of `up`; raises CandlewrightError while it does not run."""
        if self._process is None:
            raise CandlewrightError("this platform is not running")
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, timeout_seconds: float = READY_SECONDS) -> Self:
        """Returns when every part is ready; raises CandlewrightError if one does not become ready."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
        command = [sys.executable, "-m", "candlewright", "up", "--data-dir", str(self.data_dir), *self._arguments]
        self._lines = SimpleQueue()
        process = self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(GUARD), str(os.getpid()), *command],
            env=merged(inherited, self._own),
            cwd=self.data_dir,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

        def kill(error: BaseException) -> None:
            # A writer hangs if its pipe is not read.
            process.kill()

        self._threads = [
            start_thread("platform-stdout", partial(self._read_stdout, process, self._lines), on_failure=kill),
            start_thread("platform-stderr", partial(self._read_stderr, process), on_failure=kill),
        ]
        self._wait_ready(time.monotonic() + timeout_seconds, timeout_seconds)
        return self

    def stop(self) -> int:
        """Stop it cleanly; returns the exit code of `up`, or 0 if it did not run."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._end()

    def kill(self) -> None:
        """Kill `up` itself, as a crash would; its parts end with it."""
        if self._process is not None:
            self._process.kill()
            self._end()

    def _wait_ready(self, give_up: float, timeout_seconds: float) -> None:
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, give_up - time.monotonic()))
            except Empty:
                raise CandlewrightError(f"the platform was not ready within {timeout_seconds:g} s") from None
            if line is None:
                raise CandlewrightError(f"the platform ended with exit code {self._end()} before it was ready")
            if line == "ready":
                return

    def _end(self) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        code = process.wait()
        for thread in self._threads:
            thread.join()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        return code

    @staticmethod
    def _read_stdout(process: "subprocess.Popen[str]", lines: "SimpleQueue[str | None]") -> None:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.put(line.rstrip("\n"))
        finally:
            lines.put(None)

    def _read_stderr(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self._hear(line.rstrip("\n"))
