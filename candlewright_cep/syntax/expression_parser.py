"""Recursive descent over scalar expressions."""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TypeVar

from candlewright_cep.syntax.reader import RESERVED
from candlewright_cep.syntax.tokens import Position, Token, TokenKind
from candlewright_cep.syntax.tree import (
    CallNode,
    FrameBound,
    Identifier,
    LiteralNode,
    ModeNode,
    NameNode,
    Node,
    OverNode,
    ParameterNode,
    SortItem,
    StarNode,
    WindowNode,
)
from candlewright_cep.syntax.type_parser import TypeReader
from candlewright_cep.times import literal_time, unit_name
from candlewright_cep.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, NULL, STRING, timestamp

_T = TypeVar("_T")
_COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_NO_SUBQUERY = (
    "a subquery inside an expression is not supported",
    "compare with a column that OVER makes, or join it in FROM",
)


#: Aggregates that ORDER BY inside their parentheses, or WITHIN GROUP, turns into ordered lists; and their names.
_LISTS = {"LISTAGG": "STRING_AGG", "STRING_AGG": "STRING_AGG", "ARRAY_AGG": "ARRAY_AGG"}
#: Functions with WITHIN GROUP, and how many other arguments they take.
_ORDERED = {"PERCENTILE_CONT": 1, "PERCENTILE_DISC": 1, "MODE": 0}


class ExpressionReader(TypeReader):
    """Parses scalar expressions. Precedence, lowest first: OR, AND, NOT, predicates, + - ||, * / %, sign, ::."""

    def expression(self) -> Node:
        with self.nested():
            return self._chain("OR", self._conjunction)

    def _conjunction(self) -> Node:
        return self._chain("AND", self._negation)

    def _chain(self, word: str, operand: Callable[[], Node]) -> Node:
        parts = [operand()]
        at = self.at
        while self.accept_words(word):
            parts.append(operand())
        return parts[0] if len(parts) == 1 else CallNode(name=word, arguments=tuple(parts), at=at, is_operator=True)

    def _negation(self) -> Node:
        at = self.at
        if self.accept_words("NOT"):
            with self.nested():
                return CallNode(name="NOT", arguments=(self._negation(),), at=at, is_operator=True)
        return self._predicate()

    def _predicate(self) -> Node:
        left = self._sum()
        while True:
            at = self.at
            if self.is_one_of(_COMPARISONS):
                symbol = _COMPARISONS[self.advance().text]
                if symbol == "=" and self.is_symbol("="):
                    raise at.reject("== is not an operator", "write =")
                left = CallNode(name=symbol, arguments=(left, self._sum()), at=at, is_operator=True)
                continue
            if self.token.kind is not TokenKind.NAME:
                return left
            if self.accept_words("IS"):
                left = self._is(left, at)
                continue
            if self.is_word("ILIKE"):
                raise at.reject("ILIKE is not supported", "write LOWER(side) LIKE 'b%'")
            negated = self.is_word("NOT") and any(self.is_word(word, ahead=1) for word in ("BETWEEN", "IN", "LIKE"))
            if negated:
                self.advance()
            found: Node
            if self.accept_words("BETWEEN"):
                found = self._between(left, at)
            elif self.accept_words("IN"):
                found = CallNode(name="IN", arguments=(left, *self._in_list()), at=at, is_operator=True)
            elif self.accept_words("LIKE"):
                arguments = [left, self._sum()]
                if self.accept_words("ESCAPE"):
                    arguments.append(self._sum())
                found = CallNode(name="LIKE", arguments=tuple(arguments), at=at, is_operator=True)
            else:
                return left
            left = CallNode(name="NOT", arguments=(found,), at=at, is_operator=True) if negated else found

    def _between(self, left: Node, at: Position) -> Node:
        # Both words may also be columns.
        either = any(self.is_word(word) for word in ("SYMMETRIC", "ASYMMETRIC")) and not self.is_word("AND", ahead=1)
        symmetric = either and self.advance().text.upper() == "SYMMETRIC"
        low = self._sum()
        self.expect_words("AND", after="the lower bound of BETWEEN")
        high = self._sum()
        found = CallNode(name="BETWEEN", arguments=(left, low, high), at=at, is_operator=True)
        if not symmetric:
            return found
        return CallNode(
            name="OR",
            arguments=(found, CallNode(name="BETWEEN", arguments=(left, high, low), at=at, is_operator=True)),
            at=at,
            is_operator=True,
        )

    def _is(self, left: Node, at: Position) -> Node:
        negated = self.accept_words("NOT")
        if self.accept_words("NULL"):
            found: Node = CallNode(name="IS NULL", arguments=(left,), at=at, is_operator=True)
        elif self.accept_words("TRUE"):
            found = CallNode(name="IS TRUE", arguments=(left,), at=at, is_operator=True)
        elif self.accept_words("FALSE"):
            inner = CallNode(name="NOT", arguments=(left,), at=at, is_operator=True)
            found = CallNode(name="IS TRUE", arguments=(inner,), at=at, is_operator=True)
        elif self.accept_words("UNKNOWN"):
            found = CallNode(name="IS NULL", arguments=(left,), at=at, is_operator=True)
        elif self.accept_words("DISTINCT", "FROM"):
            found = CallNode(name="IS DISTINCT", arguments=(left, self._sum()), at=at, is_operator=True)
        else:
            raise self.unexpected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM", "IS")
        return CallNode(name="NOT", arguments=(found,), at=at, is_operator=True) if negated else found

    def _in_list(self) -> list[Node]:
        self.expect("(", after="IN")
        if self.is_word("SELECT") or self.is_word("WITH"):
            raise self.token.reject(*_NO_SUBQUERY)
        found = [self.expression()]
        while self.accept(","):
            found.append(self.expression())
        self.expect(")")
        return found

    def _sum(self) -> Node:
        left = self._product()
        links = 0
        while True:
            at = self.at
            if not self.is_one_of(("+", "-", "||")):
                return left
            symbol = self.advance().text
            left = CallNode(name=symbol, arguments=(left, self._product()), at=at, is_operator=True)
            links = self._count_link(links, at)

    def _product(self) -> Node:
        left = self._signed()
        links = 0
        while True:
            at = self.at
            if self.is_symbol("^"):
                raise at.reject("^ is not an operator", "write POWER(price, 2)")
            if not self.is_one_of(("*", "/", "%")):
                return left
            symbol = self.advance().text
            left = CallNode(name=symbol, arguments=(left, self._signed()), at=at, is_operator=True)
            links = self._count_link(links, at)

    def _count_link(self, links: int, at: Position) -> int:
        if links >= self.limits.depth:
            raise at.reject(f"more than {self.limits.depth} operators in one chain")
        return links + 1

    def _signed(self) -> Node:
        at = self.at
        if self.accept("-"):
            with self.nested():
                inner = self._signed()
            if isinstance(inner, LiteralNode) and inner.type.is_numeric and inner.at.column == at.column + 1:
                digits = inner.digits and f"-{inner.digits}"
                return LiteralNode(-inner.value, inner.type, at, digits)
            return CallNode(name="NEGATE", arguments=(inner,), at=at, is_operator=True)
        if self.accept("+"):
            with self.nested():
                return self._signed()
        found = self._primary()
        links = 0
        while True:
            if self.accept("::"):
                found = self.as_type(CallNode(name="CAST", arguments=(found,), at=at, is_operator=True))
            elif self.accept("["):
                found = CallNode(name="ELEMENT_AT", arguments=(found, self.expression()), at=at)
                self.expect("]", after="the place in the array")
            elif self.is_symbol("."):
                found = self._field_of(found)
            elif self.accept_words("AT", "TIME", "ZONE"):
                found = CallNode(name="AT TIME ZONE", arguments=(found, self._primary()), at=at, is_operator=True)
            else:
                return found
            links = self._count_link(links, at)

    def _field_of(self, value: Node) -> Node:
        """Parses `.name` after a value."""
        self.expect(".")
        name = self.identifier("a field after '.'")
        return CallNode(
            name=".", arguments=(value, LiteralNode(name.text, STRING, name.at)), at=name.at, is_operator=True
        )

    # -- primaries ------------------------------------------------------------------------------------------------

    def _primary(self) -> Node:
        token = self.token
        if token.kind is TokenKind.NUMBER:
            return self._number()
        if token.kind is TokenKind.STRING:
            self.advance()
            if len(token.text) > self.limits.literal_characters:
                raise token.reject(f"a text may have at most {self.limits.literal_characters} characters")
            return LiteralNode(token.text, STRING, token.at)
        if token.kind is TokenKind.PARAMETER:
            self.advance()
            return ParameterNode(token.text, token.at)
        if self.accept("("):
            if self.is_word("SELECT") or self.is_word("WITH"):
                raise self.token.reject(*_NO_SUBQUERY)
            inner = self.expression()
            self.expect(")")
            return inner
        if token.kind is TokenKind.QUOTED:
            return self._name_or_call()
        if token.kind is TokenKind.NAME:
            return self._word(token)
        raise self.unexpected("an expression")

    def _array(self) -> Node:
        """Parses ARRAY[1, 2, 3]."""
        at = self.advance().at
        self.expect("[")
        items = [self.expression()]
        while self.accept(","):
            items.append(self.expression())
        self.expect("]", after="the values of the array")
        return CallNode(name="ARRAY", arguments=tuple(items), at=at)

    def _row(self) -> Node:
        """Parses ROW(price, size * 2 AS twice) to alternating names and values of its fields."""
        at = self.advance().at
        self.expect("(")
        parts: list[Node] = []
        while not parts or self.accept(","):
            value = self.expression()
            name = Identifier(f"field{len(parts) // 2 + 1}", False, value.at)
            if self.accept_words("AS"):
                name = self.identifier("a name of a field")
            elif isinstance(value, NameNode):
                name = value.parts[-1]
            parts += [LiteralNode(name.text, STRING, name.at), value]
        self.expect(")", after="the fields of a ROW")
        return CallNode(name="ROW", arguments=tuple(parts), at=at)

    def _number(self) -> Node:
        token = self.advance()
        if token.text.isdigit():
            value = int(token.text) if len(token.text) <= 19 else 2**63
            if value > 2**63 - 1:
                raise token.reject("the number does not fit into 64 bits", "write it with a decimal point")
            return LiteralNode(value, INT if value < 2**31 else BIGINT, token.at)
        if len(token.text) > 400 or not math.isfinite(float(token.text)):
            raise token.reject("the number is too large")
        return LiteralNode(float(Decimal(token.text)), DOUBLE, token.at, token.text)

    def _word(self, token: Token) -> Node:
        word = token.text.upper()
        following = self.peek()
        if word in ("NULL", "TRUE", "FALSE"):
            self.advance()
            if word == "NULL":
                return LiteralNode(None, NULL, token.at)
            return LiteralNode(word == "TRUE", BOOLEAN, token.at)
        if word == "CASE":
            return self._case()
        if word == "ARRAY" and self.is_symbol("[", ahead=1):
            return self._array()
        if word in ("CAST", "TRY_CAST") and self.is_symbol("(", ahead=1):
            return self._cast()
        if word in ("TIMESTAMP", "DATE") and following.kind is TokenKind.STRING:
            self.advance()
            self.advance()
            found = literal_time(following.text, word)
            if found is None:
                raise following.reject(
                    f"'{following.text[:40]}' is not a valid {word.lower()}", "write 2024-01-31 09:30:00.000"
                )
            value, unit = found
            return LiteralNode(value, DATE if word == "DATE" else timestamp(unit), token.at)
        if word == "INTERVAL" and (
            following.kind in (TokenKind.STRING, TokenKind.NUMBER, TokenKind.PARAMETER) or self.is_symbol("-", ahead=1)
        ):
            return self.interval()
        if word in ("RUNNING", "FINAL") and self._starts_operand(following):
            return self._mode(word)
        if word == "EXISTS" and self.is_symbol("(", ahead=1):
            raise token.reject(*_NO_SUBQUERY)
        if word in RESERVED and not (word in ("LEFT", "RIGHT") and self.is_symbol("(", ahead=1)):
            raise self.unexpected("an expression")
        special = _SPECIAL.get(word)
        return special(self) if special is not None and self.is_symbol("(", ahead=1) else self._name_or_call()

    @staticmethod
    def _starts_operand(token: Token) -> bool:
        if token.kind is TokenKind.NAME:
            return token.text.upper() not in RESERVED - {"CASE", "CAST", "NULL"}
        return token.kind is TokenKind.QUOTED or (token.kind is TokenKind.SYMBOL and token.text == "(")

    def _mode(self, word: str) -> Node:
        at = self.advance().at
        with self.nested():
            inner = self._primary()
        if isinstance(inner, CallNode) and not inner.is_operator and inner.mode != "DISTINCT":
            if inner.mode:
                raise at.reject("RUNNING or FINAL occurs twice before one function")
            return CallNode(
                name=inner.name, arguments=inner.arguments, at=inner.at, type=inner.type, mode=word, filter=inner.filter
            )
        return ModeNode(word, inner, at)

    def _case(self) -> Node:
        at = self.advance().at
        subject = None if self.is_word("WHEN") else self.expression()
        arguments: list[Node] = []
        while self.accept_words("WHEN"):
            condition = self.expression()
            if subject is not None:
                condition = CallNode(name="=", arguments=(subject, condition), at=condition.at, is_operator=True)
            self.expect_words("THEN", after="the condition of WHEN")
            arguments += [condition, self.expression()]
        if not arguments:
            raise self.unexpected("WHEN", "CASE")
        arguments.append(self.expression() if self.accept_words("ELSE") else LiteralNode(None, NULL, at))
        if not self.accept_words("END"):
            hint = "write END after the last branch, as in CASE WHEN price > 1 THEN 1 ELSE 0 END"
            raise self.token.reject(f"expected END after the branches of CASE, found {self.token.shown}", hint)
        return CallNode(name="CASE", arguments=tuple(arguments), at=at, is_operator=True)

    def _cast(self) -> Node:
        word = self.advance()
        self.expect("(")
        inner = self.expression()
        self.expect_words("AS", after="the value of CAST")
        found = self.as_type(CallNode(name=word.text.upper(), arguments=(inner,), at=word.at, is_operator=True))
        self.expect(")")
        return found

    def _extract(self) -> Node:
        at = self.advance().at
        self.expect("(")
        field = self.advance()
        self.expect_words("FROM", after="the field of EXTRACT")
        inner = self.expression()
        self.expect(")")
        return CallNode(name="EXTRACT", arguments=(LiteralNode(field.text.upper(), STRING, field.at), inner), at=at)

    def _trim(self) -> Node:
        at = self.advance().at
        self.expect("(")
        name = "TRIM"
        for word, function in (("LEADING", "LTRIM"), ("TRAILING", "RTRIM"), ("BOTH", "TRIM")):
            if self.accept_words(word):
                name = function
        if self.accept_words("FROM"):
            arguments: list[Node] = [self.expression()]
        else:
            arguments = [self.expression()]
            if self.accept_words("FROM"):
                arguments = [self.expression(), arguments[0]]
            elif self.accept(","):
                arguments.append(self.expression())
        self.expect(")")
        return CallNode(name=name, arguments=tuple(arguments), at=at)

    def _substring(self) -> Node:
        at = self.advance().at
        self.expect("(")
        arguments = [self.expression()]
        while self.accept(",") or self.accept_words("FROM") or self.accept_words("FOR"):
            arguments.append(self.expression())
        self.expect(")")
        return CallNode(name="SUBSTRING", arguments=tuple(arguments), at=at)

    def _position(self) -> Node:
        at = self.advance().at
        self.expect("(")
        needle = self._sum()
        if not self.accept_words("IN"):
            self.expect(",", after="the text that POSITION looks for")
        arguments = (self.expression(), needle)
        self.expect(")")
        return CallNode(name="STRPOS", arguments=arguments, at=at)

    def _round_time(self) -> Node:
        word = self.advance()
        self.expect("(")
        arguments = [self.expression()]
        name = "FLOOR" if word.text.upper() == "FLOOR" else "CEIL"
        if self.is_symbol(","):
            digits = f"; TRUNCATE(price, {self.peek().text[:10]}) keeps digits" if self.peek().text.isdigit() else ""
            hint = f"write {name}(price), or {name}(ts TO MINUTE){digits}"
            raise self.token.reject(f"{name} takes one value", hint)
        if self.accept_words("TO"):
            unit_at = self.at
            first = arguments[0]
            if isinstance(first, NameNode) and unit_name(first.parts[-1].text) and not unit_name(self.token.text):
                unit = first.parts[-1].text.upper()
                raise first.at.reject("the unit of time comes last", f"write {name}({self.token.text[:40]} TO {unit})")
            arguments = [LiteralNode(self.unit(), STRING, unit_at), *arguments]
            name = "DATE_TRUNC" if name == "FLOOR" else "DATE_CEIL"
        self.expect(")")
        return CallNode(name=name, arguments=tuple(arguments), at=word.at)

    def _unit_first(self) -> Node:
        word = self.advance()
        self.expect("(")
        arguments: list[Node] = [LiteralNode(self.unit(), STRING, self.at)]
        while self.accept(","):
            arguments.append(self.expression())
        self.expect(")")
        name = {"TIMESTAMPDIFF": "DATE_DIFF", "TIMESTAMPADD": "DATE_ADD"}[word.text.upper()]
        return CallNode(name=name, arguments=tuple(arguments), at=word.at)

    # -- names and calls ------------------------------------------------------------------------------------------

    def _name_or_call(self) -> Node:
        token = self.token
        if token.kind is TokenKind.NAME and self.is_symbol("(", ahead=1):
            return self._call()
        first = Identifier(self.advance().text, token.kind is TokenKind.QUOTED, token.at)
        parts = [first]
        while len(parts) < 2 and self.is_symbol(".") and not self.is_symbol("*", ahead=1):
            self.advance()
            part = self.advance()
            if part.kind not in (TokenKind.NAME, TokenKind.QUOTED):
                raise part.reject(f"expected a column after '.', found {part.shown}")
            parts.append(Identifier(part.text, part.kind is TokenKind.QUOTED, part.at))
        if self.is_symbol("(") and len(parts) > 1:
            raise token.reject("functions have no qualifier")
        name = NameNode(tuple(parts), token.at)
        if self.is_word("OVER") and (self.is_identifier(ahead=1) or self.is_symbol("(", ahead=1)):
            self.advance()
            window = self.window_specification() if self.is_symbol("(") else self.identifier("a window name")
            return OverNode(name, window, token.at)
        return name

    def _call(self) -> Node:
        token = self.advance()
        self.expect("(")
        distinct = self.accept_words("DISTINCT")
        arguments: list[Node] = []
        if self.is_word("SELECT"):
            raise self.token.reject(*_NO_SUBQUERY)
        if not self.is_symbol(")"):
            arguments.append(self._argument())
            while self.accept(","):
                arguments.append(self._argument())
        name = token.text.upper()
        order: tuple[SortItem, ...] = ()
        if self.is_word("ORDER", "BY"):
            if name not in _LISTS:
                hint = f"{', '.join(_LISTS)} have one; MIN_BY and MAX_BY take a value by the order of another"
                raise self.token.reject(f"{token.text[:40]} takes no ORDER BY", hint)
            self.index += 2
            order = self.sort_items()
        if token.text.upper() == "JSON_VALUE" and self.accept_words("RETURNING"):
            value = CallNode(name="JSON_VALUE", arguments=tuple(arguments), at=token.at)
            found = self.as_type(CallNode(name="CAST", arguments=(value,), at=token.at, is_operator=True))
            self.expect(")", after="the type of JSON_VALUE")
            return found
        mode = "DISTINCT" if distinct else self._null_treatment()
        self.expect(")", after=f"the arguments of {token.text}")
        if self.is_word("WITHIN", "GROUP"):
            if name in _LISTS and not order:
                order = self._order_of_group(self.sort_items)
            else:
                arguments = self._within_group(token, arguments)
        if _LISTS.get(name) == "STRING_AGG" and len(arguments) == 1:
            arguments.append(LiteralNode("", STRING, token.at))
        if order:
            if len(arguments) != (1 if name == "ARRAY_AGG" else 2):
                raise token.reject(f"{token.text[:40]} has a wrong number of arguments before its order")
            name, arguments = f"{_LISTS[name]} ORDERED", [*arguments, *_ordering(order)]
        condition = None
        if self.is_word("FILTER") and self.is_symbol("(", ahead=1):
            self.index += 2
            self.expect_words("WHERE", after="FILTER (")
            condition = self.expression()
            self.expect(")", after="the condition of FILTER")
        # Before a parenthesis it belongs to the call around this one: LAG(ABS(x) IGNORE NULLS).
        mode = mode or ("" if self.is_symbol(")", ahead=2) else self._null_treatment())
        call = CallNode(name=name, arguments=tuple(arguments), at=token.at, mode=mode, filter=condition)
        if self.accept_words("OVER"):
            window = self.window_specification() if self.is_symbol("(") else self.identifier("a window name")
            return OverNode(call, window, token.at)
        return call

    def _null_treatment(self) -> str:
        if self.accept_words("IGNORE", "NULLS"):
            return "IGNORE NULLS"
        self.accept_words("RESPECT", "NULLS")
        return ""

    def _within_group(self, function: Token, arguments: list[Node]) -> list[Node]:
        """The ordered value, then the percentile; for descending order, the percentile counts from above."""
        name = function.text.upper()
        if name not in _ORDERED or len(arguments) != _ORDERED[name]:
            raise self.token.reject(
                f"WITHIN GROUP does not belong to {function.text[:40]}", "write PERCENTILE_CONT(0.9) WITHIN GROUP (...)"
            )
        item = self._order_of_group(self.sort_item)
        if not item.descending or name == "MODE":
            return [item.expression, *arguments]
        if name == "PERCENTILE_DISC":
            raise item.at.reject("PERCENTILE_DISC takes an ascending order", "PERCENTILE_CONT takes both")
        rest = CallNode(
            name="-", arguments=(LiteralNode(1.0, DOUBLE, item.at), arguments[0]), at=item.at, is_operator=True
        )
        return [item.expression, rest]

    def _order_of_group(self, parse: Callable[[], _T]) -> _T:
        """Parses WITHIN GROUP (ORDER BY ...)."""
        self.index += 2
        self.expect("(", after="WITHIN GROUP")
        self.expect_words("ORDER", "BY", after="WITHIN GROUP (")
        found = parse()
        self.expect(")", after="the order of WITHIN GROUP")
        return found

    def _argument(self) -> Node:
        at = self.at
        if self.accept("*"):
            return StarNode(None, at)
        if self.is_identifier() and self.is_symbol(".", ahead=1) and self.is_symbol("*", ahead=2):
            qualifier = self.identifier("a name")
            self.index += 2
            return StarNode(qualifier, at)
        return self.expression()

    def window_specification(self) -> WindowNode:
        raise self.token.reject("a window is not possible here")

    def sort_item(self) -> SortItem:
        at = self.at
        expression = self.expression()
        descending = self.accept_words("DESC")
        if not descending:
            self.accept_words("ASC")
        # NULLS LAST is the default in both directions, as in Trino.
        nulls_first = False
        if self.accept_words("NULLS"):
            nulls_first = self.accept_words("FIRST")
            if not nulls_first:
                self.expect_words("LAST", after="NULLS")
        return SortItem(expression, descending, nulls_first, at)

    def sort_items(self) -> tuple[SortItem, ...]:
        found = [self.sort_item()]
        while self.accept(","):
            found.append(self.sort_item())
        return tuple(found)

    def frame_bound(self) -> FrameBound:
        at = self.at
        if self.accept_words("CURRENT", "ROW"):
            return FrameBound("CURRENT ROW", None, at)
        if self.accept_words("UNBOUNDED"):
            if self.accept_words("PRECEDING"):
                return FrameBound("UNBOUNDED PRECEDING", None, at)
            self.expect_words("FOLLOWING", after="UNBOUNDED")
            return FrameBound("UNBOUNDED FOLLOWING", None, at)
        amount = self._sum()
        if self.accept_words("PRECEDING"):
            return FrameBound("PRECEDING", amount, at)
        self.expect_words("FOLLOWING", after="the frame's offset")
        return FrameBound("FOLLOWING", amount, at)


def _ordering(items: Sequence[SortItem]) -> list[Node]:
    """The keys of a list's order, each followed by its direction: 1 for descending, plus 2 for NULLs first."""
    found: list[Node] = []
    for item in items:
        found += [item.expression, LiteralNode(item.descending + 2 * item.nulls_first, INT, item.at)]
    return found


#: Functions whose arguments have a form of their own.
_SPECIAL: dict[str, Callable[[ExpressionReader], Node]] = {
    "EXTRACT": ExpressionReader._extract,
    "TRIM": ExpressionReader._trim,
    "SUBSTRING": ExpressionReader._substring,
    "POSITION": ExpressionReader._position,
    "FLOOR": ExpressionReader._round_time,
    "CEIL": ExpressionReader._round_time,
    "CEILING": ExpressionReader._round_time,
    "TIMESTAMPDIFF": ExpressionReader._unit_first,
    "TIMESTAMPADD": ExpressionReader._unit_first,
    "ROW": ExpressionReader._row,
    "STRUCT": ExpressionReader._row,
}
