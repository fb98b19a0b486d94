"""The holder's side of `bus/redis/renewer.py`, the process that renews a lease in place of a busy holder."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.log import get_logger

_PROGRAM = Path(__file__).with_name("redis") / "renewer.py"
#: How long (s) it may take to release the role.
_END_SECONDS = 2.0
#: Heartbeats after which a process that has not renewed is not waited for.
_PATIENCE = 2

log = get_logger()


class Renewer:
    """Call `beat` at each renewal that is due. A process that has ended is started again by the next call."""

    def __init__(self, orders: Mapping[str, Any]) -> None:
        self._orders = json.dumps(orders).encode() + b"\n"
        self._process: subprocess.Popen[bytes] | None = None
        self._missed = _PATIENCE

    def beat(self) -> bool:
        """Send a heartbeat; whether the process has renewed the lease lately, so that the holder need not."""
        if self._process is None:
            self._start()
            return False
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(b".")
            renewed = process.stdout.read()
        except OSError:
            renewed = b""
        if renewed == b"":
            self.close()
            if process.returncode:
                log.warning("renewer_ended", code=process.returncode)
            return False
        self._missed = 0 if renewed else self._missed + 1
        return self._missed < _PATIENCE

    def close(self) -> None:
        """The process releases the role and ends."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> None:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            log.warning("renewer_not_started", error=str(error))
            return
        assert process.stdin is not None and process.stdout is not None
        self._process, self._missed = process, _PATIENCE
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)
        # It may have ended already, as the next heartbeat will find.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(self._orders)
