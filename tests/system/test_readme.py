"""The snippets of the README work as pasted, against the platform that they tell the reader to start."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.conftest import System

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = re.findall(r"^    (\./run (?:history|sql) .*)$", README, re.MULTILINE)


def environment(system: System) -> dict[str, str]:
    settings = system.platform.settings
    return {
        **os.environ,
        "CANDLEWRIGHT_DATA_DIR": str(settings.data_dir),
        "CANDLEWRIGHT_RELAY__REQUESTS_BIND": settings.relay.requests_bind,
        "CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND": settings.relay.notifications_bind,
        "CANDLEWRIGHT_SPARK__CONNECT_BIND": settings.spark.connect_bind,
    }


def run(system: System, *command: str) -> str:
    done = subprocess.run(
        command, env=environment(system), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_has_one_python_snippet_and_commands() -> None:
    assert len(PYTHON) == 1
    assert len(SHELL) == 2


def test_the_python_snippet_prints_candles_and_an_event(system: System) -> None:
    shown = run(system, sys.executable, "-c", PYTHON[0])
    assert "23:59:00" in shown
    assert "BTC/USDT.BINANCE {'" in shown
    assert "'bottom':" in shown


@pytest.mark.parametrize("line", SHELL)
def test_each_command_answers_with_rows(system: System, line: str) -> None:
    _, *arguments = shlex.split(line)
    shown = run(system, sys.executable, "-m", "candlewright", *arguments)
    assert len(shown.splitlines()) > 2, shown
