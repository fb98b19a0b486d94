"""The code on the pages for Java and Go, compiled and run as described there, against the running platform."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.system.conftest import System

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> dict[str, list[str]]:
    """The code blocks of a page, by language."""
    found: dict[str, list[str]] = {}
    for language, text in _BLOCK.findall((ROOT / "docs" / "how-to" / page).read_text()):
        found.setdefault(language, []).append(text)
    return found


def run(commands: str, folder: Path) -> str:
    environment = {**os.environ, "CANDLEWRIGHT": str(ROOT), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    command = ["bash", "-euo", "pipefail", "-c", commands]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def addresses(system: System) -> str:
    relay = system.platform.settings.relay
    return f"{relay.requests_bind} {relay.notifications_bind}"


def check(printed: str) -> None:
    request, history, *trades = [line.strip() for line in printed.splitlines() if line.strip()]
    assert (request, history) == ("request: QUEUED", "history: OK 1440 candles")
    numbers = [int(line.removeprefix("trade: ").split()[0]) for line in trades]
    assert len(numbers) >= 3 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_go(system: System, tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("no Go on this machine")
    # The page has Debian's compiler; this one is the same program in a wheel.
    compiler = tmp_path / "bin" / "protoc"
    compiler.parent.mkdir()
    compiler.write_text(f'#!/bin/sh\nexec {sys.executable} -m grpc_tools.protoc "$@"\n')
    compiler.chmod(0o755)
    found = blocks("go.md")
    prepare, start = found["sh"]
    run(prepare, tmp_path)
    (tmp_path / "quickstart" / "main.go").write_text(found["go"][0])
    check(run(f"cd quickstart\n{start.rstrip()} {addresses(system)}", tmp_path))


def test_java(system: System, tmp_path: Path) -> None:
    if shutil.which("mvn") is None:
        pytest.skip("no Maven on this machine")
    found = blocks("java.md")
    prepare, start = found["sh"]
    run(prepare, tmp_path)
    project = tmp_path / "quickstart"
    (project / "pom.xml").write_text(found["xml"][0])
    (project / "src" / "main" / "java" / "Quickstart.java").write_text(found["java"][0])
    printed = run(f'cd quickstart\n{start.rstrip()} -B -Dexec.args="{addresses(system)}"', tmp_path)
    check(re.sub(r"\x1b\[[0-9;]*m", "", printed))
