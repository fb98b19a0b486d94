"""An ingestor that is refused does not reconnect in a tight loop. Real sockets."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from broker.guard import Guard
from candlewright.wire.keys import ClientKey
from core.doors import KeyFolder, Role
from ingestor.connection import Connection
from tests.broker.test_keys import counted

SECONDS = 2.0
#: libzmq reconnects at most ten times a second.
MANY = 30


class Knocking:
    """Connects again whenever the connection is lost, as an ingestor does."""

    def __init__(self, address: str, key: ClientKey | None, *, moves_on: bool) -> None:
        self.connections = 0
        self._context = zmq.asyncio.Context()
        self._address, self._key, self._moves_on = address, key, moves_on
        self._connection = self._connect()

    def close(self) -> None:
        self._connection.close(0)
        self._context.destroy(0)

    def _connect(self) -> Connection:
        self.connections += 1
        return Connection(
            self._context,
            self._address,
            lambda _: None,
            on_lost=self._lost,
            moves_on=self._moves_on,
            key=self._key,
        )

    def _lost(self) -> None:
        self._connection.close(0)
        self._connection = self._connect()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.mark.parametrize("moves_on", [False, True])
async def test_a_refused_key_is_not_tried_hundreds_of_times_a_second(
    tmp_path: Path, stack: ExitStack, *, moves_on: bool
) -> None:
    """The end of a refused connection used to count as a lost broker, which caused 250 connections a second."""
    context = zmq.Context()
    stack.callback(context.destroy, 0)
    guard = stack.enter_context(closing(Guard(context, tmp_path)))
    router = context.socket(zmq.ROUTER)
    guard.guard(router)
    guard.start()
    port = router.bind_to_random_port("tcp://127.0.0.1")
    key = KeyFolder(tmp_path).new("alice", tmp_path / "alice.key", Role.client)
    before = counted("refused_keys")
    knocking = stack.enter_context(closing(Knocking(f"tcp://127.0.0.1:{port}", key, moves_on=moves_on)))
    await asyncio.sleep(SECONDS)
    assert 1 <= counted("refused_keys") - before <= MANY
    assert knocking.connections <= MANY
    router.close(0)


@pytest.mark.parametrize("moves_on", [False, True])
async def test_a_door_that_closes_at_once_is_not_tried_hundreds_of_times_a_second(
    stack: ExitStack, *, moves_on: bool
) -> None:
    """The address of a load balancer without a running broker behaves like this."""
    accepted = 0

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    knocking = stack.enter_context(closing(Knocking(f"tcp://{host}:{port}", None, moves_on=moves_on)))
    await asyncio.sleep(SECONDS)
    server.close()
    assert 1 <= accepted <= MANY
    assert knocking.connections <= MANY
