"""uvicorn's HTTP connection, with limits for the head of a call, whose length and duration uvicorn does not limit."""

import asyncio
import weakref
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from console.problems import Problem, response_of

__all__ = ["DIRECT", "Connection", "chunk"]

#: The extension of a call's scope that holds its connection.
DIRECT = "candlewright.connection"

_MAX_HEAD_BYTES = 64 << 10
#: From the start of a connection, or of a further call on it, to the end of the call's head.
_HEAD_SECONDS = 20.0


def chunk(data: bytes) -> bytes:
    """A part of a body of unknown length."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Connection(HttpToolsProtocol):
    """Malformed calls get a problem as their answer, like all other refused calls."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._is_in_head = True
        self._head_bytes = 0
        self._alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
                self._refuse(Problem(431, "too_large", f"address and headers have at most {_MAX_HEAD_BYTES} bytes"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        # A reference cycle would keep ended connections until the garbage collector finds them.
        self.scope["extensions"] = {DIRECT: weakref.proxy(self)}
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem(400, "invalid_request", "this is not HTTP/1.1"))

    @property
    def is_writable(self) -> bool:
        """Whether `write` would be sent, not kept until the peer has read."""
        return not self.flow.write_paused and not self.transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send chunks of a body that has begun, bypassing the layers of the application."""
        self.transport.write(data)

    def _expect_head(self) -> None:
        self._end_head()
        self._is_in_head = True
        self._head_bytes = 0
        self._alarm = self.loop.call_later(_HEAD_SECONDS, self._refuse_late)

    def _end_head(self) -> None:
        self._is_in_head = False
        if self._alarm is not None:
            self._alarm.cancel()

    def _refuse_late(self) -> None:
        self._refuse(Problem(408, "too_slow", f"the headers did not come within {_HEAD_SECONDS:.0f} s"))

    def _refuse(self, problem: Problem) -> None:
        self._end_head()
        answer = response_of(problem)
        lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}".encode()]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"connection: close", b"", b""]) + bytes(answer.body))
        self.transport.close()
