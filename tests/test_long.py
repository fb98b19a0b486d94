"""Tests marked long stay out of the suite unless they are requested."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.long
def test_a_long_test_runs_when_requested() -> None:
    pass


@pytest.mark.parametrize(("options", "outcome"), [((), "1 deselected"), (("--long",), "1 passed")])
def test_long_tests_run_only_with_their_option(options: tuple[str, ...], outcome: str) -> None:
    name = f"{__file__}::{test_a_long_test_runs_when_requested.__name__}"
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", name, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert outcome in done.stdout
