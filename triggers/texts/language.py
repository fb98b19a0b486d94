"""Everything that a trigger editor needs, as one JSON document: the language, its inputs and its parameters."""

import json
from dataclasses import asdict
from functools import cache
from typing import Any

from candlewright_cep.language import forms, functions, keywords, types
from candlewright_cep.types import flink_name, from_arrow
from triggers.texts.check import LIVE_INPUTS, OPTIONS
from triggers.texts.views import BUILT_IN_VIEWS

__all__ = ["COLUMNS", "language", "language_json"]

#: What the columns of the inputs contain.
COLUMNS = {
    "ticks": {
        "ticker": "BASE/QUOTE.VENUE",
        "trade_id": "the exchange's id of the trade",
        "ts": "time of the trade by the exchange's clock; event time",
        "ts_ns": "the same in nanoseconds since 1970",
        "price": "price of the trade",
        "size": "amount of the base currency",
        "side": "'buy', 'sell' or 'unknown': what the taker did",
        "received_at": "when the ingestor received it; may be NULL",
    },
    "ohlc": {
        "ticker": "BASE/QUOTE.VENUE",
        "period_seconds": "length of the bar",
        "open_time": "when the bar began; event time",
        "open": "first price",
        "high": "highest price",
        "low": "lowest price",
        "close": "last price",
        "volume": "amount of the base currency that was traded",
        "quote_volume": "amount of the quote currency; may be NULL",
        "trade_count": "number of trades; may be NULL",
        "source": "'exchange', 'ticks', 'derived' or 'archive': where the bar is from",
        "complete": "false where trades are known to be missing",
        "updated_at": "when it was stored; may be NULL",
    },
    "trigger_events": {
        "trigger_id": "id of the trigger that fired",
        "event_id": "the event's own id, stable across redelivery",
        "fired_at": "event time of the event's last row",
        "ticker": "ticker of the rows that it came from",
        "columns": "the event's row as JSON, for JSON_VALUE",
    },
}


def language() -> dict[str, Any]:
    return {
        "keywords": keywords(),
        "types": types(),
        "forms": [asdict(form) for form in forms()],
        "functions": [asdict(function) for function in functions()],
        "parameters": [{"name": name, "text": text} for name, text in OPTIONS.items()],
        "views": [{"name": name, "text": text} for name, text in sorted(BUILT_IN_VIEWS.items())],
        "tables": {
            name: [
                {"name": field.name, "type": flink_name(from_arrow(field.type)), "text": COLUMNS[name][field.name]}
                for field in source.schema
            ]
            for name, source in LIVE_INPUTS.items()
        },
    }


@cache
def language_json() -> str:
    """The document on one line."""
    return json.dumps(language(), ensure_ascii=False)
