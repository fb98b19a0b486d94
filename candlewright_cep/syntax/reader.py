"""The base of every parser: a cursor over tokens."""

import difflib
import sys
from collections.abc import Container, Mapping

from candlewright_cep.errors import TriggerRejected
from candlewright_cep.limits import Limits
from candlewright_cep.syntax.tokens import Position, Token, TokenKind, tokenize
from candlewright_cep.syntax.tree import Identifier

# Words that cannot be an unquoted name or alias; all others may be columns, as in most dialects.
RESERVED = frozenset(
    """
    SELECT FROM WHERE GROUP HAVING ORDER LIMIT OFFSET UNION INTERSECT EXCEPT JOIN INNER LEFT RIGHT FULL CROSS ON USING
    AS AND OR NOT IN IS BETWEEN LIKE CASE WHEN THEN ELSE END NULL TRUE FALSE WITH DISTINCT MATCH_RECOGNIZE
    CAST EXISTS NATURAL WINDOW FETCH QUALIFY
    """.split()  # noqa: SIM905
)


# Key words that are suggested for a misspelt word.
KEY_WORDS = """
    SELECT FROM WHERE GROUP HAVING ORDER LIMIT OFFSET UNION JOIN WINDOW MATCH_RECOGNIZE PARTITION MEASURES PATTERN
    SUBSET DEFINE WITHIN AFTER INTERVAL BETWEEN DESCRIPTOR TABLE OVER NEXT FIRST LAST ROWS RANGE PRECEDING FOLLOWING
    UNBOUNDED CURRENT DISTINCT USING BARS EMIT PREVIOUS
    """.split()  # noqa: SIM905

# Further key words, which are neither misspelt nor suggested.
_KNOWN = frozenset(
    """
    ALL ASC BY DESC EMPTY ESCAPE FINAL MATCH MATCHES NULLS OMIT ONE ONLY PAST PER RECOGNIZE ROW RUNNING SHOW SKIP
    TO UNMATCHED
    """.split()  # noqa: SIM905
)
_NO_TYPOS = RESERVED | _KNOWN | frozenset(KEY_WORDS)


#: The levels that a text has without any nesting: the query, and an expression or a pattern in it.
_OWN_LEVELS = 2
#: More tokens than any rule looks ahead after one that it has recognised.
_BEYOND = [""] * 8
#: One level takes up to 15 calls, and Python's default recursion limit does not allow 120 times that.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 5_000))


class Reader:
    """A cursor over the tokens of one text; `depth` bounds recursion. `parameters`: values for quantifiers, which
    determine the pattern; all others are bound later.
    """

    def __init__(self, text: str, limits: Limits, parameters: Mapping[str, str] | None = None) -> None:
        self.text = text
        self.parameters = parameters or {}
        self.limits = limits
        self.tokens = tokenize(text, limits)
        # What the tokens are as key words and as symbols, beyond the end too.
        self._words = [token.text.upper() if token.kind is TokenKind.NAME else "" for token in self.tokens] + _BEYOND
        self._symbols = [token.text if token.kind is TokenKind.SYMBOL else "" for token in self.tokens] + _BEYOND
        self._level = _Level(self)
        self.index = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    @property
    def at(self) -> Position:
        return self.tokens[self.index].at

    def peek(self, ahead: int = 1) -> Token:
        place = self.index + ahead
        return self.tokens[place] if place < len(self.tokens) else self.tokens[-1]

    def advance(self) -> Token:
        found = self.token
        if found.kind is not TokenKind.END:
            self.index += 1
        return found

    def is_word(self, *words: str, ahead: int = 0) -> bool:
        """Whether the tokens from here (or `ahead`) are these key words in sequence."""
        place = self.index + ahead
        for word in words:
            if self._words[place] != word:
                return False
            place += 1
        return True

    def is_symbol(self, symbol: str, ahead: int = 0) -> bool:
        return self._symbols[self.index + ahead] == symbol

    def is_one_of(self, symbols: Container[str]) -> bool:
        return self._symbols[self.index] in symbols

    def accept_words(self, *words: str) -> bool:
        if not self.is_word(*words):
            return False
        self.index += len(words)
        return True

    def accept(self, symbol: str) -> bool:
        if self._symbols[self.index] != symbol:
            return False
        self.index += 1
        return True

    def expect_words(self, *words: str, after: str = "") -> None:
        for word in words:
            if not self.accept_words(word):
                raise self.unexpected(word, after)

    def expect(self, symbol: str, after: str = "") -> None:
        if not self.accept(symbol):
            raise self.unexpected(f"'{symbol}'", after)

    def unexpected(self, wanted: str, after: str = "") -> TriggerRejected:
        behind = f" after {after}" if after else ""
        hint = self.spelling(wanted)
        if not hint and wanted == "')'" and self.token.kind is TokenKind.END:
            hint = self._unclosed()
        if not hint and wanted == "an expression" and self.token.kind is TokenKind.END:
            before = self.tokens[max(0, self.index - 1)]
            hint = "" if before.text == "%" else f"write one after {before.shown}"
        return self.token.reject(f"expected {wanted}{behind}, found {self.token.shown}", hint)

    def _unclosed(self) -> str:
        """Names the innermost parenthesis that is open here."""
        opened: list[Token] = []
        for token in self.tokens[: self.index]:
            if token.kind is TokenKind.SYMBOL and token.text == "(":
                opened.append(token)
            elif token.kind is TokenKind.SYMBOL and token.text == ")" and opened:
                opened.pop()
        if not opened:
            return ""
        return f"write ) to close the parenthesis of line {opened[-1].at.line}, column {opened[-1].at.column}"

    def spelling(self, *wanted: str) -> str:
        """A "did you mean" for a misspelt key word: here, just before (read as an alias), or at the very start."""
        tried = {*(max(0, self.index - back) for back in range(4)), 0}
        for token in (self.tokens[place] for place in sorted(tried, reverse=True)):
            word = token.text.upper()
            if token.kind is not TokenKind.NAME or word in _NO_TYPOS or len(word) > 40:
                continue
            found = difflib.get_close_matches(word, [*wanted, *KEY_WORDS], n=1, cutoff=0.75)
            if found and found[0].isupper():
                return f"did you mean {found[0]} instead of {token.text}?"
        return ""

    def is_identifier(self, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        if token.kind is TokenKind.QUOTED:
            return True
        return token.kind is TokenKind.NAME and token.text.upper() not in RESERVED

    def identifier(self, what: str) -> Identifier:
        if not self.is_identifier():
            raise self._not_a_name(what)
        token = self.advance()
        return Identifier(token.text, token.kind is TokenKind.QUOTED, token.at)

    def _not_a_name(self, what: str) -> TriggerRejected:
        token = self.token
        if token.kind is not TokenKind.NAME:
            return self.unexpected(what)
        hint = self.spelling() or f'{token.text.upper()} is a key word: write "{token.text}", or another name'
        return token.reject(f"expected {what}, found {token.shown}", hint)

    def identifiers(self, what: str) -> tuple[Identifier, ...]:
        """A list in parentheses."""
        self.expect("(")
        found = [self.identifier(what)]
        while self.accept(","):
            found.append(self.identifier(what))
        self.expect(")")
        return tuple(found)

    def nested(self) -> "_Level":
        """One level deeper; raises TriggerRejected beyond the limit."""
        return self._level


class _Level:
    """A context without a generator, which would take a tenth of the time of parsing."""

    __slots__ = ("_reader",)

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __enter__(self) -> None:
        reader = self._reader
        if reader.depth >= reader.limits.depth + _OWN_LEVELS:
            raise reader.token.reject(f"the text is nested deeper than {reader.limits.depth} levels")
        reader.depth += 1

    def __exit__(self, *_: object) -> None:
        self._reader.depth -= 1
