"""Forks share the tests of one collection, and the first process reports all of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SET_UP = """
import os
from pathlib import Path
import pytest
from tests.processes import FORKS

pytest_plugins = ("tests.forks",)

def pytest_configure(config):
    config.stash[FORKS] = 2

@pytest.fixture(scope="session")
def shared():
    yield
    Path(f"ended-{os.getpid()}").touch()
"""
_FIRST = """
import time
from pathlib import Path

def test_passes(shared):
    while not Path("second").exists():  # the other fork has the other file
        time.sleep(0.01)

def test_fails():
    print("printed before it failed")
    assert 1 == 2
"""
_SECOND = """
import os
from pathlib import Path

def test_dies():
    Path("second").touch()
    os._exit(3)

def test_after_it():
    pass
"""


def run(folder: Path, files: dict[str, str], *options: str) -> "subprocess.CompletedProcess[str]":
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    root = Path(__file__).parents[1]
    plugins = ("-p", "no:xdist", "-p", "no:asyncio", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return subprocess.run(
        (sys.executable, "-m", "pytest", *plugins, "-c", "/dev/null", "--rootdir", str(folder), *options, str(folder)),
        cwd=folder, env=environment | {"PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=110,
    )  # fmt: skip


@pytest.mark.processes
def test_forks_report_passed_failed_and_killed_tests(tmp_path: Path) -> None:
    ended = run(tmp_path, {"conftest": _SET_UP, "test_first": _FIRST, "test_second": _SECOND}, "-rA")
    said = ended.stdout
    assert ended.returncode == 1, said + ended.stderr
    outcomes = {line.partition(" - ")[0] for line in said.splitlines() if line.startswith(("PASSED ", "FAILED "))}
    assert outcomes == {
        "PASSED test_first.py::test_passes",
        "FAILED test_first.py::test_fails",
        "FAILED test_second.py::test_dies",
        "FAILED test_second.py::test_after_it",
    }
    assert "printed before it failed" in said
    assert "test_dies: the process ended with code 3; tests that it had taken did not run" in said
    assert "test_after_it: did not run, because a process of the tests ended" in said
    # The fork that finished its files has torn their fixtures down.
    assert len(list(tmp_path.glob("ended-*"))) == 1


@pytest.mark.processes
def test_a_test_that_no_fork_ran_has_failed(tmp_path: Path) -> None:
    dies_between = (
        "import os\ndef pytest_runtest_protocol(item):\n    if 'second' in item.nodeid:\n        os._exit(0)\n"
    )
    tests = "def test_first():\n    pass\n\ndef test_second():\n    pass\n"
    ended = run(tmp_path, {"conftest": _SET_UP + dies_between, "test_both": tests}, "-rA")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 failed, 1 passed" in ended.stdout
    assert "test_second: did not run" in ended.stdout


_WAITING = """
import time
from multiprocessing.util import Finalize
from pathlib import Path

def test_waits():
    Finalize(None, Path("stopped").touch, exitpriority=0)
    Path("waiting").touch()
    time.sleep(60)
"""
_FAILING = """
import time
from pathlib import Path

def test_begins():
    while not Path("waiting").exists():
        time.sleep(0.01)

def test_fails():
    raise AssertionError
"""


@pytest.mark.processes
def test_forks_of_an_interrupted_run_stop_the_processes_that_they_started(tmp_path: Path) -> None:
    ended = run(tmp_path, {"conftest": _SET_UP, "test_failing": _FAILING, "test_waiting": _WAITING}, "-x")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert (tmp_path / "stopped").exists()
