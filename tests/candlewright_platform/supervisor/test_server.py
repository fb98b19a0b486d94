"""The supervisor with real, tiny processes."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue

import pytest

from candlewright_platform.supervisor import processes
from candlewright_platform.supervisor.server import PROBE_SECONDS, Supervisor
from candlewright_platform.supervisor.state import Exited, Supervision, TimePassed

pytestmark = pytest.mark.processes

FAKE_UP = Path(__file__).with_name("fake_up.py")
WAIT_SECONDS = 20.0


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < give_up, f"never: {what}"
        time.sleep(0.02)


class Up:
    def __init__(self, data_dir: Path, *parts: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(FAKE_UP), str(data_dir), *parts],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: Queue[str] = Queue()
        self.told: list[str] = []
        self._threads = [
            threading.Thread(target=self._read_out, daemon=True),
            threading.Thread(target=self._read_err, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.put(line)

    def _read_err(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.told.append(line)

    def wait_ready(self) -> None:
        try:
            assert self.said.get(timeout=WAIT_SECONDS) == "ready\n"
        except Empty:
            pytest.fail(f"never ready: {self.told}")

    def mark(self, part: str = "") -> list[int]:
        return processes.marked(f"test-{self.process.pid}" + (f"/{part}" if part else ""))

    def page(self, path: str) -> bytes:
        port = next(match[1] for line in self.told if (match := re.search(r"127\.0\.0\.1:(\d+)/status", line)))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            body: bytes = answer.read()
            return body

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        # Only the next supervisor would remove the grandchildren of a killed one.
        processes.kill_marked(f"test-{self.process.pid}")
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start_one(*parts: str) -> Up:
        started.append(Up(tmp_path, *parts))
        return started[-1]

    yield start_one
    for up in started:
        up.close()


def test_ready_then_clean_stop_leaves_nothing(start: Callable[..., Up], tmp_path: Path) -> None:
    up = start("broker", "relay:child")
    up.wait_ready()
    assert len(up.mark()) == 3
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(WAIT_SECONDS) == 0
    assert up.mark() == []
    assert "relay runs" in (tmp_path / "logs" / "relay.log").read_text()
    assert "relay stops" in (tmp_path / "logs" / "relay.log").read_text()
    assert up.said.empty()


def test_a_part_that_refuses_its_settings_ends_the_platform_and_says_why(start: Callable[..., Up]) -> None:
    up = start("broker", "alerts:refuse")
    assert up.process.wait(WAIT_SECONDS) == 2
    up.close()
    assert up.told.count("  alerts: alerts.url: no such service\n") == 1
    assert "starting alerts\n" in up.told and up.mark() == []


async def test_events_are_handled_before_passed_deadlines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = Supervisor([], "run", tmp_path, http_bind="127.0.0.1:0", tell=print, announce=lambda _: None)
    monkeypatch.setattr(Supervision, "next_deadline", lambda state: 0.0)
    ended = Exited("broker", 0, time.monotonic())
    supervisor._events.put_nowait(ended)
    assert await supervisor._next_event() is ended
    assert isinstance(await supervisor._next_event(), TimePassed)


def test_a_ready_part_is_asked_every_other_second(start: Callable[..., Up], tmp_path: Path) -> None:
    start("broker:count").wait_ready()

    def asked() -> int:
        return (tmp_path / "logs" / "broker.log").read_text().count("asked")

    until(lambda: asked() >= 2, "a second question")
    began, before = time.monotonic(), asked()
    until(lambda: asked() >= before + 2, "two further questions")
    assert time.monotonic() - began > 1.5 * PROBE_SECONDS
    assert PROBE_SECONDS >= 2


def test_parts_stop_in_reverse_order(start: Callable[..., Up]) -> None:
    up = start("broker", "relay", "ingestor")
    up.wait_ready()
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(WAIT_SECONDS) == 0, up.told
    up.close()
    stops = [line.split()[-1] for line in up.told if "stopping" in line]
    assert stops == ["ingestor", "relay", "broker"]


def test_a_killed_part_is_back_within_seconds(start: Callable[..., Up]) -> None:
    up = start("broker:child")
    up.wait_ready()
    first = set(up.mark("broker"))
    leader = json.loads(up.page("/status"))["parts"]["broker"]["pid"]
    os.kill(leader, signal.SIGKILL)
    until(lambda: len(up.mark("broker")) == 2 and not first & set(up.mark("broker")), "a fresh broker with its child")
    until(lambda: json.loads(up.page("/status"))["ready"], "ready again")
    assert json.loads(up.page("/status"))["parts"]["broker"]["restarts"] == 1


def test_a_part_that_ignores_the_signal_is_killed(start: Callable[..., Up]) -> None:
    up = start("broker:stubborn")
    up.wait_ready()
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(WAIT_SECONDS) == 0
    assert up.mark() == []


def test_a_killed_supervisor_leaves_no_part_and_a_second_one_works(start: Callable[..., Up]) -> None:
    up = start("broker:stubborn", "relay")
    up.wait_ready()
    leaders = [part["pid"] for part in json.loads(up.page("/status"))["parts"].values()]
    up.process.kill()
    up.process.wait()
    until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in leaders), "the parts are gone")
    again = start("broker:child")
    again.wait_ready()


def test_a_new_supervisor_removes_processes_that_a_killed_one_left(start: Callable[..., Up]) -> None:
    up = start("broker:child")
    up.wait_ready()
    up.process.kill()
    up.process.wait()
    until(lambda: len(up.mark()) == 1, "only the grandchild is left")
    again = start("relay")
    again.wait_ready()
    assert up.mark() == []


def test_a_second_supervisor_on_the_same_directory_is_refused(start: Callable[..., Up]) -> None:
    up = start("broker")
    up.wait_ready()
    second = start("broker")
    assert second.process.wait(WAIT_SECONDS) == 1
    second.close()
    assert f"another `candlewright up` (process {up.process.pid})" in "".join(second.told)


def test_metrics_of_all_parts_are_on_one_page(start: Callable[..., Up]) -> None:
    up = start("broker", "relay")
    up.wait_ready()
    page = up.page("/metrics").decode()
    assert re.search(r'candlewright_supervisor_resident_bytes\{name="relay",part="supervisor"\} \d', page)
