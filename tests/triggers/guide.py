"""The examples of docs/triggers.md, read out of the document."""

import csv
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from documentation import trigger_text
from documentation.trigger_text import Text

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "triggers.md"
DAY = "2024-01-01"
_BLOCK = re.compile(r"^### \d+\. (?P<title>[^\n]+)$|^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_TIMES = ("time", "open_time", "window_start", "at", "since", "last_time")


@dataclass(frozen=True, slots=True)
class Example:
    """`rows` as the document shows them, times in ns; `event`: its single row by name."""

    name: str
    text: Text
    rows: list[dict[str, Any]]
    event: dict[str, Any]


def texts() -> list[Text]:
    """Every SQL text of the guide."""
    return [trigger_text.read(found["body"]) for found in _BLOCK.finditer(GUIDE.read_text()) if found["kind"] == "sql"]


def examples() -> dict[str, Example]:
    """The worked examples: the first SQL, CSV and JSON block under each numbered heading."""
    parts: dict[str, dict[str, str]] = {}
    for found in _BLOCK.finditer(GUIDE.read_text()):
        if found["title"]:
            parts[found["title"].strip()] = {}
        elif parts:
            list(parts.values())[-1].setdefault(found["kind"], found["body"])
    return {
        name: Example(name, trigger_text.read(own["sql"]), _rows(own["csv"]), _event(own["json"]))
        for name, own in parts.items()
    }


def _rows(text: str) -> list[dict[str, Any]]:
    found = []
    for row in csv.DictReader(text.splitlines()):
        found.append({name: _value(name, value) for name, value in row.items()})
    return found


def _event(text: str) -> dict[str, Any]:
    """Times as ns, dates as days since the epoch text."""
    return {name: nanoseconds(value) if name in _TIMES else value for name, value in json.loads(text).items()}


def _value(name: str, text: str) -> Any:
    if name == "time":
        return nanoseconds(text)
    return text if name == "ticker" else float(text)


def nanoseconds(text: str) -> int:
    """`HH:MM[:SS]` of the first of January 2024, or with its date."""
    whole = text if " " in text else f"{DAY} {text}"
    return round(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp()) * 10**9
