"""The status page of a process: `/health`, `/ready`, `/metrics`, `/status`.

A daemon thread answers, even if the main loop is busy; `status` must report whether that loop is alive.
"""

import json
import socket
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from candlewright.version import VERSION
from core import metrics
from core.background import problems, start_thread, warnings

_PAGE_SECONDS = 5.0
#: In `run` of the data directory: the port of the page that has all parts of the platform.
SUPERVISOR_PORT_FILE = "up.http"


@dataclass(kw_only=True, frozen=True, slots=True)
class Status:
    """A part's own status. `problems` are sentences, empty if healthy; a part with a lasting problem is restarted.
    `warnings` need an operator's attention and would not be fixed by a restart.
    """

    part: str
    is_ready: bool
    problems: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    #: Another process has this part's role: this one is healthy, and waits to take over.
    is_standby: bool = False
    #: A service that does not answer, which a restart of this part would not fix; empty if all answer.
    waits_for: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "part": self.part,
            "version": VERSION,
            "ready": self.is_ready,
            "standby": self.is_standby,
            "waits_for": self.waits_for,
            "healthy": not self.problems,
            "problems": list(self.problems),
            "warnings": list(self.warnings),
            **self.details,
        }


class StatusServer:
    """Serves `status()` on `bind` (`host:port`, port 0 = any free one) until `close()`.

    With `port_file` the bound port is written there, for a supervisor that started this process.
    """

    def __init__(
        self,
        bind: str,
        status: Callable[[], Status],
        render_metrics: Callable[[], bytes] = metrics.render,
        *,
        port_file: Path | None = None,
    ) -> None:
        host, _, port = bind.rpartition(":")
        self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(status, render_metrics))
        self._server.daemon_threads = True
        self._host = host.strip("[]")
        self.port: int = self._server.server_address[1]
        if port_file is not None:
            port_file.parent.mkdir(parents=True, exist_ok=True)
            temporary = port_file.with_suffix(".new")
            temporary.write_text(str(self.port))
            temporary.replace(port_file)
        self._is_closing = False
        self._thread = start_thread("status-http", self._serve)

    def _serve(self) -> None:
        """Unlike `serve_forever`, it sleeps until a client connects."""
        while not self._is_closing:
            self._server.handle_request()

    def close(self) -> None:
        self._is_closing = True
        with suppress(OSError):
            socket.create_connection((self._host, self.port), timeout=1.0).close()
        self._thread.join()
        self._server.server_close()


def supervisor_page(data_dir: Path) -> Mapping[str, Any] | None:
    """The status page of all parts; None if no supervisor runs over this data directory, as in containers."""
    try:
        port = int((data_dir / "run" / SUPERVISOR_PORT_FILE).read_text())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=_PAGE_SECONDS) as answer:
            page = json.load(answer)
    except (OSError, ValueError):
        return None
    return page if isinstance(page, dict) else None


def _with_background(status: Status) -> Status:
    """Adds failures of background work to a part's status."""
    ended = problems()
    return replace(
        status,
        is_ready=status.is_ready and not ended,
        problems=(*status.problems, *ended),
        warnings=(*status.warnings, *warnings()),
    )


def _handler(status: Callable[[], Status], render_metrics: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10
        #: A connection may send another request.
        protocol_version = "HTTP/1.1"
        #: An answer is sent whole.
        wbufsize = -1
        server_version = f"candlewright/{VERSION}"

        def do_HEAD(self) -> None:
            """For probes that only check the status code."""
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, "text/plain; version=0.0.4; charset=utf-8", render_metrics())
                return
            if path not in ("/health", "/ready", "/status"):
                self._answer(404, "text/plain", b"try /health, /ready, /metrics or /status\n")
                return
            current = _with_background(status())
            is_good = {"/health": not current.problems, "/ready": current.is_ready, "/status": True}[path]
            body = json.dumps(current.to_json(), default=str).encode() + b"\n"
            self._answer(200 if is_good else 503, "application/json", body)

        def _answer(self, code: int, content_type: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are not logged."""

    return Handler
