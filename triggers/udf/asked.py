"""The function that a trigger names, and its options: the parameters `udf` and `udf.OPTION`.

The value of `udf.OPTION` is the arguments of a call as literals, as in SQL: `'text'`, `3`, `3.0`, `TRUE`, `INTERVAL
'10' SECOND`; `,` separates them, `;` separates calls of the same option. An empty value is a call without arguments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby

from candlewright_cep import Limits, TriggerRejected
from candlewright_cep.syntax.tokens import Token, TokenKind, tokenize
from triggers.udf.options import Call, Duration, Value

__all__ = ["FunctionAsked"]

_NAME, _OPTION = "udf", "udf."
_INT64 = 1 << 63
_UNITS = {"MILLISECOND": 10**6, "SECOND": 10**9, "MINUTE": 60 * 10**9, "HOUR": 3_600 * 10**9, "DAY": 86_400 * 10**9}
_HINT = "literals are 'text', 3, 3.0, TRUE and INTERVAL '10' SECOND, with , between them and ; between calls"


@dataclass(frozen=True, slots=True)
class FunctionAsked:
    """`parameters`: those that specify the function."""

    name: str
    calls: tuple[Call, ...]
    parameters: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "FunctionAsked | None":
        """None if the trigger names no function. Raises TriggerRejected for options that are not literals."""
        name = parameters.get(_NAME)
        if name is None:
            return None
        if not name:
            raise TriggerRejected("the parameter udf does not name a function")
        own = sorted((key, text) for key, text in parameters.items() if key == _NAME or key.startswith(_OPTION))
        calls = [call for key, text in own if key != _NAME for call in _calls(key, text)]
        return cls(name, tuple(calls), tuple(own))


def _calls(key: str, text: str) -> list[Call]:
    *tokens, _ = tokenize(text, Limits())
    return [(key.removeprefix(_OPTION), _arguments(key, part)) for part in _split(tokens, ";")]


def _arguments(key: str, tokens: Sequence[Token]) -> tuple[Value, ...]:
    return tuple(_value(key, part) for part in _split(tokens, ",")) if tokens else ()


def _split(tokens: Sequence[Token], symbol: str) -> list[list[Token]]:
    def is_symbol(token: Token) -> bool:
        return token.kind is TokenKind.SYMBOL and token.text == symbol

    found: list[list[Token]] = [[]]
    for is_between, run in groupby(tokens, is_symbol):
        for token in run:
            if is_between:
                found.append([])
            else:
                found[-1].append(token)
    return found


def _value(key: str, tokens: Sequence[Token]) -> Value:
    sign = -1 if tokens and tokens[0].kind is TokenKind.SYMBOL and tokens[0].text == "-" else 1
    rest = tokens[1:] if sign < 0 else tokens
    match [(token.kind, token.text) for token in rest]:
        case [(TokenKind.STRING, text)] if sign > 0:
            return text
        case [(TokenKind.NAME, word)] if sign > 0 and word.upper() in ("TRUE", "FALSE"):
            return word.upper() == "TRUE"
        case [(TokenKind.NUMBER, digits)]:
            if not digits.isdigit():
                return sign * float(digits)
            # Python refuses to convert a number with an absurd number of digits.
            return _whole(key, sign * int(digits[:40]))
        case [(TokenKind.NAME, word), (TokenKind.STRING, text), (TokenKind.NAME, unit)] if (
            sign > 0 and word.upper() == "INTERVAL" and unit.upper() in _UNITS
        ):
            try:
                length = Decimal(text) * _UNITS[unit.upper()]
                is_sane = abs(length) < _INT64
            except ArithmeticError:
                is_sane = False
            if is_sane:
                return Duration(int(length))
            raise TriggerRejected(f"the parameter {key} has an interval that is not a length of time", hint=_HINT)
    raise TriggerRejected(f"the parameter {key} is not a literal of an option", hint=_HINT)


def _whole(key: str, value: int) -> int:
    if not -_INT64 <= value < _INT64:
        raise TriggerRejected(f"the parameter {key} has a number of more than 64 bits")
    return value
