"""Websocket requests and faults over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from sandbox import Fault, Sandbox

pytestmark = pytest.mark.timeout(30)
Socket = aiohttp.ClientWebSocketResponse


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def trades(socket: Socket, count: int) -> list[int]:
    """The ids of the next `count` trades."""
    return [(await socket.receive_json(timeout=5))["t"] for _ in range(count)]


async def connected(sandbox: Sandbox, client: aiohttp.ClientSession, path: str = "/ws/btcusdt@trade") -> Socket:
    """A websocket whose subscription is in force."""
    socket = await client.ws_connect(sandbox.ws_url + path)
    await socket.send_json({"method": "LIST_SUBSCRIPTIONS", "id": 1})
    while "result" not in await socket.receive_json(timeout=5):
        pass
    return socket


async def ask(socket: Socket, method: str, *streams: str, number: int = 1) -> Any:
    await socket.send_json({"method": method, "params": list(streams), "id": number})
    return await socket.receive_json(timeout=5)


async def test_subscription_is_acknowledged_listed_and_taken_back(
    sandbox: Sandbox, client: aiohttp.ClientSession
) -> None:
    async with client.ws_connect(sandbox.ws_url + "/ws/0") as socket:
        assert await ask(socket, "SUBSCRIBE", "btcusdt@trade", "ethusdt@aggTrade", number=7) == {
            "result": None,
            "id": 7,
        }
        assert await ask(socket, "LIST_SUBSCRIPTIONS") == {"result": ["btcusdt@trade", "ethusdt@aggTrade"], "id": 1}
        sandbox.clock.advance(2_000)
        assert (await socket.receive_json(timeout=5))["e"] in ("trade", "aggTrade")
        await socket.send_json({"method": "UNSUBSCRIBE", "params": ["btcusdt@trade", "ethusdt@aggTrade"], "id": 9})
        while "id" not in (message := await socket.receive_json(timeout=5)):
            pass
        assert message == {"result": None, "id": 9}
        assert await ask(socket, "LIST_SUBSCRIPTIONS") == {"result": [], "id": 1}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("no json", 3),
        ("[1]", 3),
        ('{"id":1}', 3),
        ('{"method":"DANCE","id":1}', 2),
        ('{"method":"SUBSCRIBE","params":[1]}', 2),
    ],
)
async def test_malformed_request_is_answered_and_the_connection_stays(
    sandbox: Sandbox, client: aiohttp.ClientSession, text: str, code: int
) -> None:
    async with client.ws_connect(sandbox.ws_url + "/ws") as socket:
        await socket.send_str(text)
        assert (await socket.receive_json(timeout=5))["error"]["code"] == code
        assert (await ask(socket, "SUBSCRIBE", "btcusdt@trade"))["result"] is None


async def test_combined_stream_wraps_events_with_their_name(sandbox: Sandbox, client: aiohttp.ClientSession) -> None:
    async with await connected(sandbox, client, "/stream?streams=btcusdt@trade/ethusdt@trade") as socket:
        sandbox.clock.advance(5_000)
        message = await socket.receive_json(timeout=5)
        assert message["stream"] in ("btcusdt@trade", "ethusdt@trade")
        assert message["data"]["e"] == "trade"


async def test_time_that_was_jumped_over_is_not_streamed(sandbox: Sandbox, client: aiohttp.ClientSession) -> None:
    async with await connected(sandbox, client) as socket:
        sandbox.clock.set(sandbox.clock.now() + 3_600_000)
        await ask(socket, "LIST_SUBSCRIPTIONS")
        first = sandbox.markets["BTCUSDT"].fill_at(sandbox.clock.now() + 1)
        sandbox.clock.advance(5_000)
        assert (await trades(socket, 1)) == [first]


async def test_running_clock_streams_by_itself(client: aiohttp.ClientSession) -> None:
    async with (
        Sandbox(clock="2024-03-05T14:00", speed=60, rate_limit=False) as fast,
        await connected(fast, client) as socket,
    ):
        ids = await trades(socket, 50)
        assert ids == list(range(ids[0], ids[0] + 50))


async def test_duplicated_swapped_and_dropped_trades(sandbox: Sandbox, client: aiohttp.ClientSession) -> None:
    first = sandbox.markets["BTCUSDT"].fill_at(sandbox.clock.now() + 1)
    sandbox.add_fault(Fault(kind="duplicate", count=1))
    sandbox.add_fault(Fault(kind="swap", count=1))
    sandbox.add_fault(Fault(kind="drop", after=3, count=2))
    async with await connected(sandbox, client) as socket:
        sandbox.clock.advance(60_000)
        ids = [number - first for number in await trades(socket, 8)]
    assert ids == [0, 0, 2, 1, 5, 6, 7, 8]
    assert {kind: sandbox.stream_counters[kind] for kind in ("duplicate", "swap", "drop")} == {
        "duplicate": 1,
        "swap": 1,
        "drop": 2,
    }


async def test_late_trades_come_after_those_that_followed_them(sandbox: Sandbox, client: aiohttp.ClientSession) -> None:
    first = sandbox.markets["BTCUSDT"].fill_at(sandbox.clock.now() + 1)
    sandbox.add_fault(Fault(kind="late", after=1, count=3, seconds=0.2))
    async with await connected(sandbox, client) as socket:
        sandbox.clock.advance(10_000)
        ids = [number - first for number in await trades(socket, 2)]
        while not {1, 2, 3} <= set(ids):
            ids += [number - first for number in await trades(socket, 1)]
    assert ids[:2] == [0, 4]
    assert [number for number in ids if number in (1, 2, 3)] == [1, 2, 3]
    assert sandbox.stream_counters["late"] == 3


@pytest.mark.parametrize("code", [1000, 1001, 1012])
async def test_the_socket_closes_with_a_code_after_a_given_number_of_trades(
    sandbox: Sandbox, client: aiohttp.ClientSession, code: int
) -> None:
    sandbox.add_fault(Fault(kind="close", code=code, after=5))
    async with await connected(sandbox, client) as socket:
        sandbox.clock.advance(60_000)
        await trades(socket, 5)
        assert (await socket.receive(timeout=5)).type == aiohttp.WSMsgType.CLOSE
        assert socket.close_code == code
    async with await connected(sandbox, client) as socket:
        sandbox.clock.advance(60_000)
        assert len(await trades(socket, 20)) == 20


@pytest.mark.parametrize("fault", [Fault(kind="abort", after=3), Fault(kind="close", code=1006, after=3)])
async def test_cut_without_a_close_frame(sandbox: Sandbox, client: aiohttp.ClientSession, fault: Fault) -> None:
    sandbox.add_fault(fault)
    async with await connected(sandbox, client) as socket:
        sandbox.clock.advance(60_000)
        await trades(socket, 3)
        assert (await socket.receive(timeout=5)).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
        assert socket.close_code == 1006


async def test_frozen_connection_stays_open_in_silence_and_continues_without_loss(
    sandbox: Sandbox, client: aiohttp.ClientSession
) -> None:
    sandbox.add_fault(Fault(kind="freeze", after=2, seconds=0.3))
    async with await connected(sandbox, client) as socket:
        sandbox.clock.advance(60_000)
        ids = await trades(socket, 2)
        with pytest.raises(TimeoutError):
            await socket.receive(timeout=0.15)
        ids += await trades(socket, 10)
        assert ids == list(range(ids[0], ids[0] + 12))


async def test_refused_dial(sandbox: Sandbox, client: aiohttp.ClientSession) -> None:
    sandbox.add_fault(Fault(kind="status", path="/ws*", status=503, count=1))
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await client.ws_connect(sandbox.ws_url + "/ws/1")
    assert caught.value.status == 503
    async with client.ws_connect(sandbox.ws_url + "/ws/1") as socket:
        assert (await ask(socket, "SUBSCRIBE", "btcusdt@trade"))["result"] is None


async def test_a_stopping_server_closes_with_going_away(client: aiohttp.ClientSession) -> None:
    sandbox = Sandbox(clock="2024-03-05", speed=0)
    await sandbox.start()
    socket = await connected(sandbox, client)
    stopping = asyncio.create_task(sandbox.stop())
    assert (await socket.receive(timeout=5)).type == aiohttp.WSMsgType.CLOSE
    assert socket.close_code == 1001
    await socket.close()
    await stopping
    assert not sandbox.connections


async def test_two_clients_get_the_same_trades(sandbox: Sandbox, client: aiohttp.ClientSession) -> None:
    async with await connected(sandbox, client) as one, await connected(sandbox, client) as other:
        sandbox.clock.advance(30_000)
        assert await trades(one, 20) == await trades(other, 20)


async def test_pings_of_the_client_are_answered(sandbox: Sandbox, client: aiohttp.ClientSession) -> None:
    socket = await client.ws_connect(sandbox.ws_url + "/ws", autoping=False)
    await socket.ping(b"are you there")
    answer = await socket.receive(timeout=5)
    assert (answer.type, answer.data) == (aiohttp.WSMsgType.PONG, b"are you there")
    await socket.close()


async def test_server_pings_and_leaves_a_client_that_does_not_answer(
    sandbox: Sandbox, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.serving.sockets._PING_SECONDS", 0.02)
    monkeypatch.setattr("sandbox.serving.sockets._PONG_SECONDS", 0.1)
    socket = await client.ws_connect(sandbox.ws_url + "/ws", autoping=False)
    pings = 0
    while (message := await socket.receive(timeout=5)).type == aiohttp.WSMsgType.PING:
        pings += 1
    assert pings >= 2
    assert message.type == aiohttp.WSMsgType.CLOSE
    assert socket.close_code == 1008
    await socket.close()


async def test_connection_ends_after_its_lifetime(
    sandbox: Sandbox, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.serving.sockets._LIFETIME_SECONDS", 0.05)
    async with client.ws_connect(sandbox.ws_url + "/ws") as socket:
        assert (await socket.receive(timeout=5)).type == aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1001
