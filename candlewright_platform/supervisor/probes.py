"""How the supervisor asks a part how it is. A probe never raises and never waits longer than its timeout."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

TIMEOUT_SECONDS = 4.0
_MAX_PAGE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """`answered` False: no part there, or too slow; `details` is the part's own status page."""

    answered: bool
    is_ready: bool = False
    problems: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    #: Well, and waiting to take over from another process that has its role.
    is_standby: bool = False
    #: A service outside that it cannot do without, and that does not answer.
    waits_for: str = ""


_NONE = Answer(answered=False)


class Probe(Protocol):
    async def ask(self) -> Answer: ...

    def port(self) -> int | None:
        """Where the part's status page is, for its metrics; None where it has none."""
        ...


@dataclass(frozen=True, slots=True)
class StatusPage:
    """The page of `core.http`, whose port the part writes to `port_file`."""

    port_file: Path

    def port(self) -> int | None:
        try:
            return int(self.port_file.read_text())
        except (OSError, ValueError):
            return None

    async def ask(self) -> Answer:
        port = self.port()
        if port is None:
            return _NONE
        body = await _exchange(port, b"GET /status HTTP/1.0\r\n\r\n")
        try:
            page = json.loads(body.partition(b"\r\n\r\n")[2])
        except ValueError:
            return _NONE
        if not isinstance(page, dict):
            return _NONE
        problems = tuple(str(problem) for problem in page.get("problems", ()))
        return Answer(
            True,
            bool(page.get("ready")),
            problems,
            page,
            is_standby=bool(page.get("standby")),
            waits_for=str(page.get("waits_for") or ""),
        )


@dataclass(frozen=True, slots=True)
class RedisPing:
    """A redis-server that answers PING; while it loads its file it is there, but not ready."""

    at: int
    password: str = field(repr=False, default="")

    def port(self) -> int | None:
        return None

    async def ask(self) -> Answer:
        login = f"AUTH {self.password}\r\n" if self.password else ""
        body = await _exchange(self.at, f"{login}PING\r\nQUIT\r\n".encode())
        return Answer(answered=bool(body), is_ready=b"+PONG" in body)


@dataclass(frozen=True, slots=True)
class HttpPing:
    """Any HTTP server that answers 200 on `path`."""

    at: int
    path: str

    def port(self) -> int | None:
        return None

    async def ask(self) -> Answer:
        body = await _exchange(self.at, f"GET {self.path} HTTP/1.0\r\n\r\n".encode())
        return Answer(answered=bool(body), is_ready=b" 200 " in body[:16])


async def _exchange(port: int, request: bytes) -> bytes:
    """Everything that a server on loopback answers until it closes; empty when it does not."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            await writer.drain()
            return await _read_all(reader)
    except (OSError, TimeoutError):
        return b""
    finally:
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size < _MAX_PAGE_BYTES and (piece := await reader.read(64 << 10)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)
