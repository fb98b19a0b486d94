"""The tools that an assistant may call. Each is one call of the HTTP API, with a bounded answer."""

import time
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import quote

import anyio
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from candlewright.mcp.api import Ask

Tool = Callable[..., Any]
Answer = dict[str, Any]

#: Rows of one answer: an assistant reads every one of them.
ROWS, MOST_ROWS = 200, 1_000
_FETCH_SECONDS, _POLL_SECONDS = 100.0, 0.5

Ticker = Annotated[str, Field(description="BASE/QUOTE.VENUE, such as BTC/USDT.BINANCE.")]
Period = Annotated[str, Field(description="Length of the candles: 1m, 1h, 1d, or seconds.")]
Moment = Annotated[str | None, Field(description="ISO 8601; UTC if no zone is given.")]
Limit = Annotated[int, Field(ge=1, le=MOST_ROWS, description="Rows in the answer.")]
TriggerId = Annotated[str, Field(min_length=1, max_length=200)]
Sql = Annotated[str, Field(min_length=1, max_length=1 << 16)]
Parameters = Annotated[
    dict[str, str | int | float | bool] | None,
    Field(description="Values of :name in the text, and options: period_seconds (bars of this length), …"),
]
Tickers = Annotated[list[str] | None, Field(description="None = every active one.")]


def readers(ask: Ask) -> list[Tool]:
    """The tools that change nothing."""

    async def status() -> Answer:
        """Which parts of the platform run, and their problems."""
        return await ask("GET", "/status")

    async def markets(
        search: Annotated[str, Field(max_length=100, description="Part of the ticker.")] = "",
        venue: Annotated[str | None, Field(description="Only this exchange, such as BINANCE.")] = None,
        limit: Limit = 50,
    ) -> Answer:
        """Find tickers. `total` says how many there are."""
        return await ask("GET", "/markets", {"search": search, "venue": venue, "limit": limit})

    async def stored() -> Answer:
        """Which candles are stored: tickers, periods, first and last open time, number of rows."""
        return await ask("GET", "/stored")

    async def history(
        ticker: Ticker, period: Period = "1m", start: Moment = None, end: Moment = None, limit: Limit = ROWS
    ) -> Answer:
        """Stored candles of a ticker; without start, the newest ones before end. `holes`: ranges for which the exchange
        has no candle; `unknown`: ranges for which nothing is stored.
        """
        query = {"ticker": ticker, "period": period, "start": start, "end": end, "limit": limit}
        return await ask("GET", "/bars", query)

    async def trades(ticker: Ticker, start: Moment = None, end: Moment = None, limit: Limit = ROWS) -> Answer:
        """The first stored trades of a range; without start, of the last day before end."""
        return await ask("GET", "/ticks", {"ticker": ticker, "start": start, "end": end, "limit": limit})

    async def tables() -> Answer:
        """Tables with their columns and types, and the trigger language: its functions' signatures, and its forms."""
        found = await ask("GET", "/language")
        return {
            "tables": {
                table: {column["name"]: column["type"] for column in columns}
                for table, columns in found["tables"].items()
            },
            "functions": [function["signature"] for function in found["functions"]],
            "forms": [form["form"] for form in found["forms"]],
        }

    async def sql(
        sql: Annotated[Sql, Field(description="SELECT in DuckDB's dialect, or in the trigger language.")],
        limit: Limit = ROWS,
    ) -> Answer:
        """Query the tables (ohlc, ticks, gaps, coverage, trigger_events …). `truncated` says whether there is more."""
        return await ask("POST", "/sql", body={"sql": sql, "limit": limit})

    async def triggers() -> Answer:
        """Registered triggers: their texts, tickers, parameters, states and numbers of events."""
        return await ask("GET", "/triggers")

    async def trigger_events(
        trigger_id: TriggerId, from_sequence: Annotated[int, Field(ge=1)] = 1, limit: Limit = 50
    ) -> Answer:
        """What a trigger has found, from an event's number on."""
        query = {"from_sequence": from_sequence, "limit": limit}
        return await ask("GET", f"/triggers/{quote(trigger_id, safe='')}/events", query)

    async def check_trigger(sql: Sql, parameters: Parameters = None, tickers: Tickers = None) -> Answer:
        """Check a trigger's text: its columns and warnings, or every mistake with line, column and hint.

        A text is a condition over the newest trade (`price > :limit`), or over bars with the parameter
        period_seconds (`close > open * 1.02`), or a SELECT with windows, OVER, joins or MATCH_RECOGNIZE.
        """
        body = {"sql": sql, "parameters": parameters or {}, "tickers": tickers or []}
        return await ask("POST", "/triggers/check", body=body)

    async def try_trigger(
        sql: Sql, ticker: Ticker, parameters: Parameters = None, since: Moment = None, limit: Limit = 50
    ) -> Answer:
        """Run a trigger's text over the stored data of a ticker: the rows it gives, when it would have fired, and how
        the price had changed 5, 15 and 60 bars later."""
        body = {"sql": sql, "ticker": ticker, "parameters": parameters or {}, "since": since, "limit": limit}
        found = await ask("POST", "/triggers/try", body={name: each for name, each in body.items() if each is not None})
        fired = found["fired_at"]
        return found | {"fired": len(fired), "fired_at": fired[:limit]}

    async def explain_trigger(
        trigger_id: TriggerId,
        ticker: Annotated[str | None, Field(description="Required if the trigger has several tickers.")] = None,
        at: Moment = None,
        attempts: Annotated[int, Field(ge=1, le=10)] = 3,
    ) -> Answer:
        """Why a registered trigger fired or did not: its nearest attempts, the rows each one took, the condition that
        failed with the value of each side, and what an open attempt waits for."""
        query = {"ticker": ticker, "at": at, "attempts": attempts}
        return await ask("GET", f"/triggers/{quote(trigger_id, safe='')}/explain", query)

    return [
        status, markets, stored, history, trades, tables, sql, triggers, trigger_events, check_trigger, try_trigger,
        explain_trigger,
    ]  # fmt: skip


def writers(ask: Ask) -> list[Tool]:
    """The tools that change what the platform does or stores."""

    async def fetch_history(
        ticker: Ticker,
        start: Annotated[str, Field(description="First open time, ISO 8601 (UTC).")],
        end: Annotated[str, Field(description="Open times before this, ISO 8601 (UTC).")],
        period: Period = "1m",
    ) -> Answer:
        """Fetch candles from the exchange into the platform's table; then read them with `history`. If this takes long,
        the answer has the state so far: call it again with the same range."""
        made = await ask("POST", "/history", body={"ticker": ticker, "period": period, "start": start, "end": end})
        until = time.monotonic() + _FETCH_SECONDS
        while made["state"] != "done" and time.monotonic() < until:
            await anyio.sleep(_POLL_SECONDS)
            made = await ask("GET", f"/history/{quote(made['request_id'], safe='')}")
        return made

    async def add_trigger(
        sql: Sql,
        tickers: Tickers = None,
        parameters: Parameters = None,
        trigger_id: Annotated[str | None, Field(max_length=200, description="Its name.")] = None,
    ) -> Answer:
        """Register a trigger: it runs over live data from now on. Check and try its text before. An id of another
        trigger is refused; remove that trigger first."""
        if trigger_id is not None:
            listed = (await ask("GET", "/triggers"))["triggers"]
            other = next((each for each in listed if each["trigger_id"] == trigger_id), None)
            if other is not None and other["sql"] != sql:
                raise ToolError(f"another trigger is registered as {trigger_id}: remove it first, or choose another id")
        body = {"sql": sql, "tickers": tickers or [], "parameters": parameters or {}}
        return await ask("POST", "/triggers", body=body | ({"trigger_id": trigger_id} if trigger_id else {}))

    async def remove_trigger(trigger_id: TriggerId) -> Answer:
        """End a trigger. Its past events stay in the table trigger_events."""
        await ask("DELETE", f"/triggers/{quote(trigger_id, safe='')}")
        return {"trigger_id": trigger_id, "state": "removed"}

    return [fetch_history, add_trigger, remove_trigger]
