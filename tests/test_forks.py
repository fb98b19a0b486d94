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


@pytest.mark.processes
def test_forks_report_what_passed_failed_and_died(tmp_path: Path) -> None:
    for name, text in (("conftest", _SET_UP), ("test_first", _FIRST), ("test_second", _SECOND)):
        (tmp_path / f"{name}.py").write_text(text)
    root = Path(__file__).parents[1]
    plugins = ("-p", "no:xdist", "-p", "no:asyncio", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    ended = subprocess.run(
        (sys.executable, "-m", "pytest", *plugins, "-c", "/dev/null", "--rootdir", str(tmp_path), "-rA", str(tmp_path)),
        cwd=tmp_path, env=environment | {"PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    said = ended.stdout
    assert ended.returncode == 1, said + ended.stderr
    outcomes = {line.partition(" - ")[0] for line in said.splitlines() if line.startswith(("PASSED ", "FAILED "))}
    assert outcomes == {
        "PASSED test_first.py::test_passes",
        "FAILED test_first.py::test_fails",
        "FAILED test_second.py::test_dies",
    }
    assert "printed before it failed" in said
    assert "test_dies: the process ended with code 3; tests that it had taken did not run" in said
    # The fork that finished its files has torn their fixtures down.
    assert len(list(tmp_path.glob("ended-*"))) == 1
