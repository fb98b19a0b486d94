"""What the console and the alerts cost together: idle, and after a chart's page has been read."""

import json
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
#: From the first answer with rows on, for which the libraries that read tables are loaded.
MAX_MIB_IN_USE = 160
TICKER = "BTC/USDT.BINANCE"
#: The requests of a chart's page.
PATHS = (
    "stored",
    f"bars?ticker={TICKER}&period=1m&limit=1000",
    f"gaps?ticker={TICKER}",
    f"revisions?ticker={TICKER}&period=1m",
    "triggers",
)


def test_console_and_alerts_cost_little_together(tmp_path: Path) -> None:
    hook = '{"hook": {"url": "https://alerts.example.com/hook"}}'
    platform = PrivatePlatform(tmp_path, ("--sandbox",), {"ALERTS": hook}, hear=print)

    def call(path: str) -> Any:
        with urllib.request.urlopen(f"http://{platform.settings.console.bind}/api/v1/{path}", timeout=60) as answer:
            return json.load(answer)

    platform.start(START_SECONDS)
    try:
        pids = {part: state["pid"] for part, state in call("status")["parts"].items()}
        parts = pids["console"], pids["alerts"]
        unused = idle(IDLE_SECONDS, parts)
        for path in PATHS:
            call(path)
        used = idle(IDLE_SECONDS, parts)
        assert unused["pss_mib"] < MAX_MIB
        assert used["pss_mib"] < MAX_MIB_IN_USE
        assert max(unused["cores"], used["cores"]) < MAX_CORES
    finally:
        platform.stop()
