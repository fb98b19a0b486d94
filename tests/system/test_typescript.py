"""The TypeScript client on a running platform: its own tests, and the example with the package of `./run build`."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.clients.test_typescript import CLIENT, NODE
from tests.conftest import ROOT
from tests.system.conftest import System

pytestmark = pytest.mark.timeout(240)


def run(system: System, folder: Path, *command: str | Path) -> str:
    address = f"http://{system.platform.settings.console.bind}"
    done = subprocess.run(
        command,
        env={**os.environ, "CANDLEWRIGHT_URL": address},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_clients_own_tests_pass(system: System, tmp_path: Path) -> None:
    run(system, tmp_path, NODE, "--test", CLIENT / "tests" / "platform.test.ts")


def test_the_example_works_with_the_package(system: System, tmp_path: Path) -> None:
    if not (ROOT / "console" / "web" / "node_modules" / "typescript").is_dir():
        pytest.skip("the compiler is not installed (./run check installs it)")
    run(system, tmp_path, sys.executable, ROOT / "distributions" / "typescript.py", tmp_path)
    (package,) = tmp_path.glob("candlewright-*.tgz")
    with tarfile.open(package) as archive:
        # Python before 3.11.4 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(tmp_path / "unpacked")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "unpacked" / "package").rename(tmp_path / "node_modules" / "candlewright")
    shutil.copy(CLIENT / "examples" / "follow.mjs", tmp_path)
    said = run(system, tmp_path, NODE, "follow.mjs")
    assert re.fullmatch(r"1440 bars, the last one closed at [\d.]+\nnow [\d.]+\n", said), said
