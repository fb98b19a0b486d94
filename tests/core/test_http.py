import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.http import Status, StatusServer


class _Part:
    def __init__(self) -> None:
        self.now = Status(part="broker", is_ready=False, details={"slots": 3})


@pytest.fixture
def part() -> _Part:
    return _Part()


@pytest.fixture
def server(part: _Part, tmp_path: Path) -> Iterator[StatusServer]:
    server = StatusServer(
        "127.0.0.1:0", lambda: part.now, lambda: b"x_total 1\n", port_file=tmp_path / "run" / "broker.http"
    )
    yield server
    server.close()


def _get(server: StatusServer, path: str, method: str = "GET") -> tuple[int, bytes]:
    asked = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", method=method)
    try:
        with urllib.request.urlopen(asked, timeout=5) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_the_bound_port_is_written_for_the_supervisor(server: StatusServer, tmp_path: Path) -> None:
    assert (tmp_path / "run" / "broker.http").read_text() == str(server.port)


def test_a_part_that_starts_is_healthy_but_not_ready(server: StatusServer, part: _Part) -> None:
    assert _get(server, "/health")[0] == 200
    assert _get(server, "/ready")[0] == 503
    part.now = Status(part="broker", is_ready=True)
    assert _get(server, "/ready")[0] == 200


def test_a_problem_turns_health_red_and_is_reported(server: StatusServer, part: _Part) -> None:
    part.now = Status(part="broker", is_ready=True, problems=("the bus does not answer",))
    code, body = _get(server, "/health")
    assert code == 503
    assert json.loads(body)["problems"] == ["the bus does not answer"]


def test_a_probe_may_ask_for_the_head_alone(server: StatusServer) -> None:
    assert _get(server, "/health", "HEAD") == (200, b"")
    assert _get(server, "/ready", "HEAD") == (503, b"")


def test_status_and_metrics_are_served_and_other_paths_are_not(server: StatusServer) -> None:
    assert json.loads(_get(server, "/status")[1])["slots"] == 3
    assert _get(server, "/metrics") == (200, b"x_total 1\n")
    assert _get(server, "/etc/passwd")[0] == 404
