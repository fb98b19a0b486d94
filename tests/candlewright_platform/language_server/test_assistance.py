"""What an editor shows for a text, without an editor."""

import random
import re
import time

import pytest

from candlewright_cep.diagnosis import edited
from candlewright_platform.language_server.assistance import (
    canonical,
    completions,
    findings,
    given_beside,
    help_at,
    signature_at,
)
from documentation.trigger_text import Text, read
from tests.conftest import ROOT
from tests.triggers.guide import texts
from triggers.texts.check import INPUTS, TriggerRules
from triggers.texts.language import language

RULES = TriggerRules()
FALL = """-- parameters: limit=3; tickers: BTC/USDT.BINANCE
SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY ts
  MEASURES LAST(D.prise) AS low
  PATTERN (S D+)
  DEFINE D AS price < PREV(price) AND sise > :limit
)
"""


def labels(text: str, line: int, column: int) -> set[str]:
    return {each.label for each in completions(text, line, column, views={"large": ""})}


def test_every_error_has_its_range_and_its_fix() -> None:
    found = findings(FALL, RULES, {})
    lines = FALL.split("\n")
    assert [lines[each.line][each.column : each.end] for each in found.found] == ["prise", "sise"]
    for each in found.found:
        assert each.is_error and each.edit is not None
        assert each.edit.text in edited(FALL, each.edit).split("\n")[each.line]
    assert found.mended == FALL.replace("prise", "price").replace("sise", "size")
    assert findings(found.mended, RULES, {}).found == ()


def test_the_first_line_gives_parameters_and_tickers() -> None:
    given = given_beside(FALL)
    assert (dict(given.parameters), given.tickers) == ({"limit": "3"}, ("BTC/USDT.BINANCE",))
    (missing,) = findings("price > :limit", RULES, {}).found
    assert "limit" in missing.message and (missing.column, missing.end) == (8, 14)


def test_a_warning_is_shown_on_the_first_line_of_the_text() -> None:
    (found,) = findings("-- a comment\n price > 5 AND price < 3", RULES, {}).found
    assert (found.line, found.column, found.is_error) == (1, 1, False)


def cookbook() -> list[Text]:
    pages = (ROOT / "docs" / "cookbook").glob("*.md")
    blocks = (re.findall(r"^```sql\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL) for page in sorted(pages))
    return [read(block) for page in blocks for block in page]


@pytest.mark.parametrize("text", [*texts(), *cookbook()], ids=lambda text: text.sql[:40])
def test_texts_of_the_documents_have_neither_errors_nor_warnings(text: Text) -> None:
    assert findings(text.sql, TriggerRules(idle_ns=1), {}).found == ()


def test_completions_fit_their_position() -> None:
    everywhere = labels("SELECT  FROM ticks", 0, 7)
    assert {"RSI", "GROUP BY", "price", "ticks", "large", "STDDEV"} <= everywhere and "close" not in everywhere
    assert "close" in labels("SELECT  FROM ohlc", 0, 7)
    assert labels("SELECT o. FROM ohlc o", 0, 9) == set(INPUTS["ohlc"].schema.names)
    assert labels(FALL, 5, FALL.split("\n")[5].index(":") + 1) == {"limit"}
    assert {"D"} <= labels(FALL, 3, 11)
    assert {"close", "candle_patterns", "hammer"} <= labels("SELECT  FROM hammer", 0, 7)
    assert "price" not in labels("SELECT  FROM hammer", 0, 7)
    assert {"close", "value", "doji"} <= labels("SELECT h. FROM hammer h", 0, 9)
    (rsi,) = [each for each in completions("", 0, 0, views={}) if each.label == "RSI"]
    assert rsi.detail == "RSI(x, n)" and "Wilder" in rsi.text


@pytest.mark.parametrize(
    ("line", "word", "wanted"),
    [
        (5, "PREV", "PREV(x, n)"),
        (2, "PARTITION", "rows with equal values belong together"),
        (1, "MATCH_RECOGNIZE", "sequences of rows"),
        (5, "price", "price of the trade"),
        (5, "limit", "parameter `limit`: `3`"),
        (3, "low", None),
    ],
)
def test_help_describes_the_word_under_the_cursor(line: int, word: str, wanted: str | None) -> None:
    found = help_at(FALL, line, FALL.split("\n")[line].index(word) + 1)
    assert (found is None) if wanted is None else (found is not None and wanted in found.text)


def test_help_describes_a_built_in_view() -> None:
    found = help_at("SELECT * FROM hammer", 0, 16)
    assert found is not None and "a small body over a long lower shadow" in found.text


def test_a_text_that_cannot_be_read_keeps_its_layout() -> None:
    assert canonical("select price from ticks") == "SELECT price\nFROM ticks\n"
    assert canonical("SELECT (") is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 30_000,
        "price > 1 AND " * 4_000,
        "x" * 65_536,
        "'" * 65_535,
        "prise + " * 8_000 + "1",
        "-- parameters: " + "a=1," * 10_000 + "\nprice > 1",
        "\n" * 65_000 + "prise",
        "\ud800 \x00 é😀 price",
        "SELECT * FROM ticks MATCH_RECOGNIZE (PATTERN (" + "A? " * 15_000 + "))",
    ],
    ids=range(9),
)
def test_hostile_texts_are_answered_soon(text: str) -> None:
    began = time.process_time()
    found = findings(text, RULES, {})
    assert found.found
    for column in (10, len(text.partition("\n")[0])):
        assert len(completions(text, 0, column, views={})) > 100
        help_at(text, 0, column)
        signature_at(text, 0, column)
    canonical(text)
    assert time.process_time() - began < 4


def test_no_text_makes_the_assistance_fail() -> None:
    chance = random.Random(7)
    pieces = [
        "SELECT",
        "FROM",
        "ticks",
        "price",
        "(",
        ")",
        "'",
        '"',
        "😀",
        ":a",
        "\n",
        " ",
        "--",
        "/*",
        "AND",
        ">",
        "1",
    ]
    for _ in range(300):
        text = "".join(chance.choice(pieces) + chance.choice(["", " "]) for _ in range(chance.randint(1, 12)))
        lines = text.split("\n")
        for each in findings(text, RULES, {}).found:
            assert 0 <= each.line < len(lines) and 0 <= each.column <= each.end <= len(lines[each.line])
        line = chance.randrange(len(lines))
        column = chance.randint(0, len(lines[line]))
        completions(text, line, column, views={})
        help_at(text, line, column)


@pytest.mark.parametrize(
    ("before", "label", "active"),
    [
        ("EMA(", "EMA(x, n)", "x"),
        ("EMA((close + open) / 2, ", "EMA(x, n)", "n"),
        ("EMA((close + ", "EMA(x, n)", "x"),
        ("EMA(x, 3, ", "EMA(x, n)", None),
        ("bollinger_upper(EMA(close, 3), 20, ", "BOLLINGER_UPPER(x, n, k)", "k"),
        ("bollinger_upper(EMA(close, ", "EMA(x, n)", "n"),
        ("COALESCE(a, b, c, ", "COALESCE(a, b, …)", "…"),
        ("COALESCE(a, 'x, (y', \n-- EMA(\n", "COALESCE(a, b, …)", "…"),
        ("ARRAY_CONTAINS(ARRAY[1, 2], ", "ARRAY_CONTAINS(array, x)", "x"),
        ("ARRAY_CONTAINS(ARRAY[1, 2", "ARRAY_CONTAINS(array, x)", "array"),
        ("IF(side IN ('buy', ", "IF(condition, then, else)", "condition"),
        ("GROUP BY TUMBLE(ts, ", "TUMBLE(time, size)", "size"),
        ("CAST(", "CAST(x AS type)", "x AS type"),
        ("SUM(size) OVER (PARTITION BY ", None, None),
        ("EMA(close, 3)", None, None),
        ("price > (", None, None),
        ("CLASSIFIER(", "CLASSIFIER()", None),
        ("TABLE(", "TABLE(TUMBLE(TABLE t, DESCRIPTOR(time), size))", None),
        ("'EMA(", None, None),
        (")) , EMA(", "EMA(x, n)", "x"),
    ],
)
def test_a_signature_is_that_of_the_innermost_call(before: str, label: str | None, active: str | None) -> None:
    line, column = before.count("\n"), len(before) - before.rfind("\n") - 1
    found = signature_at(before + "1) > 2, EMA(", line, column)
    if found is None:
        assert label is None
        return
    assert found.label == label and found.text
    shown = None if found.active is None else found.label[slice(*found.parameters[found.active])]
    assert shown == active


def test_every_signature_has_parameters() -> None:
    for each in language()["functions"]:
        found = signature_at(f"{each['name']}(", 0, 100)
        assert found is not None and found.label == each["signature"]
        inner = each["signature"].partition("(")[2].partition(")")[0]
        assert [found.label[slice(*place)] for place in found.parameters] == [
            part for part in inner.split(", ") if part
        ]
