"""Generates the grammar of clients/vscode from the language's own data: run it after a change of the trigger language.

python distributions/vscode.py
"""

import json
import re
from pathlib import Path
from typing import Any

from candlewright_cep.language import functions, keywords, types
from candlewright_cep.times import CALENDAR_UNITS, UNITS

GRAMMAR = Path(__file__).resolve().parents[1] / "clients/vscode/syntaxes/candlewright-trigger.tmLanguage.json"
SCOPE = "source.candlewright-trigger"


def grammar() -> dict[str, Any]:
    """A TextMate grammar whose expressions are also valid in Python."""
    called = _any_of([each.name for each in functions()])
    units = _any_of([*UNITS, *CALENDAR_UNITS])
    words = _any_of([word for word in keywords() if word not in ("TRUE", "FALSE", "NULL")])
    rules = [
        _rule("comment.line.double-dash", r"--.*$"),
        _span("comment.block", r"/\*", r"\*/"),
        _span("string.quoted.single", "'", "'(?!')", escape="''"),
        _span("variable.other.quoted", '"', '"(?!")', escape='""'),
        _rule("variable.parameter", r":[A-Za-z_][A-Za-z0-9_]*|\$\{[A-Za-z_][A-Za-z0-9_]*\}"),
        _rule("constant.numeric", r"(?<![A-Za-z0-9_])(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"),
        _rule("constant.language", r"(?i)\b(?:TRUE|FALSE|NULL)\b"),
        # Names of columns elsewhere.
        _rule(
            "keyword.control", rf"(?i)(?:(?<=' |\d )(?:{units})|(?<=BARS BY )(?:TRADES|VALUE|VOLUME)|(?<=AT )TIME)\b"
        ),
        _rule("support.function", rf"(?i)\b(?:{called})\b(?=\s*\()"),
        _rule("keyword.control", rf"(?i)\b(?:{words})\b"),
        _rule("support.type", rf"(?i)\b(?:{_any_of(types())})\b"),
        _rule("variable.other", r"[A-Za-z_][A-Za-z0-9_]*"),
        _rule("keyword.operator", r"[-+*/%<>=!|?{}^$]+|::"),
    ]
    return {"name": "candlewright trigger", "scopeName": SCOPE, "patterns": rules}


def _any_of(words: list[str]) -> str:
    return "|".join(map(re.escape, words))


def _rule(scope: str, pattern: str) -> dict[str, Any]:
    return {"name": f"{scope}.candlewright-trigger", "match": pattern}


def _span(scope: str, begin: str, end: str, *, escape: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"name": f"{scope}.candlewright-trigger", "begin": begin, "end": end}
    if escape:
        found["patterns"] = [{"name": "constant.character.escape.candlewright-trigger", "match": escape}]
    return found


def written() -> str:
    return json.dumps(grammar(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    GRAMMAR.write_text(written())
