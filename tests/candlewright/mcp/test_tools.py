"""The tools of `candlewright mcp`, called by the SDK's own client in this process."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from candlewright.cli.app import app
from candlewright.settings import ClientConfig
from iceberg import OHLC, append, create_tables, load_table, open_catalog
from tests.candlewright_platform.cli.triggers.test_backtest import BARS, TICKER, bars
from tests.console.test_stream import Server, serving
from tests.relay.conftest import Start, start_relay  # noqa: F401

if TYPE_CHECKING:
    from mcp import Client

READERS = {
    "status", "markets", "stored", "history", "trades", "tables", "sql", "triggers", "trigger_events", "check_trigger",
    "try_trigger", "explain_trigger",
}  # fmt: skip
WRITERS = {"fetch_history", "add_trigger", "remove_trigger"}
NOWHERE = ClientConfig.model_validate({"console": {"bind": "127.0.0.1:9"}})


@pytest.fixture
async def console(start_relay: Start, tmp_path: Path) -> AsyncIterator[Server]:  # noqa: F811
    async with serving(start_relay(), tmp_path / "data") as server:
        catalog = open_catalog(server.settings)
        create_tables(catalog)
        append(load_table(catalog, OHLC), bars(), {})
        yield server


def client_of(settings: ClientConfig, *, allow_write: bool = False) -> "Client":
    """Imports the SDK, which takes a second, only in the process that runs these tests."""
    from mcp import Client

    from candlewright.mcp.server import server_of

    return Client(server_of(settings, allow_write=allow_write))


async def names(*, allow_write: bool) -> dict[str, Any]:
    async with client_of(NOWHERE, allow_write=allow_write) as client:
        return {tool.name: tool for tool in (await client.list_tools()).tools}


async def text_of(client: "Client", tool: str, **arguments: object) -> str:
    """The text of a failed call that an assistant reads."""
    found = await client.call_tool(tool, arguments)
    assert found.is_error, found
    return str(getattr(found.content[0], "text", ""))


async def answer(client: "Client", tool: str, **arguments: object) -> dict[str, Any]:
    found = await client.call_tool(tool, arguments)
    assert not found.is_error and found.structured_content is not None, found
    return dict(found.structured_content)


async def test_tools_that_write_are_there_only_when_allowed() -> None:
    readers, everything = await names(allow_write=False), await names(allow_write=True)
    assert set(readers) == READERS
    assert set(everything) == READERS | WRITERS
    assert all(tool.annotations.read_only_hint for tool in readers.values())
    assert {name for name, tool in everything.items() if not tool.annotations.read_only_hint} == WRITERS
    assert everything["remove_trigger"].annotations.destructive_hint
    assert all(tool.description for tool in everything.values())


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("history", {}, "ticker: Field required"),
        (
            "history",
            {"ticker": TICKER, "begin": "2024-01-01"},
            "history has no argument 'begin' (its arguments: ticker, ",
        ),
        ("history", {"ticker": TICKER, "limit": 1_000_000}, "less than or equal to 1000"),
        ("history", {"ticker": 7}, "valid string"),
        ("explain_trigger", {"trigger_id": ""}, "at least 1 character"),
        ("add_trigger", {"sql": "price > 1"}, "add_trigger"),
        ("stored", {}, "no answer from the platform at http://127.0.0.1:9 "),
    ],
)
async def test_bad_input_is_answered_with_a_sentence(tool: str, arguments: dict[str, object], said: str) -> None:
    async with client_of(NOWHERE) as client:
        found = await text_of(client, tool, **arguments)
        assert said in found
        assert "pydantic" not in found
        assert len((await client.list_tools()).tools) == len(READERS)


@pytest.mark.processes
async def test_tools_answer_from_the_tables(console: Server) -> None:
    async with client_of(console.settings) as client:
        (series,) = (await answer(client, "stored"))["series"]
        assert (series["ticker"], series["period_seconds"], series["rows"]) == (TICKER, 60, BARS)
        rows = (await answer(client, "history", ticker=TICKER, start="2024-01-01", limit=2))["rows"]
        assert [row["open_time"][11:16] for row in rows] == ["00:00", "00:01"]
        tried = await answer(
            client, "try_trigger", sql="close > :least", ticker=TICKER, limit=3,
            parameters={"least": 0, "period_seconds": 60},
        )  # fmt: skip
        assert (tried["fired"], len(tried["rows"]), len(tried["fired_at"])) == (BARS, 3, 3)
        tables = await answer(client, "tables")
        assert tables["tables"]["ohlc"]["close"] == "DOUBLE"
        assert any(signature.startswith("RSI(") for signature in tables["functions"])
        # An assistant reads all of it.
        assert len(json.dumps(tables)) < 24_000


@pytest.mark.processes
async def test_mistakes_are_those_of_the_http_api(console: Server) -> None:
    async with client_of(console.settings) as client:
        said = await text_of(client, "check_trigger", sql="SELECT prise FROM ticks WHERE prise > 1")
        assert "1:8: unknown column 'prise' (did you mean 'price'?)" in said
        assert "probably meant: SELECT price FROM ticks WHERE price > 1" in said
        assert "BASE/QUOTE.VENUE" in await text_of(client, "history", ticker="BTCUSDT")
        assert "start" in await text_of(client, "history", ticker=TICKER, start="2024-01-02", end="2024-01-01")


@pytest.mark.processes
async def test_sql_over_the_tables(console: Server) -> None:
    async with client_of(console.settings) as client:
        found = await answer(client, "sql", sql="SELECT count(*) AS n FROM ohlc")
        assert (found["rows"], found["truncated"]) == ([{"n": BARS}], False)


def test_without_the_sdk_the_command_names_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.partition(".")[0] == "mcp" or name.startswith("candlewright.mcp")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    result = CliRunner().invoke(app, ["mcp"])
    assert result.exit_code == 1
    assert "install candlewright[mcp]" in str(result.exception)
