"""The canonical layout of a text."""

import dataclasses
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright_cep import TriggerRejected, formatted
from candlewright_cep.limits import DEFAULT
from candlewright_cep.syntax.query_parser import parse
from candlewright_cep.syntax.tokens import Position
from tests.conftest import ROOT

_COMMENTS = ("-- a note\n", "/* a note */", "\n-- first (\n-- second\n", "\n/* two\n   lines */\n")


def _texts() -> list[str]:
    blocks = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "triggers.md").read_text(), re.DOTALL)
    return [block for block in blocks if _parsed(block) is not None]


def _parsed(text: str) -> Any:
    try:
        return _without_places(parse(text, DEFAULT, {"n": "3", "lot": "5"}))
    except TriggerRejected:
        return None


def _without_places(node: Any) -> Any:
    if isinstance(node, tuple | list):
        return [_without_places(each) for each in node]
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        fields = [(each.name, getattr(node, each.name)) for each in dataclasses.fields(node)]
        return type(node).__name__, [(name, _without_places(value)) for name, value in fields if name != "at"]
    return None if isinstance(node, Position) else node


_TEXTS = _texts()


@given(text=st.sampled_from(_TEXTS), seed=st.integers(0, 10**6), many=st.integers(0, 8))
def test_layout_keeps_meaning_and_comments_and_is_final(text: str, seed: int, many: int) -> None:
    chance = random.Random(seed)
    # Changes the white space of a text without comments, outside its quotes.
    places = [found.start() for found in re.finditer(r"[ \n](?=(?:[^'\"]*['\"][^'\"]*['\"])*[^'\"]*\Z)", text)]
    if "--" not in text and "/*" not in text:
        for place in sorted(chance.sample(places, min(many, len(places))), reverse=True):
            text = text[:place] + " " + chance.choice(_COMMENTS) + " " + text[place + 1 :]
    found = formatted(text)
    assert formatted(found) == found
    assert _parsed(found) == _parsed(text)
    assert found.count("note") == text.count("note")
    assert found.count("-- ") == text.count("-- ")


def test_there_are_texts_to_try() -> None:
    assert len(_TEXTS) > 20


def test_clauses_and_long_lists_get_separate_lines() -> None:
    text = """select ticker, -price - - 5 as p from ticks
    match_recognize (partition by ticker order by ts measures first(ts) as since, last(price) as a_long_name_for_it,
      count(*) as another_long_name after match skip to last b
      pattern (A B+? (C|D){2,3} {- E -}) within interval '5' second from previous row
      define b as price > prev(price), -- rises
      /* falls */ c as price<3) as m where a > 1 and b in (1,2) -- end"""
    assert formatted(text) == (
        """\
SELECT ticker, -price - -5 AS p
FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker
  ORDER BY ts
  MEASURES first(ts) AS since, last(price) AS a_long_name_for_it, count(*) AS another_long_name
  AFTER MATCH SKIP TO LAST b
  PATTERN (A B+? (C | D){2,3} {- E -}) WITHIN INTERVAL '5' SECOND FROM PREVIOUS ROW
  DEFINE
    b AS price > prev(price),  -- rises
    /* falls */
    c AS price < 3
) AS m
WHERE a > 1
  AND b IN (1, 2)  -- end
"""
    )


def test_a_pattern_in_a_window_has_the_layout_of_any_pattern() -> None:
    text = "SELECT COUNT(*) OVER w FROM t WINDOW w AS (ORDER BY ts PATTERN ( A B + C {2,3} ) DEFINE B AS p > 1)"
    assert "(ORDER BY ts PATTERN (A B+ C{2,3}) DEFINE B AS p > 1)" in formatted(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("rows between unbounded preceding and current row", "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"),
        ("order by rows rows :n preceding", "ORDER BY rows ROWS :n PRECEDING"),
        ("base groups 3 preceding exclude no others", "base GROUPS 3 PRECEDING EXCLUDE NO OTHERS"),
        (
            "order by t desc range interval '5' second preceding exclude group",
            "ORDER BY t desc RANGE INTERVAL '5' SECOND PRECEDING EXCLUDE GROUP",
        ),
        ("partition by define, range order by range, current", "PARTITION BY define, range ORDER BY range, current"),
        ("rows", "rows"),
        (
            "order by t measures a.x as range, rows as row rows between current row and 9 following after match skip to"
            " last b seek pattern (a b) subset u = (a, b) define a as pattern > rows and range, b as row",
            "ORDER BY t MEASURES a.x AS range, rows AS row ROWS BETWEEN CURRENT ROW AND 9 FOLLOWING AFTER MATCH SKIP TO"
            " LAST b SEEK PATTERN (a b) SUBSET u = (a, b) DEFINE a AS pattern > rows AND range, b AS row",
        ),
    ],
)
def test_key_words_of_a_window_are_in_capitals_and_names_are_not(text: str, wanted: str) -> None:
    assert f"OVER ({wanted})" in formatted(f"SELECT x OVER ({text}) FROM t")
    found = formatted(f"SELECT x FROM t WINDOW v AS (order by y), w AS ({text})")
    assert f"w AS ({wanted})" in found and "v AS (ORDER BY y)" in found


def test_parentheses_after_as_are_windows_only_in_their_clause() -> None:
    text = "PATTERN (A) DEFINE A AS (rows > 1)"
    assert "DEFINE A AS (rows > 1)" in formatted(f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts {text}) AS m")
    assert "v AS (SELECT rows range FROM t)" in formatted("WITH v AS (SELECT rows range FROM t) SELECT * FROM v")


def test_a_long_condition_is_cut_at_its_ands() -> None:
    text = " and ".join(f"price between {n} and {n + 1}" for n in range(5)) + " or size > 1"
    lines = formatted(text).splitlines()
    assert lines[0] == "price BETWEEN 0 AND 1"
    assert lines[1:] == [*(f"  AND price BETWEEN {n} AND {n + 1}" for n in range(1, 5)), "  OR size > 1"]


@pytest.mark.parametrize(
    ("text", "said"), [("price > (1", "1:9: this parenthesis has no end"), ("a)", "1:2: this par")]
)
def test_parentheses_that_do_not_match_are_refused_in_their_place(text: str, said: str) -> None:
    with pytest.raises(TriggerRejected, match=re.escape(said)):
        formatted(text)
