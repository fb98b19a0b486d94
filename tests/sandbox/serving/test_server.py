"""HTTP replies, faults and the control endpoints over a real socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from sandbox import Fault, Sandbox
from tests.sandbox.conftest import NOON, NOON_MS

KLINES = "/api/v3/klines?symbol=BTCUSDT&interval=1m&limit=100"


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(sandbox.url) as session:
        yield session


async def rows(client: aiohttp.ClientSession, path: str = KLINES) -> Any:
    async with client.get(path) as reply:
        assert reply.status == 200
        return await reply.json()


async def test_headers_have_the_weight_and_the_exchange_time(client: aiohttp.ClientSession) -> None:
    await rows(client)
    async with client.get(KLINES) as reply:
        assert reply.headers["X-MBX-USED-WEIGHT-1M"] == "4"
        assert reply.headers["Date"] == "Tue, 05 Mar 2024 12:00:30 GMT"


async def test_error_has_the_exchange_body(client: aiohttp.ClientSession) -> None:
    async with client.get("/api/v3/klines?symbol=NOPE&interval=1m") as reply:
        assert reply.status == 400
        assert await reply.json() == {"code": -1121, "msg": "Invalid symbol."}
    async with client.get("/api/v3/account") as reply:
        assert reply.status == 404
    async with client.post("/api/v3/klines") as reply:
        assert reply.status == 404


async def test_long_intervals_answer_while_short_ones_do(client: aiohttp.ClientSession) -> None:
    days, minutes = await asyncio.gather(
        rows(client, "/api/v3/klines?symbol=BTCUSDT&interval=1d&limit=30"), rows(client)
    )
    assert (len(days), len(minutes)) == (30, 100)


async def test_over_the_limit_is_429_then_418_with_retry_after() -> None:
    async with Sandbox(clock=NOON, speed=0) as limited, aiohttp.ClientSession(limited.url) as client:
        statuses = set()
        # A new minute, and with it a new count, may begin between them.
        for _ in range(120):
            if 418 in statuses:
                break
            async with client.get("/api/v3/depth?symbol=BTCUSDT&limit=5000") as reply:
                statuses.add(reply.status)
                if reply.status != 200:
                    assert 1 <= int(reply.headers["Retry-After"]) <= 120
                    body = await reply.json()
                    assert body["code"] == -1003
        assert statuses == {200, 429, 418}
        assert "IP banned until" in body["msg"]


@pytest.mark.parametrize(
    ("fault", "status", "body"),
    [
        (Fault(kind="status", status=503, body="busy", headers={"X-Test": "1"}), 503, b"busy"),
        (Fault(kind="status", status=429, body={"code": -1003, "msg": "m"}), 429, b'{"code":-1003,"msg":"m"}'),
        (Fault(kind="empty"), 200, b""),
        (Fault(kind="none"), 200, b"[]"),
    ],
)
async def test_a_struck_request_gets_the_answer_of_its_rule(
    sandbox: Sandbox, client: aiohttp.ClientSession, fault: Fault, status: int, body: bytes
) -> None:
    sandbox.add_fault(fault)
    async with client.get(KLINES) as reply:
        assert (reply.status, await reply.read()) == (status, body)
        assert reply.headers.get("X-Test") == fault.headers.get("X-Test")
    sandbox.clear_faults()
    assert len(await rows(client)) == 100


async def test_web_page_with_status_200(sandbox: Sandbox, client: aiohttp.ClientSession) -> None:
    sandbox.add_fault(Fault(kind="html"))
    async with client.get(KLINES) as reply:
        assert reply.status == 200
        assert reply.content_type == "text/html"


async def test_truncated_reply_is_the_beginning_of_the_true_one(
    sandbox: Sandbox, client: aiohttp.ClientSession
) -> None:
    async with client.get(KLINES) as reply:
        whole = await reply.read()
    sandbox.add_fault(Fault(kind="truncate"))
    async with client.get(KLINES) as reply:
        part = await reply.read()
    assert whole.startswith(part)
    assert 0 < len(part) < len(whole)


async def test_short_and_repeated_pages(sandbox: Sandbox, client: aiohttp.ClientSession) -> None:
    first = await rows(client)
    sandbox.add_fault(Fault(kind="short", count=1))
    sandbox.add_fault(Fault(kind="short", rows=3, count=1))
    sandbox.add_fault(Fault(kind="repeat", count=1))
    assert await rows(client) == first[:50]
    assert await rows(client) == first[:3]
    assert await rows(client, KLINES + "&endTime=1") == first[:3]
    assert await rows(client, KLINES + "&endTime=1") == []


async def test_delayed_reply_is_true_and_late(sandbox: Sandbox, client: aiohttp.ClientSession) -> None:
    sandbox.add_fault(Fault(kind="delay", seconds=0.2))
    began = time.monotonic()
    assert len(await rows(client)) == 100
    assert time.monotonic() - began >= 0.2


async def test_request_that_is_never_answered_does_not_keep_the_server_from_stopping(
    client: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    sandbox.add_fault(Fault(kind="hang", path="/api/v3/klines"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.get(KLINES), 0.2)
    waiting = asyncio.create_task(client.get(KLINES))
    while sandbox.state.struck["hang"] < 2:
        await asyncio.sleep(0.005)
    await asyncio.wait_for(sandbox.stop(), 5)
    with pytest.raises(aiohttp.ClientError):
        await waiting


async def test_reset_cuts_the_connection(sandbox: Sandbox, client: aiohttp.ClientSession) -> None:
    sandbox.add_fault(Fault(kind="reset", count=1))
    with pytest.raises((aiohttp.ServerDisconnectedError, ConnectionResetError, aiohttp.ClientOSError)):
        async with client.post("/api/v3/klines"):
            pass
    assert len(await rows(client)) == 100


async def test_clock_is_read_and_set_over_http(sandbox: Sandbox, client: aiohttp.ClientSession) -> None:
    async with client.get("/sandbox/clock") as reply:
        assert await reply.json() == {"now": NOON_MS, "speed": 0.0}
    async with client.post("/sandbox/clock", json={"now": NOON_MS + 5}) as reply:
        assert await reply.json() == {"now": NOON_MS + 5, "speed": 0.0}
    async with client.post("/sandbox/clock", json={"advance": 1000}) as reply:
        assert (await reply.json())["now"] == NOON_MS + 1005
    async with client.post("/sandbox/clock", json={"speed": 3600.0}) as reply:
        assert reply.status == 200
    assert sandbox.clock.speed == 3600.0
    assert await rows(client, "/api/v3/klines?symbol=BTCUSDT&interval=1m&limit=1") != []


async def test_faults_are_set_listed_and_removed_over_http(sandbox: Sandbox, client: aiohttp.ClientSession) -> None:
    async with client.post("/sandbox/faults", json={"kind": "none", "path": "*/klines", "count": 1}) as reply:
        number = (await reply.json())["id"]
    assert await rows(client) == []
    async with client.get("/sandbox/state") as reply:
        state = await reply.json()
    assert state["faults"] == [{"id": number, "kind": "none", "path": "*/klines", "seen": 1, "struck": 1}]
    assert state["requests"]["/api/v3/klines"] == 1
    assert state["struck"] == {"none": 1}
    for expected in (200, 404):
        async with client.delete(f"/sandbox/faults/{number}") as reply:
            assert reply.status == expected
    sandbox.add_fault(Fault(kind="none"))
    async with client.delete("/sandbox/faults") as reply:
        assert reply.status == 200
    assert len(await rows(client)) == 100


async def test_downtime_is_set_over_http(client: aiohttp.ClientSession) -> None:
    start = NOON_MS // 60_000 * 60_000 - 600_000
    hole = {"symbol": "BTC/USDT", "start": start, "end": start + 300_000}
    async with client.post("/sandbox/holes", json=hole) as reply:
        assert reply.status == 200
    path = f"/api/v3/klines?symbol=BTCUSDT&interval=1m&startTime={start}"
    assert [row[0] for row in await rows(client, path)] == [start + n * 60_000 for n in range(5, 11)]
    async with client.delete("/sandbox/holes") as reply:
        assert reply.status == 200
    assert len(await rows(client, path)) == 11


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/sandbox/clock", b"no json"),
        ("/sandbox/clock", b"[]"),
        ("/sandbox/clock", b'{"now":"soon"}'),
        ("/sandbox/clock", b'{"speed":-1}'),
        ("/sandbox/clock", b'{"advance":-1}'),
        ("/sandbox/faults", b'{"kind":"nonsense"}'),
        ("/sandbox/faults", b'{"unknown":1}'),
        ("/sandbox/holes", b'{"symbol":"NOPE","start":0,"end":60000}'),
        ("/sandbox/holes", b'{"symbol":"BTCUSDT","start":1,"end":60000}'),
    ],
)
async def test_malformed_control_requests_are_refused(client: aiohttp.ClientSession, path: str, body: bytes) -> None:
    async with client.post(path, data=body) as reply:
        assert reply.status == 400
        assert "error" in await reply.json()


async def test_more_pairs_can_be_listed_and_wrong_names_are_refused() -> None:
    sandbox = Sandbox(symbols=["FOO/USDT", "BTC/USDT"])
    assert "FOOUSDT" in sandbox.markets
    with pytest.raises(ValueError, match="BASE/QUOTE"):
        Sandbox(symbols=["FOO"])


async def test_taken_port_is_an_error(sandbox: Sandbox) -> None:
    with pytest.raises(OSError, match="address"):
        await Sandbox(port=sandbox.port).start()
