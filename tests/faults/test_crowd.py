"""Peers that only open connections, more than the usual limit on descriptors: others are served meanwhile."""

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

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
    """With room for a crowd in this process, and a small soft limit in those that it starts."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        yield stack


def crowd(address: str, count: int, stack: ExitStack) -> None:
    """`count` connections that say nothing."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    for number in range(count):
        peer = stack.enter_context(socket.socket())
        peer.setblocking(False)
        peer.connect_ex((host, int(port)))
        if number % PORTION == PORTION - 1:
            threading.Event().wait(PAUSE_SECONDS)


@pytest.mark.parametrize("count", [CROWD, pytest.param(LONG_CROWD, marks=pytest.mark.long)])
def test_a_silent_crowd_keeps_no_client_and_no_ingestor_out(tmp_path: Path, stack: ExitStack, count: int) -> None:
    redis = stack.enter_context(EmbeddedRedis(tmp_path / "redis", fsync="no"))
    broker, requests, notifications = (f"tcp://127.0.0.1:{free_port()}" for _ in range(3))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT_LIMIT, most))
    parts = []
    for part, binds in (
        ("broker", {"BROKER__BIND": broker}),
        ("relay", {"RELAY__REQUESTS_BIND": requests, "RELAY__NOTIFICATIONS_BIND": notifications}),
    ):
        own = {f"CANDLEWRIGHT_{name}": bind for name, bind in binds.items()}
        folder = tmp_path / part
        folder.mkdir()
        link = stack.enter_context(Link(redis.url))
        parts.append(Process(part, folder, link, CANDLEWRIGHT_DATA_DIR=str(folder), **own))
        stack.callback(parts[-1].end)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for part in parts:
        eventually(part.is_ready, 60)

    for address in (broker, requests, notifications):
        with ExitStack() as peers:
            crowd(address, count, peers)
            # Both wait for less time than the 30 s for which libzmq keeps silent connections.
            with cw.connect([(requests, notifications)], timeout=20) as client:
                assert client.triggers.list() == []
            worker = Peer(broker)
            peers.callback(worker.close)
            worker.offer()
            assert worker.receive(20, heartbeats=True) is not None
    assert [part.process.poll() for part in parts] == [None, None]
