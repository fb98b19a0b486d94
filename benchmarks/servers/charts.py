"""The console's charts in Chromium: the longest stretch for which the page's thread is busy, and its share of a core.

A separate server answers as the platform does. `scroll`: `--bars` candles are read while scrolling back, scrolled
through, zoomed out and panned, and the same with 1,000 in the same run. `live`: `--charts` charts on one page, and one,
each with `--per-second` trades. `first`: the first view of a chart. Times are processor time of the page's main thread,
so other work on the machine does not count. Needs Chromium and Playwright.
"""

import argparse
import asyncio
import json
import math
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route

from candlewright.wire.times import to_nanoseconds
from console.times import iso
from console.web import Web

MINUTE = 60
FEW_BARS = 1_000
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


# ---- a platform with as many bars as wanted
def bar(ticker: str, number: int) -> dict[str, Any]:
    """The bar that begins this many minutes after the epoch."""
    open_, close = (100 + 20 * math.sin(at / 700) + 3 * math.sin(at / 13) for at in (number, number + 1))
    return {
        "ticker": ticker,
        "period_seconds": MINUTE,
        "open_time": iso(number * MINUTE * 1_000_000_000),
        "open": open_,
        "high": max(open_, close) + 0.3,
        "low": min(open_, close) - 0.3,
        "close": close,
        "volume": 1 + abs(math.sin(number)),
        "source": "benchmark",
        "complete": True,
        "revision": 0,
    }


def fixed_body(body: Any) -> Callable[[Request], Any]:
    return lambda _: body


def platform(count: int, per_second: float) -> Starlette:
    last = int(time.time()) // MINUTE

    def answer(body: Callable[[Request], Any]) -> Callable[[Request], Response]:
        return lambda request: Response(orjson.dumps(body(request)), media_type="application/json")

    def bars(request: Request) -> Any:
        query = request.query_params

        def number(name: str, otherwise: int) -> int:
            return -(-to_nanoseconds(query[name]) // (MINUTE * 1_000_000_000)) if name in query else otherwise

        first, end = number("start", 0), number("end", last)
        limit = int(query["limit"])
        numbers = range(max(first, last - count), min(end, last))
        chosen = numbers[-limit:] if query.get("order") == "last" else numbers[:limit]
        return {"rows": [bar(query["ticker"], each) for each in chosen], "holes": [], "unknown": []}

    async def stream(request: Request) -> Response:
        topics = [each for each in request.query_params.getlist("topic") if each.startswith("TICKS:")]

        async def events() -> AsyncIterator[bytes]:
            yield b"id: 0\n\n"
            for number in range(1, 1 << 30):
                await asyncio.sleep(1 / per_second)
                yield b"".join(event(topic, number) for topic in topics)

        return StreamingResponse(events(), media_type="text/event-stream")

    fixed = {
        "status": {"version": "0", "role": "operator", "ready": True, "healthy": True, "parts": {}},
        "ticks": {"rows": []},
        "gaps": {"rows": []},
        "stored": {"series": []},
        "triggers": {"triggers": []},
        "sql": {"rows": [], "columns": [], "truncated": False},
    }
    routes = [
        Route(f"/api/v1/{name}", answer(fixed_body(body)), methods=["GET", "POST"]) for name, body in fixed.items()
    ]
    return Starlette(
        routes=[*routes, Route("/api/v1/bars", answer(bars)), Route("/api/v1/stream", stream), Mount("/", Web())]
    )


def event(topic: str, number: int) -> bytes:
    now = time.time_ns()
    price = 100 + 3 * math.sin(number / 17)
    trade = {
        "sequence": number,
        "trade_id": str(number),
        "timestamp": iso(now),
        "price": price,
        "size": 0.5,
        "side": "buy",
    }
    body = {"topic": topic, "sequence": number, "ticker": topic.partition(":")[2], "ticks": [trade]}
    return b"id: %d\nevent: ticks\ndata: %b\n\n" % (number, orjson.dumps(body))


@contextmanager
def serving(count: int, per_second: float) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [
        sys.executable,
        "-m",
        "benchmarks.servers.charts",
        "--serve",
        str(port),
        "--bars",
        str(count),
        "--per-second",
        str(per_second),
    ]
    process = subprocess.Popen(command)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


# ---- what the page's thread does
class Busy:
    """Tasks of the main thread between `begin` and `end`, in milliseconds of processor time."""

    def __init__(self, browser: Browser, page: Page) -> None:
        self._browser = browser
        self._page = page

    def begin(self) -> None:
        self._browser.start_tracing(
            page=self._page, categories=["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]
        )
        self._at = time.monotonic()

    def end(self) -> dict[str, float]:
        seconds = time.monotonic() - self._at
        events = json.loads(self._browser.stop_tracing())["traceEvents"]
        main = {
            (each["pid"], each["tid"])
            for each in events
            if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
        }
        tasks = [
            each["tdur"] / 1e3
            for each in events
            if each["name"] == "RunTask" and (each["pid"], each["tid"]) in main and "tdur" in each
        ]
        return {
            "seconds": round(seconds, 2),
            "longest_ms": round(max(tasks), 1),
            "over_50_ms": sum(each > 50 for each in tasks),
            "frames_per_second": round(sum(each["name"] == "Commit" for each in events) / seconds, 1),
            "cores": round(sum(tasks) / 1e3 / seconds, 3),
        }


def loaded_bars(page: Page) -> int:
    label = page.get_by_role("img").first.get_attribute("aria-label") or ""
    return int(
        next((words.split()[0] for words in label.split(", ") if words.endswith(" bars") or " bars " in words), "0")
    )


def scroll(browser: Browser, bars: int) -> dict[str, Any]:
    """Scroll back with the wheel until everything is read, then across the loaded bars, zoomed out to all of them, and
    panned.
    """
    with serving(bars, 1) as home, opened(browser) as page:
        page.goto(f"{home}/chart?ticker=A/B.C&period=1m")
        page.locator(".last b").wait_for()
        box = page.locator(".chart-panel canvas").first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        busy = Busy(browser, page)
        found = {"name": "scroll", "bars": bars}
        busy.begin()
        for _ in range(60):
            page.mouse.wheel(-3000, 0)
            page.wait_for_timeout(30)
        found["back"] = busy.end()
        page.goto(
            f"{home}/chart?ticker=A/B.C&period=1m&at={iso((int(time.time()) - (bars - 100) * MINUTE) * 1_000_000_000)}"
        )
        page.locator(".last b").wait_for()
        for _ in range(600):
            if loaded_bars(page) >= bars:
                break
            page.wait_for_timeout(100)
        found["loaded"] = loaded_bars(page)
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        busy.begin()
        for turn in range(60):
            page.mouse.wheel(1500 if turn % 20 < 10 else -1500, 0)
            page.wait_for_timeout(30)
        found["across"] = busy.end()
        busy.begin()
        for _ in range(20):
            page.mouse.wheel(0, 800)
            page.wait_for_timeout(30)
        page.keyboard.press("Home")
        for key in ("ArrowLeft", "ArrowRight") * 10:
            page.keyboard.press(key)
            page.wait_for_timeout(30)
        found["all"] = busy.end()
        return found


def live(browser: Browser, charts: int, per_second: float, *, seconds: float) -> dict[str, Any]:
    with serving(FEW_BARS, per_second) as home, opened(browser) as page:
        tickers = "&".join(f"ticker=A{number}/B.C" for number in range(charts))
        page.goto(f"{home}/chart?{tickers}&period=1m")
        page.locator(".last b").nth(charts - 1).wait_for()
        page.wait_for_timeout(4_000)
        busy = Busy(browser, page)
        busy.begin()
        page.wait_for_timeout(seconds * 1_000)
        return {"name": "live", "charts": charts, "per_second": per_second, **busy.end()}


def first(browser: Browser) -> dict[str, Any]:
    with serving(FEW_BARS, 1) as home, opened(browser) as page:
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        received: list[float] = []
        session.on("Network.loadingFinished", lambda done: received.append(done["encodedDataLength"]))
        page.goto(f"{home}/chart?ticker=A/B.C&period=1m")
        page.locator(".last b").wait_for()
        shown = page.evaluate("performance.now()")
        page.goto("about:blank")
        return {"name": "first", "milliseconds": round(shown), "bytes": round(sum(received))}


@contextmanager
def opened(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(60_000)
    try:
        yield context.new_page()
    finally:
        context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bars", type=int, default=100_000)
    parser.add_argument("--charts", type=int, default=20)
    parser.add_argument("--per-second", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", choices=("first", "scroll", "live"))
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--output", choices=("json",), default="json")
    options = parser.parse_args()
    if options.serve:
        uvicorn.run(platform(options.bars, options.per_second), port=options.serve, log_level="error")
        return
    chromium = next(path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*ARGUMENTS])
        if options.only in (None, "first"):
            print(json.dumps(first(browser)))
        if options.only in (None, "scroll"):
            print(json.dumps(scroll(browser, FEW_BARS)))
            print(json.dumps(scroll(browser, options.bars)))
        if options.only in (None, "live"):
            for charts in (1, options.charts):
                print(json.dumps(live(browser, charts, options.per_second, seconds=options.seconds)))


if __name__ == "__main__":
    main()
