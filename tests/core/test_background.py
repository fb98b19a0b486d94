"""Background work that fails: restarted, reported to its owner, or the end of the process, and never silent."""

import ast
import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from candlewright.wire.errors import RoleLost
from core import background, metrics
from core.background import EXIT_CODE, awaited_task, problems, start_task, start_thread, warnings
from core.http import Status, StatusServer

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    background.forget_failures()


def _failures(name: str) -> float:
    return metrics.REGISTRY.get_sample_value("candlewright_background_failures_total", {"name": name}) or 0.0


class _Locked(Exception):
    """A class that nothing in the platform knows."""


def test_a_thread_that_fails_is_started_again_and_warned_about() -> None:
    rounds: list[int] = []
    done = threading.Event()

    def run() -> None:
        rounds.append(len(rounds))
        if len(rounds) < 3:
            raise _Locked("the catalog is locked")
        done.set()

    start_thread("again", run, restarts_after=0.001).join(10)
    assert done.is_set()
    assert rounds == [0, 1, 2]
    assert _failures("again") == 2
    assert warnings() == ("again failed and was started again: _Locked: the catalog is locked",)
    assert problems() == ()


def test_a_lost_role_ends_a_thread_with_one_line_and_other_failures_with_their_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def lose() -> None:
        raise RoleLost("driver", 3, 4)

    def fail() -> None:
        raise _Locked("the catalog is locked")

    for name, run in (("lost", lose), ("locked", fail)):
        start_thread(name, run, on_failure=background.only_noted).join(10)
    logged = capsys.readouterr().err
    lost, locked = logged.split("background_failed")
    assert len(lost.splitlines()) <= 2 and "Traceback" not in lost
    assert "another process has taken over the role driver: epoch 3 ended with epoch 4" in lost
    assert "Traceback" in locked and "_Locked" in locked
    assert _failures("lost") == _failures("locked") == 1


def test_a_stopping_thread_is_not_restarted() -> None:
    stopping = threading.Event()

    def run() -> None:
        stopping.set()
        raise _Locked

    thread = start_thread("stopped", run, restarts_after=3_600, stopping=stopping)
    thread.join(10)
    assert not thread.is_alive()


def test_the_owner_gets_the_failure_of_its_thread() -> None:
    told: list[BaseException] = []
    start_thread("owned", lambda: {}["x"], on_failure=told.append).join(10)
    assert [type(error) for error in told] == [KeyError]
    assert problems() == ()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_outside_a_part_an_ended_thread_is_a_permanent_problem_and_costs_readiness() -> None:
    server = StatusServer("127.0.0.1:0", lambda: Status(part="x", is_ready=True))
    try:
        start_thread("ended", lambda: [][1]).join(10)
        from core.http import _with_background

        status = _with_background(Status(part="x", is_ready=True))
        assert not status.is_ready
        assert status.problems == ("ended has ended: IndexError: list index out of range",)
    finally:
        server.close()


def _run_part(body: str) -> "subprocess.CompletedProcess[str]":
    program = textwrap.dedent("""
        import asyncio, threading, time
        from core.background import exit_on_failure, start_task, start_thread
        from core.log import configure_logging
        configure_logging("part", as_json=True)
        exit_on_failure()
    """) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.processes
def test_a_thread_that_nothing_restarts_takes_its_part_down_loudly() -> None:
    done = _run_part("""
        start_thread("reader", lambda: {}["x"])
        time.sleep(50)
    """)
    assert done.returncode == EXIT_CODE
    assert '"event": "background_failed"' in done.stderr
    assert "KeyError" in done.stderr


@pytest.mark.processes
def test_a_task_that_nothing_restarts_takes_its_part_down_loudly() -> None:
    done = _run_part("""
        async def fail():
            raise ValueError("no such thing")
        async def main():
            task = start_task(fail, "beater")
            await asyncio.sleep(50)
        asyncio.run(main())
    """)
    assert done.returncode == EXIT_CODE
    assert "no such thing" in done.stderr


async def test_a_task_that_fails_is_started_again_and_warned_about() -> None:
    rounds: list[int] = []
    done = asyncio.Event()

    async def work() -> None:
        rounds.append(len(rounds))
        if len(rounds) < 3:
            raise _Locked("busy")
        done.set()

    await asyncio.wait_for(start_task(work, "task again", restarts_after=0.001), 10)
    assert rounds == [0, 1, 2]
    assert warnings() == ("task again failed and was started again: _Locked: busy",)


async def test_a_cancelled_task_is_not_a_failure() -> None:
    task = start_task(lambda: asyncio.sleep(50), "cancelled")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert _failures("cancelled") == 0


async def test_an_exception_that_no_one_reads_is_counted() -> None:
    before = _failures("unread task")

    async def fail() -> None:
        raise _Locked

    task = awaited_task(fail())
    await asyncio.wait([task])
    del task
    assert _failures("unread task") == before + 1


async def test_the_end_of_a_connection_that_nothing_waits_for_is_not_a_failure() -> None:
    await awaited_task(asyncio.sleep(0))
    loop = asyncio.get_running_loop()
    before = _failures("unread task")
    for error, failures in ((ConnectionResetError(104, "reset"), 0), (ValueError("surprise"), 1)):
        future = loop.create_future()
        future.set_exception(error)
        del future
        gc.collect()
        assert _failures("unread task") == before + failures


#: Calls that start background work, by their last names. An executor's threads run calls whose futures are read.
_STARTERS = {"Thread", "create_task", "ensure_future"}
_PACKAGES = (
    "bars", "broker", "bus", "candlewright", "candlewright_cep", "candlewright_platform", "core",
    "flink_replacement_spark", "gateways", "iceberg", "ingestor", "protobuf", "relay", "sandbox", "triggers", "venues",
)  # fmt: skip


def _starts(path: Path) -> list[str]:
    text, found = path.read_text(), []
    if not any(name in text for name in _STARTERS):
        return []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _STARTERS:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {name}")
    return found


def test_only_core_background_starts_threads_and_tasks() -> None:
    files = [path for package in _PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(files) > 300
    own = ROOT / "core" / "background.py"
    assert _starts(own)
    assert [start for path in files if path != own for start in _starts(path)] == []


def test_every_part_ends_when_its_background_work_does() -> None:
    mains = [ROOT / part / "__main__.py" for part in ("broker", "gateways", "ingestor", "relay", "sandbox")]
    mains += [ROOT / "flink_replacement_spark/process.py", ROOT / "candlewright_platform/cli/machine/platform.py"]
    assert [path for path in mains if "    exit_on_failure()\n" not in path.read_text()] == []


def test_objects_made_while_loading_are_not_searched_for_garbage() -> None:
    gc.unfreeze()
    with background.loading():
        assert not gc.isenabled()
        kept: list[list[object]] = [[] for _ in range(100)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(kept)
    assert not any(found is kept for found in gc.get_objects())
