"""A real Chromium that shows the running platform's console."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from tests.conftest import ROOT
from tests.system.conftest import System

TICKER = "BTC/USDT.BINANCE"
STORED_MINUTES = 240
#: Where the pictures go; git ignores it.
PICTURES = ROOT / "artifacts" / "console"
#: Without these options Chromium contacts its vendor's hosts.
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
Open = Callable[..., "Shown"]


class Shown:
    """A page, with its requests and its errors."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.received_bytes = 0
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        page.on("request", lambda request: self.hosts.add("/".join(request.url.split("/")[:3])))

    def go(self, path: str) -> Page:
        self.page.goto(self.address + path)
        return self.page

    def picture(self, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    if not (ROOT / "console" / "web" / "dist" / "index.html").is_file():
        pytest.skip("the console's pages are not bundled (./run build)")
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=[*_ARGUMENTS])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def stored(system: System) -> str:
    """A ticker with some hours of one-minute bars."""
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    with system.connect() as client:
        client.history(TICKER, period="1m", start=end - timedelta(minutes=STORED_MINUTES), end=end)
    return TICKER


@pytest.fixture
def show(chromium: Browser, system: System) -> Iterator[Open]:
    """Opens a page of this width and colour scheme."""
    contexts = []

    def open_page(width: int = 1440, height: int = 900, *, dark: bool = False) -> Shown:
        size: ViewportSize = {"width": width, "height": height}
        context = chromium.new_context(viewport=size, color_scheme="dark" if dark else "light")
        context.set_default_timeout(30_000)
        contexts.append(context)
        return Shown(context.new_page(), f"http://{system.platform.settings.console.bind}")

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def axe() -> Path:
    file = ROOT / "console" / "web" / "node_modules" / "axe-core" / "axe.min.js"
    if not file.is_file():
        pytest.skip("axe-core is not installed (./run check installs it)")
    return file
