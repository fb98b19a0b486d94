"""Connections that send too much, too slowly, or something else than HTTP: each gets its reason, and ends alone."""

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from console import connection, operation
from tests.console.test_stream import Server, serving
from tests.relay.conftest import Start, start_relay  # noqa: F401

HEAD = b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/v1/triggers/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = server.settings.console.bind.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, str]:
    """The status and kind of a problem, after which the server has closed the connection."""
    async with asyncio.timeout(20):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    return int(head.split()[1]), json.loads(body)["type"].rpartition(":")[2]


@pytest.mark.parametrize(
    ("sent", "status", "kind"),
    [
        (HEAD + b"X: " + b"a" * (80 << 10), 431, "too_large"),
        (b"GET /" + b"a" * (80 << 10), 431, "too_large"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "invalid_request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "invalid_request"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "invalid_request"),
        (POST + b"Content-Length: 99999999999\r\n\r\n{", 413, "too_large"),
        (HEAD + b"Host: evil.example\r\nConnection: close\r\n\r\n", 421, "unknown_host"),
    ],
)
async def test_an_invalid_call_is_refused_with_the_reason(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
    sent: bytes,
    status: int,
    kind: str,
) -> None:
    async with serving(start_relay(), tmp_path) as server, connected(server) as (reader, writer):
        writer.write(sent)
        assert await answer_of(reader) == (status, kind)
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"http://{server.place}/status")).status_code == 200


@pytest.mark.parametrize("sent", [b"", b"GET /api", HEAD, POST + b"Content-Length: 9\r\n\r\n{"])
async def test_a_call_that_stalls_is_ended(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sent: bytes,
) -> None:
    monkeypatch.setattr(connection, "_HEAD_SECONDS", 0.3)
    monkeypatch.setattr(operation, "_BODY_SECONDS", 0.3)
    async with serving(start_relay(), tmp_path) as server, connected(server) as (reader, writer):
        writer.write(sent)
        assert await answer_of(reader) == (408, "too_slow")


async def test_the_limit_of_a_head_is_that_of_each_call(start_relay: Start, tmp_path: Path) -> None:  # noqa: F811
    async with serving(start_relay(), tmp_path) as server, httpx.AsyncClient() as client:
        for _ in range(4):
            answer = await client.get(f"http://{server.place}/status", headers={"X": "a" * (40 << 10)})
            assert answer.status_code == 200


async def test_an_ended_connection_is_freed_at_once(
    start_relay: Start,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[weakref.ref[connection.Connection]] = []
    begin = connection.Connection.connection_made

    def connection_made(self: connection.Connection, transport: asyncio.Transport) -> None:
        made.append(weakref.ref(self))
        begin(self, transport)

    monkeypatch.setattr(connection.Connection, "connection_made", connection_made)
    async with serving(start_relay(), tmp_path) as server:
        gc.disable()
        try:
            async with connected(server) as (reader, writer):
                writer.write(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert b"200 OK" in await reader.read()
            async with asyncio.timeout(10):
                while made[0]() is not None:
                    await asyncio.sleep(0.05)
        finally:
            gc.enable()
