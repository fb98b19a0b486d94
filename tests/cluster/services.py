"""The services of compose.yaml as processes, on ports of this machine."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import yaml

from tests.conftest import ROOT

#: A busy machine takes minutes for what a quiet one does in seconds; a process that ends is reported immediately.
PATIENCE_SECONDS = 600.0

T = TypeVar("T")

#: Runs a command in which one folder is mounted over another, invisibly to other processes.
_UNSHARE = ("unshare", "--mount", *(("--map-root-user",) if os.geteuid() else ()))
_BIND = 'mount --bind "$0" "$1" && shift && exec "$@"'

SERVICES = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]


def command(service: str, replaced: dict[str, str]) -> list[str]:
    """The service's command with names and ports of this machine."""
    words = [str(word) for word in SERVICES[service]["command"]]
    for old, new in replaced.items():
        words = [word.replace(old, new) for word in words]
    program = Path(sys.executable).with_name(words[0])
    return [str(program if words[0] != "python" else sys.executable), *words[1:]]


@contextmanager
def running(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **environment}, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Services:
    """The processes that must stay alive, by name; their logs are in `folder`.

    Each has its own folder at `private`, empty at first, whatever other processes have there.
    """

    def __init__(self, folder: Path, stack: ExitStack, private: Path | None = None) -> None:
        self._folder = folder
        self._stack = stack
        self._private = private
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        if self._private is not None:
            own = self._folder / "own" / name
            own.mkdir(parents=True, exist_ok=True)
            command = [*_UNSHARE, "sh", "-c", _BIND, str(own), str(self._private), *command]
        process = running(command, self._folder / f"{name}.log", environment)
        self._processes[name] = self._stack.enter_context(process)

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def kill_alone(self, name: str) -> None:
        """Kills the process without those that it has started."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def release(self, name: str) -> subprocess.Popen[bytes]:
        """From now on the service may end."""
        return self._processes.pop(name)

    def wait_until(self, condition: Callable[[], T | None], what: str) -> T:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := condition()):
            for name, process in self._processes.items():
                assert process.poll() is None, (name, (self._folder / f"{name}.log").read_text()[-2_000:])
            assert time.monotonic() < deadline, f"never: {what}"
            time.sleep(0.2)
        return found


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
