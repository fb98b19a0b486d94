"""Parses types and intervals."""

from dataclasses import replace

from candlewright_cep.syntax.reader import Reader
from candlewright_cep.syntax.tokens import Token, TokenKind
from candlewright_cep.syntax.tree import CallNode, LiteralNode, Node, ParameterNode
from candlewright_cep.times import UNITS, unit_name
from candlewright_cep.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    MOST_DIGITS,
    STRING,
    SqlType,
    decimal,
    timestamp,
)

TYPES: dict[str, SqlType] = {
    "BOOLEAN": BOOLEAN,
    "TINYINT": INT,
    "SMALLINT": INT,
    "INT": INT,
    "INTEGER": INT,
    "BIGINT": BIGINT,
    "LONG": BIGINT,
    "DOUBLE": DOUBLE,
    "FLOAT": DOUBLE,
    "REAL": DOUBLE,
    "VARCHAR": STRING,
    "CHAR": STRING,
    "STRING": STRING,
    "TEXT": STRING,
    "DATE": DATE,
}
DECIMALS = ("DECIMAL", "NUMERIC")


class TypeReader(Reader):
    """Parses what follows CAST and INTERVAL."""

    def as_type(self, cast: CallNode) -> Node:
        """The CAST to the type at the cursor. VARCHAR(n) truncates to n characters, CHAR(n) also pads to them."""
        at = self.at
        word = self.token.text.upper()
        kind, sizes = self._sized_type()
        found = replace(cast, type=kind)

        def number(value: int) -> LiteralNode:
            return LiteralNode(value, INT, at)

        if word == "VARCHAR" and sizes:
            return CallNode(name="SUBSTRING", arguments=(found, number(1), number(sizes[0])), at=cast.at)
        if word == "CHAR" and sizes:
            return CallNode(name="RPAD", arguments=(found, number(sizes[0]), LiteralNode(" ", STRING, at)), at=cast.at)
        return found

    def _sized_type(self) -> tuple[SqlType, tuple[int, ...]]:
        """A type and the numbers in the parentheses after it."""
        token = self.advance()
        word = token.text.upper()
        if token.kind is not TokenKind.NAME:
            raise token.reject(f"expected a type, found {token.shown}")
        if word.startswith("TIMESTAMP"):
            return self._timestamp_type(), ()
        if word in DECIMALS:
            return self._decimal_type(token), ()
        if word not in TYPES:
            known = ", ".join(sorted({"decimal", *(str(kind) for kind in TYPES.values())}))
            hint = f"the types are {known} and timestamp"
            if word == "TIME":
                hint = "write DATE_FORMAT(ts, 'HH:mm') for the time of day, as a text"
            raise token.reject(f"unknown type '{token.text[:40]}'", hint)
        if word == "DOUBLE":
            self.accept_words("PRECISION")
        return TYPES[word], self._sizes()

    def _sizes(self) -> tuple[int, ...]:
        sizes: list[int] = []
        if self.accept("("):
            sizes.append(self.digits())
            if self.accept(","):
                sizes.append(self.digits())
            self.expect(")")
        return tuple(sizes)

    def _decimal_type(self, token: Token) -> SqlType:
        """A DECIMAL has 38 digits, none of them after the point, unless the type says otherwise."""
        precision, scale, *_ = (*(self._sizes() or (MOST_DIGITS,)), 0)
        if not 1 <= precision <= MOST_DIGITS or scale > precision:
            raise token.reject(
                f"DECIMAL({precision}, {scale}) is not possible",
                f"DECIMAL(p, s) has 1 to {MOST_DIGITS} digits, s of them after the point",
            )
        return decimal(precision, scale)

    def _timestamp_type(self) -> SqlType:
        digits = 3
        if self.accept("("):
            digits = self.digits()
            self.expect(")")
        zone = None
        if self.accept_words("WITH"):
            self.accept_words("LOCAL")
            self.expect_words("TIME", "ZONE")
            zone = "UTC"
        elif self.accept_words("WITHOUT"):
            self.expect_words("TIME", "ZONE")
        return timestamp("s" if digits == 0 else "ms" if digits <= 3 else "us" if digits <= 6 else "ns", zone)

    def digits(self) -> int:
        token = self.advance()
        if token.kind is not TokenKind.NUMBER or not token.text.isdigit() or len(token.text) > 4:
            raise token.reject(f"expected a whole number, found {token.shown}")
        return int(token.text)

    def interval(self) -> Node:
        """Parses INTERVAL '5' SECOND: the amount may be a string, a number or a parameter."""
        at = self.advance().at
        negative = self.accept("-")
        token = self.advance()
        amount: Node
        if token.kind is TokenKind.PARAMETER:
            amount = ParameterNode(token.text, token.at)
        elif token.kind in (TokenKind.STRING, TokenKind.NUMBER):
            amount = LiteralNode(token.text, STRING, token.at)
        else:
            raise token.reject(f"expected an amount after INTERVAL, found {token.shown}", "write INTERVAL '5' SECOND")
        unit = self._unit_of_interval()
        if self.accept_words("TO"):
            unit += " TO " + self._unit_of_interval()
        node = CallNode(name="INTERVAL " + unit, arguments=(amount,), at=at, type=INTERVAL, is_operator=True)
        return CallNode(name="NEGATE", arguments=(node,), at=at, is_operator=True) if negative else node

    def _unit_of_interval(self) -> str:
        """A unit, with an optional precision such as SECOND(3) or DAY(3, 0), which is ignored."""
        unit = self.unit()
        if self.is_symbol("(") and self.peek().kind is TokenKind.NUMBER:
            self.advance()
            self.digits()
            if self.accept(","):
                self.digits()
            self.expect(")")
        return unit

    def unit(self) -> str:
        before = self.tokens[max(0, self.index - 1)]
        token = self.advance()
        unit = unit_name(token.text) if token.kind in (TokenKind.NAME, TokenKind.STRING) else None
        if unit is None:
            # INTERVAL '5 minutes' is a separate slip.
            within = before.kind is TokenKind.STRING and any(map(str.isalpha, before.text))
            hint = "" if within else "one of " + ", ".join(UNITS)
            raise token.reject(f"expected a unit of time, found {token.shown}", hint)
        return unit
