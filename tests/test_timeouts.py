"""The outcome of a test that reached its timeout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = """
import signal
import pytest

def reach_the_timeout():
    signal.setitimer(signal.ITIMER_REAL, 0)  # Its time has run out.
    signal.raise_signal(signal.SIGALRM)

class Collected:
    def __del__(self):
        reach_the_timeout()

@pytest.mark.filterwarnings("ignore")
def test_dropped():
    Collected()

@pytest.mark.filterwarnings("ignore")
def test_dropped_twice():
    Collected()
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0  # Set again: what went on may stand still again.
    Collected()

def test_raised():
    reach_the_timeout()

@pytest.fixture
def setup():
    Collected()

@pytest.mark.filterwarnings("ignore")
def test_dropped_in_a_fixture(setup):
    pass

def test_quick():
    pass
"""


@pytest.mark.processes
def test_a_test_that_reached_its_timeout_fails_though_the_exception_was_dropped(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(_TESTS)
    plugins = ("-p", "tests.timeouts", "-p", "no:xdist", "-p", "no:asyncio", "-p", "no:hypothesispytest")
    options = ("-c", "/dev/null", "--rootdir", str(tmp_path), "-rA", "--timeout", "60")
    command = (sys.executable, "-m", "pytest", *plugins, *options, str(tmp_path))
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    said = subprocess.run(
        command, cwd=Path(__file__).parents[1], env=environment, capture_output=True, text=True, timeout=60
    ).stdout
    told = [line.split() for line in said.splitlines() if "test_it.py::" in line]
    ended = {f"{outcome} {test.partition('::')[2]}" for outcome, test, *_ in told}
    assert ended == {
        "FAILED test_dropped",
        "FAILED test_dropped_twice",
        "FAILED test_raised",
        "ERROR test_dropped_in_a_fixture",
        "PASSED test_quick",
    }
    assert "in __del__\n    reach_the_timeout()" in said
    assert "AssertionError" not in said
    assert said.count("went on because this was dropped") >= 3
