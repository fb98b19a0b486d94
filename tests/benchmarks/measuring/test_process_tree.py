"""What the benchmarks count as their own processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from benchmarks.measuring.process_tree import ProcessTree, family, spark_workers

LISTEN = (
    "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
)
BUSY = "import os, sys; print(os.getpid(), flush=True)\nwhile True: pass"

pytestmark = pytest.mark.processes


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """Python under the name by which JVMs are recognised."""
    program = tmp_path / "java"
    program.symlink_to(Path(sys.executable).resolve())
    return program


@pytest.fixture
def driver(java: Path) -> Iterator[int]:
    """The port of a JVM that belongs to this process."""
    with subprocess.Popen([java, "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


def executor(java: Path, port: int) -> int:
    """An executor that does not descend from this process, busy for a while; its pid."""
    arguments = ["CoarseGrainedExecutorBackend", "--driver-url", f"spark://CoarseGrainedScheduler@127.0.0.1:{port}"]
    command = ["setsid", "--fork", str(java), "-c", BUSY, *arguments, "--executor-id", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        return int(started.stdout.readline())


@pytest.fixture
def free() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def test_executors_of_a_cluster_are_counted_and_those_of_another_driver_are_not(
    java: Path, driver: int, free: int
) -> None:
    own, other = executor(java, driver), executor(java, free)
    try:
        with ProcessTree() as tree:
            deadline = time.monotonic() + 20
            while tree.cpu_seconds.get("executors", 0.0) < 0.1:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        assert {pid for part, pid in tree._cpu if part == "executors"} == {own}
        assert tree.peak_bytes["executors"] > 0
        found = family([os.getpid()])
        assert own in found and other not in found
    finally:
        for pid in (own, other):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)


def test_workers_are_what_a_daemon_of_a_jvm_has_forked(java: Path) -> None:
    forks = "import os, time; print(os.fork(), flush=True); time.sleep(60)"
    runs = f"import subprocess, sys; subprocess.run([{sys.executable!r}, '-c', {forks!r}])"
    with subprocess.Popen([java, "-c", runs], stdout=subprocess.PIPE, text=True, start_new_session=True) as jvm:
        assert jvm.stdout is not None
        # Both print what fork returned, and the child prints 0.
        (worker,) = {int(jvm.stdout.readline()) for _ in range(2)} - {0}
        try:
            assert spark_workers() == {worker}
        finally:
            os.killpg(jvm.pid, signal.SIGKILL)
