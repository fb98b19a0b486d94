"""The examples of docs/triggers.md, read out of the document."""

import csv
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "triggers.md"
DAY = "2024-01-01"
_BLOCK = re.compile(r"^### \d+\. (?P<title>[^\n]+)$|^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_TIMES = ("time", "open_time", "window_start", "at", "since", "last_time")


@dataclass(frozen=True, slots=True)
class Text:
    """One SQL text with what its first line says is given beside it."""

    sql: str
    parameters: dict[str, str]
    tickers: tuple[str, ...]

    @property
    def period_seconds(self) -> int:
        return int(self.parameters.get("period_seconds", "0"))

    @property
    def input(self) -> str:
        return "ohlc" if self.period_seconds else "ticks"


@dataclass(frozen=True, slots=True)
class Example:
    """`rows` as the document shows them, times in ns; `event`: its one row by name."""

    name: str
    text: Text
    rows: list[dict[str, Any]]
    event: dict[str, Any]


def texts() -> list[Text]:
    """Every SQL text of the guide."""
    return [_text(found["body"]) for found in _BLOCK.finditer(GUIDE.read_text()) if found["kind"] == "sql"]


def examples() -> dict[str, Example]:
    """The worked examples: the first SQL, CSV and JSON block under each numbered heading."""
    parts: dict[str, dict[str, str]] = {}
    for found in _BLOCK.finditer(GUIDE.read_text()):
        if found["title"]:
            parts[found["title"].strip()] = {}
        elif parts:
            list(parts.values())[-1].setdefault(found["kind"], found["body"])
    return {
        name: Example(name, _text(own["sql"]), _rows(own["csv"]), _event(own["json"])) for name, own in parts.items()
    }


def _text(sql: str) -> Text:
    given = {}
    first = sql.partition("\n")[0]
    if first.startswith("--"):
        for part in first.removeprefix("--").split(";"):
            name, _, value = part.partition(":")
            given[name.strip()] = [item.strip() for item in value.split(",")]
    parameters = dict(item.split("=") for item in given.get("parameters", []))
    return Text(sql, parameters, tuple(given.get("tickers", ())))


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
