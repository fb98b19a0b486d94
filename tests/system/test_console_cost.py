"""What the console and the alerts cost together: idle, and after use, once the workers have ended."""

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from benchmarks.system.latency import idle
from candlewright_platform.supervisor.private import PrivatePlatform
from tests.system.conftest import START_SECONDS

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

IDLE_SECONDS = 20.0
MAX_CORES = 0.01
MAX_MIB = 120
#: After the first answer with rows, for which the libraries that read tables are loaded.
MAX_MIB_IN_USE = 160
TICKER = "BTC/USDT.BINANCE"
#: The requests of a chart's page.
PATHS = (
    "stored",
    f"bars?ticker={TICKER}&period=1m&limit=1000",
    f"gaps?ticker={TICKER}",
    f"revisions?ticker={TICKER}&period=1m",
    "triggers",
    f"quality?ticker={TICKER}",
)
TEXT = {"sql": "close > open * 1.0001", "ticker": TICKER, "parameters": {"period_seconds": 60}}
ASKED = {
    "triggers/check": {"sql": TEXT["sql"], "parameters": TEXT["parameters"]},
    "triggers/try": TEXT,
    "sql": {"sql": "SELECT count(*) AS n FROM ohlc"},
}


def has_children(pid: int) -> bool:
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def test_console_and_alerts_cost_little_together(tmp_path: Path) -> None:
    hook = '{"hook": {"url": "https://alerts.example.com/hook"}}'
    platform = PrivatePlatform(tmp_path, ("--sandbox",), {"ALERTS": hook}, hear=print)

    def call(path: str, body: Any = None) -> Any:
        address = f"http://{platform.settings.console.bind}/api/v1/{path}"
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(address, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)

    platform.start(START_SECONDS)
    try:
        pids = {part: state["pid"] for part, state in call("status")["parts"].items()}
        parts = pids["console"], pids["alerts"]
        unused = idle(IDLE_SECONDS, parts)
        range_of_bars = {"ticker": TICKER, "start": "2024-01-01T00:00:00Z", "end": "2024-01-08T00:00:00Z"}
        place = call("history", range_of_bars)["request_id"]
        while call(f"history/{place}")["state"] != "done":
            time.sleep(0.2)
        for path in PATHS:
            call(path)
        for path, body in ASKED.items():
            call(path, body)
        while has_children(pids["console"]):
            time.sleep(1)
        used = idle(IDLE_SECONDS, parts)
        assert unused["pss_mib"] < MAX_MIB
        assert used["pss_mib"] < MAX_MIB_IN_USE
        assert max(unused["cores"], used["cores"]) < MAX_CORES
    finally:
        platform.stop()
