"""Finds queries in the trigger language in a Spark SQL text: each SELECT with a word that only that language has, with
all that is in it.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from candlewright_cep.errors import TriggerRejected
from candlewright_cep.spark.marks import is_mark
from candlewright_cep.spark.words import Word, in_from, quoted, words_of

__all__ = ["Query", "first_query", "renamed", "within"]


@dataclass(kw_only=True, frozen=True, slots=True)
class Query:
    """A query in the trigger language, at `line` and `column` of the whole text. `relations`: the tables as Spark
    knows them, by the one word that `text` has for each, in lower case; `scopes`: as for a clause.
    """

    text: str
    relations: Mapping[str, str]
    scopes: tuple[str, ...]
    line: int
    column: int
    start: int
    end: int

    def rows_of(self, table: str) -> str:
        """The rows of a table that the text names, as a separate query."""
        return within(self.scopes, self.relations.get(table.lower(), quoted(table)))

    def redefines(self, table: str) -> bool:
        """Whether the table may be another one than that of the session with this name."""
        words = [word for scope in self.scopes for word in words_of(scope)]
        defined = {(word.name or "").lower() for word, after in pairwise(words) if after.upper in ("AS", "(")}
        return table in defined or "." in self.relations.get(table, "")

    def for_engine(self) -> str:
        """The text at its original position."""
        return "\n" * (self.line - 1) + " " * (self.column - 1) + self.text


def first_query(words: Sequence[Word], views: Container[str]) -> range | None:
    """The places of the first query in the trigger language that is in no other one. `views`: see `is_mark`."""
    spans = [span for level in _levels(words) if (span := _marked(words, level, views)) is not None]
    outer = [each for each in spans if not any(other.start < each.start < other.stop for other in spans)]
    return min(outer, key=lambda each: each.start, default=None)


def within(scopes: Sequence[str], relation: str) -> str:
    """All rows of a relation that the WITH definitions of several levels surround, outer ones first. Only definitions
    that it names, also through others, are repeated: a chain of views that repeated all of them would double with each.
    """
    found, wanted = f"SELECT * FROM {relation}", _names(words_of(relation))
    for scope in reversed(scopes):
        kept = _needed(scope, wanted)
        if kept:
            inner = f"SELECT * FROM ({found})" if found.startswith("WITH") else found
            found = f"WITH {', '.join(kept)} {inner}"
    return found


def _needed(scope: str, wanted: set[str]) -> list[str]:
    """The definitions of a WITH that `wanted` names, to which the names in them are added."""
    words = words_of(scope)
    if words[1].upper == "RECURSIVE":
        return [scope[words[1].start :]]
    cuts = [place for place, word in enumerate(words) if word.text == "," and word.depth == words[0].depth]
    kept: list[str] = []
    for before, end in reversed([*pairwise([0, *cuts, len(words)])]):
        first, last = words[before + 1], words[end - 1]
        if (first.name or "").lower() in wanted:
            kept.insert(0, scope[first.start : last.end])
            wanted |= _names(words[before + 2 : end])
    return kept


def _names(words: Sequence[Word]) -> set[str]:
    return {word.name.lower() for word in words if word.name is not None}


@dataclass(frozen=True, slots=True)
class _Level:
    """The words of the text, or of a parenthesis that holds a query, with those of nested queries and clauses.
    `own`: the places of its own words.
    """

    depth: int
    own: list[int]


def _levels(words: Sequence[Word]) -> list[_Level]:
    found = [_Level(0, [])]
    # For each open parenthesis the level of the words in it; None in a clause.
    stack: list[_Level | None] = [found[0]]
    for place, word in enumerate(words):
        level = stack[-1]
        if word.text == ")" and len(stack) > 1:
            stack.pop()
            level = stack[-1]
        if level is not None:
            level.own.append(place)
        if word.text == "(":
            if level is not None and place and words[place - 1].upper == "MATCH_RECOGNIZE":
                level = None
            elif level is not None and _opens_query(words, place):
                level = _Level(word.depth + 1, [])
                found.append(level)
            stack.append(level)
    return found


def _opens_query(words: Sequence[Word], place: int) -> bool:
    return place + 1 < len(words) and words[place + 1].upper in ("SELECT", "WITH")


def _marked(words: Sequence[Word], level: _Level, views: Container[str]) -> range | None:
    """The places of the query of a level, from its first SELECT on, if one of its own words is a mark."""
    own = [place for place in level.own if words[place].depth >= level.depth]
    first = next((place for place in own if words[place].upper == "SELECT" and words[place].depth == level.depth), None)
    if first is None or not any(place > first and is_mark(words, place, views) for place in own):
        return None
    rest = range(first, len(words))
    stop = next((place for place in rest if words[place].depth < level.depth or words[place].text == ";"), len(words))
    return range(first, stop)


def renamed(
    text: str, words: Sequence[Word], span: range, *, where: Callable[[int], tuple[int, int]]
) -> tuple[str, dict[str, str]]:
    """The text of a query in which each qualified table is its last name, at the same places; and the relations by that
    name in lower case. Raises TriggerRejected, at the line and column `where` an offset is, for two tables of one name.
    """
    begin, end = words[span.start].start, words[span.stop - 1].end
    known: dict[str, str] = {}
    for place in span:
        if not _is_relation(words, place):
            continue
        last = place
        while last + 2 < span.stop and words[last + 1].text == "." and words[last + 2].name is not None:
            last += 2
        whole = text[words[place].start : words[last].end]
        name = words[last].name or ""
        taken = known.setdefault(name.lower(), whole)
        if taken.lower() != whole.lower():
            message = f"the tables {taken} and {whole} have the same name"
            raise TriggerRejected(message, *where(words[place].start), hint="give one of them another name by WITH")
        text = text[: words[place].start] + words[last].text.ljust(len(whole)) + text[words[last].end :]
    return text[begin:end], known


def _is_relation(words: Sequence[Word], place: int) -> bool:
    """Whether a name stands where a table does: after FROM (not that of EXTRACT or IS DISTINCT FROM), JOIN or TABLE."""
    if place < 2 or words[place].name is None:
        return False
    before, depth = words[place - 1], words[place].depth
    if before.upper in ("JOIN", "TABLE"):
        return True
    if before.upper not in ("FROM", ",") or (before.text == "," and not in_from(words, place)):
        return False
    if words[place - 2].upper == "DISTINCT":
        return False
    opening = next((at for at in range(place - 1, -1, -1) if words[at].depth < depth), None)
    return opening is None or _opens_query(words, opening)
