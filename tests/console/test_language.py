"""What an editor completes."""

import json

from console.routes.language import OPERATIONS


async def test_words_and_columns_come_from_their_declarations() -> None:
    (operation,) = OPERATIONS
    found = json.loads((await operation.handler(None)).body)  # type: ignore[arg-type]
    assert {"SELECT", "MATCH_RECOGNIZE", "DEFINE", "PATTERN", "QUALIFY"} <= set(found["keywords"])
    assert {"EMA", "VWAP", "LAG", "CLASSIFIER", "DATE_TRUNC", "ROW_NUMBER"} <= set(found["functions"])
    assert all(name.isidentifier() for name in found["functions"])
    assert found["tables"]["ohlc"][:4] == ["ticker", "period_seconds", "open_time", "open"]
    assert {"ticks", "trigger_events", "gaps", "coverage"} <= set(found["tables"])
