"""The HTTP API over a whole platform, as a program of any language calls it."""

import io
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyarrow import csv

from tests.system.conftest import System
from tests.system.test_live import until

pytestmark = pytest.mark.timeout(600)

TICKER, SYMBOL = "ETH/USDT.BINANCE", "ETHUSDT"
START_MS = 1_706_745_600_000
DAY = {"ticker": TICKER, "period": "1m", "start": "2024-02-01", "end": "2024-02-02"}
TOP = {"sql": "close > 0", "tickers": [TICKER], "parameters": {"period_seconds": 60}}


@pytest.fixture(scope="module")
def http(system: System) -> Iterator[httpx.Client]:
    bind = system.platform.settings.console.bind
    with httpx.Client(base_url=f"http://{bind}/api/v1", timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def day(http: httpx.Client) -> str:
    """The path of a finished request for a day of candles."""
    place = http.post("/history", json=DAY).headers["location"].removeprefix("/api/v1")
    until(lambda: http.get(place).json()["state"] == "done", "the request has ended")
    return place


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == status and body["detail"] and body["title"]
    return body


def test_rows_are_those_of_the_exchange_in_every_form(system: System, http: httpx.Client, day: str) -> None:
    wanted = system.klines(SYMBOL, START_MS, START_MS + 86_400_000)
    answer = http.get(f"{day}/rows")
    rows = answer.json()["rows"]
    assert [row["close"] for row in rows] == [float(str(row[4])) for row in wanted]
    assert rows[0]["open_time"] == "2024-02-01T00:00:00.000000000Z"
    assert rows[-1]["open_time"] == "2024-02-01T23:59:00.000000000Z"
    arrow = pa.ipc.open_stream(http.get(f"{day}/rows?format=arrow").content).read_all()
    assert arrow["close"].to_pylist() == [row["close"] for row in rows]
    assert arrow.schema.field("open_time").type == pa.timestamp("us", "UTC")
    text = csv.read_csv(io.BytesIO(http.get(f"{day}/rows?format=csv").content))
    assert text.column_names == arrow.column_names == [*rows[0]]
    assert text["close"].to_pylist() == arrow["close"].to_pylist()
    again = http.get(f"{day}/rows", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_same_request_again_is_the_same_place(http: httpx.Client, day: str) -> None:
    again = http.post("/history", json=DAY)
    assert (again.status_code, again.headers["location"]) == (200, f"/api/v1{day}")
    named = {**DAY, "limit": 3, "request_id": "my/own id"}
    first, second = http.post("/history", json=named), http.post("/history", json=named)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.headers["location"] == second.headers["location"] == "/api/v1/history/my%2Fown%20id"
    until(lambda: http.get("/history/my%2Fown%20id").json()["state"] == "done", "the request has ended")
    assert len(http.get("/history/my%2Fown%20id/rows").json()["rows"]) == 3
    assert "my/own id" in problem(http.post("/history", json={**named, "limit": 4}), 400)["detail"]
    assert {row["request_id"] for row in http.get("/history").json()["requests"]} >= {"my/own id"}


def test_an_unfinished_request_has_no_rows_and_can_be_cancelled(http: httpx.Client) -> None:
    long = {**DAY, "start": "2020-01-01", "end": "2024-01-01", "request_id": "http-long"}
    assert http.post("/history", json=long).status_code == 201
    waiting = http.get("/history/http-long/rows")
    assert problem(waiting, 409)["type"].endswith("not_finished") and waiting.headers["retry-after"]
    assert http.delete("/history/http-long").json()["request_id"] == "http-long"
    until(lambda: http.get("/history/http-long").json()["state"] == "done", "the request is cancelled")
    assert "cancelled" in problem(http.get("/history/http-long/rows"), 409)["detail"]
    for path in ("/history/unknown", "/history/unknown/rows"):
        problem(http.get(path), 404)
    problem(http.delete("/history/unknown"), 404)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ticker": "BTCUSDT"}, "ticker"),
        ({"ticker": "BTC/USDT.NOWHERE"}, "NOWHERE"),
        ({"period": "7m"}, "period"),
        ({"start": "2024-02-03"}, "start"),
        ({"start": "yesterday"}, "start"),
        ({"limit": 0}, "limit"),
        ({"limit": "3"}, "limit"),
        ({"request_id": "a#b"}, "#"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_bad_request_is_answered_with_the_reason(http: httpx.Client, change: dict[str, Any], said: str) -> None:
    assert said in problem(http.post("/history", json={**DAY, **change}), 400)["detail"]


def test_stored_candles_by_range_and_the_newest(http: httpx.Client, day: str) -> None:
    found = http.get("/bars", params={"ticker": TICKER, "start": "2024-01-31T23:58", "end": "2024-02-01T00:02"}).json()
    assert [row["open_time"][11:16] for row in found["rows"]] == ["00:00", "00:01"]
    assert found["unknown"] == [{"start": "2024-01-31T23:58:00.000000000Z", "end": "2024-02-01T00:00:00.000000000Z"}]
    newest = http.get("/bars", params={"ticker": TICKER, "end": "2024-02-02", "limit": 2}).json()
    assert [row["open_time"][11:16] for row in newest["rows"]] == ["23:58", "23:59"]
    assert (newest["holes"], newest["unknown"]) == ([], [])
    first = http.get("/bars", params={"ticker": TICKER, "start": "2024-02-01", "limit": 2}).json()
    assert [row["open_time"][11:16] for row in first["rows"]] == ["00:00", "00:01"]
    (coverage,) = [
        row
        for row in http.get("/coverage", params={"ticker": TICKER}).json()["rows"]
        if day.endswith(row["request_id"])
    ]
    assert (coverage["got"], coverage["status"], coverage["holes"]) == (1440, "OK", [])
    series = {(row["ticker"], row["period_seconds"]): row for row in http.get("/stored").json()["series"]}
    assert series[TICKER, 60]["rows"] >= 1440
    assert http.get("/gaps", params={"ticker": TICKER}).json() == {"rows": []}
    assert http.get("/revisions", params={"ticker": TICKER, "period": "1m"}).json() == {"rows": []}


def test_venues_and_markets_are_found(http: httpx.Client) -> None:
    (venue,) = [each for each in http.get("/venues").json()["venues"] if each["venue"] == "BINANCE"]
    assert venue["is_live"] and 60 in venue["period_seconds"]
    found = http.get("/markets", params={"search": "eth usdt", "limit": 1}).json()
    assert [market["ticker"] for market in found["markets"]] == [TICKER] and found["total"] >= 1
    assert "NOWHERE" in problem(http.get("/markets", params={"venue": "NOWHERE"}), 404)["detail"]


def test_a_trigger_is_checked_tried_registered_and_removed(system: System, http: httpx.Client, day: str) -> None:
    checked = http.post("/triggers/check", json=TOP).json()
    assert {"name": "close", "type": "DOUBLE"} in checked["columns"]
    bad = problem(http.post("/triggers/check", json={**TOP, "sql": "close >\n opn"}), 400)
    assert (bad["line"], bad["column"]) == (2, 2) and bad["errors"][0]["line"] == 2
    tried = http.post(
        "/triggers/try", json={"sql": "close > open * 1.0005", "ticker": TICKER, "parameters": {"period_seconds": 60}}
    ).json()
    assert tried["input_rows"] >= 1440 and len(tried["fired_at"]) == tried["total_rows"] > 0
    assert [each["bars"] for each in tried["after"]] == [5, 15, 60]
    with system.connect() as client:
        client.views.add("risers", "SELECT ticker, open_time, close FROM ohlc WHERE close > open * 1.0005")
        over = {"sql": "SELECT close FROM risers", "tickers": [TICKER], "parameters": {"period_seconds": 60}}
        assert http.post("/triggers/check", json=over).json()["columns"] == [{"name": "close", "type": "DOUBLE"}]
        assert http.post("/triggers/try", json=over).json()["total_rows"] == tried["total_rows"]
        assert http.post("/triggers", json={**over, "trigger_id": "rising"}).status_code == 201
        explained = http.get("/triggers/rising/explain", params={"at": "2024-02-02T00:00:00Z"}).json()
        assert explained["views"] == [{"name": "risers", "triggers": 1}]
        assert http.delete("/triggers/rising").status_code == 204
        client.views.remove("risers")
    added = http.post("/triggers", json={**TOP, "trigger_id": "over/http"})
    assert (added.status_code, added.headers["location"]) == (201, "/api/v1/triggers/over%2Fhttp")
    assert http.post("/triggers", json={**TOP, "trigger_id": "over/http"}).status_code == 200
    assert http.get("/triggers/over%2Fhttp").json()["state"] == "active"
    assert "over/http" in [each["trigger_id"] for each in http.get("/triggers").json()["triggers"]]
    assert http.get("/triggers/over%2Fhttp/events").json()["events"] == []
    explained = http.get("/triggers/over%2Fhttp/explain", params={"at": "2024-02-02T00:00:00Z", "attempts": 1}).json()
    assert (explained["rows"], explained["fired"], explained["over"]) == (1440, 1440, "bars of 1m")
    assert explained["stages"][0]["attempts"][0]["nearest"][0]["condition"]["holds"] is True
    assert "ETH" in problem(http.get("/triggers/over%2Fhttp/explain", params={"at": "2020-01-01"}), 409)["detail"]
    assert http.delete("/triggers/over%2Fhttp").status_code == 204
    for answer in (http.get("/triggers/over%2Fhttp"), http.delete("/triggers/over%2Fhttp")):
        problem(answer, 404)


def test_events_of_a_trigger_are_numbered_and_read_from_a_number_on(http: httpx.Client) -> None:
    http.post("/triggers", json={"sql": "price > 0", "tickers": [TICKER], "trigger_id": "every"}).raise_for_status()
    until(lambda: http.get("/triggers/every").json()["events"] >= 3, "it has fired")
    page = http.get("/triggers/every/events", params={"limit": 2}).json()
    assert [event["sequence"] for event in page["events"]] == [1, 2]
    assert page["next_sequence"] == 3
    (third,) = http.get("/triggers/every/events", params={"from_sequence": 3, "limit": 1}).json()["events"]
    assert third["sequence"] == 3 and third["rows"][0]["ts"].endswith("Z") and third["event_id"]
    assert http.delete("/triggers/every").status_code == 204


def test_the_console_dies_alone_and_comes_back(system: System, http: httpx.Client) -> None:
    parts = http.get("/status").json()["parts"]
    os.kill(parts["console"]["pid"], signal.SIGKILL)

    def is_back() -> bool:
        try:
            return bool(http.get("/status").json()["parts"]["console"]["pid"] != parts["console"]["pid"])
        except httpx.TransportError:
            time.sleep(0.1)
            return False

    until(is_back, "the console is started again")
    now = http.get("/status").json()["parts"]
    others = set(parts) - {"console"}
    assert {name: now[name]["pid"] for name in others} == {name: parts[name]["pid"] for name in others}
