"""The console where a token is needed: a browser signs in, sees what its role may do, and signs out."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from console.server import Console
from core.doors import KeyFolder, Role
from core.settings import Settings
from tests.system.console.conftest import Shown

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    """The port of a console that listens on every address, so that it needs tokens."""
    destinations = {"phone": {"url": "ntfy://secret-topic"}, "bot": {"url": "https://bot.example.com"}}
    settings = {"data_dir": tmp_path, "console": {"bind": "0.0.0.0:0"}, "alerts": destinations}
    console = Console(Settings.model_validate(settings))
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await console.serve()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    yield f"http://127.0.0.1:{console.port}"
    loops[0].call_soon_threadsafe(console.stop)
    thread.join()


@pytest.mark.parametrize("width", [390, 1440])
def test_a_viewer_signs_in_sees_only_permitted_actions_and_signs_out(
    chromium: Browser, guarded: str, tmp_path: Path, width: int
) -> None:
    token = KeyFolder(tmp_path).new_token("ann", Role.viewer)
    context = chromium.new_context(viewport={"width": width, "height": 844})
    shown = Shown(context.new_page(), guarded)
    page = shown.go("/requests")
    page.get_by_label("Token").fill("cw_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("this token is not known")
    shown.picture(f"sign-in-{width}")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Sign out ann (viewer)")).to_be_visible()
    expect(page.get_by_role("heading", name="Requests")).to_be_visible()
    expect(page.get_by_role("button", name="Get history")).to_have_count(0)
    assert page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})").count(token) == 0
    shown.picture(f"viewer-{width}")
    page.goto(f"{guarded}/triggers")
    expect(page.get_by_role("button", name="Try on history")).to_be_visible()
    expect(page.get_by_text("Register it")).to_have_count(0)
    page.get_by_role("button", name="Sign out ann (viewer)").click()
    expect(page.get_by_label("Token")).to_be_visible()
    context.close()


def test_arming_offers_the_destinations_of_alerts(chromium: Browser, guarded: str, tmp_path: Path) -> None:
    token = KeyFolder(tmp_path).new_token("olga", Role.operator)
    context = chromium.new_context(viewport={"width": 390, "height": 844})
    shown = Shown(context.new_page(), guarded)
    page = shown.go("/triggers")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("Register it").click()
    page.get_by_role("checkbox", name="phone ntfy").check()
    expect(page.get_by_role("checkbox", name="bot https")).not_to_be_checked()
    page.get_by_role("group", name="Send alerts to").scroll_into_view_if_needed()
    shown.picture("arm-390")
    assert "secret-topic" not in page.content()
    context.close()
