"""`candlewright mcp` over a whole platform, started over stdio as an assistant does it."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.system.conftest import System

pytestmark = pytest.mark.timeout(600)

TICKER = "SOL/USDT.BINANCE"
DAY = {"ticker": TICKER, "start": "2024-02-01", "end": "2024-02-01T02:00"}


async def test_an_assistant_fetches_tries_registers_and_explains(system: System, tmp_path: Path) -> None:
    settings = system.platform.settings
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CANDLEWRIGHT_")}
    environment["CANDLEWRIGHT_CONSOLE__BIND"] = settings.console.bind
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "candlewright", "mcp", "--allow-write"], env=environment, cwd=tmp_path
    )
    text, parameters = "close > open * :rise", {"rise": 2, "period_seconds": 60}
    async with Client(command) as client:

        async def call(tool: str, **arguments: object) -> dict[str, Any]:
            found = await client.call_tool(tool, arguments)
            assert not found.is_error and found.structured_content is not None, found
            return dict(found.structured_content)

        assert (await call("fetch_history", **DAY))["state"] == "done"
        assert len((await call("history", **DAY, limit=1_000))["rows"]) == 120
        assert (await call("sql", sql=f"SELECT count(*) AS n FROM ohlc WHERE ticker = '{TICKER}'"))["rows"][0][
            "n"
        ] >= 120
        assert (await call("try_trigger", sql=text, ticker=TICKER, parameters=parameters))["fired"] == 0
        await call("add_trigger", sql=text, tickers=[TICKER], parameters=parameters, trigger_id="of/assistant")
        assert "of/assistant" in [each["trigger_id"] for each in (await call("triggers"))["triggers"]]
        taken = await client.call_tool("add_trigger", {"sql": "price > 1", "trigger_id": "of/assistant"})
        assert taken.is_error and "another trigger is registered" in str(taken.content)
        told = await call("explain_trigger", trigger_id="of/assistant", at="2024-02-01T01:59:00Z")
        condition = told["stages"][0]["attempts"][0]["nearest"][0]["condition"]
        assert (told["rows"], condition["text"], condition["holds"]) == (120, "close > open * 2", False)
        await call("remove_trigger", trigger_id="of/assistant")
        gone = await client.call_tool("explain_trigger", {"trigger_id": "of/assistant"})
        assert gone.is_error and "no trigger of/assistant" in str(gone.content)
