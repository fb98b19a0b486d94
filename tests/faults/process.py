"""A part as a separate process, without a supervisor."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import IO, Any

from tests.faults.link import Link

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """A separate part with its own connection to Redis."""

    #: Where its log goes; to that of the test by default.
    stderr: int | None = None

    def __init__(self, part: str, folder: Path, link: Link, **environment: str) -> None:
        self.link = link
        self.part = part
        self._output: IO[bytes] | None = None
        self._port_file = folder / f"{link.url[-8:-2].replace(':', '')}.http"
        self._environment = {
            **os.environ,
            "CANDLEWRIGHT_BUS__URL": link.url,
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_HTTP_PORT_FILE": str(self._port_file),
            "CANDLEWRIGHT_LOG__LEVEL": "error",
            **environment,
        }
        self.start()

    def start(self) -> None:
        self._port_file.unlink(missing_ok=True)
        if self._output is not None:
            self._output.close()
        command = [sys.executable, "-m", self.part]
        self.process = subprocess.Popen(
            command, env=self._environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=self.stderr
        )
        self._output = self.process.stdout

    def said(self) -> bytes:
        """The next line on its standard output."""
        assert self._output is not None
        return self._output.readline()

    def status(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port_file.read_text()}/status", timeout=5) as page:
                return dict(json.load(page))
        except (OSError, ValueError):
            return {}

    def is_ready(self) -> bool:
        return bool(self.status().get("ready"))

    def is_standby(self) -> bool:
        """Whether the process stands by, and is warm if its role requires that."""
        status = self.status()
        return bool(status.get("standby") and status.get("role", {}).get("warm", True))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._output is not None:
            self._output.close()
