"""A part is killed while a page and readers of the stream and of a WebSocket follow a ticker: they report it or wait,
and get each trade once.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import expect
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.system.conftest import System
from tests.system.console.conftest import Open

pytestmark = pytest.mark.timeout(400)

PATIENCE_SECONDS = 180.0


@dataclass
class Trades:
    """The numbers of the trades that a reader got, over all its connections."""

    address: str
    topic: str
    numbers: list[int] = field(default_factory=list)
    _last_id: str = ""
    _ended: threading.Event = field(default_factory=threading.Event)

    def read(self) -> None:
        while not self._ended.is_set():
            with suppress(httpx.HTTPError, WebSocketException, OSError):
                self._read_once()
            # While the part is down, connections are refused immediately.
            self._ended.wait(0.05)

    def end(self) -> None:
        self._ended.set()

    def _read_once(self) -> None:
        headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
        address = f"{self.address}/api/v1/stream"
        with httpx.stream("GET", address, params={"topic": self.topic}, headers=headers, timeout=20) as answer:
            block: dict[str, str] = {}
            for line in answer.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    block[name] = value
                    continue
                # Only a whole event counts: a connection may be cut after its id.
                self.numbers += [tick["sequence"] for tick in json.loads(block.get("data", "{}")).get("ticks", ())]
                self._last_id = block.get("id", self._last_id)
                block = {}
                if self._ended.is_set():
                    return


class SocketTrades(Trades):
    """Over a WebSocket, which continues with the cursor of the last message."""

    def _read_once(self) -> None:
        query = {"topic": self.topic, **({"cursor": self._last_id} if self._last_id else {})}
        with connect(
            f"{self.address.replace('http', 'ws', 1)}/api/v1/ws?{urlencode(query)}", open_timeout=20
        ) as socket:
            while not self._ended.is_set():
                with suppress(TimeoutError):
                    message = json.loads(socket.recv(timeout=1))
                    if message["event"] == "ticks":
                        self.numbers += [tick["sequence"] for tick in message["data"]["ticks"]]
                    self._last_id = message.get("id") or self._last_id


@contextmanager
def following(trades: Trades) -> Iterator[Trades]:
    thread = threading.Thread(target=trades.read)
    thread.start()
    try:
        yield trades
    finally:
        trades.end()
        thread.join()


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up, f"{what}: not within {PATIENCE_SECONDS:g} s"
        time.sleep(0.1)


def part_of(system: System, name: str) -> dict[str, Any]:
    """Empty while nothing answers."""
    try:
        answer = httpx.get(f"http://{system.platform.settings.console.bind}/api/v1/status", timeout=10).json()
    except httpx.HTTPError:
        return {}
    found: dict[str, Any] = answer.get("parts", {}).get(name, {})
    return found


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("relay", ""),
        ("console", "Connection lost"),
        # Spark takes a while to restart.
        pytest.param("flink_replacement_spark", "1 part starting", marks=pytest.mark.long),
    ],
)
def test_a_killed_part_costs_neither_the_page_nor_readers_a_trade(
    show: Open, stored: str, system: System, part: str, said: str
) -> None:
    shown = show()
    page = shown.go(f"/chart?ticker={stored}&period=1m")
    health, newest = page.locator(".health"), page.locator(".tape-rows tr").first
    expect(health).to_have_text("Live")
    topic = f"TICKS:{stored}"
    with following(Trades(shown.address, topic)) as trades, following(SocketTrades(shown.address, topic)) as others:
        until(lambda: min(len(trades.numbers), len(others.numbers)) >= 3, "trades arrive")
        pid = part_of(system, part)["pid"]
        os.kill(pid, signal.SIGKILL)
        if said:
            expect(health).to_have_text(said)
        until(
            lambda: (now := part_of(system, part)).get("ready") and now["pid"] != pid,
            f"{part} is back",
        )
        shown_before = newest.inner_text()
        wanted = [len(each.numbers) + 5 for each in (trades, others)]
        until(lambda: len(trades.numbers) >= wanted[0] and len(others.numbers) >= wanted[1], "trades go on")
        expect(health).to_have_text("Live")
        expect(newest).not_to_have_text(shown_before)
        expect(page.get_by_role("alert")).to_have_count(0)
    for each in (trades, others):
        assert each.numbers == [*range(each.numbers[0], each.numbers[0] + len(each.numbers))]
