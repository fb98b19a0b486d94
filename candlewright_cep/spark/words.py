"""Splits a Spark SQL text into words, quotes and symbols. Nothing is parsed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Word", "closing", "in_from", "quoted", "words_of"]

_WORD = re.compile(
    r"""
      (?P<space>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<name>[^\W\d]\w*)
    | (?P<number>\d[\w.]*)
    | (?P<symbol><>|!=|<=|>=|.)
    """,
    re.VERBOSE | re.DOTALL,
)


#: Words whose lists are separated by commas, among them FROM.
_BEFORE_LIST = frozenset({"FROM", "SELECT", "BY", "WHERE", "HAVING", "ON", "USING", "WITH", "VALUES"})


@dataclass(frozen=True, slots=True)
class Word:
    """`upper`: the text, in upper case if it is a name; `depth`: how many parentheses surround it (a parenthesis itself
    counts as outside).
    """

    kind: str
    text: str
    upper: str
    start: int
    end: int
    depth: int

    @property
    def name(self) -> str | None:
        """The name that an identifier denotes."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "name" else None


def words_of(text: str) -> list[Word]:
    found: list[Word] = []
    depth = 0
    for match in _WORD.finditer(text):
        kind = match.lastgroup or ""
        if kind == "space":
            continue
        raw = match.group()
        depth -= raw == ")"
        upper = raw.upper() if kind == "name" else raw
        found.append(Word(kind, raw, upper, match.start(), match.end(), depth))
        depth += raw == "("
    return found


def closing(words: Sequence[Word], opening: int) -> int | None:
    depth = words[opening].depth
    return next((i for i in range(opening + 1, len(words)) if words[i].text == ")" and words[i].depth == depth), None)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def in_from(words: Sequence[Word], place: int) -> bool:
    """Whether the comma before this word belongs to a FROM."""
    depth = words[place].depth
    for word in reversed(words[:place]):
        if word.depth < depth:
            return False
        if word.depth == depth and word.upper in _BEFORE_LIST:
            return word.upper == "FROM"
    return False
