"""The completions of an editor."""

from pathlib import Path

import pytest

from tests.console.calls import calling, settings_in


@pytest.mark.processes
async def test_words_and_columns_come_from_their_declarations(tmp_path: Path) -> None:
    async with calling(settings_in(tmp_path)) as http:
        found = (await http.get("/api/v1/language", timeout=60)).json()
    assert {"SELECT", "MATCH_RECOGNIZE", "DEFINE", "PATTERN", "QUALIFY"} <= set(found["keywords"])
    functions = {each["name"]: each for each in found["functions"]}
    assert {"EMA", "VWAP", "LAG", "CLASSIFIER", "DATE_TRUNC", "ROW_NUMBER", "STDDEV"} <= functions.keys()
    assert functions["RSI"]["signature"] == "RSI(x, n)"
    columns = found["tables"]["ohlc"]
    assert [each["name"] for each in columns[:4]] == ["ticker", "period_seconds", "open_time", "open"]
    assert all(each["text"] for each in columns)
    assert {"ticks", "trigger_events", "gaps", "coverage"} <= found["tables"].keys()
