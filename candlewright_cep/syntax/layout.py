"""Formats a text in its canonical layout: one clause per line, long lists one item per line, key words in capitals.

Only white space and the case of key words change. Comments stay next to what they describe.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from candlewright_cep.limits import DEFAULT, Limits
from candlewright_cep.syntax.reader import RESERVED
from candlewright_cep.syntax.tokens import Token, TokenKind, tokenize

__all__ = ["formatted"]

WIDTH = 100
_STEP = "  "
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
#: Words that begin a clause of a query. A word that continues the previous one stays with it: LEFT JOIN, UNION ALL.
_QUERY = frozenset(
    "SELECT FROM WHERE GROUP HAVING QUALIFY WINDOW ORDER LIMIT OFFSET FETCH UNION INTERSECT EXCEPT WITH".split()  # noqa: SIM905
)
_BEFORE_JOIN = frozenset({"INNER", "LEFT", "RIGHT", "FULL", "CROSS", "ASOF", "NATURAL", "OUTER"})
#: Words that begin a clause of MATCH_RECOGNIZE, each with the words that may follow.
_PATTERN = {
    "PARTITION": ("BY",),
    "ORDER": ("BY",),
    "MEASURES": (),
    "ONE": ("ROW",),
    "ALL": ("ROWS",),
    "AFTER": ("MATCH",),
    "PATTERN": ("(",),
    "SUBSET": (),
    "DEFINE": (),
}
_PATTERN_WORDS = frozenset(
    "BY ROW ROWS PER MATCH SKIP PAST LAST FIRST NEXT TO WITH UNMATCHED TIMEOUT SHOW OMIT EMPTY MATCHES".split()  # noqa: SIM905
)
#: Words that begin a part of a window, each with the further key words of that part.
_WINDOW = {
    **dict.fromkeys(("PARTITION", "ORDER"), frozenset({"BY"})),
    **dict.fromkeys(("MEASURES", "INITIAL", "SEEK", "PATTERN", "SUBSET", "DEFINE"), frozenset()),
    **dict.fromkeys(
        ("ROWS", "RANGE", "GROUPS"),
        frozenset("UNBOUNDED CURRENT ROW PRECEDING FOLLOWING EXCLUDE TIES NO OTHERS".split()),  # noqa: SIM905
    ),
    "AFTER": _PATTERN_WORDS,
}
#: What comes after ROWS, RANGE and GROUPS where these are not names.
_FRAME_STARTS = frozenset({"BETWEEN", "UNBOUNDED", "CURRENT", "INTERVAL"})
#: Words that are key words only when they occur together.
_PAIRS = frozenset(
    {("GROUP", "BY"), ("ORDER", "BY"), ("ASOF", "JOIN"), ("WITHIN", "GROUP"), ("WITHIN", "INTERVAL")}
    | {("FROM", "FIRST"), ("FROM", "PREVIOUS"), ("FIRST", "ROW"), ("PREVIOUS", "ROW")}
)
#: Clauses whose commas separate items.
_LISTS = frozenset({"SELECT", "MEASURES", "DEFINE", "WITH", "WINDOW"})
_CONDITIONS = frozenset({"WHERE", "HAVING", "QUALIFY", ""})
#: Words with a space before a parenthesis; other names are functions.
_SPACED = RESERVED - {"CAST"} | {"OVER", "PATTERN", "VALUES", "FILTER", "BY"}
_TIGHT_BEFORE = frozenset({",", ")", "]", ";", ".", "::"})
_TIGHT_BEHIND = frozenset({"(", "[", ".", "::"})
_TIGHT_IN_PATTERN = frozenset({")", ",", "}", "?", "*", "+", "{"})
_NAMES = (TokenKind.NAME, TokenKind.QUOTED)
#: After these, a plus or minus is an operator, not a sign.
_VALUES = (TokenKind.NUMBER, TokenKind.STRING, TokenKind.PARAMETER, TokenKind.QUOTED)


@dataclass(slots=True)
class _Word:
    """A token as it is written, with the comments before it (each on its own line) and after it. `is_sign`: a plus or
    minus that belongs to the following value.
    """

    token: Token
    text: str
    before: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    is_sign: bool = False

    @property
    def upper(self) -> str:
        return self.text.upper() if self.token.kind is TokenKind.NAME else self.text

    @property
    def written(self) -> str:
        return self.upper if self.upper in RESERVED else self.text

    def is_sign_before(self, last: "_Word | None") -> bool:
        if self.text not in ("+", "-") or last is None:
            return self.text in ("+", "-")
        if last.token.kind is TokenKind.SYMBOL:
            return last.text not in (")", "]", "*", "?", "+", "}") or last.is_sign
        return last.token.kind not in _VALUES and last.upper in RESERVED - {"END", "NULL", "TRUE", "FALSE"}


@dataclass(slots=True)
class _Group:
    """The contents of a pair of parentheses. `kind`: query, recognize, pattern, window, or empty for others."""

    opening: _Word
    parts: "list[_Word | _Group]"
    closing: _Word
    kind: str

    @property
    def is_block(self) -> bool:
        return self.kind in ("query", "recognize")


_Part = _Word | _Group


def formatted(text: str, limits: Limits = DEFAULT) -> str:
    """The text in its canonical layout. Raises TriggerRejected for text that cannot be tokenized, or whose parentheses
    do not match.
    """
    words, left = _words(text, limits)
    parts, rest = _grouped(words, 0, "")
    if rest < len(words):
        raise words[rest].token.reject("this parenthesis was not opened")
    lines = _block(parts, "query", "")
    found = "\n".join([*lines, *left]) + "\n"
    # Never change the meaning for a nicer layout.
    return found if _same(text, found, limits) else text


def _same(text: str, other: str, limits: Limits) -> bool:
    one, two = (
        [(token.kind, token.text.upper() if token.kind is TokenKind.NAME else token.text) for token in tokens]
        for tokens in (tokenize(text, limits), tokenize(other, limits))
    )
    return one == two


# -- words and groups -------------------------------------------------------------------------------------------------


def _words(text: str, limits: Limits) -> tuple[list[_Word], list[str]]:
    """The words, and the comments after the last one."""
    tokens = tokenize(text, limits)
    found: list[_Word] = []
    end = 0
    for token, following in pairwise(tokens):
        comments = _comments(text, end, token.start, found)
        written = text[token.start : following.start]
        size = _size(written, token)
        word = _Word(token, written[:size], comments)
        word.is_sign = word.is_sign_before(found[-1] if found else None)
        found.append(word)
        _capitals_of(found)
        end = token.start + size
    return found, _comments(text, end, len(text), found)


def _capitals_of(words: Sequence[_Word]) -> None:
    """Capitalise the last of these words, and those before it, if together they can only be key words."""
    third, last, word = [None, None, *words][-3:]
    assert word is not None
    if last is None:
        return
    pair = last.upper, word.upper
    opens = third is not None and pair == ("PARTITION", "BY") and third.text == "("
    if opens or pair in _PAIRS:
        changed = [last, word]
    elif last.upper == "INTERVAL" and word.token.kind is TokenKind.STRING:
        changed = [last]
    elif third is not None and third.upper == "INTERVAL" and last.token.kind is TokenKind.STRING:
        changed = [word] if word.token.kind is TokenKind.NAME else []
    elif last.upper == "OVER" and third is not None and third.text == ")":
        changed = [last]
    else:
        return
    for each in changed:
        each.text = each.upper


def _size(written: str, token: Token) -> int:
    """The length of the token itself within the text up to the next one."""
    if token.kind in (TokenKind.STRING, TokenKind.QUOTED):
        quote, place = written[0], 1
        while True:
            place = written.index(quote, place) + 1
            if quote == "`" or written[place : place + 1] != quote:
                return place
            place += 1
    if token.kind is TokenKind.PARAMETER:
        return len(token.text) + (3 if written[0] == "$" else 1)
    return len(token.text)


def _comments(text: str, start: int, end: int, found: list[_Word]) -> list[str]:
    """Splits the comments between two words into those that belong before the second word and those after the first."""
    before: list[str] = []
    place = start
    for comment in _COMMENT.finditer(text, start, end):
        is_behind = found and not before and "\n" not in text[place : comment.start()]
        if is_behind and not any(each.startswith("--") for each in found[-1].behind):
            found[-1].behind.append(comment[0].rstrip())
        else:
            before.append(comment[0].rstrip())
        place = comment.end()
    return before


def _grouped(words: Sequence[_Word], place: int, around: str) -> tuple[list[_Part], int]:
    parts: list[_Part] = []
    while place < len(words):
        word = words[place]
        if word.text == ")" and word.token.kind is TokenKind.SYMBOL:
            break
        place += 1
        if word.text != "(" or word.token.kind is not TokenKind.SYMBOL:
            parts.append(word)
            continue
        kind = _kind(parts, words[place : place + 1], around)
        inner, place = _grouped(words, place, kind)
        if place == len(words):
            raise word.token.reject("this parenthesis has no end")
        if kind == "window":
            _capitals_of_window(inner)
        parts.append(_Group(word, inner, words[place], kind))
        place += 1
    return parts, place


def _kind(before: Sequence[_Part], following: Sequence[_Word], around: str) -> str:
    last = before[-1].upper if before and isinstance(before[-1], _Word) else ""
    # A pattern of MATCH_RECOGNIZE, or of a window.
    if around == "pattern" or last == "PATTERN":
        return "pattern"
    if last == "MATCH_RECOGNIZE":
        return "recognize"
    if last == "OVER" or (last == "AS" and _is_in_window_clause(before)):
        return "window"
    return "query" if following and following[0].upper in ("SELECT", "WITH") else ""


def _is_in_window_clause(parts: Sequence[_Part]) -> bool:
    heads = (part.upper for part in reversed(parts) if isinstance(part, _Word) and part.upper in _QUERY)
    return next(heads, "") == "WINDOW"


def _capitals_of_window(parts: Sequence[_Part]) -> None:
    head = ""
    for place, part in enumerate(parts):
        if not isinstance(part, _Word) or part.token.kind is not TokenKind.NAME:
            continue
        if _begins_part_of_window(parts, place):
            head = part.text = part.upper
        elif part.upper in _WINDOW.get(head, ()):
            part.text = part.upper


def _begins_part_of_window(parts: Sequence[_Part], place: int) -> bool:
    """Whether it is a key word there, and not the name of a column or variable."""
    word = parts[place]
    assert isinstance(word, _Word)
    if word.upper not in _WINDOW:
        return False
    last = parts[place - 1] if place else None
    if isinstance(last, _Word):
        is_open = last.token.kind is TokenKind.SYMBOL or last.upper in RESERVED - {"END", "NULL", "TRUE", "FALSE"}
        if is_open or last.upper in ("BY", "MEASURES", "SUBSET", "DEFINE", "TO"):
            return False
    following = parts[place + 1] if place + 1 < len(parts) else None
    if word.upper == "PATTERN":
        return isinstance(following, _Group)
    if not isinstance(following, _Word):
        return False
    if word.upper in ("ROWS", "RANGE", "GROUPS"):
        is_amount = following.token.kind in (TokenKind.NUMBER, TokenKind.PARAMETER)
        return is_amount or following.upper in _FRAME_STARTS
    return following.token.kind in _NAMES


def _first(parts: Sequence[_Part]) -> str:
    return parts[0].upper if parts and isinstance(parts[0], _Word) else ""


# -- lines ------------------------------------------------------------------------------------------------------------


def _block(parts: Sequence[_Part], kind: str, indent: str) -> list[str]:
    """The lines of a query, of a MATCH_RECOGNIZE, or of a condition."""
    lines: list[str] = []
    for clause in _clauses(parts, kind):
        lines += _clause(clause, kind, indent)
    return lines


def _clauses(parts: Sequence[_Part], kind: str) -> Iterator[list[_Part]]:
    current: list[_Part] = []
    for place, part in enumerate(parts):
        if current and isinstance(part, _Word) and _begins(parts, place, kind):
            yield current
            current = []
        current.append(part)
    if current:
        yield current


def _begins(parts: Sequence[_Part], place: int, kind: str) -> bool:
    part, before = parts[place], parts[place - 1]
    assert isinstance(part, _Word)
    if part.token.kind is not TokenKind.NAME:
        return False
    last = before.upper if isinstance(before, _Word) else ")"
    if last in ("BY", ",", "AS", ".", "DISTINCT", "WITHIN"):
        return False
    following = _first(parts[place + 1 : place + 2]) or "("
    if kind == "recognize":
        wanted = _PATTERN.get(part.upper)
        return wanted is not None and (not wanted or following in wanted)
    if part.upper in ("WITH", "ORDER", "GROUP"):
        # WITH TIES of FETCH; ORDER and GROUP are reserved, and continue with BY.
        return part.upper != "WITH" or last in (")", ";")
    if part.upper == "SELECT" and last in ("UNION", "ALL", "INTERSECT", "EXCEPT"):
        return True
    if part.upper in _QUERY:
        return True
    if part.upper in _BEFORE_JOIN:
        return last not in _BEFORE_JOIN and following in {*_BEFORE_JOIN, "JOIN"}
    return part.upper == "JOIN" and last not in _BEFORE_JOIN


def _clause(parts: list[_Part], kind: str, indent: str) -> list[str]:
    head = _head(parts, kind)
    if kind == "recognize" and parts and isinstance(parts[0], _Word) and parts[0].upper in _PATTERN:
        _capitals(parts, parts[0].upper)
    line = _flat(parts)
    if line is not None and len(indent) + len(line) <= WIDTH:
        return [indent + line]
    if head in _LISTS and len(items := list(_items(parts[1:]))) > 1:
        lines = _wrapped(parts[:1], indent)
        for item in items:
            lines += _wrapped(item, indent + _STEP)
        return lines
    if head in _CONDITIONS:
        return [
            line
            for number, piece in enumerate(_conjuncts(parts))
            for line in _wrapped(piece, indent if number == 0 else indent + _STEP)
        ]
    return _wrapped(parts, indent)


def _head(parts: Sequence[_Part], kind: str) -> str:
    head = _first(parts)
    return head if head in _QUERY or (kind == "recognize" and head in _PATTERN) else ""


def _capitals(parts: Sequence[_Part], head: str) -> None:
    """The capitals of a clause of MATCH_RECOGNIZE, whose words are not reserved elsewhere."""
    only = head not in ("ONE", "ALL", "AFTER")
    for place, part in enumerate(parts):
        if not isinstance(part, _Word) or part.token.kind is not TokenKind.NAME:
            continue
        if place == 0 or (part.upper in _PATTERN_WORDS and (not only or (place == 1 and part.upper == "BY"))):
            part.text = part.upper


def _items(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    item: list[_Part] = []
    for part in parts:
        item.append(part)
        if isinstance(part, _Word) and part.text == "," and part.token.kind is TokenKind.SYMBOL:
            yield item
            item = []
    if item:
        yield item


def _conjuncts(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    piece: list[_Part] = []
    is_between = False
    for part in parts:
        upper = part.upper if isinstance(part, _Word) else ""
        if piece and (upper == "OR" or (upper == "AND" and not is_between)):
            yield piece
            piece = []
        is_between = upper == "BETWEEN" or (is_between and upper != "AND")
        piece.append(part)
    yield piece


class _Lines:
    """Lines under construction."""

    def __init__(self, indent: str) -> None:
        self.indent = indent
        self.lines: list[str] = []
        self._line = ""
        self._last: _Word | None = None

    def put(self, word: _Word, around: str) -> None:
        if word.before:
            self.end_line()
            self.lines.extend(self.indent + comment for comment in word.before)
            self._last = None
        if self._line:
            self._line += _gap(self._last, word, around)
        else:
            self._line = self.indent + (_STEP if self._last is not None else "")
        self._line += word.written
        self._last = word
        for comment in word.behind:
            self._line += f"  {comment}"
            if comment.startswith("--"):
                self._end()

    def put_group(self, group: _Group, around: str) -> None:
        flat = _flat([group])
        if group.is_block and (flat is None or len(self._line) + len(flat) > WIDTH):
            self.put(group.opening, around)
            self.end_line()
            self.lines += _block(group.parts, group.kind, self.indent + _STEP)
            self.put(group.closing, around)
            return
        self.put(group.opening, around)
        self.put_all(group.parts, group.kind)
        self.put(group.closing, group.kind)

    def put_all(self, parts: Sequence[_Part], around: str) -> None:
        for part in parts:
            if isinstance(part, _Group):
                self.put_group(part, around)
            else:
                self.put(part, around)

    def end_line(self) -> None:
        if self._line:
            self._end()
        self._last = None

    def _end(self) -> None:
        self.lines.append(self._line)
        self._line = ""


def _wrapped(parts: Sequence[_Part], indent: str) -> list[str]:
    """As few lines as comments and blocks in parentheses allow."""
    made = _Lines(indent)
    made.put_all(parts, "")
    made.end_line()
    return made.lines


def _flat(parts: Sequence[_Part]) -> str | None:
    """Everything on one line; None if comments or a MATCH_RECOGNIZE prevent that."""
    text = ""
    last: _Word | None = None
    for word, around in _flattened(parts, ""):
        if word is None or word.before or word.behind:
            return None
        text += _gap(last, word, around) + word.written
        last = word
    return text


def _flattened(parts: Sequence[_Part], around: str) -> Iterator[tuple[_Word | None, str]]:
    """The words, each with the group that contains it; None for a MATCH_RECOGNIZE."""
    for part in parts:
        if isinstance(part, _Word):
            yield part, around
        elif part.kind == "recognize":
            yield None, around
        else:
            yield part.opening, around
            yield from _flattened(part.parts, part.kind)
            yield part.closing, part.kind


def _gap(last: _Word | None, word: _Word, around: str) -> str:
    """The white space between two words of a line."""
    if last is None:
        return ""
    one, two = last.text, word.text
    if around == "pattern":
        is_amount = word.token.kind in (TokenKind.NUMBER, TokenKind.PARAMETER)
        is_tight = two in _TIGHT_IN_PATTERN or one in ("(", "{") or (one == "," and is_amount) or one == "PERMUTE"
        return "" if is_tight else " "
    if two in _TIGHT_BEFORE or one in _TIGHT_BEHIND or (last.is_sign and one != two):
        return ""
    if two in ("(", "["):
        return "" if one == "]" or (last.token.kind in _NAMES and last.upper not in _SPACED) else " "
    return " "
