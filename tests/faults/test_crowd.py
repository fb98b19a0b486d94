"""Peers that only open connections, more than the usual limit on descriptors: others are served meanwhile."""

# ruff: noqa: T201

import resource
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

import candlewright as cw
from bus.redis.embedded import EmbeddedRedis
from candlewright_platform.supervisor.ports import free_port
from tests.broker.harness import Peer, eventually
from tests.faults.link import Link
from tests.faults.process import Process

CROWD, LONG_CROWD = 1_500, 10_000
#: The soft limit with which parts start, usually 1,024.
SOFT_LIMIT = 256
#: Connections that the kernel takes at once for a listener, and the pause (s) in which libzmq accepts them.
PORTION, PAUSE_SECONDS = 50, 0.02

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Raises the limit for a crowd in this process, and sets a small soft limit for those that it starts."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        yield stack


def crowd(address: str, count: int, stack: ExitStack) -> None:
    """`count` connections that send nothing."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    for number in range(count):
        peer = stack.enter_context(socket.socket())
        peer.setblocking(False)
        peer.connect_ex((host, int(port)))
        if number % PORTION == PORTION - 1:
            threading.Event().wait(PAUSE_SECONDS)


class Doors:
    """A bus, and a process for each part with a door, started with the usual soft limit."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        redis = stack.enter_context(EmbeddedRedis(folder / "redis", fsync="no"))
        self.broker, self.requests, self.notifications = (f"tcp://127.0.0.1:{free_port()}" for _ in range(3))
        self.console, self.status = (f"127.0.0.1:{free_port()}" for _ in range(2))
        binds = {
            "CANDLEWRIGHT_BROKER__BIND": self.broker,
            "CANDLEWRIGHT_RELAY__REQUESTS_BIND": self.requests,
            "CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND": self.notifications,
            "CANDLEWRIGHT_CONSOLE__BIND": self.console,
        }
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT_LIMIT, most))
        self.parts: list[Process] = []
        for part in ("broker", "relay", "console"):
            own = folder / part
            own.mkdir()
            link = stack.enter_context(Link(redis.url))
            further = {"CANDLEWRIGHT_HTTP__BIND": self.status} if part == "console" else {}
            self.parts.append(Process(part, own, link, CANDLEWRIGHT_DATA_DIR=str(own), **binds, **further))
            stack.callback(self.parts[-1].end)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        for each in self.parts:
            eventually(each.is_ready, 60)

    def memory_mib(self) -> dict[str, int]:
        return {each.part: psutil.Process(each.process.pid).memory_info().rss >> 20 for each in self.parts}


@pytest.mark.parametrize("count", [CROWD, pytest.param(LONG_CROWD, marks=pytest.mark.long)])
def test_a_silent_crowd_keeps_no_client_and_no_ingestor_out(tmp_path: Path, stack: ExitStack, count: int) -> None:
    doors = Doors(tmp_path, stack)
    print("MiB before:", doors.memory_mib())
    for address in (doors.broker, doors.requests, doors.notifications, doors.console, doors.status):
        with ExitStack() as peers:
            crowd(address, count, peers)
            # They wait for less time than the 30 s for which libzmq keeps silent connections.
            began = time.monotonic()
            with cw.connect([(doors.requests, doors.notifications)], timeout=20) as client:
                assert client.triggers.list() == []
            worker = Peer(doors.broker)
            peers.callback(worker.close)
            worker.offer()
            assert worker.receive(20, heartbeats=True) is not None
            for page in (f"{doors.console}/api/v1/triggers", f"{doors.status}/health"):
                with urllib.request.urlopen(f"http://{page}", timeout=20) as answer:
                    assert answer.status == 200
            print(f"{address}, {count} connections: {time.monotonic() - began:.1f} s; MiB:", doors.memory_mib())
    assert [part.process.poll() for part in doors.parts] == [None, None, None]
