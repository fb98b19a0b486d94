"""How the supervisor checks a part's health, over a connection that it keeps open."""

import asyncio
from pathlib import Path

import pytest

from candlewright_platform.supervisor.probes import StatusPage
from core.http import Status, StatusServer


def serve(folder: Path, status: Status) -> StatusServer:
    return StatusServer("127.0.0.1:0", lambda: status, port_file=folder / "part.http")


def test_a_kept_connection_is_reused_and_reopened_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = 0
    connect = asyncio.open_connection

    async def counted(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        nonlocal connections
        connections += 1
        return await connect(host, port)

    monkeypatch.setattr(asyncio, "open_connection", counted)

    async def ask() -> None:
        probe = StatusPage(tmp_path / "part.http")
        assert not (await probe.ask()).answered
        first = serve(tmp_path, Status(part="part", is_ready=False, problems=("no bus",)))
        for _ in range(3):
            answer = await probe.ask()
            assert (answer.answered, answer.is_ready, answer.problems) == (True, False, ("no bus",))
        assert connections == 1
        second = serve(tmp_path, Status(part="part", is_ready=True))
        first.close()
        assert (await probe.ask()).is_ready
        assert connections == 2
        second.close()
        probe._line._close()
        assert not (await probe.ask()).answered

    asyncio.run(ask())


def test_a_closed_connection_is_reopened_and_none_is_kept_with_half_an_answer(tmp_path: Path) -> None:
    answers = [b'{"ready": true}', b'{"ready": true}', None, b'{"ready": true}']

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = answers.pop(0)
        if body is None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
        (tmp_path / "part.http").write_text(str(server.sockets[0].getsockname()[1]))
        probe = StatusPage(tmp_path / "part.http")
        assert [(await probe.ask()).is_ready for _ in range(3)] == [True, True, False]
        assert (await probe.ask()).is_ready
        assert not answers
        probe._line._close()
        server.close()

    asyncio.run(ask())
