"""The quality of stored candles, as the API answers it."""

import pytest

from candlewright.wire.grid import SECOND
from console.routes import quality
from console.times import iso
from core.settings import Settings
from datasets.quality import examine
from tests.console.calls import calling
from tests.datasets.conftest import COUNT, HOLES, MINUTE_US, START_US, UNKNOWN, settings  # noqa: F401

pytestmark = pytest.mark.processes

TICKER = "BTC/USDT.BINANCE"
START = START_US * 1_000
MINUTE = 60 * SECOND
LAST = START + (COUNT - 1) * MINUTE


async def test_the_answer_agrees_with_the_command(settings: Settings) -> None:  # noqa: F811
    async with calling(settings) as http:
        found = (await http.get("/api/v1/quality", params={"ticker": TICKER})).json()
    expected = examine(settings, TICKER, 60, start=START, end=LAST + 1)
    assert (found["first"], found["last"]) == (iso(START), iso(LAST))
    assert found["problems"] == expected.problems != []
    assert (found["rows"], found["holes"], found["unknown"]) == (COUNT - 3, len(HOLES), len(UNKNOWN))
    missing = START + UNKNOWN[0] * MINUTE
    assert found["unknown_ranges"] == [{"start": iso(missing), "end": iso(missing + MINUTE)}]
    assert found["days"] == [
        {"day": "2024-01-01", "got": 8, "holes": 2, "expected": 10},
        {"day": "2024-01-02", "got": 19, "holes": 0, "expected": 20},
    ]
    assert (found["sources"], found["trades"], found["delay_ms"]) == ({"exchange": COUNT - 3}, None, None)


async def test_a_range_is_examined_alone_and_with_its_trades(settings: Settings) -> None:  # noqa: F811
    bounds = {"start": iso(START), "end": iso(START + 5 * MINUTE)}
    async with calling(settings) as http:
        found = (await http.get("/api/v1/quality", params={"ticker": TICKER, "trades": True, **bounds})).json()
    assert (found["rows"], found["problems"]) == (5, [])
    assert found["trades"] == {"compared": 0, "equal": 0, "price_differs": 0, "volume_differs": 0, "volume_off": 0.0}


async def test_nothing_stored_is_an_answer_and_not_an_error(settings: Settings) -> None:  # noqa: F811
    async with calling(settings) as http:
        found = (await http.get("/api/v1/quality", params={"ticker": "*/USDT.BINANCE", "period": "1d"})).json()
    assert (found["rows"], found["first"], found["days"], found["problems"]) == (0, None, [], [])


async def test_ranges_that_would_take_too_long_are_refused_or_shortened(
    settings: Settings,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quality, "_MAX_CANDLES", 20)
    monkeypatch.setattr(quality, "_MAX_DAYS_OF_TRADES", 0)
    async with calling(settings) as http:
        newest = (await http.get("/api/v1/quality", params={"ticker": TICKER})).json()
        assert (newest["first"], newest["last"]) == (iso(LAST - 19 * MINUTE), iso(LAST))
        for asked, said in (
            ({"start": "2024-01-01"}, "the range has 30 candles; at most 20 are examined at once"),
            ({"start": "2024-01-02T00:10:00Z", "trades": "true"}, "a range of at most 0 days"),
            ({"start": "2024-01-02", "end": "2024-01-01"}, "the start of the range must be before its end"),
        ):
            refused = await http.get("/api/v1/quality", params={"ticker": TICKER, **asked})
            assert refused.status_code == 400
            assert said in refused.json()["detail"]
