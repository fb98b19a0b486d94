"""The grammar matches the language, and colours every example of the guide."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from candlewright_cep.language import functions, keywords, types
from candlewright_cep.limits import Limits
from candlewright_cep.syntax.tokens import Token, TokenKind, tokenize
from candlewright_cep.times import unit_name
from distributions import vscode
from tests.conftest import ROOT
from tests.triggers.guide import Text, texts

RULES: list[dict[str, Any]] = json.loads(vscode.GRAMMAR.read_text())["patterns"]


def spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and scope, as an editor finds them: the leftmost rule, and the first of those that begin together."""
    at = 0
    while at < len(text):
        found = [(match.start(), number, match) for number, match in enumerate(_next(text, at)) if match]
        if not found:
            return
        start, number, match = min(found, key=lambda each: each[:2])
        end = match.end() if "match" in RULES[number] else _end(RULES[number], text, match.end())
        yield start, end, RULES[number]["name"]
        at = end


def _next(text: str, at: int) -> Iterator["re.Match[str] | None"]:
    for rule in RULES:
        yield re.compile(rule.get("match") or rule["begin"], re.MULTILINE).search(text, at)


def _end(rule: dict[str, Any], text: str, at: int) -> int:
    inner = "|".join(f"(?:{each['match']})" for each in rule.get("patterns", [])) or r"(?!)"
    while True:
        end, skipped = re.compile(rule["end"]).search(text, at), re.compile(inner).search(text, at)
        assert end is not None
        if skipped is None or end.start() <= skipped.start():
            return end.end()
        at = skipped.end()


def test_the_grammar_is_made_of_the_language() -> None:
    assert vscode.GRAMMAR.read_text() == vscode.written(), "python distributions/vscode.py"
    package = json.loads((ROOT / "clients/vscode/package.json").read_text())
    (grammar,) = package["contributes"]["grammars"]
    assert (ROOT / "clients/vscode" / grammar["path"]) == vscode.GRAMMAR
    assert grammar["scopeName"] == vscode.SCOPE
    (entry,) = package["contributes"]["languages"]
    json.loads((ROOT / "clients/vscode" / entry["configuration"]).read_text())


def test_every_word_has_a_colour() -> None:
    calls = {f"{each.name}(" for each in functions()}
    for word in [*keywords(), *types(), *calls]:
        ((_, end, scope),) = spans(word)
        assert end == len(word.rstrip("(")), word
        assert not scope.startswith("variable"), word
        assert scope.startswith("support.function") == (word in calls), word


KINDS = {
    TokenKind.STRING: "string.",
    TokenKind.NUMBER: "constant.numeric",
    TokenKind.PARAMETER: "variable.parameter",
    TokenKind.QUOTED: "variable.other.quoted",
}


@pytest.mark.parametrize("text", texts(), ids=lambda text: text.sql[:40])
def test_examples_of_the_guide_are_read_as_the_engine_reads_them(text: Text) -> None:
    found = {start: (end, scope) for start, end, scope in spans(text.sql)}
    calls = {each.name for each in functions()}
    words = {*keywords(), "TRUE", "FALSE", "NULL"}
    tokens = tokenize(text.sql, Limits())
    before = None
    for token, following in pairwise(tokens):
        if token.kind in KINDS:
            assert found[token.start][1].startswith(KINDS[token.kind]), token
        elif token.kind is TokenKind.NAME:
            end, scope = found[token.start]
            word = token.text.upper()
            assert end == token.start + len(token.text), token
            is_call = word in calls and following.text == "("
            assert scope.startswith("support.function") == is_call, token
            is_word = word in words or (before is not None and is_of_form(before, word))
            assert is_call or scope.startswith(("keyword", "constant.language")) == is_word, token
        before = token


def is_of_form(before: Token, word: str) -> bool:
    """Whether a word that may name a column is a key word after this token."""
    if before.kind in (TokenKind.STRING, TokenKind.NUMBER):
        return unit_name(word) == word
    return (before.text.upper(), word) in {("BY", "VOLUME"), ("BY", "TRADES"), ("BY", "VALUE"), ("AT", "TIME")}


def test_names_of_columns_are_key_words_only_within_their_forms() -> None:
    for text in (
        "SELECT volume AS hour FROM ticks BARS BY VOLUME 5",
        "SELECT ts - INTERVAL '1' HOUR AS time FROM ticks WHERE EXTRACT(DOW FROM ts AT TIME ZONE 'UTC') = 1",
        "SELECT * FROM ohlc WHERE volume > 5",
    ):
        keys = [text[start:end] for start, end, scope in spans(text) if scope.startswith("keyword.control")]
        assert [word for word in keys if word.islower()] == []
        assert {"VOLUME", "HOUR", "TIME"} & set(re.findall(r"\w+", text)) <= set(keys)
