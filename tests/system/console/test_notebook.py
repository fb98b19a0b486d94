"""The chart of notebooks in a real Chromium, with the platform's rows and trades; the transport is the test's own."""

import base64
import queue
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from candlewright.client.live.chart import BUNDLE, Chart
from tests.system.conftest import System
from tests.system.console.conftest import PICTURES

HOST = "http://notebook"
PAGE = """<!doctype html><body style="background: {ground}; margin: 12px"><div id="out"></div><script type="module">
import widget from "./chart.js";
const takers = new Set(), values = {values};
window.said = [];
window.deliver = (content, buffers) => {{
  const views = buffers.map((text) => new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer));
  for (const take of [...takers]) take(content, views);
}};
const model = {{
  get: (name) => values[name],
  send: (content) => said.push(content),
  on: (_, take) => takers.add(take),
  off: (_, take) => takers.delete(take),
}};
window.end = widget.render({{ model, el: document.getElementById("out") }});
</script></body>"""


class Notebook:
    """Carries messages between the widget's two sides until something holds."""

    def __init__(self, page: Page, chart: Chart, monkeypatch: pytest.MonkeyPatch) -> None:
        self.page = page
        self.chart = chart
        self._sent: queue.Queue[tuple[dict[str, Any], list[str]]] = queue.Queue()
        monkeypatch.setattr(chart, "send", self._send)

    def _send(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        self._sent.put((content, [base64.b64encode(each).decode() for each in buffers or ()]))

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < end, self.page.inner_text("body")
            for content in self.page.evaluate("said.splice(0)"):
                self.chart._take(self.chart, content, [])
            while not self._sent.empty():
                self.page.evaluate("([content, buffers]) => deliver(content, buffers)", list(self._sent.get()))
            self.page.wait_for_timeout(20)


@pytest.mark.parametrize(
    ("theme", "ground"), [("light", "color-mix(in srgb, #fff, transparent 0%)"), ("dark", "#111111")]
)
def test_a_chart_shows_stored_bars_and_the_one_that_forms(
    chromium: Browser, system: System, stored: str, monkeypatch: pytest.MonkeyPatch, theme: str, ground: str
) -> None:
    with system.connect() as client:
        chart = client.chart(stored, "1m", height=300)
        values = f'{{"ticker": "{chart.ticker}", "period_seconds": {chart.period_seconds}, "height": {chart.height}}}'
        page = chromium.new_page(viewport={"width": 900, "height": 420})
        hosts: set[str] = set()
        errors: list[str] = []
        page.on("request", lambda request: hosts.add("/".join(request.url.split("/")[:3])))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.route(
            f"{HOST}/",
            lambda route: route.fulfill(body=PAGE.format(ground=ground, values=values), content_type="text/html"),
        )
        page.route(f"{HOST}/chart.js", lambda route: route.fulfill(path=BUNDLE))
        page.goto(f"{HOST}/")
        expect(page.locator(".note")).to_contain_text("The kernel is busy")
        notebook = Notebook(page, chart, monkeypatch)
        notebook.until(lambda: "forming" in page.inner_text(".legend"))
        expect(page.locator(".note")).to_be_empty()
        assert page.get_attribute(".candlewright-chart", "data-theme") == theme
        assert page.locator(".candlewright-chart canvas").count() > 0
        assert chart._streams
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / f"notebook-{theme}.png")
        page.evaluate("end()")
        notebook.until(lambda: not chart._streams)
        assert page.locator(".candlewright-chart").count() == 0
        assert hosts == {HOST}
        assert errors == []
        page.close()
        chart.close()
