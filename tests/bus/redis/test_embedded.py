import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bus.api import Record
from bus.redis.embedded import EmbeddedRedis, find_redis_server
from bus.redis.redis_bus import RedisBus
from candlewright.wire.errors import BusError

ROOT = Path(__file__).resolve().parents[3]


def test_records_survive_a_stop_and_start(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path, fsync="no") as server:
        bus = RedisBus(server.url)
        bus.create_topic("t", 1)
        bus.publish("t", [Record(b"x")] * 3)
        bus.close()
    with EmbeddedRedis(tmp_path) as server:
        bus = RedisBus(server.url)
        assert [r.offset for r in bus.read("t", 0, 0)] == [0, 1, 2]
        bus.close()


def test_a_restart_keeps_the_address(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path)
    with server:
        first = server.url, server.pid
        server.kill()
        assert not server.is_running
        server.start()
        assert (server.url, server.pid) != first
        assert server.url == first[0]
        assert server.start().pid == server.pid
    assert server.pid is None


def test_unknown_clients_need_the_password_and_other_addresses_are_not_bound(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", server.port))
        for url in (f"redis://{server.host}:{server.port}", f"redis://:wrong@{server.host}:{server.port}"):
            stranger = RedisBus(url)
            with pytest.raises(BusError) as caught:
                stranger.topics()
            assert not caught.value.retryable
            stranger.close()
        for name in ("redis.password", "redis.conf"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with (
        EmbeddedRedis(tmp_path / "one") as server,
        pytest.raises(BusError, match="ended with code 1"),
        EmbeddedRedis(tmp_path / "two", port=server.port),
    ):
        pytest.fail("two servers on one port")


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server:
        with pytest.raises(BusError, match="another process"):
            EmbeddedRedis(tmp_path).start()
        assert server.is_running


@pytest.mark.processes
def test_a_server_whose_owner_was_killed_is_replaced(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from bus.redis.embedded import EmbeddedRedis\n"
        "server = EmbeddedRedis(pathlib.Path(sys.argv[1])).start()\n"
        "print(server.pid, server.url, flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdin is not None
    lines = iter(owner.stdout.readline, "")
    orphan, url = next(line for line in lines if "redis://" in line).split()[-2:]
    bus = RedisBus(url)
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"kept")])
    bus.close()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdin.close()
    owner.stdout.close()
    os.kill(int(orphan), 0)
    with EmbeddedRedis(tmp_path) as server:
        assert server.pid != int(orphan)
        bus = RedisBus(server.url)
        assert [r.value for r in bus.read("t", 0, 0)] == [b"kept"]
        bus.close()


def test_a_server_that_is_too_old_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho Redis server v=6.0.16 sha=00000000\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert find_redis_server() != old
    old.write_text("#!/bin/sh\necho Redis server v=7.0.15 sha=00000000\n")
    assert find_redis_server() == old
