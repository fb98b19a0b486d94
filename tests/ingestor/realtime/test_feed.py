"""Messages of a venue's websocket, as stock ccxt hands them over."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from aiohttp import WSMessage, WSMsgType

from ingestor.realtime.feed import received


class Client:
    """Of ccxt, with messages that have arrived in `buffer`."""

    def __init__(self, *messages: WSMessage) -> None:
        self.buffer = list(messages)
        self.handled: list[Any] = []
        self.then: Callable[[], object] = bool
        self.connection = SimpleNamespace(receive=self._receive)

    async def _receive(self) -> WSMessage:
        while not self.buffer:
            await asyncio.sleep(0)
        return self.buffer.pop(0)

    def handle_message(self, message: WSMessage) -> None:
        self.handled.append(message.data)
        self.then()


def text(content: str) -> WSMessage:
    return WSMessage(WSMsgType.TEXT, content, None)


def open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


async def test_messages_that_arrived_together_are_handled_in_one_round_of_the_loop() -> None:
    client = Client(text("1"), text("2"), text("3"))
    receiving = asyncio.create_task(received(client, open_gate()))
    await asyncio.sleep(0)
    assert client.handled == ["1", "2", "3"]
    client.buffer.append(text("4"))
    await asyncio.sleep(0)
    assert client.handled == ["1", "2", "3", "4"]
    receiving.cancel()


async def test_a_message_without_content_is_left_to_ccxt_with_those_after_it() -> None:
    close = WSMessage(WSMsgType.CLOSE, 1000, None)
    client = Client(text("1"), close, text("2"))
    assert await received(client, open_gate()) is close
    assert client.handled == ["1"] and len(client.buffer) == 1


async def test_nothing_more_is_received_once_the_gate_is_closed() -> None:
    client, gate = Client(text("1"), text("2")), open_gate()
    client.then = gate.clear
    receiving = asyncio.create_task(received(client, gate))
    for _ in range(5):
        await asyncio.sleep(0)
    assert client.handled == ["1"]
    gate.set()
    await asyncio.sleep(0)
    assert client.handled == ["1", "2"]
    receiving.cancel()
