"""Splits text into tokens that know their line and column."""

import enum
import re
from typing import NamedTuple

from candlewright_cep.errors import TriggerRejected
from candlewright_cep.limits import Limits


class TokenKind(enum.Enum):
    NAME = "name"
    QUOTED = "quoted name"
    NUMBER = "number"
    STRING = "string"
    PARAMETER = "parameter"
    SYMBOL = "symbol"
    END = "end of text"


class Position(NamedTuple):
    """A 1-based position in the trigger's text."""

    line: int
    column: int

    def reject(self, message: str, hint: str = "") -> TriggerRejected:
        return TriggerRejected(message, self.line, self.column, hint=hint)


BEGIN = Position(1, 1)


class Token(NamedTuple):
    kind: TokenKind
    text: str
    at: Position
    start: int

    def reject(self, message: str, hint: str = "") -> TriggerRejected:
        return self.at.reject(message, hint)

    @property
    def shown(self) -> str:
        return "the end of the text" if self.kind is TokenKind.END else f"'{self.text[:40]}'"


_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\n]+|--[^\n]*|/\*.*?\*/)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<quoted>"(?:[^"]|"")*"|`[^`]*`)
    | (?P<string>'(?:[^']|'')*')
    | (?P<parameter>\$\{[A-Za-z_][A-Za-z0-9_]*\}|:[A-Za-z_][A-Za-z0-9_]*)
    | (?P<symbol>\{-|-\}|<>|!=|<=|>=|\|\||=>|::|[-+*/%(),.<>=\[\]{}|?^$;])
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS = {
    "number": TokenKind.NUMBER,
    "name": TokenKind.NAME,
    "quoted": TokenKind.QUOTED,
    "string": TokenKind.STRING,
    "parameter": TokenKind.PARAMETER,
    "symbol": TokenKind.SYMBOL,
}
#: Their text is what was written, on one line.
_AS_WRITTEN = ("name", "symbol", "number")


def tokenize(text: str, limits: Limits) -> list[Token]:
    """The tokens of `text`, followed by an END token. Raises TriggerRejected."""
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise TriggerRejected("the text is not valid Unicode") from None
    if size > limits.text_bytes:
        raise TriggerRejected(f"the text has {size} bytes; at most {limits.text_bytes} are allowed")
    tokens: list[Token] = []
    offset, line, line_start, end = 0, 1, 0, len(text)
    while offset < end:
        found = _TOKEN.match(text, offset)
        raw = "" if found is None else found.group()
        if found is None or (raw == "/" and text.startswith("/*", offset)):
            raise _unreadable(text, offset, Position(line, offset - line_start + 1))
        group = found.lastgroup or ""
        if group != "space":
            at = Position(line, offset - line_start + 1)
            tokens.append(Token(_KINDS[group], raw if group in _AS_WRITTEN else _content(group, raw, at), at, offset))
            if len(tokens) > limits.tokens:
                raise at.reject(f"the text has more than {limits.tokens} words and symbols")
        if group not in _AS_WRITTEN and "\n" in raw:
            line += raw.count("\n")
            line_start = offset + raw.rindex("\n") + 1
        offset = found.end()
    tokens.append(Token(TokenKind.END, "", Position(line, offset - line_start + 1), offset))
    return tokens


def split_at_numbers(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The parts of a text between its numbers, one more than there are, and the numbers as they are written."""
    between, numbers, end = [], [], 0
    for found in _TOKEN.finditer(text):
        if found.lastgroup == "number":
            between.append(text[end : found.start()])
            numbers.append(found.group())
            end = found.end()
    return (*between, text[end:]), tuple(numbers)


def _content(group: str, raw: str, at: Position) -> str:
    if group == "string":
        return raw[1:-1].replace("''", "'")
    if group == "parameter":
        return raw[2:-1] if raw.startswith("$") else raw[1:]
    name = raw[1:-1].replace('""', '"')
    if not name or not name.isprintable():
        raise at.reject("a quoted name is empty or contains control characters")
    return name


def _unreadable(text: str, offset: int, at: Position) -> TriggerRejected:
    character = text[offset]
    if character in "'\"`":
        return at.reject(f"the text that starts with {character} has no end", f"write {character} after it")
    if text.startswith("/*", offset):
        return at.reject("the comment has no end")
    if character.isprintable():
        return at.reject(f"the character {character!r} has no meaning here", "write AND" if character == "&" else "")
    return at.reject(f"the text contains the character U+{ord(character):04X}")
