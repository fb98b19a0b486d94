"""A connection of one process to Redis, which a test can cut and restore."""

import contextlib
import socket
import socketserver
from typing import Self
from urllib.parse import urlsplit

from core.background import start_thread


class Link:
    """A TCP proxy on loopback in front of the server that `url` names; `self.url` leads over it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        target = (parts.hostname, parts.port)
        self.is_cut = False
        self._sockets: set[socket.socket] = set()
        link = self

        class Passing(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                if link.is_cut:
                    return
                with socket.create_connection(target) as server:
                    link._sockets |= {self.request, server}
                    start_thread("link", lambda: _pump(server, self.request))
                    _pump(self.request, server)
                    link._sockets -= {self.request, server}

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", 0), Passing)
        self.url = url.replace(f":{parts.port}", f":{self._server.server_address[1]}")
        self._thread = start_thread("links", lambda: self._server.serve_forever(0.05))

    def cut(self) -> None:
        self.is_cut = True
        for each in list(self._sockets):
            _end(each)

    def mend(self) -> None:
        self.is_cut = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._server.shutdown()
        self._server.server_close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    _end(source)
    _end(sink)


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
