"""The snippets of the README and the tutorial work as pasted, against the platform that readers are asked to start."""

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
README, TUTORIAL = ((ROOT / path).read_text() for path in ("README.md", "docs/tutorial.md"))
PYTHON = [text for page in (README, TUTORIAL) for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
SHELL = re.findall(r"^    \./run ((?:history|sql|trigger try) .*)$", README + TUTORIAL, re.MULTILINE)
#: What each snippet of Python shows.
SHOWN = (("23:59:00", "BTC/USDT.BINANCE {'", "'bottom':"), ("1440 ", "mean "), ("'bottom':",))


def environment(system: System) -> dict[str, str]:
    settings = system.platform.settings
    return {
        **os.environ,
        "CANDLEWRIGHT_DATA_DIR": str(settings.data_dir),
        "CANDLEWRIGHT_RELAY__REQUESTS_BIND": settings.relay.requests_bind,
        "CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND": settings.relay.notifications_bind,
        "CANDLEWRIGHT_SPARK__CONNECT_BIND": settings.spark.connect_bind,
        "PYTHONPATH": str(ROOT),
    }


def run(system: System, folder: Path, *command: str) -> str:
    done = subprocess.run(
        command, env=environment(system), cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_snippets_are_found() -> None:
    assert len(PYTHON) == len(SHOWN)
    assert len(SHELL) == 5


def test_snippets_can_be_pasted_into_an_interactive_python() -> None:
    """Before Python 3.13 it ends a block at an empty line."""
    assert [text for text in PYTHON if re.search(r"\n\n ", text)] == []


@pytest.mark.parametrize(("text", "shown"), list(zip(PYTHON, SHOWN, strict=True)))
def test_each_python_snippet_gives_its_documented_output(
    system: System, tmp_path: Path, text: str, shown: tuple[str, ...]
) -> None:
    answer = run(system, tmp_path, sys.executable, "-c", text)
    assert [each for each in shown if each not in answer] == [], answer


@pytest.mark.parametrize("line", SHELL)
def test_each_command_answers_with_rows(system: System, tmp_path: Path, line: str) -> None:
    (pattern,) = re.findall(r"```sql\n(.*?)```", TUTORIAL, re.DOTALL)
    (tmp_path / "dip.sql").write_text(pattern)
    shown = run(system, tmp_path, sys.executable, "-m", "candlewright", *shlex.split(line))
    assert len(shown.splitlines()) > 1, shown
