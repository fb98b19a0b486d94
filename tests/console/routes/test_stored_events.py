"""Stored events of triggers, as the API answers them."""

from pathlib import Path

import pytest

from console.times import iso
from core.settings import Settings
from tests.console.calls import calling
from tests.iceberg.test_last_events import SECOND, START_NS, stored_events

SHORTLY_AFTER = "2024-01-01T00:01:00Z"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    stored_events(tmp_path)
    return Settings(data_dir=tmp_path)


async def test_the_newest_events_before_a_time_have_their_rows(settings: Settings) -> None:
    async with calling(settings) as http:
        found = (await http.get("/api/v1/events", params={"end": SHORTLY_AFTER, "limit": 2})).json()
    assert found["events"] == [
        {
            "event_id": f"{second}",
            "trigger_id": trigger_id,
            "ticker": ticker,
            "time": iso(START_NS + second * SECOND),
            "rows": rows,
        }
        for second, trigger_id, ticker, rows in (
            (28, "b", "BTC/USDT.BINANCE", [{"x": 1}, {"x": 2}]),
            (29, "c", "ETH/USDT.BINANCE", [{"close": 1.5}]),
        )
    ]


async def test_events_are_those_of_a_trigger_and_a_ticker_of_the_last_month(settings: Settings) -> None:
    async with calling(settings) as http:
        asked = {"end": SHORTLY_AFTER, "trigger": "c", "ticker": "ETH/USDT.BINANCE", "limit": 1_000}
        assert len((await http.get("/api/v1/events", params=asked)).json()["events"]) == 10
        assert (await http.get("/api/v1/events", params={**asked, "trigger": "a"})).json() == {"events": []}
        assert (await http.get("/api/v1/events", params={**asked, "end": "2024-02-01"})).json() == {"events": []}
        refused = await http.get("/api/v1/events", params={"start": SHORTLY_AFTER, "end": SHORTLY_AFTER})
        assert refused.status_code == 400


async def test_before_the_first_table_no_event_is_stored(tmp_path: Path) -> None:
    async with calling(Settings(data_dir=tmp_path)) as http:
        assert (await http.get("/api/v1/events")).json() == {"events": []}
