"""Which messages a subscription matches: tags, or a condition over properties in a subset of SQL92.

Property values are text. A comparison with a number converts the text to a number. It is unknown if the text is not
numeric or the property is missing, and a message for which the whole condition is unknown does not match.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from gateways.rocketmq.door.status import INVALID_ARGUMENT, Refused
from gateways.rocketmq.messages.messages import KEYS, TAG
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition

MAX_TEXT = 8 << 10
_MAX_DEPTH = 64

Properties = Mapping[str, str]
Filter = Callable[[definition.Message], bool]
#: True, False, or None for unknown.
_Condition = Callable[[Properties], bool | None]
_Value = str | float | bool | None
_Operand = Callable[[Properties], _Value]


def filter_of(expression: definition.FilterExpression) -> Filter:
    """Raises Refused INVALID_ARGUMENT, with the position of the mistake."""
    return _filter(expression.type, expression.expression)


# A filter of the largest size takes a megabyte.
@lru_cache(maxsize=128)
def _filter(kind: int, text: str) -> Filter:
    if len(text) > MAX_TEXT:
        raise Refused(INVALID_ARGUMENT, f"the filter has {len(text)} characters; {MAX_TEXT} are allowed")
    if kind == definition.TAG:
        return _tags(text)
    if kind != definition.SQL:
        raise Refused(INVALID_ARGUMENT, f"unknown filter type {kind}")
    if not text.strip():
        raise Refused(INVALID_ARGUMENT, "the SQL filter is empty")
    condition = _Parser(text).condition()

    def accepts(message: definition.Message) -> bool:
        return condition(_properties(message)) is True

    return accepts


def _tags(text: str) -> Filter:
    if text.strip() in ("", "*"):
        return lambda message: True
    wanted = frozenset(tag.strip() for tag in text.split("||"))
    if "" in wanted or any("|" in tag for tag in wanted):
        raise Refused(INVALID_ARGUMENT, f"{text[:80]!r} is not a list of tags separated by ||")
    if "*" in wanted:
        return lambda message: True
    return lambda message: message.system_attribute.tag in wanted


def _properties(message: definition.Message) -> Properties:
    system = message.system_attribute
    found = dict(message.user_attribute)
    if system.tag:
        found[TAG] = system.tag
    if system.keys:
        found[KEYS] = " ".join(system.keys)
    return found


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """In capitals if it may be a keyword."""
        return self.text.upper() if self.kind == "name" else ""


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w$])
    | (?P<text>'(?:[^']|'')*')
    | (?P<name>[A-Za-z_$][\w$.-]*)
    | (?P<symbol><>|!=|<=|>=|[=<>(),+-])
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)
#: A number in a property; Python accepts more.
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_KEYWORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "LIKE", "CONTAINS"})
_ORDERED = {"<", "<=", ">", ">="}


def _tokens(text: str) -> list[_Token]:
    found = []
    at = 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            place = at + len(text[at:]) - len(text[at:].lstrip())
            raise Refused(INVALID_ARGUMENT, f"SQL filter, column {place + 1}: {text[place]!r} has no meaning here")
        kind = match.lastgroup or ""
        found.append(_Token(kind, match.group(kind), match.start(kind) + 1))
        if kind == "end":
            return found
        at = match.end()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._index = 0
        self._depth = 0

    def condition(self) -> _Condition:
        """Parse the whole text."""
        found = self._any()
        if self._next.kind != "end":
            raise self._wrong("the end of the condition")
        return found

    def _any(self) -> _Condition:
        parts = [self._all()]
        while self._takes_word("OR"):
            parts.append(self._all())
        return _joined(parts, decisive=True)

    def _all(self) -> _Condition:
        parts = [self._negation()]
        while self._takes_word("AND"):
            parts.append(self._negation())
        return _joined(parts, decisive=False)

    def _negation(self) -> _Condition:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise Refused(INVALID_ARGUMENT, "SQL filter: nested too deeply")
        try:
            if self._takes_word("NOT"):
                return _not(self._negation())
            if self._takes("("):
                found = self._any()
                self._expect(")")
                return found
            return self._predicate()
        finally:
            self._depth -= 1

    def _predicate(self) -> _Condition:
        token = self._next
        left, constant = self._operand()
        if self._takes_word("IS"):
            is_negated = self._takes_word("NOT")
            self._expect_word("NULL")
            return lambda properties: (left(properties) is None) is not is_negated
        is_negated = self._takes_word("NOT")
        if self._takes_word("BETWEEN"):
            low, _ = self._operand()
            self._expect_word("AND")
            high, _ = self._operand()
            bounds = [_comparison(left, ">=", low), _comparison(left, "<=", high)]
            found = _joined(bounds, decisive=False)
        elif self._takes_word("IN"):
            found = self._membership(left)
        elif is_negated:
            raise self._wrong("BETWEEN or IN")
        elif self._next.kind == "symbol" and self._next.text in ("=", "<>", "!=", *_ORDERED):
            sign = self._take().text
            right, _ = self._operand()
            return _comparison(left, "<>" if sign == "!=" else sign, right)
        elif isinstance(constant, bool) or (constant is None and token.kind == "name" and token.word != "NULL"):
            # TRUE, FALSE, or a property with one of these values.
            return lambda properties: _as_boolean(left(properties))
        else:
            raise self._wrong("a comparison")
        return _not(found) if is_negated else found

    def _membership(self, left: _Operand) -> _Condition:
        self._expect("(")
        choices = [_comparison(left, "=", self._operand()[0])]
        while self._takes(","):
            choices.append(_comparison(left, "=", self._operand()[0]))
        self._expect(")")
        return _joined(choices, decisive=True)

    def _operand(self) -> tuple[_Operand, _Value]:
        """The operand, with its value if it is constant."""
        sign = 1.0
        while self._next.kind == "symbol" and self._next.text in "+-":
            sign = -sign if self._take().text == "-" else sign
            if self._next.kind != "number":
                raise self._wrong("a number")
        token = self._take()
        value: _Value
        if token.kind == "number":
            value = sign * float(token.text)
        elif token.kind == "text":
            value = token.text[1:-1].replace("''", "'")
        elif token.word in ("TRUE", "FALSE"):
            value = token.word == "TRUE"
        elif token.kind == "name" and token.word not in _KEYWORDS:
            name = token.text
            return (lambda properties: properties.get(name)), None
        else:
            self._index -= 1
            raise self._wrong("a property, a number, a text, TRUE or FALSE")
        return (lambda properties: value), value

    @property
    def _next(self) -> _Token:
        return self._tokens[self._index]

    def _take(self) -> _Token:
        self._index += 1
        return self._tokens[self._index - 1] if self._tokens[self._index - 1].kind != "end" else self._end()

    def _end(self) -> _Token:
        self._index -= 1
        raise self._wrong("more text")

    def _takes(self, symbol: str) -> bool:
        is_there = self._next.kind == "symbol" and self._next.text == symbol
        self._index += is_there
        return is_there

    def _takes_word(self, word: str) -> bool:
        is_there = self._next.word == word
        self._index += is_there
        return is_there

    def _expect(self, symbol: str) -> None:
        if not self._takes(symbol):
            raise self._wrong(symbol)

    def _expect_word(self, word: str) -> None:
        if not self._takes_word(word):
            raise self._wrong(word)

    def _wrong(self, wanted: str) -> Refused:
        token = self._next
        found = "the end of the text" if token.kind == "end" else repr(token.text[:40])
        return Refused(INVALID_ARGUMENT, f"SQL filter, column {token.at}: expected {wanted}, found {found}")


def _joined(parts: Sequence[_Condition], *, decisive: bool) -> _Condition:
    """All of them if False decides, any of them if True does. A loop, because there may be a thousand."""
    if len(parts) == 1:
        return parts[0]

    def found(properties: Properties) -> bool | None:
        outcome: bool | None = not decisive
        for part in parts:
            value = part(properties)
            if value is decisive:
                return decisive
            if value is None:
                outcome = None
        return outcome

    return found


def _not(inner: _Condition) -> _Condition:
    def found(properties: Properties) -> bool | None:
        value = inner(properties)
        return None if value is None else not value

    return found


def _comparison(left: _Operand, sign: str, right: _Operand) -> _Condition:
    def found(properties: Properties) -> bool | None:
        return _compare(left(properties), sign, right(properties))

    return found


def _compare(left: _Value, sign: str, right: _Value) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, bool) or isinstance(right, bool):
        first, second = _as_boolean(left), _as_boolean(right)
        if first is None or second is None or sign in _ORDERED:
            return None
        return (first == second) is (sign == "=")
    # Two texts have an order only if both are numbers; they are equal if they are the same text.
    if sign in _ORDERED or isinstance(left, float) or isinstance(right, float):
        low, high = _as_number(left), _as_number(right)
        if low is None or high is None:
            return None
        return {"=": low == high, "<>": low != high, "<": low < high, "<=": low <= high, ">": low > high}.get(
            sign, low >= high
        )
    return (left == right) is (sign == "=")


def _as_number(value: str | float) -> float | None:
    return float(value) if isinstance(value, float) or _NUMBER.fullmatch(value) else None


def _as_boolean(value: _Value) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return value if isinstance(value, bool) else None
