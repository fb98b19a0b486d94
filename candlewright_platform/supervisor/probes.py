"""The supervisor's health probes of parts. A probe never raises and never waits longer than its timeout."""

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
    """`answered` False: the part does not run, or is too slow; `details` is the part's own status page."""

    answered: bool
    is_ready: bool = False
    problems: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    #: Healthy, and waiting to take over from another process that has its role.
    is_standby: bool = False
    #: An external service that the part needs, and that does not answer.
    waits_for: str = ""


_NONE = Answer(answered=False)


class _Line:
    """A connection to a status page that is kept between requests."""

    def __init__(self) -> None:
        self._port = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, port: int, path: str) -> bytes:
        """The page; empty if the part does not answer in time."""
        is_kept = self._streams is not None and port == self._port
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                if is_kept:
                    # The part may have closed it meanwhile.
                    with suppress(OSError, EOFError):
                        return await self._exchange(port, path)
                return await self._exchange(port, path)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            return b""

    async def _exchange(self, port: int, path: str) -> bytes:
        is_whole = False
        try:
            if self._streams is None or port != self._port:
                self._close()
                self._port, self._streams = port, await asyncio.open_connection("127.0.0.1", port)
            reader, writer = self._streams
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
            if length > _MAX_PAGE_BYTES:
                raise ValueError(f"a page of {length} bytes")
            body = await reader.readexactly(length)
            is_whole = True
            return body
        finally:
            # The rest of an answer must not be read as the next one.
            if not is_whole:
                self._close()

    def _close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Probe(Protocol):
    async def ask(self) -> Answer: ...

    def port(self) -> int | None:
        """The port of the part's status page, for its metrics; None if it has none."""
        ...


@dataclass(frozen=True, slots=True)
class StatusPage:
    """The page of `core.http`, whose port the part writes to `port_file`."""

    port_file: Path
    _line: _Line = field(default_factory=_Line, repr=False, compare=False)

    def port(self) -> int | None:
        try:
            return int(self.port_file.read_text())
        except (OSError, ValueError):
            return None

    async def ask(self) -> Answer:
        port = self.port()
        if port is None:
            return _NONE
        try:
            page = json.loads(await self._line.get(port, "/status"))
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
    """A redis-server that answers PING; while it loads its file it answers, but is not ready."""

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
    """Everything that a server on loopback answers until it closes; empty if it cannot be reached or does not close in
    time.
    """
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
